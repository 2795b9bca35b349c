// One stream of what goes on, for every page of this tab.
import { listen } from "./api.js";

const listeners = new Set();
let last = null;
let stop = null;
let state = () => {};

/** Who is told whether the stream is open. */
export function onConnection(listener) { state = listener; }

/** Tells a listener what goes on, now and whenever it changes; returns what ends it. */
export function follow(listener) {
  listeners.add(listener);
  if (last) listener(last);
  return () => listeners.delete(listener);
}

/** Opens the stream, or opens it anew. */
export function start() {
  stop?.();
  stop = listen("/api/live", {}, {
    open: () => state("live"),
    live: (data) => { last = data; state("live"); for (const each of [...listeners]) each(data); },
    error: (error) => state("lost", error),
  });
}

/** Ends it; nobody is signed in. */
export function end() { stop?.(); stop = null; last = null; state("off"); }
