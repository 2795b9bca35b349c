// Curves by step: the words for each, on whatever page it is drawn.
import { words } from "./format.js";

export const REWARD = "reward_mean";
export const SUCCESS = "success_mean";

/** What is behind each name that the product knows: what it is, and its unit or where it comes from. */
const KNOWN = new Map([
  [REWARD, ["Reward", "mean of a step"]],
  [SUCCESS, ["Training success", "mean of a step"]],
  ["train/loss", ["Loss", "the objective's value; near 0 on-policy"]],
  ["train/kl_reference", ["KL to the base model", "nats a token"]],
  ["train/entropy", ["Entropy", "nats a token, of the sampled policy"]],
  ["train/logprob_difference_mean", ["Trainer against sampler", "mean |Δ log-prob| of sampled tokens, nats"]],
  ["train/grad_norm", ["Gradient norm", "before clipping"]],
  ["train/clip_fraction", ["Clipped tokens", "share of trained tokens"]],
  ["tokens_sampled", ["Tokens sampled", "a step"]],
  ["tokens_per_second", ["Sampling rate", "tokens a second in which its episodes ran"]],
  ["staleness_max", ["Staleness", "versions, the oldest group of a step"]],
]);

/** Of many curves those that are shown unasked, in their order. */
export const CURVES = [...KNOWN.keys()];

/** Title and unit of a curve; of one that nobody has words for, its name and where it comes from. */
export function titled(name) {
  return KNOWN.get(name) ?? [words(name), name.includes("/") ? name.split("/")[0] : ""];
}
