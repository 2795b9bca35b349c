"""A job's own best episodes, to learn from: their exact tokens, never rendered again."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.sdk.jobs import Jobs
from podium.training.sft.render import Demonstration, demonstration
from podium.types.v1 import trajectory_pb2 as pb

SUCCESS = "success"


@dataclass(frozen=True)
class Chosen:
    """Which of a job's stored training episodes; all rules that are given must hold."""

    job: str
    """The job's id."""
    best: float | None = None
    """The share of them with the highest rewards, above 0 up to 1."""
    min_reward: float | None = None
    """The least reward."""
    successful: bool = False
    """Those whose metric `success` is above 0."""

    def __post_init__(self) -> None:
        """Checks the numbers.

        Raises:
            InvalidArgumentError: one is out of its range, or no rule is given.
        """
        found = []
        if self.best is not None and not 0 < self.best <= 1:
            text = f"got {self.best:g}; allowed are numbers above 0 up to 1"
            found.append(Violation("best", text))
        if self.min_reward is not None and not math.isfinite(self.min_reward):
            found.append(Violation("min_reward", f"got {self.min_reward}; must be finite"))
        if self.best is None and self.min_reward is None and not self.successful:
            text = f"which episodes of {self.job}? Give best, min_reward or successful"
            found.append(Violation("best", text))
        if found:
            raise InvalidArgumentError(violations=found)


async def chosen_rows(
    jobs: Jobs, wanted: Chosen, base_model: str, max_tokens: int
) -> list[Demonstration]:
    """The chosen episodes, the oldest first. Failed and unscored ones are never among them.

    Args:
        base_model: whose tokens theirs must be.
        max_tokens: of the longest history that trains; longer episodes are not chosen.

    Raises:
        NotFoundError: there is no such job.
        InvalidArgumentError: it has another base model.
        FailedPreconditionError: NOTHING_CHOSEN.
    """
    job = await jobs.get(wanted.job)
    if job.spec.base_model != base_model:
        text = (
            f"got {wanted.job}, which trains {job.spec.base_model!r}; its tokens mean something"
            f" else to {base_model!r}"
        )
        raise InvalidArgumentError(violations=[Violation("from_job", text)])
    rewards = {}
    seen = 0
    async for each in jobs.trajectories(wanted.job):
        seen += 1
        if _may_teach(each, max_tokens) and (not wanted.successful or each.metrics[SUCCESS] > 0):
            rewards[each.id] = each.reward
    # A tie goes to the older one.
    order = sorted(rewards, key=lambda name: -rewards[name])
    if wanted.best is not None:
        order = order[: math.ceil(wanted.best * len(order))]
    least = wanted.min_reward
    names = {name for name in order if least is None or rewards[name] >= least}
    if not names:
        raise FailedPreconditionError(
            f"of {seen} episodes that are stored of {wanted.job}, none is chosen: {len(rewards)}"
            f" ended well, have a reward, and fit {max_tokens} tokens",
            reason="NOTHING_CHOSEN",
            metadata={"job_id": wanted.job, "episodes": str(seen)},
        )
    return [row async for row in _read(jobs, wanted.job, names)]


async def _read(jobs: Jobs, job_id: str, names: set[str]) -> AsyncIterator[Demonstration]:
    # Read anew: the rewards of all are small, their tokens are not.
    async for each in jobs.trajectories(job_id):
        if each.id in names:
            yield demonstration(each.id, _histories(each))


def _histories(trajectory: pb.Trajectory) -> list[pb.History]:
    found = []
    for history in trajectory.histories:
        if not history.tokens.spans:
            continue
        made = pb.History()
        made.CopyFrom(history)
        # They are of other weights: what differs from them is no fault of this job's sampler.
        made.tokens.ClearField("logprobs")
        found.append(made)
    return found


def _may_teach(trajectory: pb.Trajectory, max_tokens: int) -> bool:
    ends = [
        history.tokens.spans[-1].start + history.tokens.spans[-1].length - 1
        for history in trajectory.histories
        if history.tokens.spans
    ]
    return (
        trajectory.stop_reason != pb.STOP_REASON_FAILED
        and trajectory.HasField("reward")
        and math.isfinite(trajectory.reward)
        and bool(ends)
        and max(ends) <= max_tokens
    )
