// Curves by step: the words for each, on whatever page it is drawn. A report has them from the same file.
import { get } from "./api.js";
import { words } from "./format.js";

export const REWARD = "reward_mean";
export const SUCCESS = "success_mean";

// Not imported: a browser of 2024 takes an import of JSON for an error, and shows no page at all.
const KNOWN = new Map(Object.entries(await get("/static/curves.json")));

/** Of many curves those that are shown unasked, in their order. */
export const CURVES = [...KNOWN.keys()];

/** Title and unit of a curve; of one that nobody has words for, its name and where it comes from. */
export function titled(name) {
  const known = KNOWN.get(name);
  return known ? [known.title, known.unit] : [words(name), name.includes("/") ? name.split("/")[0] : ""];
}

/** The title among other words: without a capital, unless it begins with several. */
export function labelled(name) {
  const [title] = titled(name);
  return /^[A-Z]{2}/.test(title) ? title : title.charAt(0).toLowerCase() + title.slice(1);
}
