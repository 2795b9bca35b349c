"""`podium eval run --judge`: agents compared by a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.evaluation.task import Measured
from podium.cli.exits import CliError, Exit

if TYPE_CHECKING:
    from podium.sdk import AsyncClient
    from podium.sdk.evaluation import Judged
    from podium.types.v1 import spec_pb2

RULER = "ruler"


def read_judge(given: str, agents: Sequence[str]) -> spec_pb2.RewardSpec | None:
    """What `--judge` says: a RULER scorer, asked in both orders; None for no judge.

    Raises:
        click.UsageError: it says something else, or there are no two agents.
        InvalidArgumentError: a file that is wrong, by its keys.
    """
    import yaml

    from podium.core.contract import apply_defaults
    from podium.core.specs.sources import message_of
    from podium.core.win_rates import alone_and_together
    from podium.types.v1 import spec_pb2

    if not given:
        return None
    if len(agents) < 2:
        raise click.UsageError("--judge compares agents with the first one: name two or more")
    if given == RULER:
        plain: object = {"scorers": [{"kind": RULER}]}
    else:
        try:
            plain = yaml.safe_load(Path(given).read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise click.UsageError(f"--judge {given}: {error}") from error
    if not isinstance(plain, Mapping):
        raise click.UsageError(
            f"--judge {given}: allowed is a reward as in a job file: `scorers: …`"
        )
    alone, together = alone_and_together(message_of(plain, spec_pb2.RewardSpec))
    if together is None or alone is not None or len(together.scorers) > 1:
        raise click.UsageError(
            f"--judge {given}: allowed is one scorer, of kind `ruler`: others do not compare"
        )
    together.scorers[0].ruler.SetInParent()
    return apply_defaults(together)


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


def unjudged(found: Mapping[str, Judged]) -> CliError | None:
    """Says which scenarios are in no win rate because no judge answered."""
    lines = []
    for agent, each in found.items():
        for why, count in each.unjudged.items():
            lines.append(
                f"{count} scenarios of {agent} were not judged, and count for nothing: {why}"
            )
    if not lines:
        return None
    hint = "Run it again: what the judge service remembers it does not ask again."
    return CliError("\n".join(lines), hint, Exit.UNREACHABLE)
