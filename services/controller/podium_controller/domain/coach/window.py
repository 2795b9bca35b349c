"""The newest steps of a job, read so that a number that is missing or none raises nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median, pvariance

from podium.core.means import MOST_SQUARED, mean_of
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2

LATEST = 3
"""Steps whose mean says how things are now."""
PATIENCE = 5
"""Steps in which a run may begin badly, and learn all the same."""
LEAST_GROUPS = 10
"""As the alert PodiumGroupsWithoutVariance: of fewer groups most may be alike by chance."""
_SOLVED = 0.9
_TREND_STEPS = 20
_LEAST_TREND = 6
_DEVIATIONS = 2.5
_EARLY_GAIN = 0.25
# Half the distance of two normal draws to their standard deviation.
_DEVIATION_OF_MEDIAN = 1.048


@dataclass(frozen=True)
class Finding:
    """Something for which a run cannot learn."""

    reason: str
    says: str
    """What is so, with its numbers."""
    change: str
    """The settings that change it, as the job file names them."""
    over: str
    """What is told when it is so no more."""


class Window:
    """Consecutive steps, oldest first, and the specification of their job."""

    def __init__(self, steps: Sequence[pb.Step], spec: spec_pb2.JobSpec) -> None:
        """Steps of before the job's mix of environments changed are left out.

        So are those in which a client that samples showed the policy what to say: their numbers
        and those of its own attempts say nothing of each other.
        """
        since = _mixed_since(spec, steps[-1].number) if steps else 0
        self.steps = [step for step in steps if step.number >= since and not _was_shown(step, spec)]
        self.spec = spec

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def is_client_driven(self) -> bool:
        """Whether the job's client samples, and not as `rollout` says."""
        return self.spec.HasField("client")

    def newest(self, steps: int, groups: int = 0) -> Window:
        """The newest steps, more of them where these have fewer groups."""
        taken = 0
        for count, step in enumerate(reversed(self.steps), 1):
            taken += groups_of(step)
            if count >= steps and taken >= groups:
                found = Window((), self.spec)
                # None of these is left out: the last one is the same.
                found.steps = self.steps[-count:]
                return found
        return self

    def latest(self) -> Window:
        """The newest steps that say how things are: more of them where a step has few groups."""
        found = self.newest(LATEST, LEAST_GROUPS)
        return found if len(found) <= PATIENCE else self.newest(PATIENCE)

    @property
    def is_enough(self) -> bool:
        """Whether these steps, which are the newest, say how things are."""
        return len(self) >= PATIENCE or (len(self) >= LATEST and self.groups >= LEAST_GROUPS)

    @property
    def groups(self) -> int:
        """Of all steps."""
        return sum(map(groups_of, self.steps))

    def values(self, name: str) -> list[float]:
        """A number of each step that has it, where it is one."""
        return _values(self.steps, name)

    def total(self, *names: str) -> float:
        """The sum of numbers over all steps."""
        return math.fsum(value for name in names for value in self.values(name))

    def share(self, part: str, whole: str) -> float:
        """How much of one number another is, over the steps that have both; 0 without any."""
        pairs = [(number(step, part), number(step, whole)) for step in self.steps]
        known = [(a, b) for a, b in pairs if a is not None and b is not None]
        all_ = math.fsum(b for _, b in known)
        return math.fsum(a for a, _ in known) / all_ if all_ > 0 else 0.0

    def now(self, name: str) -> float | None:
        """The mean of the latest steps; None where too few of them have the number."""
        found = _values(self.steps[-LATEST:], name)
        return mean_of(found) if len(found) >= LATEST else None

    def smooth(self, name: str, steps: int = LATEST) -> list[float]:
        """Means of so many consecutive steps."""
        found = self.values(name)
        return [mean_of(found[i : i + steps]) for i in range(len(found) - steps + 1)]

    @cached_property
    def is_rising(self) -> bool:
        """Whether the mean reward has risen by more than chance: then the run learns."""
        rewards = self.values("reward_mean")[-_TREND_STEPS:]
        half = len(rewards) // 2
        if half < 1:
            return False
        first, second = rewards[:half], rewards[-half:]
        gain = mean_of(second) - mean_of(first)
        if len(rewards) < _LEAST_TREND:
            return gain > _EARLY_GAIN * abs(mean_of(first)) and rewards[-1] > rewards[0]
        error = math.sqrt((pvariance(first) + pvariance(second)) / (half - 1))
        return gain > max(_DEVIATIONS * error, 1e-9)

    @cached_property
    def is_solved(self) -> bool:
        """Whether there is little left to learn: nearly every attempt succeeds.

        Without `success`, rewards between 0 and 1 that are nearly 1 say so, unless a judge
        gives them: one that gives 1 to all is no success.
        """
        success = self.now("success_mean")
        if success is not None:
            return success >= _SOLVED
        rewards, reward = self.values("reward_mean"), self.now("reward_mean")
        if reward is None or self.spec.reward.scorers:
            return False
        return reward >= _SOLVED and min(rewards) >= -1e-6 and max(rewards) <= 1 + 1e-6

    @cached_property
    def fall(self) -> Fall | None:
        """How far the mean reward lies below its best; None where it does not.

        As the alert PodiumRewardCollapse: by more than half of the best and 0.1; and by three
        deviations of a step, while means of five steps seldom lie two apart by chance.
        """
        rewards, means = self.values("reward_mean"), self.smooth("reward_mean", PATIENCE)
        if len(rewards) < 2 * PATIENCE:
            return None
        place = max(range(len(means)), key=means.__getitem__)
        best, last = means[place], means[-1]
        differences = [abs(b - a) for a, b in pairwise(rewards)]
        noise = _DEVIATION_OF_MEDIAN * median(differences)
        if best - last <= max(0.5 * abs(best), 0.1, 3 * noise):
            return None
        told = [step for step in self.steps if number(step, "reward_mean") is not None]
        return Fall(best, last, told[place + PATIENCE - 1].version)


@dataclass(frozen=True)
class Fall:
    """A mean reward that was better."""

    best: float
    last: float
    version: int
    """The one that the best steps left behind."""


def number(step: pb.Step, name: str) -> float | None:
    """A number of a step; None where it has none, or one with which nothing can be reckoned."""
    value = step.metrics.get(name, math.nan)
    return value if abs(value) < MOST_SQUARED else None


def _values(steps: Sequence[pb.Step], name: str) -> list[float]:
    return [value for step in steps if (value := number(step, name)) is not None]


def groups_of(step: pb.Step) -> int:
    """How many groups a step had."""
    return len(step.group_ids)


def percent(share: float) -> str:
    """`72 %`."""
    return f"{100 * share:.0f} %"


def _was_shown(step: pb.Step, spec: spec_pb2.JobSpec) -> bool:
    samples = spec.HasField("client") and not spec.HasField("sft")
    return samples and "trajectories" in step.metrics and "tokens_sampled" not in step.metrics


def _mixed_since(spec: spec_pb2.JobSpec, last: int) -> int:
    """The step with which the job's environments became those of the `last` one."""
    borders = [0]
    for each in spec.environments:
        borders.append(each.from_step)
        if each.HasField("to_step"):
            borders.append(each.to_step + 1)
    return max(border for border in borders if border <= last)
