"""`podium eval run`: measure agents on an environment's scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from podium.cli.completers import complete_jobs
from podium.cli.connection import connected
from podium.cli.evaluation.task import AGENTS, EvaluationTask
from podium.cli.exits import CliError, Exit
from podium.cli.integers import Count, Integer
from podium.cli.output import data, note
from podium.cli.settings import read_settings

if TYPE_CHECKING:
    from podium.sdk import AsyncClient
    from podium.sdk.evaluation import Attempt


@click.command("run", short_help="Measure agents on an environment.")
@click.argument("environment")
@click.option(
    "-a",
    "--agent",
    "agents",
    multiple=True,
    shell_complete=complete_jobs,
    required=True,
    metavar="AGENT",
    help=f"{AGENTS}. Repeat it to compare with the first.",
)
@click.option("--split", default="heldout", show_default=True, help="Whose scenarios.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many scenarios.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Attempts of each scenario.",
)
@click.option(
    "--threshold",
    type=float,
    help="Success is a task that ended with a reward of its own above this. [default: the "
    "environment's own success, else 0.5]",
)
@click.option(
    "--max-turns",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="After which an episode is cut.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 5),
    default=1.0,
    show_default=True,
    help="0 is greedy.",
)
@click.option(
    "--max-tokens",
    type=Count(1, bits=32),
    default=128,
    show_default=True,
    help="Longest answer.",
)
@click.option("--seed", type=Integer(), default=0, show_default=True, help="Seed of every episode.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the environment; VALUE is YAML.",
)
@click.option(
    "--chat-template-arg",
    "template_arguments",
    multiple=True,
    metavar="KEY=VALUE",
    help="What the chat template is told besides, such as enable_thinking=false; VALUE is YAML.",
)
@click.option(
    "--environment-address",
    default="",
    metavar="HOST:PORT",
    help="Where a remote environment is served; policies only.",
)
@click.option(
    "--pool",
    default="",
    help="The inference pool of a policy, as `podium job get` names it.  [default: the first one]",
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="At once."
)
@click.option(
    "--judge",
    default="",
    metavar="ruler|FILE",
    help="FILE is a reward as in a job file: rubrics, weighted criteria and scorers over HTTP make "
    "the reward, RULER compares each further agent with the first, in both orders. `ruler` is "
    "RULER with the judge service's own judge.",
)
@click.option(
    "--name",
    default="",
    help="What the stored result is called; any text. With a name an interrupted command goes on "
    "where it was when it is given again.",
)
@click.option(
    "--fresh", is_flag=True, help="Measure all again, whatever an interrupted command measured."
)
@click.option("--project", default="", help="Whose the stored result is.  [default: default]")
@click.option(
    "--store/--no-store",
    default=None,
    help="Whether the controller keeps the result, for `podium eval compare`. With --store a "
    "controller that cannot is an error.  [default: where an installation is known]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "yaml")),
    default="table",
    show_default=True,
    help="json and yaml have every attempt.",
)
@connected
async def evaluate(
    client: AsyncClient,
    environment: str,
    agents: Sequence[str],
    split: str,
    limit: int | None,
    attempts: int,
    threshold: float | None,
    max_turns: int,
    temperature: float,
    max_tokens: int,
    seed: int,
    settings: Sequence[str],
    template_arguments: Sequence[str],
    environment_address: str,
    pool: str,
    concurrency: int,
    judge: str,
    name: str,
    fresh: bool,
    project: str,
    store: bool | None,
    output: str,
) -> None:
    """Measure agents on the scenarios of ENVIRONMENT, a built-in name or `module:Class`.

    Prints success with its 95 % interval, pass@k, reward and turns of each agent, of every
    further agent how it differs from the first on the same scenarios, and what each did with
    the first 20 scenarios; -o json has all of them. A pool that holds one policy (merged weights,
    as on a CPU) serves each that is named in turn, unless a job trains there.

    `openai:MODEL` is asked at OPENAI_BASE_URL with OPENAI_API_KEY, and again where it is busy.
    Attempts that it never answered are left out of all numbers, and the exit code is 3.

    The controller keeps what each agent did, scenario by scenario: `podium eval list` lists it, and
    `podium eval compare ID ID` says how two differ.

    With --name, what each attempt came to is kept on this machine until all is measured and
    stored: the same command again pays for no episode twice.
    """
    from podium.cli.evaluation.journal import Journals
    from podium.cli.evaluation.judge import (
        judged,
        judged_line,
        read_judge,
        scored,
        scorers_text,
        tell_without,
        unjudged,
        with_scores,
    )
    from podium.cli.evaluation.keeping import Keeper
    from podium.cli.evaluation.plain import Found
    from podium.cli.evaluation.tables import show_scenarios, show_summaries
    from podium.cli.serving import pool_for
    from podium.sdk.evaluation import answered, compare, summarise
    from podium.sdk.evaluation import by_scenario as attempted

    asked = read_judge(judge, agents)
    if fresh and not name:
        raise click.UsageError("--fresh is of a --name, whose interrupted command is forgotten")
    if asked is not None:
        # What the judge service cannot take is told before anything is paid for.
        await client.judge.check(asked.whole)
    journals = Journals(
        name, _identity(client, environment, environment_address, project), fresh=fresh
    )
    try:
        async with pool_for(client) as served:
            task = EvaluationTask(
                client=client,
                served=served,
                environment=environment,
                address=environment_address,
                pool=pool,
                config=read_settings(settings),
                template=read_settings(template_arguments, "--chat-template-arg"),
                split=split,
                limit=limit,
                attempts=attempts,
                max_turns=max_turns,
                temperature=temperature,
                max_tokens=max_tokens,
                seed=seed,
                concurrency=concurrency,
                journals=journals,
                judged=asked is not None,
            )
            played = {agent: await task.run(agent) for agent in agents}
        makes, ranks = (asked.alone, asked.together) if asked is not None else (None, None)
        rewards = await scored(client, makes, played, concurrency) if makes is not None else {}
        measured = with_scores(played, rewards, threshold)
        results = {agent: found.attempts for agent, found in measured.items()}
        incomplete = _incomplete(results)
        counted = {agent: answered(found) for agent, found in results.items()}
        if incomplete is not None and not any(counted.values()):
            raise incomplete
        summaries = {
            agent: summarise(found, threshold) for agent, found in results.items() if counted[agent]
        }
        first = agents[0]
        comparisons = {
            agent: compare(results[first], results[agent], threshold)
            for agent in list(results)[1:]
            if attempted(counted[first]).keys() & attempted(counted[agent]).keys()
        }
        verdicts = await judged(client, ranks, played, concurrency) if ranks is not None else {}
        keeper = Keeper(task, name, project, threshold, asked, journals.run, must=bool(store))
        wanted = store if store is not None else keeper.knows_an_installation()
        counting = {agent: measured[agent] for agent in summaries}
        kept = await keeper.keep(counting, verdicts) if wanted else {}
        problems = [keeper.problem, incomplete, unjudged(verdicts, rewards)]
        if not any(problems) and (len(kept) == len(counting) or not wanted):
            journals.close(done=True)
    finally:
        if journals.kept:
            note(f"what was measured is kept: the same command goes on from it ({name})")
        journals.close(done=False)
    tell_without(rewards)
    if output == "table":
        show_summaries(summaries, comparisons, first)
        if makes is not None:
            click.echo(f"rewards are {scorers_text(makes)}; success is the environment's")
        for agent, verdict in verdicts.items():
            click.echo(judged_line(agent, first, verdict))
        show_scenarios(counted, threshold)
        for agent, evaluation in kept.items():
            note(f"{agent} is stored as {evaluation.id}")
    else:
        found = Found(played, results, summaries, comparisons, verdicts, rewards, kept)
        data(found.plain(threshold), output)
    for problem in problems:
        if problem is not None:
            raise problem


def _identity(client: AsyncClient, environment: str, address: str, project: str) -> dict[str, str]:
    """What tells an evaluation from others of its name: a task's file is another in each folder."""
    file = Path(environment.partition(":")[0])
    return {
        "environment": f"{file.resolve()} {environment}" if file.is_file() else environment,
        "environment_address": address,
        "project": project,
        "controller": client.addresses.controller,
    }


def _incomplete(results: Mapping[str, Sequence[Attempt]]) -> CliError | None:
    """Says which attempts are in no number because a model was never heard."""
    lines = []
    for agent, found in results.items():
        silent = [attempt for attempt in found if attempt.unanswered]
        if silent:
            lines.append(
                f"{len(silent)} of {len(found)} attempts of {agent} were never answered, and are in"
                f" none of the numbers: {silent[0].failure}"
            )
    if not lines:
        return None
    hint = "Lower --concurrency, or check OPENAI_BASE_URL, OPENAI_API_KEY and the model's name."
    return CliError("\n".join(lines), hint, Exit.UNREACHABLE)
