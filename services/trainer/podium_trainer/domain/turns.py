"""A trajectory's turns: what each earned, what followed it, and which tokens are its own.

The return of turn k is G_k = r_k + γ G_(k+1): reward-to-go, discounted (R. Sutton and A. Barto,
Reinforcement Learning, 2nd edition, section 13.3).
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass

import numpy as np
from podium.types.v1 import trajectory_pb2

from podium_trainer.domain.advantages import Rewards
from podium_trainer.domain.samples import IntArray


@dataclass(frozen=True)
class Turns:
    """T turns of the policy, in the order of their steps."""

    returns: Rewards
    """[T]; of a trajectory whose rewards are not finite, neither."""
    runs: list[list[tuple[int, int]]]
    """By history with sampled tokens: (turn, trained tokens) of each run of sampled tokens."""

    def spread(self, values: Rewards) -> list[Rewards]:
        """[T] a number a turn → [K] a number a sampled token, by history with such tokens."""
        return [
            np.repeat(values[[turn for turn, _ in runs]], [length for _, length in runs])
            for runs in self.runs
        ]


def read_turns(trajectory: trajectory_pb2.Trajectory, reward: float, discount: float) -> Turns:
    """The turns of a trajectory that earned `reward` as a whole.

    A turn earns what the environment pays from its step to the policy's next turn, whoever acts
    meanwhile, times `environment_weight`; the last one also what `reward` has beyond all steps: a
    judge's score, `score_reward`, a penalty. A turn without a step, which the end of the episode
    cut short or whose client told of none, comes after all that have one.
    """
    steps: dict[str, deque[int]] = defaultdict(deque)
    for number, each in enumerate(trajectory.transitions):
        steps[each.conversation].append(number)
    # Of each run: its step, its length; a history's spans without context between are one turn.
    found: list[list[tuple[int, int]]] = []
    for history in trajectory.histories:
        runs: list[tuple[int, int]] = []
        end = -1
        for span in history.tokens.spans:
            if span.start == end and runs:
                runs[-1] = (runs[-1][0], runs[-1][1] + span.length)
            else:
                left = steps[history.conversation]
                step = left.popleft() if left else len(trajectory.transitions)
                runs.append((step, span.length))
            end = span.start + span.length
        if runs:
            found.append(runs)
    flat = [(step, index) for index, (step, _) in enumerate(run for runs in found for run in runs)]
    order = sorted(range(len(flat)), key=lambda index: flat[index])
    numbers = iter(np.argsort(order).tolist())
    numbered = [[(next(numbers), length) for _, length in runs] for runs in found]
    begins = np.array([flat[index][0] for index in order], np.int64)
    return Turns(_returns(trajectory, begins, reward, discount), numbered)


def _returns(
    trajectory: trajectory_pb2.Trajectory, begins: IntArray, reward: float, discount: float
) -> Rewards:
    weight = trajectory.environment_weight if trajectory.HasField("environment_weight") else 1.0
    # What a client sends may overflow, which makes a return that is not finite and is refused.
    with np.errstate(over="ignore", invalid="ignore"):
        paid = weight * np.array([each.reward for each in trajectory.transitions], np.float64)
        earned = np.zeros(len(begins))
        if not len(begins):
            return earned
        # What is paid before the policy's first turn, to another's, is of none.
        owner = np.searchsorted(begins, np.arange(len(paid)), side="right") - 1
        np.add.at(earned, owner[owner >= 0], paid[owner >= 0])
        earned[-1] += reward - paid.sum()
        for turn in reversed(range(len(earned) - 1)):
            earned[turn] += discount * earned[turn + 1]
    return earned
