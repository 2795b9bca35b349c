"""Attempts as the controller keeps them, and back."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from podium.core.contract import to_plain
from podium.core.errors import FailedPreconditionError
from podium.core.means import mean_of
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.sdk.evaluation.attempts import SUCCESS, Attempt, answered, by_scenario
from podium.sdk.evaluation.compare import ScenarioMeans

_NAMED = 3
_MOST_METRICS = 256


def results_of(
    attempts: Sequence[Attempt],
    threshold: float | None = None,
    wins: Mapping[tuple[str, int], float] | None = None,
) -> list[pb.ScenarioResult]:
    """One a scenario, in the order of the first attempts; see `Attempt.succeeded`.

    Args:
        wins: by scenario and attempt, what a judge gave; those that are missing are NaN.
    """
    return [
        _result(scenario, each, threshold, wins) for scenario, each in by_scenario(attempts).items()
    ]


def _result(
    scenario: str,
    attempts: Sequence[Attempt],
    threshold: float | None,
    wins: Mapping[tuple[str, int], float] | None,
) -> pb.ScenarioResult:
    counted = answered(attempts)
    values: dict[str, list[float]] = {}
    for attempt in counted:
        for name, value in attempt.metrics.items():
            if math.isfinite(value):
                values.setdefault(name, []).append(value)
    return pb.ScenarioResult(
        scenario_id=scenario,
        successes=[attempt.succeeded(threshold) for attempt in counted],
        rewards=[each.reward if math.isfinite(each.reward) else math.nan for each in counted],
        turns=[attempt.turns for attempt in counted],
        wins=[]
        if wins is None
        else [wins.get((scenario, attempt.attempt), math.nan) for attempt in counted],
        failed=sum(bool(attempt.failure) for attempt in counted),
        unanswered=len(attempts) - len(counted),
        metrics={name: mean_of(values[name]) for name in sorted(values)[:_MOST_METRICS]},
    )


def attempts_of(results: Sequence[pb.ScenarioResult]) -> list[Attempt]:
    """The attempts that count, as `compare` and `summarise` take them.

    Whether each succeeded was decided when it was stored: there is no threshold any more.
    """
    return [
        Attempt(
            result.scenario_id,
            number,
            reward=reward,
            terminated=True,
            turns=turns,
            metrics={SUCCESS: float(success)},
        )
        for result in results
        for number, (success, reward, turns) in enumerate(
            zip(result.successes, result.rewards, result.turns, strict=True)
        )
    ]


def check_same_scenarios(
    first: tuple[pb.StoredEvaluation, Sequence[pb.ScenarioResult]],
    second: tuple[pb.StoredEvaluation, Sequence[pb.ScenarioResult]],
) -> None:
    """Whether two evaluations are of the same scenarios.

    Raises:
        FailedPreconditionError: they are not, and how they differ.
    """
    names = [[result.scenario_id for result in results] for _, results in (first, second)]
    if wrong := other_scenarios((first[0], names[0]), (second[0], names[1])):
        raise FailedPreconditionError(wrong, reason="SCENARIOS_DIFFER")


def other_scenarios(
    first: tuple[pb.StoredEvaluation, Collection[str]],
    second: tuple[pb.StoredEvaluation, Collection[str]],
) -> str:
    """How the scenarios of two evaluations differ, for people; empty where they do not.

    Each comes with its scenarios' ids.
    """
    wrong = []
    for what, one, two in (
        ("environment", first[0].environment.name, second[0].environment.name),
        ("split", first[0].environment.split, second[0].environment.split),
        ("config", to_plain(first[0].environment.config), to_plain(second[0].environment.config)),
    ):
        if one != two:
            wrong.append(f"{what} {one!r} and {two!r}")
    names = [first[1], second[1]]
    for number, (own, other) in enumerate((names, names[::-1])):
        there = set(other)
        alone = [name for name in own if name not in there]
        if alone:
            shown = ", ".join(map(repr, alone[:_NAMED])) + (", …" if len(alone) > _NAMED else "")
            evaluation = (first, second)[number][0].id
            wrong.append(f"{len(alone)} scenarios are in {evaluation} alone ({shown})")
    if not wrong:
        return ""
    return f"{first[0].id} and {second[0].id} are not of the same scenarios: {'; '.join(wrong)}"


def means_of(result: pb.ScenarioResult) -> ScenarioMeans | None:
    """As `pair` takes them; None where no attempt was answered."""
    if not result.successes:
        return None
    rewards = [reward for reward in result.rewards if math.isfinite(reward)]
    return ScenarioMeans(
        attempts=len(result.successes),
        success=mean_of(result.successes),
        reward=mean_of(rewards) if rewards else None,
    )


def differences(first: pb.StoredEvaluation, second: pb.StoredEvaluation) -> list[str]:
    """What else of the two differs, and may be why their numbers do: one sentence each."""
    found = []
    for what, one, two in (
        ("seed", first.seed, second.seed),
        ("sampling", to_plain(first.sampling), to_plain(second.sampling)),
        ("episode", to_plain(first.episode), to_plain(second.episode)),
        ("threshold of success", _threshold(first), _threshold(second)),
        ("reward", to_plain(first.reward), to_plain(second.reward)),
        ("version of Podium", first.podium_version, second.podium_version),
    ):
        # What a job measured does not say which version of Podium it was.
        is_known = what != "version of Podium" or (one and two)
        if one != two and is_known:
            found.append(f"they differ in {what}: {_shown(one)} and {_shown(two)}")
    return found


def _shown(value: object) -> object:
    return "none" if value in (None, {}, "") else value


def _threshold(evaluation: pb.StoredEvaluation) -> float | None:
    return evaluation.threshold if evaluation.HasField("threshold") else None
