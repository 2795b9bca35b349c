"""__NAME__: of a few words, which one is of a given kind?

A task is a class with `scenarios`, `reset` and `step`. Change the three and it is yours; then
`podium env check task.py` plays it without a model, and `podium train task.py` trains on it.
"""

import random

from podium.environments import (
    Agent,
    Environment,
    Message,
    Observation,
    Scenario,
    StepResult,
    assistant,
    user,
)

# The words that are trained on, and others that only measure what was learned.
TRAIN = {
    "animal": "horse tiger rabbit monkey sheep duck snake whale goat wolf eagle shark".split(),
    "colour": "red blue green yellow purple orange pink brown violet silver beige cyan".split(),
    "country": "france china brazil india egypt canada japan spain kenya peru norway iran".split(),
    "number": "two five eight ten eleven twelve thirty forty fifty sixty million six".split(),
}
HELDOUT = {
    "animal": "dog cat lion bear cow pig frog mouse".split(),
    "colour": "black white grey gold maroon turquoise crimson lilac".split(),
    "country": "italy russia mexico sweden poland austria greece cuba".split(),
    "number": "one three four nine fifteen twenty seventy hundred".split(),
}


def ask(words, kind):
    return f"{', '.join(words)}. Which is {'an' if kind[0] in 'aeiou' else 'a'} {kind}?"


# Shown before each question, and never trained on. Without them a small model hardly answers with
# a word at all. The answers stand at every place, twice each: were they mostly at the first, the
# model would learn to repeat the first word, for which it is right in one question of three.
EXAMPLES = [
    message
    for words, kind, answer in (
        (["chair", "london", "jump"], "city", "london"),
        (["bread", "shirt", "piano"], "food", "bread"),
        (["rain", "doctor", "guitar"], "instrument", "guitar"),
        (["teacher", "coat", "summer"], "job", "teacher"),
        (["nose", "truck", "tulip"], "flower", "tulip"),
        (["cheese", "hammer", "knee"], "tool", "hammer"),
    )
    for message in (user(ask(words, kind)), assistant(answer))
]


class Guess(Agent):
    """Says any of the words. `podium eval` compares a policy with it."""

    async def act(self, observation):
        words = observation.state["words"]
        return Message("assistant", random.Random(f"{self.seed} {words}").choice(words))


class Task(Environment):
    """One question, one answer. An instance plays one episode."""

    name = "__NAME__"
    description = "Of a few words, say the one that is of a given kind."
    baselines = {"guess": Guess}

    def scenarios(self, split):
        """The same list at each call. What is held out must not be in `train`."""
        words = TRAIN if split == "train" else HELDOUT
        return [
            Scenario(f"{split}-{kind}-{word}", {"kind": kind, "answer": word})
            for kind, group in words.items()
            for word in group
        ]

    async def reset(self, scenario, seed):
        """What the model reads first. All that is random comes from `seed`, so that the attempts
        at a scenario, which are compared with each other, begin alike."""
        rng = random.Random(f"{scenario.id} {seed}")
        split = TRAIN if scenario.id.startswith("train") else HELDOUT
        kind, self.answer = scenario.data["kind"], scenario.data["answer"]
        kinds = rng.sample([name for name in split if name != kind], 2)
        others = [rng.choice(split[name]) for name in kinds]
        self.words = [self.answer, *others]
        rng.shuffle(self.words)
        question = user(ask(self.words, kind))
        # The model reads the messages; agents without a model, as above, read the state.
        return Observation([*EXAMPLES, question], state={"words": self.words})

    async def step(self, action):
        """What the model's reply earns. Part of the reward is for what leads to the rest of it:
        attempts that all earn the same teach nothing."""
        reply = action.content.strip().strip(".").lower()
        right = reply == self.answer
        reward = 1.0 if right else 0.2 if reply in self.words else 0.0
        return StepResult(
            Observation(),
            reward=reward,
            terminated=True,
            metrics={"success": float(right), "one_word": float(reply in self.words)},
        )
