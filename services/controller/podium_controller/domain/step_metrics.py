"""Numbers of steps and evaluations, from the trajectories themselves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from types import MappingProxyType

from podium.core.means import mean_of, total_of
from podium.core.sft import HELDOUT, are_demonstrations
from podium.jobs.v1 import job_service_pb2
from podium.types.v1 import spec_pb2, trajectory_pb2

SUCCESS = "success"
WIN_RATE = "win_rate"
"""Of an attempt, the share of the first version's attempts that a judge ranks below it."""
FIRST_SHOWN = "judge_first_win_rate"
"""Of the same comparisons, how often the one won that the judge saw first; 0.5 without a favour."""
RATE_STEPS = 8
"""Of how many steps the pace is told."""
_SPLITS = "history_splits"
"""Turns that went on with what was said, not with its tokens: the template, or a client's agent,
writes it otherwise now."""
ENVIRONMENT_PREFIX = "env/"
"""Of the numbers of one of a job's several environments, before its name."""

TEACHER_TOKENS = "teacher/tokens"
"""What the teacher has read, among a step's metrics."""

TOKENS_PER_SECOND = "tokens_per_second"
"""How fast its episodes sampled, among a step's metrics."""

_UNFINISHED = frozenset(
    {
        trajectory_pb2.STOP_REASON_TRUNCATED,
        trajectory_pb2.STOP_REASON_MAX_TURNS,
        trajectory_pb2.STOP_REASON_DEADLINE,
    }
)
"""How attempts end that came to no terminal state."""

_HELDOUT = "groups_heldout"

STEP_METRICS = frozenset(
    {
        "groups",
        _HELDOUT,
        "groups_carried",
        "groups_limit",
        "groups_replaced",
        "groups_stale",
        "trajectories",
        "trajectories_failed",
        "trajectories_cut",
        "trajectories_out_of_context",
        "trajectories_unfinished",
        "trajectories_unscored",
        "tokens_sampled",
        TOKENS_PER_SECOND,
        "staleness_max",
        "reward_mean",
        "success_mean",
        "turns_mean",
        _SPLITS,
        "judge_tokens",
        "judge_cost",
        "judge_agreement_mean",
        "judge_alike_fraction",
        "judge_position_correlation_mean",
    }
)
"""The names that `own_metrics` may give."""


def trajectories_of(
    groups: Iterable[trajectory_pb2.Group],
) -> list[trajectory_pb2.Trajectory]:
    """Every attempt of the groups."""
    return [trajectory for group in groups for trajectory in group.trajectories]


def main_side(
    trajectories: Iterable[trajectory_pb2.Trajectory],
) -> list[trajectory_pb2.Trajectory]:
    """Those by which a policy is measured: a game's two sides together always come out even."""
    return [trajectory for trajectory in trajectories if not trajectory.side]


def reward_of(trajectory: trajectory_pb2.Trajectory) -> float | None:
    """The final reward, before scoring the environment's own; None without either."""
    if trajectory.HasField("reward"):
        return trajectory.reward
    if trajectory.HasField("environment_reward"):
        return trajectory.environment_reward
    return None


def metric_means(trajectories: Sequence[trajectory_pb2.Trajectory]) -> dict[str, float]:
    """The mean of each metric over the attempts that report it.

    `success` is over all attempts as soon as one of the same environment reports
    it: an attempt that broke has not succeeded.
    """
    values: dict[str, list[float]] = {}
    for trajectory in trajectories:
        metrics = trajectory.metrics
        for name in metrics:
            values.setdefault(name, []).append(metrics[name])
    means = {name: mean_of(found) for name, found in values.items()}
    if SUCCESS in values:
        told = telling_success(trajectories)
        count = sum(each.environment in told for each in trajectories)
        means[SUCCESS] = total_of(values[SUCCESS]) / count
    return means


def telling_success(trajectories: Iterable[trajectory_pb2.Trajectory]) -> set[str]:
    """Names of the environments that report `success`."""
    return {each.environment for each in trajectories if SUCCESS in each.metrics}


def sampled_tokens(trajectory: trajectory_pb2.Trajectory) -> int:
    """Tokens that the policy sampled in the attempt."""
    return sum([span.length for history in trajectory.histories for span in history.tokens.spans])


def tokens_per_second(trajectories: Iterable[trajectory_pb2.Trajectory]) -> float | None:
    """Sampled tokens over the seconds in which one of the episodes ran, or several.

    It follows from what is stored, whoever collected it and whatever was waited for in between:
    a controller that goes on after another, or takes groups that are ready, has seen little of
    those seconds. Episodes of other steps may have run in them, too.

    Returns:
        None where no token was sampled, or it is not known when.
    """
    total, ran = 0, []
    for each in trajectories:
        if tokens := sampled_tokens(each):
            total += tokens
            ran.append((each.start_time.ToNanoseconds(), each.end_time.ToNanoseconds()))
    if not ran or not all(0 < begin < end for begin, end in ran):
        return None
    spent = until = 0
    for begin, end in sorted(ran):
        spent += max(0, end - max(begin, until))
        until = max(until, end)
    return total / (spent / 1e9)


def taught_tokens(record: trajectory_pb2.TokenRecord) -> int:
    """How much of a record a teacher reads: all up to the last sampled token."""
    return max((span.start + span.length for span in record.spans), default=0)


def step_metrics(
    groups: Sequence[trajectory_pb2.Group],
    staleness: int,
    counts: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """A step's own numbers: `reward_mean`, `success_mean`, `tokens_sampled`, ….

    Rewards of attempts that were not scored do not count as zero; they are
    left out of `reward_mean` and counted in `trajectories_unscored`. Both, and
    `success_mean`, are of the main side.

    Args:
        staleness: the greatest of the groups.
        counts: what became of groups on the way, by the numbers' names.
    """
    trajectories = trajectories_of(groups)
    measured = main_side(trajectories)
    rewards = [t.reward for t in measured if t.HasField("reward")]
    means = metric_means(measured)
    metrics = {
        "groups": float(len(groups)),
        **counts,
        "trajectories": float(len(trajectories)),
        "trajectories_failed": float(sum(map(is_failed, trajectories))),
        "trajectories_cut": float(sum(map(_is_cut, trajectories))),
        "trajectories_out_of_context": float(sum(map(_is_out_of_context, trajectories))),
        "trajectories_unfinished": float(sum(t.stop_reason in _UNFINISHED for t in trajectories)),
        "trajectories_unscored": float(len(measured) - len(rewards)),
        "tokens_sampled": float(sum(map(sampled_tokens, trajectories))),
        "staleness_max": float(staleness),
    }
    if rewards:
        metrics["reward_mean"] = mean_of(rewards)
    if SUCCESS in means:
        metrics["success_mean"] = means[SUCCESS]
    if "turns" in means:
        metrics["turns_mean"] = means["turns"]
    for name, found in by_environment(measured).items():
        prefix = f"{ENVIRONMENT_PREFIX}{name}/"
        metrics[f"{prefix}trajectories"] = float(len(found))
        if scored := [t.reward for t in found if t.HasField("reward")]:
            metrics[f"{prefix}reward_mean"] = mean_of(scored)
        if SUCCESS in (own := metric_means(found)):
            metrics[f"{prefix}success_mean"] = own[SUCCESS]
    if splits := total_of(t.metrics[_SPLITS] for t in trajectories if _SPLITS in t.metrics):
        metrics[_SPLITS] = splits
    return metrics | _judge_metrics(groups) | _teacher_metrics(trajectories)


def _teacher_metrics(trajectories: Sequence[trajectory_pb2.Trajectory]) -> dict[str, float]:
    """Which teacher spoke, and how far the policy that sampled is from it.

    `teacher/kl` is the mean of log p - log p_teacher over the sampled tokens, in nats: an
    estimate of the reverse KL, which is 0 where the two agree.
    """
    taught = [trajectory for trajectory in trajectories if trajectory.teacher]
    if not taught:
        return {}
    records = [history.tokens for each in taught for history in each.histories]
    gaps = [
        own - teacher
        for record in records
        if len(record.logprobs) == len(record.teacher_logprobs)
        for own, teacher in zip(record.logprobs, record.teacher_logprobs, strict=True)
        if math.isfinite(own) and math.isfinite(teacher)
    ]
    metrics = {TEACHER_TOKENS: float(sum(map(taught_tokens, records)))}
    if gaps:
        metrics["teacher/kl"] = mean_of(gaps)
    _, at, version = taught[0].teacher.rpartition("@")
    if at and version.isdecimal():
        metrics["teacher/version"] = float(version)
    unread = sum(not (t.teacher or is_failed(t)) and sampled_tokens(t) > 0 for t in trajectories)
    return metrics | {"teacher/unread": float(unread)}


def own_metrics(
    spec: spec_pb2.JobSpec,
    groups: Sequence[trajectory_pb2.Group],
    staleness: int,
    counts: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """A step's own numbers, as its job has them; see `step_metrics`."""
    if are_demonstrations(spec, groups):
        return _demonstration_metrics(groups)
    metrics = step_metrics(groups, staleness, counts)
    # A client's trajectories begin and end when it makes them, not when they were sampled.
    if not spec.HasField("client"):
        rate = tokens_per_second(trajectories_of(groups))
        metrics |= {} if rate is None else {TOKENS_PER_SECOND: rate}
    return finite(metrics)


def _demonstration_metrics(groups: Sequence[trajectory_pb2.Group]) -> dict[str, float]:
    """Those of rows, which nobody sampled for the step and nobody scores."""
    found = {"groups": float(len(groups)), "trajectories": float(len(trajectories_of(groups)))}
    if heldout := sum(group.scenario.split == HELDOUT for group in groups):
        found[_HELDOUT] = float(heldout)
    return found


def _judge_metrics(groups: Sequence[trajectory_pb2.Group]) -> dict[str, float]:
    """What RULER's judges cost, how far they agree, and whether they favour places."""
    judgements = [judgement for group in groups for judgement in group.judgements]
    opinions = [opinion for judgement in judgements for opinion in judgement.opinions]
    if not opinions:
        return {}
    tokens = sum(opinion.prompt_tokens + opinion.completion_tokens for opinion in opinions)
    metrics = {"judge_tokens": float(tokens)}
    costs = [opinion.cost for opinion in opinions if opinion.HasField("cost")]
    if costs:
        metrics["judge_cost"] = math.fsum(costs)
    agreements = [each.agreement for each in judgements if each.HasField("agreement")]
    if agreements:
        metrics["judge_agreement_mean"] = mean_of(agreements)
    told = [_scores(opinion) for opinion in opinions if len(opinion.attempts) > 1]
    if told:
        metrics["judge_alike_fraction"] = mean_of(len(set(scores)) == 1 for scores in told)
    places = [o.position_correlation for o in opinions if o.HasField("position_correlation")]
    if places:
        metrics["judge_position_correlation_mean"] = mean_of(places)
    return metrics


def _scores(opinion: trajectory_pb2.JudgeOpinion) -> list[float]:
    return [each.score for each in opinion.attempts]


def evaluation_metrics(
    trajectories: Sequence[trajectory_pb2.Trajectory], *, scored: bool = False
) -> dict[str, float]:
    """The mean of every metric that the environment reports, and of `reward`.

    Of a job with several environments of each as well, `env/NAME/reward`. With `scored` the reward
    is that of scorers alone: an attempt without it is left out, and counts in `unscored_fraction`.
    """
    metrics = _evaluation_means(trajectories, scored)
    if scored and trajectories:
        missing = sum(not each.HasField("reward") for each in trajectories)
        metrics["unscored_fraction"] = missing / len(trajectories)
    for name, found in by_environment(trajectories).items():
        for metric, value in _evaluation_means(found, scored).items():
            metrics[f"{ENVIRONMENT_PREFIX}{name}/{metric}"] = value
    return metrics


def _evaluation_means(
    trajectories: Sequence[trajectory_pb2.Trajectory], scored: bool
) -> dict[str, float]:
    rewards = rewards_of(trajectories, scored=scored)
    metrics = metric_means(trajectories)
    if rewards:
        metrics["reward"] = mean_of(rewards)
    return metrics


def rewards_of(trajectories: Iterable[trajectory_pb2.Trajectory], *, scored: bool) -> list[float]:
    """Of an evaluation's attempts that have one; with `scored` that of scorers alone."""
    counted = [each for each in trajectories if not scored or each.HasField("reward")]
    return [reward for each in counted if (reward := reward_of(each)) is not None]


def by_environment(
    trajectories: Iterable[trajectory_pb2.Trajectory],
) -> dict[str, list[trajectory_pb2.Trajectory]]:
    """Those of each of a job's several environments; nothing of a job that has one."""
    found: dict[str, list[trajectory_pb2.Trajectory]] = {}
    for trajectory in trajectories:
        if trajectory.environment:
            found.setdefault(trajectory.environment, []).append(trajectory)
    return found


def is_failed(trajectory: trajectory_pb2.Trajectory) -> bool:
    """Whether the environment or the agent raised."""
    return trajectory.stop_reason == trajectory_pb2.STOP_REASON_FAILED


def _is_out_of_context(trajectory: trajectory_pb2.Trajectory) -> bool:
    return trajectory.stop_reason == trajectory_pb2.STOP_REASON_CONTEXT_LENGTH


def _is_cut(trajectory: trajectory_pb2.Trajectory) -> bool:
    """Whether a generation of it reached max_tokens."""
    return not _is_out_of_context(trajectory) and any(
        span.finish_reason == trajectory_pb2.FINISH_REASON_LENGTH
        for history in trajectory.histories
        for span in history.tokens.spans
    )


def first_start_ns(groups: Iterable[trajectory_pb2.Group]) -> int | None:
    """When the first of the groups' attempts began; None when none says."""
    begun = (t.start_time.ToNanoseconds() for t in trajectories_of(groups))
    return min((each for each in begun if each), default=None)


def seconds_per_step(commit_times_ns: Sequence[int], last: job_service_pb2.Step) -> float:
    """The median time between the last `RATE_STEPS` commits; of the `last` step alone if first.

    The median, because a pause or a recovery between two steps says nothing
    about the next one.
    """
    times = sorted(commit_times_ns)[-RATE_STEPS:]
    gaps = [(b - a) / 1e9 for a, b in pairwise(times)]
    if gaps:
        return median(gaps)
    return max(0.0, (last.commit_time.ToNanoseconds() - last.start_time.ToNanoseconds()) / 1e9)


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """The numbers that are numbers."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
