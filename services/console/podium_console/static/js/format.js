// Numbers and times for people.

/** Four digits that count; a dash for none. */
export function number(value, digits = 4) {
  if (value === undefined || value === null) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e6) return value.toLocaleString("en");
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

export function percent(value) {
  return value === undefined || value === null ? "–" : `${(value * 100).toFixed(1)} %`;
}

/** 42 s, 3 min, 2 h 5 min */
export function duration(seconds) {
  if (seconds === undefined || seconds === null) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

/** Seconds, of GPUs or of a trainer, in hours. */
export function hours(seconds) {
  return seconds === undefined || seconds === null ? "–" : (seconds / 3600).toFixed(seconds < 36000 ? 2 : 1);
}

/** A cost, in whatever the prices are; a dash where there is no price. */
export function money(value) {
  return value === undefined || value === null ? "–" : value.toFixed(2);
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at ? count.toFixed(1) : count} ${units[at]}`;
}

/** Today's as a time, others with their date. */
export function when(seconds) {
  if (!seconds) return "–";
  const date = new Date(seconds * 1000);
  const day = date.toDateString() === new Date().toDateString() ? undefined : { month: "short", day: "numeric" };
  return date.toLocaleString("en-GB", { ...day, hour: "2-digit", minute: "2-digit", second: day ? undefined : "2-digit" });
}

export function ago(seconds) {
  return seconds ? `${duration(Math.max(0, Date.now() / 1000 - seconds))} ago` : "–";
}

/** `logprob_difference_mean` for people. */
export function words(name) {
  return name.replace(/^(train|seconds)\//, "").replaceAll("_", " ").replaceAll("/", " / ");
}
