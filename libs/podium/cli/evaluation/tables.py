"""What `podium eval` prints: agents, comparisons, scenarios."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from podium.cli.output import table
from podium.cli.safe_text import one_line
from podium.core.means import mean_of

if TYPE_CHECKING:
    from podium.sdk.evaluation import Attempt, Comparison, Summary

ROWS = 20
"""Scenarios that the normal output tells one by one."""


def show_summaries(
    summaries: Mapping[str, Summary], comparisons: Mapping[str, Comparison], first: str
) -> None:
    """One row an agent, and how each further one differs from the first."""
    most = min(max(summary.pass_at) for summary in summaries.values())
    # A column only for who needs it.
    silent = ["UNANSWERED"] if any(each.unanswered for each in summaries.values()) else []
    table(
        [
            "AGENT",
            "SUCCESS",
            "95 %",
            f"PASS@{most}",
            "REWARD",
            "95 %",
            "TURNS",
            "FAILED",
            "N",
            *silent,
        ],
        [
            [
                agent,
                f"{summary.success:.2%}",
                f"{summary.low:.1%} to {summary.high:.1%}",
                f"{summary.pass_at[most]:.2%}",
                f"{summary.reward:.3f}",
                _between(summary.reward_low, summary.reward_high, "{:.3f}"),
                f"{summary.turns:.1f}",
                str(summary.failed),
                str(summary.attempts),
                *(str(summary.unanswered) for _ in silent),
            ]
            for agent, summary in summaries.items()
        ],
    )
    for agent, found in comparisons.items():
        click.echo(comparison_line(agent, first, found))


def comparison_line(agent: str, other: str, found: Comparison) -> str:
    """How an agent differs from another."""
    return (
        f"{agent} against {other}: {100 * found.difference:+.1f} points of success "
        f"(95 % {_between(found.low, found.high, '{:+.1%}')}), better in {found.better} and "
        f"worse in {found.worse} of {found.scenarios} scenarios, p = {found.p_value:.3g}; "
        f"reward {found.reward_difference:+.3f} "
        f"(95 % {_between(found.reward_low, found.reward_high, '{:+.3f}')}), "
        f"p = {found.reward_p_value:.3g}"
    )


def _between(low: float | None, high: float | None, form: str) -> str:
    """An interval; a single scenario has none."""
    if low is None or high is None:
        return "unknown"
    return f"{form.format(low)} to {form.format(high)}"


def show_scenarios(results: Mapping[str, Sequence[Attempt]], threshold: float | None) -> None:
    """One row a scenario: of each agent, how many attempts succeeded, and their mean reward."""
    found = {agent: of_scenarios(attempts, threshold) for agent, attempts in results.items()}
    scenarios = list(dict.fromkeys(name for each in found.values() for name in each))

    def cell(row: Mapping[str, float] | None) -> str:
        if row is None:
            return "-"
        reward = "-" if math.isnan(row["reward"]) else f"{row['reward']:.3f}"
        return f"{row['successes']}/{row['attempts']} {reward}"

    click.echo()
    table(
        ["SCENARIO", *found],
        [
            [one_line(name), *(cell(each.get(name)) for each in found.values())]
            for name in scenarios[:ROWS]
        ],
    )
    if len(scenarios) > ROWS:
        click.echo(f"… and {len(scenarios) - ROWS} more scenarios; -o json has them all")


def of_scenarios(
    attempts: Sequence[Attempt], threshold: float | None
) -> dict[str, dict[str, float]]:
    """By scenario `successes` of how many `attempts`, and the mean `reward`, NaN for none."""
    from podium.sdk.evaluation import by_scenario
    from podium.sdk.evaluation.attempts import finite_rewards

    return {
        name: {
            "successes": sum(attempt.succeeded(threshold) for attempt in each),
            "attempts": len(each),
            "reward": mean_of(rewards) if (rewards := finite_rewards(each)) else math.nan,
        }
        for name, each in by_scenario(attempts).items()
    }
