"""What the demo measured, as JSON and as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

import click

from podium.cli.episodes import conversation
from podium.cli.exits import CliError
from podium.cli.html_report import ReportData
from podium.cli.html_report.analysis import SUCCESS, Gain, Rates, labelled, pairs, rates, split_gain
from podium.cli.html_report.collect import SAMPLED
from podium.cli.html_report.plot import of_report
from podium.core.means import mean_of
from podium.core.statistics import clustered_mean_interval
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.types.v1 import trajectory_pb2


@dataclass(frozen=True)
class HeldoutScore:
    """Success on the held-out scenarios: sampled with its 95 % interval, and greedy if measured.

    `reward` is the environment's mean one of the sampled episodes, whatever trained, with its 95 %
    interval over scenarios; None where there is none.
    """

    success: float
    low: float
    high: float
    greedy_success: float | None
    reward: float | None
    reward_low: float | None
    reward_high: float | None


@dataclass(frozen=True)
class StepPoint:
    """What one step trained on: mean reward, whoever gave it, and the environment's success."""

    step: int
    reward: float | None
    success: float | None


@dataclass(frozen=True)
class Result:
    """The demo's numbers. `train_seconds` runs from the first step's begin to the last commit."""

    seed: int
    steps: int
    train_seconds: float
    n: int
    before: HeldoutScore
    after: HeldoutScore
    gain: Gain | None
    curve: tuple[StepPoint, ...]

    def json(self) -> str:
        """As a JSON object."""
        return json.dumps(asdict(self), indent=2) + "\n"


def measure(data: ReportData) -> Result:
    """The numbers of a job that has ended.

    Raises:
        CliError: the job was not evaluated before and after.
    """
    sampled = data.of_mode(SAMPLED)
    if len(sampled) < 2 or not data.steps:
        raise CliError(
            "the job has no evaluation before and after", "Its file needs an evaluation section."
        )
    greedy = {item.version: item.metrics["success"] for item in data.of_mode("greedy")}
    before, after = rates(data.before), rates(data.after)
    seconds = (
        data.steps[-1].commit_time.ToNanoseconds() - data.steps[0].start_time.ToNanoseconds()
    ) / 1e9
    return Result(
        seed=data.job.spec.seed,
        steps=len(data.steps),
        train_seconds=round(seconds, 1),
        n=sampled[-1].episodes,
        before=_score(sampled[0], greedy, data.before),
        after=_score(sampled[-1], greedy, data.after),
        gain=split_gain(before, after) if before is not None and after is not None else None,
        curve=tuple(map(_point, data.steps)),
    )


def tell(data: ReportData, result: Result) -> str:
    """Everything that the demo shows in the terminal."""
    parts = [
        "",
        of_report(data),
        "",
        _episodes(data),
        "",
        click.style(f"success on {result.n} held-out scenarios", bold=True),
        _bars("before", result.before),
        _bars("after", result.after),
        f"  {100 * (result.after.success - result.before.success):+.0f} points in "
        f"{result.steps} steps, {result.train_seconds / 60:.1f} minutes of training",
    ]
    if result.before.reward is not None and result.after.reward is not None:
        parts.append(f"  reward {_reward(result.before)} -> {_reward(result.after)}")
    before, after = rates(data.before), rates(data.after)
    if result.gain is not None and before is not None and after is not None:
        parts += ["", _split(result.gain, before, after)]
    return "\n".join(parts)


def _score(
    sampled: jobs.Evaluation,
    greedy: Mapping[int, float],
    episodes: Sequence[trajectory_pb2.Trajectory],
) -> HeldoutScore:
    by_scenario: dict[str, list[trajectory_pb2.Trajectory]] = {}
    for episode in episodes:
        if episode.HasField("environment_reward"):
            by_scenario.setdefault(episode.scenario_id, []).append(episode)
    clusters = [[each.environment_reward for each in group] for group in by_scenario.values()]
    successes = [
        [each.metrics.get(SUCCESS, 0.0) > 0.5 for each in group] for group in by_scenario.values()
    ]
    low, high = clustered_mean_interval(clusters, successes) or (None, None)
    return HeldoutScore(
        success=sampled.metrics["success"],
        low=sampled.success_low,
        high=sampled.success_high,
        greedy_success=greedy.get(sampled.version),
        reward=mean_of(chain.from_iterable(clusters)) if clusters else None,
        reward_low=low,
        reward_high=high,
    )


def _point(step: jobs.Step) -> StepPoint:
    found = dict(step.metrics)
    return StepPoint(step.number, found.get("reward_mean"), found.get("success_mean"))


def _bars(name: str, score: HeldoutScore) -> str:
    width = 40
    filled = round(score.success * width)
    low, high = round(score.low * width), max(round(score.high * width), 1)
    bar = "".join("█" if at < filled else "─" if low <= at < high else "·" for at in range(width))
    greedy = "" if score.greedy_success is None else f", {score.greedy_success:.2f} greedy"
    return (
        f"  {name:<7}{bar}  {score.success:.2f} sampled "
        f"(95 % {score.low:.2f} to {score.high:.2f}){greedy}"
    )


def _reward(score: HeldoutScore) -> str:
    interval = ""
    if score.reward_low is not None and score.reward_high is not None:
        interval = f" (95 % {score.reward_low:.2f} to {score.reward_high:.2f})"
    return f"{score.reward:.2f}{interval}"


def _split(gain: Gain, before: Rates, after: Rates) -> str:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{100 * value:.0f} %"

    table = "\n".join(
        f"  {name:<38}{percent(first):>6} -> {percent(last):>6}"
        for name, first, last in labelled(before, after)
    )
    rest = "search" if after.searches else "the rest"
    return (
        f"{click.style('what was learned', bold=True)}\n"
        f"  format {100 * gain.by_format:+.0f} points, {rest} {100 * gain.by_search:+.0f} points\n"
        f"{table}"
    )


def _episodes(data: ReportData) -> str:
    chosen = pairs(data.before, data.after, 3)
    texts = []
    for number, (before, after) in enumerate(chosen, start=1):
        for when, episode in (("before", before), ("after", after)):
            title = f"episode {number}, {when} training: scenario {episode.scenario_id}"
            texts.append(
                f"{click.style(title, bold=True, underline=True)}\n{conversation(episode)}"
            )
    return "\n\n".join(texts)
