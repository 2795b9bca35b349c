// Requests to the console's own server, which asks the services with this browser's token.

/** What the server, or the lack of one, said. */
export class ApiError extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message || `the console answered with status ${status}`);
    this.status = status;
    this.reason = error.reason ?? "";
    this.violations = error.violations ?? [];
    this.errorId = error.error_id ?? "";
  }
}

let onSignIn = () => {};
/** Who is told when the services ask for a token. */
export function whenSignInIsNeeded(listener) { onSignIn = listener; }

const SECONDS = 60;
const MARK = { "x-podium-console": "1" };

async function ask(path, options = {}, signal = undefined, patience = SECONDS) {
  const timeout = AbortSignal.timeout(patience * 1000);
  let answer;
  try {
    answer = await fetch(path, {
      credentials: "same-origin", ...options,
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const words = error.name === "TimeoutError"
      ? `the console did not answer within ${patience} seconds` : "the console cannot be reached";
    throw new ApiError(0, { error: { message: words } });
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => null);
    if (answer.status === 401 && path !== "/session") onSignIn();
    throw new ApiError(answer.status, body);
  }
  return answer;
}

/** Reads JSON. */
export async function get(path, query = {}, signal = undefined) {
  return (await ask(path + search(query), {}, signal)).json();
}

/** Sends JSON and reads JSON. */
export async function post(path, body = {}, patience = SECONDS) {
  return (await ask(path, send("POST", body), undefined, patience)).json();
}

/** Deletes. */
export async function remove(path) {
  await ask(path, { method: "DELETE", headers: MARK });
}

/** Sends JSON and hands on each line of the answer as it comes. */
export async function* lines(path, body, signal) {
  const answer = await ask(path, send("POST", body), signal, 600);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) {
      const piece = JSON.parse(part);
      if (piece.error) throw new ApiError(0, piece);
      yield piece;
    }
  }
}

/** Server-sent events; returns what ends them. */
export function listen(path, query, handlers) {
  const source = new EventSource(path + search(query));
  for (const [name, handler] of Object.entries(handlers)) {
    if (name === "error" || name === "open") continue;
    source.addEventListener(name, (event) => handler(JSON.parse(event.data)));
  }
  source.addEventListener("problem", (event) => {
    const body = JSON.parse(event.data);
    if (body.status === 401) { source.close(); onSignIn(); }
    handlers.error?.(new ApiError(body.status, body));
  });
  source.addEventListener("open", () => handlers.open?.());
  let again;
  source.addEventListener("error", () => {
    handlers.error?.(new ApiError(0, { error: { message: "the connection is lost; trying again" } }));
    // A browser gives up on an answer that is no stream: a service is away, or takes the token no more.
    if (source.readyState === EventSource.CLOSED && !handlers.ended) again = setTimeout(anew, 3000);
  });
  async function anew() {
    const session = await get("/session").catch(() => null);
    if (handlers.ended) return;
    if (session?.welcome === false) onSignIn();
    else stop = listen(path, query, handlers);
  }
  let stop = () => { clearTimeout(again); source.close(); };
  return () => { handlers.ended = true; clearTimeout(again); source.close(); stop(); };
}

function send(method, body) {
  return { method, headers: { ...MARK, "content-type": "application/json" }, body: JSON.stringify(body) };
}

function search(query) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}
