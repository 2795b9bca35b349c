"""`podium eval run --judge`: attempts scored, and agents compared, by whom a job's reward names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from podium.cli.evaluation.task import Measured
from podium.cli.exits import CliError, Exit
from podium.cli.output import note
from podium.cli.safe_text import one_line

if TYPE_CHECKING:
    from podium.core.errors import Violation
    from podium.sdk import AsyncClient
    from podium.sdk.evaluation import Judged, Scored
    from podium.types.v1 import spec_pb2

RULER = "ruler"
_REASONS = 3
"""That are told: a hundred scenarios may have a hundred."""
_MOST_CHARS = 300


@dataclass(frozen=True)
class JudgeOptions:
    """What `--judge` asks for, with every default."""

    whole: spec_pb2.RewardSpec
    """As it was given."""
    alone: spec_pb2.RewardSpec | None
    """The scorers that make the reward; None for the environment's own."""
    together: spec_pb2.RewardSpec | None
    """RULER, which compares each agent with the first, in both orders; None for no comparison."""


def read_judge(given: str, agents: Sequence[str]) -> JudgeOptions | None:
    """What `--judge` says; None for no judge.

    Raises:
        click.UsageError: there is no such file, or RULER has nothing to compare.
        InvalidArgumentError: a file that is wrong, by its keys.
    """
    from podium.core.contract import apply_defaults
    from podium.core.contract.judging import PART_FIELDS
    from podium.core.specs.reading import read_file, refusal
    from podium.core.win_rates import alone_and_together
    from podium.types.v1 import spec_pb2

    if not given:
        return None
    if given == RULER:
        whole = spec_pb2.RewardSpec(scorers=[spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)])
    else:
        try:
            read = read_file(given, spec_pb2.RewardSpec, partial=False)
        except OSError as error:
            raise click.UsageError(f"--judge {given}: {error.strerror or error}") from error
        whole = read.message
        if found := [*read.violations] or _violations(whole):
            raise refusal(given, found)
    for scorer in whole.scorers:
        # An absent part is the default one; apply_defaults cannot know the kind.
        if scorer.kind in PART_FIELDS:
            getattr(scorer, PART_FIELDS[scorer.kind]).SetInParent()
    apply_defaults(whole)
    alone, together = alone_and_together(whole)
    if together is not None and len(agents) < 2:
        raise click.UsageError(
            "--judge compares agents with the first one by RULER: name two or more"
        )
    return JudgeOptions(whole, alone, together)


def _violations(reward: spec_pb2.RewardSpec) -> list[Violation]:
    from podium.core.contract.judging import scorer_violations
    from podium.core.errors import Violation
    from podium.types.v1 import spec_pb2

    found = []
    if not reward.scorers:
        found.append(Violation("scorers", "got none; allowed is at least one"))
    rulers = 0
    for index, scorer in enumerate(reward.scorers):
        path = f"scorers[{index}]"
        found += scorer_violations(scorer, path)
        rulers += scorer.kind == spec_pb2.SCORER_KIND_RULER
        if scorer.kind == spec_pb2.SCORER_KIND_RULER and rulers > 1:
            text = "got another `ruler`; allowed is one, which may have several judges"
            found.append(Violation(f"{path}.kind", text))
        for part, name in (
            ("ruler", "max_job_tokens"),
            ("ruler", "max_job_cost"),
            ("rubric", "max_job_tokens"),
            ("rubric", "max_job_cost"),
            ("http", "max_job_tokens"),
        ):
            if bound := getattr(getattr(scorer, part), name):
                text = f"got {bound:g}; bounds what a job may use, and an evaluation has no job"
                found.append(Violation(f"{path}.{part}.{name}", text))
    return found


def scorers_text(reward: spec_pb2.RewardSpec) -> str:
    """The sum that a reward is, for people: `rubric + 0.5 × http`."""
    from podium.types.v1 import spec_pb2

    words = []
    for scorer in reward.scorers:
        kind = spec_pb2.ScorerKind.Name(scorer.kind).removeprefix("SCORER_KIND_").lower()
        weight = scorer.weight if scorer.HasField("weight") else 1.0
        words.append(kind if weight == 1 else f"{weight:g} × {kind}")
    return " + ".join(words)


async def scored(
    client: AsyncClient,
    reward: spec_pb2.RewardSpec,
    measured: Mapping[str, Measured],
    concurrency: int,
) -> dict[str, Scored]:
    """What the scorers gave each agent's attempts."""
    from podium.sdk.evaluation import judge_rewards

    return {
        agent: await judge_rewards(
            lambda group: client.judge.score(group, reward),
            found.records,
            found.scenarios,
            concurrency=concurrency,
        )
        for agent, found in measured.items()
    }


def with_scores(
    measured: Mapping[str, Measured], found: Mapping[str, Scored], threshold: float | None
) -> dict[str, Measured]:
    """The attempts with the scorers' rewards; as they are without any."""
    from podium.sdk.evaluation import rescored

    return {
        agent: replace(each, attempts=rescored(each.attempts, found[agent], threshold))
        if agent in found
        else each
        for agent, each in measured.items()
    }


async def judged(
    client: AsyncClient,
    reward: spec_pb2.RewardSpec,
    measured: Mapping[str, Measured],
    concurrency: int,
) -> dict[str, Judged]:
    """Each further agent against the first."""
    from podium.sdk.evaluation import judge_wins

    first, *others = measured
    return {
        agent: await judge_wins(
            lambda group: client.judge.score(group, reward),
            measured[first].records,
            measured[agent].records,
            concurrency=concurrency,
        )
        for agent in others
    }


def judged_line(agent: str, first: str, found: Judged) -> str:
    """How often an agent beat the first, in a line."""
    if found.win_rate is None:
        return f"{agent} against {first}, judged: no scenario was"
    shown = (
        f"; the one shown first won {found.first_shown:.0%}"
        if found.first_shown is not None
        else ""
    )
    return (
        f"{agent} against {first}, judged: wins {found.win_rate:.1%} (95 % {found.low:.1%} to"
        f" {found.high:.1%}) over {found.scenarios} scenarios, a tie counting half,"
        f" p = {found.p_value:.3g}{shown}"
    )


def tell_without(found: Mapping[str, Scored]) -> None:
    """Notes the attempts that a scorer looked at and gave nothing."""
    for agent, each in found.items():
        for why, count in _reasons(each.without):
            note(f"{count} attempts of {agent} have no score, and are in no reward: {why}")


def unjudged(judged: Mapping[str, Judged], scored: Mapping[str, Scored]) -> CliError | None:
    """Says which scenarios are in no reward or win rate because nobody answered."""
    lines = [
        f"{count} scenarios of {agent} were not scored, and are in no reward: {why}"
        for agent, each in scored.items()
        for why, count in _reasons(each.unanswered)
    ]
    lines += [
        f"{count} scenarios of {agent} were not judged, and count for nothing: {why}"
        for agent, found in judged.items()
        for why, count in _reasons(found.unjudged)
    ]
    if not lines:
        return None
    hint = (
        "Run it again: judge models are not asked again what the judge service remembers, and with"
        " a --name no episode is played again."
    )
    return CliError("\n".join(lines), hint, Exit.UNREACHABLE)


def _reasons(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """The most frequent, and how many have another; what strangers said is cut."""
    told = Counter[str]()
    for why, count in counts.items():
        text = one_line(why)
        told[text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]}…"] += count
    first = told.most_common(_REASONS)
    if rest := told.total() - sum(count for _, count in first):
        first.append(("other reasons; -o json has them all", rest))
    return first
