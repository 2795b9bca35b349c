// The curves of the jobs that this tab has looked at: a second look asks for the new steps alone.
import { get } from "./api.js";

const JOBS = 8;
const kept = new Map();

/** A job's steps by columns. Whoever holds them may push new ones; they are everybody's. */
export async function stepsOf(id, signal) {
  const path = `/api/jobs/${encodeURIComponent(id)}/steps`;
  const known = kept.get(id);
  kept.delete(id);
  let found = null;
  // Points that are means of several steps cannot be added to.
  if (known?.every === 1 && known.numbers.length) {
    const news = await get(path, { after: known.numbers.at(-1) }, signal);
    if (news.every === 1 && known.numbers.length + news.numbers.length === news.total) {
      found = joined(known, news);
    }
  }
  found ??= await get(path, {}, signal);
  kept.set(id, found);
  if (kept.size > JOBS) kept.delete(kept.keys().next().value);
  return found;
}

/** One step more, at the end. */
export function push(steps, step) {
  const length = steps.numbers.length;
  steps.numbers.push(step.number);
  steps.total += 1;
  for (const name of Object.keys(step.metrics)) steps.metrics[name] ??= Array(length).fill(null);
  for (const name of Object.keys(steps.metrics)) steps.metrics[name].push(step.metrics[name] ?? null);
}

function joined(known, news) {
  const metrics = {};
  for (const name of new Set([...Object.keys(known.metrics), ...Object.keys(news.metrics)])) {
    metrics[name] = [...(known.metrics[name] ?? known.numbers.map(() => null)),
      ...(news.metrics[name] ?? news.numbers.map(() => null))];
  }
  return { ...news, metrics, numbers: [...known.numbers, ...news.numbers] };
}
