"""`podium eval list|show|compare|delete`: what was measured before."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit, code_of
from podium.cli.output import data, emit_list, emit_one, note, output_option, plain_output_option

if TYPE_CHECKING:
    from podium.jobs.v1.evaluation_service_pb2 import ScenarioResult, StoredEvaluation
    from podium.sdk import AsyncClient

environment_option = click.option(
    "--environment", default="", help="Of a job with several environments, only this one's part."
)


@click.command("list", short_help="List what is stored.")
@click.option("--project", default="", help="Only this project's.")
@click.option("--environment", default="", help="Only of this environment.")
@click.option("--job", default="", help="Only of this job's policies.")
@click.option("--name", default="", help="Only those of this name.")
@output_option
@connected
async def list_evaluations(
    client: AsyncClient, project: str, environment: str, job: str, name: str, output: str
) -> None:
    """List stored evaluations, newest first."""
    from podium.cli.evaluation.views import EVALUATIONS

    found = client.evaluations.list(project=project, environment=environment, job_id=job, name=name)
    emit_list([each async for each in found], EVALUATIONS, output)


@click.command("show", short_help="Show a stored evaluation.")
@click.argument("evaluation")
@environment_option
@output_option
@connected
async def show(client: AsyncClient, evaluation: str, environment: str, output: str) -> None:
    """Show a stored EVALUATION: its id, or its name where only one has it.

    Or what a job measured of a version while it trained: JOB@VERSION or JOB@ALIAS, with /greedy
    behind it for the greedy attempts.

    The normal output tells the first 20 scenarios; -o json and -o yaml have all of them.
    """
    from podium.cli.evaluation.tables import show_scenarios
    from podium.cli.evaluation.views import EVALUATION
    from podium.core.contract import to_plain
    from podium.sdk.evaluation import attempts_of

    found, results = await _read(client, evaluation, environment)
    if output == "name":
        emit_one(found, EVALUATION, output)
        return
    if output == "table":
        emit_one(found, EVALUATION, output)
        show_scenarios({found.agent: attempts_of(results)}, None)
        return
    plain = to_plain(found)
    # Under another name: `scenarios` is how many there are.
    plain["results"] = [to_plain(result) for result in results]
    data(plain, output)


@click.command("compare", short_help="Say how two stored evaluations differ.")
@click.argument("first")
@click.argument("second")
@click.option(
    "--common", is_flag=True, help="Compare the scenarios that both have, whatever else they have."
)
@environment_option
@plain_output_option
@connected
async def compare_two(
    client: AsyncClient, first: str, second: str, common: bool, environment: str, output: str
) -> None:
    """Say how the evaluation SECOND differs from FIRST; each is an id, or a name.

    Either may be what a job measured of a version while it trained: JOB@VERSION or JOB@ALIAS, with
    /greedy behind it for the greedy attempts.

    Differences of success and reward are paired by scenario, with their 95 % intervals and a paired
    test. Evaluations of different scenarios are refused, unless --common.
    """
    from podium.cli.evaluation.tables import show_summaries
    from podium.core.errors import FailedPreconditionError
    from podium.sdk.evaluation import (
        attempts_of,
        check_same_scenarios,
        compare,
        differences,
        summarise,
    )

    (one, of_one), (two, of_two) = [
        await _read(client, which, environment) for which in (first, second)
    ]
    results = of_one, of_two
    notes = differences(one, two)
    try:
        check_same_scenarios((one, results[0]), (two, results[1]))
    except FailedPreconditionError as error:
        if not common:
            hint = "--common compares the scenarios that both have."
            raise CliError(error.message, hint, Exit.CONFLICT) from error
        notes.insert(0, error.message)
    shared = {each.scenario_id for each in of_one} & {each.scenario_id for each in of_two}
    attempts = [
        [each for each in attempts_of(those) if each.scenario_id in shared] for those in results
    ]
    try:
        found = compare(attempts[0], attempts[1])
    except ValueError as error:
        raise CliError(f"{one.id} and {two.id}: {error}", code=Exit.CONFLICT) from error
    for text in notes:
        note(text)
    summaries = [summarise(each) for each in attempts]
    if output == "table":
        names = _called(one), _called(two)
        show_summaries(dict(zip(names, summaries, strict=True)), {names[1]: found}, names[0])
        return
    plain = {"first": one.id, "second": two.id, **asdict(found), "notes": notes}
    # What each did on the scenarios that were compared.
    sides = zip((one, two), summaries, strict=True)
    data({**plain, "of": {each.id: asdict(summary) for each, summary in sides}}, output)


@click.command("delete", short_help="Delete a stored evaluation.")
@click.argument("evaluation")
@connected
async def delete(client: AsyncClient, evaluation: str) -> None:
    """Delete a stored EVALUATION: its id, or its name where only one has it."""
    from podium.core.errors import InvalidArgumentError, NotFoundError

    which = evaluation
    try:
        # First as an id: one that was deleted before is deleted.
        await client.evaluations.delete(which)
    except (NotFoundError, InvalidArgumentError):
        which = (await _found(client, evaluation)).id
        await client.evaluations.delete(which)
    note(f"deleted {which}")


async def _read(
    client: AsyncClient, which: str, environment: str
) -> tuple[StoredEvaluation, list[ScenarioResult]]:
    """A stored evaluation, or what a job measured of a version, with its scenarios."""
    from podium.core.errors import InvalidArgumentError, NotFoundError
    from podium.sdk.evaluation import is_of_job, job_evaluation

    try:
        found = await _found(client, which)
    except (NotFoundError, InvalidArgumentError) as error:
        # A name may look alike: what is stored under it comes first.
        if not is_of_job(which):
            hint = "'podium eval list' tells what is stored; what a job measured is JOB@VERSION."
            raise CliError(error.message, hint, code_of(error)) from error
        return await job_evaluation(client, which, environment)
    return found, await client.evaluations.results(found.id)


def _called(evaluation: StoredEvaluation) -> str:
    """A job's own evaluation is named by the job and the version already."""
    ours = evaluation.id.startswith(f"{evaluation.agent}/") or evaluation.id == evaluation.agent
    return evaluation.id if ours else f"{evaluation.agent} ({evaluation.id})"


async def _found(client: AsyncClient, which: str) -> StoredEvaluation:
    """An evaluation by its id, or by a name that no other has.

    Raises:
        CliError: several have the name.
        NotFoundError: there is none.
    """
    from podium.core.errors import InvalidArgumentError, NotFoundError

    try:
        return await client.evaluations.get(which)
    except (NotFoundError, InvalidArgumentError):
        # A name may be longer than any id.
        named = [each async for each in client.evaluations.list(name=which)]
        if not named:
            raise
    if len(named) > 1:
        ids = ", ".join(each.id for each in named[:5]) + (", …" if len(named) > 5 else "")
        raise CliError(
            f"{len(named)} stored evaluations are named {which!r}: {ids}",
            "Name the one that you mean by its id.",
            Exit.CONFLICT,
        )
    return named[0]
