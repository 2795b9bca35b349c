"""`podium eval list|show|compare|delete`: what was measured before."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.output import data, emit_list, emit_one, note, output_option, plain_output_option

if TYPE_CHECKING:
    from podium.jobs.v1.evaluation_service_pb2 import StoredEvaluation
    from podium.sdk import AsyncClient


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
@output_option
@connected
async def show(client: AsyncClient, evaluation: str, output: str) -> None:
    """Show a stored EVALUATION: its id, or its name where only one has it.

    The normal output tells the first 20 scenarios; -o json and -o yaml have all of them.
    """
    from podium.cli.evaluation.tables import show_scenarios
    from podium.cli.evaluation.views import EVALUATION
    from podium.core.contract import to_plain
    from podium.sdk.evaluation import attempts_of

    found = await _found(client, evaluation)
    if output == "name":
        emit_one(found, EVALUATION, output)
        return
    results = await client.evaluations.results(found.id)
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
@plain_output_option
@connected
async def compare_two(
    client: AsyncClient, first: str, second: str, common: bool, output: str
) -> None:
    """Say how the stored evaluation SECOND differs from FIRST; each is an id, or a name.

    Differences of success and reward are paired by scenario, with their 95 % intervals and a paired
    test. Evaluations of different scenarios are refused, unless --common.
    """
    from podium.cli.evaluation.tables import comparison_line
    from podium.core.errors import FailedPreconditionError
    from podium.sdk.evaluation import attempts_of, check_same_scenarios, compare, differences

    one, two = await _found(client, first), await _found(client, second)
    results = [await client.evaluations.results(each.id) for each in (one, two)]
    notes = differences(one, two)
    try:
        check_same_scenarios((one, results[0]), (two, results[1]))
    except FailedPreconditionError as error:
        if not common:
            hint = "--common compares the scenarios that both have."
            raise CliError(error.message, hint, Exit.CONFLICT) from error
        notes.insert(0, error.message)
    try:
        found = compare(attempts_of(results[0]), attempts_of(results[1]))
    except ValueError as error:
        raise CliError(f"{one.id} and {two.id}: {error}", code=Exit.CONFLICT) from error
    for text in notes:
        note(text)
    if output == "table":
        click.echo(comparison_line(_called(two), _called(one), found))
        return
    data({"first": one.id, "second": two.id, **asdict(found), "notes": notes}, output)


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


def _called(evaluation: StoredEvaluation) -> str:
    return f"{evaluation.agent} ({evaluation.id})"


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
