"""Findings about groups: what of them trains, and what judges make of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from podium.core import findings, skip_reasons
from podium.core.means import mean_of
from podium.types.v1 import spec_pb2

from podium_controller.domain.coach.window import (
    LATEST,
    LEAST_GROUPS,
    PATIENCE,
    Finding,
    Window,
    groups_of,
    number,
    percent,
)

SKIPPED = "groups_skipped/"
_ZERO_VARIANCE = SKIPPED + skip_reasons.ZERO_VARIANCE
# Groups that train on the KL alone.
_ON_KL_ALONE = "train/zero_variance_groups"
_TOKENS = "train/tokens_trained"

# As the alerts PodiumGroupsWithoutVariance, PodiumGroupsStale and PodiumJudgePositionBias.
_WITHOUT_VARIANCE = 0.8
_STALE = 0.3
_BIAS_DEVIATIONS = 4.0

_SOME_WITHOUT_VARIANCE = 0.5
_MOST_SKIPPED = 0.5
_ONE_SCORE = 0.8
_BIAS = 0.3

# Why groups are skipped: what is said of them, and what helps.
_WHY = {
    skip_reasons.GROUP_OF_ONE: (
        "had a single attempt with a reward",
        "raise rollout.group_size, or read the failures with `podium trajectory list JOB`",
    ),
    skip_reasons.NO_TRAINABLE_TRAJECTORY: (
        "had no attempt that can be trained",
        "raise training.max_row_tokens or rollout.sampling.max_tokens, or set"
        " training.loss.overlong to `train`",
    ),
    skip_reasons.ALL_FAILED: (
        "failed in every attempt",
        "read the failures with `podium trajectory list JOB`",
    ),
    skip_reasons.GROUP_REFUSED: (
        "were refused by the environment",
        "read why with `podium trajectory list JOB`, and mend these scenarios",
    ),
    skip_reasons.ENVIRONMENT_UNAVAILABLE: (
        "had no environment that answers",
        "look at its server, and at how many sessions it has",
    ),
    skip_reasons.EPISODES_LOST: (
        "lost their environment under all attempts",
        "look at why its server ends: its log, its memory",
    ),
    skip_reasons.TEACHER_UNAVAILABLE: (
        "had no answer of the teacher",
        "look at the pool that serves it (distillation.pool)",
    ),
    skip_reasons.TEACHER_ERROR: (
        "had no answer of use of the teacher",
        "name another teacher (distillation.teacher)",
    ),
    skip_reasons.ZERO_VARIANCE: (
        "had no variance",
        "raise rollout.group_size or rollout.sampling.temperature",
    ),
}
_JUDGE_WHY = (
    "got no score of the judges",
    "name another judge or `fallbacks` in reward.scorers, or allow judges more (max_job_tokens)",
)
_OTHERWISE = "look at the attempts with `podium trajectory list JOB`"


def of_groups(window: Window) -> Iterator[Finding]:
    """What is wrong with a job's groups."""
    yield from _variance(window)
    yield from _skipped(window)
    yield from _stale(window)
    yield from _judge(window)


def without_variance(window: Window) -> float:
    """The share of groups whose attempts all had the same reward."""
    same = sum(
        min(
            (number(step, _ZERO_VARIANCE) or 0) + (number(step, _ON_KL_ALONE) or 0), groups_of(step)
        )
        for step in window.steps
    )
    return same / window.groups if window.groups else 0.0


def lost_variance(window: Window) -> int | None:
    """The last step whose groups had variance, where none of the latest has any and all earn less.

    None where it is not so. Whatever its attempts look like now, such a policy could do better.
    """
    latest = window.latest()
    if not latest.is_enough or without_variance(latest) < 1:
        return None
    rewards = latest.values("reward_mean")
    for step in reversed(window.steps[: -len(latest)]):
        one, reward = Window([step], window.spec), number(step, "reward_mean")
        if one.groups and without_variance(one) <= _SOME_WITHOUT_VARIANCE:
            return step.number if rewards and (reward or 0) > max(rewards) else None
    return None


def _variance(window: Window) -> Iterator[Finding]:
    loss = window.spec.training.loss
    if loss.objective == spec_pb2.OBJECTIVE_SUPERVISED or loss.teacher_coefficient:
        return
    latest, recent = window.latest(), window.newest(PATIENCE, LEAST_GROUPS)
    nothing = latest.is_enough and without_variance(latest) == 1
    most = (
        len(recent) >= PATIENCE
        and recent.groups >= LEAST_GROUPS
        and without_variance(recent) > _WITHOUT_VARIANCE
        and not window.is_rising
    )
    shown = recent if most else latest
    says = (
        f"in {percent(without_variance(shown))} of the groups of the last {len(shown)} steps every"
        " attempt got the same reward"
    )
    if window.is_solved:
        if len(recent) >= PATIENCE and without_variance(recent) == 1:
            yield Finding(
                findings.TASK_SOLVED,
                f"{says}, and nearly every attempt succeeds: the task is solved",
                "cancel the job, whose versions stay, or give it harder scenarios"
                " (environment.split, environment.config)",
                "attempts of a group differ again",
            )
    elif nothing or most:
        rollout = window.spec.rollout
        more = (
            f"raise rollout.group_size ({rollout.group_size}) or rollout.sampling.temperature"
            f" ({rollout.sampling.temperature:g})"
        )
        if window.is_client_driven:
            more = "have the client gather more attempts a group or sample at a higher temperature"
        change = f"{more}, give a reward in parts, or easier scenarios"
        says += ", so nothing can be learned from them"
        if last := lost_variance(window):
            says += f"; up to step {last} they differed and earned more"
            change = (
                f"begin anew, or go on from a version of before step {last} (fork.model,"
                f" fork.version), with a lower training.learning_rate"
                f" ({window.spec.training.learning_rate:g}), or look at whether judge or"
                " environment have changed"
            )
        yield Finding(
            findings.NO_VARIANCE,
            says,
            change,
            "groups have variance again",
        )


def _skipped(window: Window) -> Iterator[Finding]:
    latest = window.newest(LATEST)
    counts = _skips(latest)
    if set(counts) == {skip_reasons.ZERO_VARIANCE}:
        return
    others = sum(n for reason, n in counts.items() if reason != skip_reasons.ZERO_VARIANCE)
    most = len(latest) >= LATEST and others > _MOST_SKIPPED * latest.groups
    if not most and _trained(latest):
        return
    said, helps = [], []
    for reason, count in sorted(counts.items(), key=lambda item: -item[1]):
        judge = reason.startswith("judge_")
        what, change = _JUDGE_WHY if judge else _WHY.get(reason, (f"({reason})", _OTHERWISE))
        said.append(f"{count} {what}")
        helps.append(change)
    says = (
        f"{'most' if most else 'all'} of the {latest.groups} groups of the last {len(latest)} steps"
    )
    yield Finding(
        findings.GROUPS_SKIPPED,
        f"{says} are skipped: {', '.join(said) or 'no token of any attempt could be trained'}",
        "; ".join(dict.fromkeys(helps)) or _OTHERWISE,
        "most groups train again",
    )


def _skips(window: Window) -> dict[str, int]:
    names = {name for step in window.steps for name in step.metrics if name.startswith(SKIPPED)}
    counts = {name.removeprefix(SKIPPED): int(window.total(name)) for name in sorted(names)}
    return {reason: count for reason, count in counts.items() if count > 0}


def _trained(window: Window) -> bool:
    """Whether any of the latest steps trained something; fewer say too little."""
    if len(window) < LATEST or not window.groups:
        return True
    tokens = window.values(_TOKENS)
    nothing = len(tokens) == len(window) and not any(tokens)
    return not nothing and sum(_skips(window).values()) < window.groups


def _stale(window: Window) -> Iterator[Finding]:
    recent = window.newest(PATIENCE, LEAST_GROUPS)
    again = recent.total("groups_stale")
    share = again / max(again + recent.groups, 1)
    # A service that was away makes groups old too, and once.
    lasting = len(recent) >= PATIENCE and recent.groups >= LEAST_GROUPS
    if lasting and share > _STALE:
        allowed = window.spec.rollout.max_staleness
        yield Finding(
            findings.GROUPS_STALE,
            f"{percent(share)} of the groups of the last {len(recent)} steps were too old when"
            f" their turn to train came, and were collected again",
            f"raise rollout.max_staleness ({allowed}) by one, or lower"
            f" rollout.max_concurrent_groups or rollout.episode.max_turns",
            "groups are young enough again",
        )


def _judge(window: Window) -> Iterator[Finding]:
    latest = window.newest(LATEST)
    alike = latest.values("judge_alike_fraction")
    if len(alike) >= LATEST and mean_of(alike) > _ONE_SCORE:
        yield Finding(
            findings.JUDGE_ONE_SCORE,
            f"in {percent(mean_of(alike))} of its answers of the last {len(alike)} steps the judge"
            " gave all attempts of a group one score",
            "name a larger model in reward.scorers, write a `rubric` that says what is better and"
            " what is worse, or raise rollout.sampling.temperature so that attempts differ",
            "the judge tells attempts apart again",
        )
    recent = window.newest(PATIENCE, LEAST_GROUPS)
    places = recent.values("judge_position_correlation_mean")
    if len(places) < PATIENCE or not recent.groups or not _one_order(window.spec):
        return
    # A judge without bias has a correlation of deviation 1 / sqrt(attempts - 1) a group.
    mean, attempts = mean_of(places), max(2.0, recent.total("trajectories") / recent.groups)
    deviations = abs(mean) * math.sqrt(recent.groups * (attempts - 1))
    if abs(mean) > _BIAS and deviations > _BIAS_DEVIATIONS:
        yield Finding(
            findings.JUDGE_POSITION_BIAS,
            f"the judge's scores follow the attempts' places in its prompt: their correlation was"
            f" {mean:.2f} over the last {len(places)} steps",
            "set `both_orders: true` of the RULER scorer, or name a larger judge in"
            " reward.scorers, or lower rollout.group_size",
            "the judge favours no places any more",
        )


def _one_order(spec: spec_pb2.JobSpec) -> bool:
    """Whether a RULER scorer asks in one order alone, so that a place can cost a score."""
    rulers = [each for each in spec.reward.scorers if each.kind == spec_pb2.SCORER_KIND_RULER]
    return any(not each.ruler.both_orders for each in rulers)
