// The task itself: guess a number with a few hints. Knows nothing of gRPC.
"use strict";

const NAME = "guess_js";
const DESCRIPTION = "Guess a number below 100 in few turns.";
const SPLITS = ["train", "heldout"];

/** The scenarios of a split; data are JSON values. */
function scenarios(split) {
  const [first, last] = split === "train" ? [0, 80] : [80, 100];
  return Array.from({ length: last - first }, (_, place) => ({
    id: `number-${first + place}`,
    split,
    data: { answer: first + place },
  }));
}

/** What the client sent is wrong; `field` says where. */
class Refused extends Error {
  constructor(field, description) {
    super(`${field}: ${description}`);
    this.field = field;
  }
}

class Guess {
  constructor(config) {
    for (const key of Object.keys(config)) {
      if (key !== "hints") throw new Refused(`environment.config.${key}`, "no such option");
    }
    this.hints = config.hints ?? true;
  }

  /** What the model reads first. */
  async reset(scenario, _seed) {
    const answer = scenario.data.answer;
    if (!Number.isInteger(answer)) {
      throw new Refused("scenario.data.answer", `got ${answer}; allowed are whole numbers`);
    }
    this.answer = answer;
    this.nearest = 100;
    return { messages: [{ role: "ROLE_USER", content: "Guess a number below 100." }] };
  }

  /** What the model reads next, a reward, and whether the episode is over. */
  async step(message) {
    const numbers = message.content.match(/\d+/g) ?? [];
    const guess = Number(numbers.at(-1) ?? NaN);
    const right = guess === this.answer;
    if (!Number.isNaN(guess)) {
      this.nearest = Math.min(this.nearest, Math.abs(guess - this.answer));
    }
    const hint = Number.isNaN(guess) ? "say a number" : guess < this.answer ? "higher" : "lower";
    return {
      observation: {
        messages: right ? [] : [{ role: "ROLE_USER", content: this.hints ? hint : "wrong" }],
      },
      reward: right ? 1 : 0,
      terminated: right,
      metrics: { success: right ? 1 : 0 },
      info: { guess: Number.isNaN(guess) ? null : guess },
    };
  }

  /** Asked once at the end, also when the episode was cut: something for having come near. */
  async score() {
    const reward = this.nearest === 0 ? 0 : 0.5 * (1 - this.nearest / 100);
    return { reward, metrics: { nearest: this.nearest }, info: {} };
  }

  async close() {}
}

module.exports = { NAME, DESCRIPTION, SPLITS, scenarios, Guess, Refused };
