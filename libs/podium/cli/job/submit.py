"""`podium job submit`."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from podium.cli.connection import connected
from podium.cli.exits import CliError, Exit
from podium.cli.output import data, emit_one, note, output_option

if TYPE_CHECKING:
    from podium.core.errors import Violation
    from podium.sdk import AsyncClient
    from podium.types.v1 import spec_pb2


@click.command(short_help="Submit a job file.")
@click.option("-f", "--file", required=True, metavar="FILE", help="The job file; - reads stdin.")
@click.option("--id", "job_id", default="", help="The job's id. [default: the server makes one]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("--project", default="", help="The project that it counts for.")
@click.option("--follow", is_flag=True, help="Follow the progress; Ctrl-C leaves the job running.")
@click.option("--plot", is_flag=True, help="With --follow: draw the curves at the end.")
@click.option("--wait", is_flag=True, help="Wait silently until the job has ended.")
@click.option("--timeout", type=float, help="Seconds that --follow or --wait may take.")
@click.option("--dry-run", is_flag=True, help="Check everything, print the whole job, create none.")
@click.option("--request-id", default="", help="Makes a repeated submission the same job.")
@output_option
@connected
async def submit(
    client: AsyncClient,
    file: str,
    job_id: str,
    settings: Sequence[str],
    project: str,
    follow: bool,
    plot: bool,
    wait: bool,
    timeout: float | None,  # noqa: ASYNC109 : an option's name
    dry_run: bool,
    request_id: str,
    output: str,
) -> int:
    """Submit a job file and print the job.

    A file is YAML; 'podium job init' prints one to start from, 'podium job
    schema' lists every key. --set takes the same keys with dots and may be
    repeated: --set training.steps=20 --set rollout.sampling.temperature=0.8
    A fork's version may be an alias of its model, such as best.
    """
    from podium.cli.views import JOB
    from podium.core.contract import fork_alias as fork
    from podium.core.contract import to_plain, to_yaml

    if plot:
        from podium.cli.job.watch import needs_plotext

        needs_plotext()
    spec, alias = load(file, [*settings, f"project={project}"] if project else settings)
    await fork.resolve(spec, alias, client.checkpoints.get)
    request_id = request_id or uuid.uuid4().hex
    if dry_run:
        job = await client.jobs.create(spec, job_id=job_id, validate_only=True)
        if output == "json":
            data(to_plain(job.spec), output)
        else:
            click.echo(to_yaml(job.spec), nl=False)
        note(f"{file} is valid; nothing was created")
        return Exit.OK
    job = await client.jobs.create(spec, job_id=job_id, request_id=request_id)
    note(f"job {job.id} created (request id {request_id})")
    if not follow and not wait:
        emit_one(job, JOB, output)
        note(f"follow it with: podium job watch {job.id}")
        return Exit.OK
    from podium.cli.job.watch import follow_job

    return await follow_job(
        client, job.id, output=output, quiet=not follow, within=timeout, plot=plot
    )


class JobFile(NamedTuple):
    """What a job file says."""

    spec: spec_pb2.JobSpec
    fork_alias: str
    """The alias of the version to fork, which the spec then leaves open; empty for none."""


def load(file: str, settings: Sequence[str], *, counts_steps: bool = False) -> JobFile:
    """Reads and checks a job file with overrides.

    Args:
        counts_steps: the file may leave out training.steps, which its reader knows.

    Raises:
        CliError: with every violation, each with its place in the file.
    """
    from podium.cli.job.overrides import apply
    from podium.core.contract import fork_alias as fork
    from podium.core.contract import parse_yaml, validate
    from podium.core.contract.nodes import compose
    from podium.types.v1 import spec_pb2

    text = _read(file)
    # Of what is no YAML nothing else can be said.
    _, problems = compose(text)
    alias = ""
    spec, violations = parse_yaml(text, spec_pb2.JobSpec)
    if not problems:
        alias, violations, settings = fork.take_alias(text, violations, settings)
        problems = apply(spec, violations, settings)
        if counts_steps and not spec.training.steps:
            missing = {v for v in validate(spec) if v.field == "training.steps"}
            problems = [each for each in problems if replace(each, line=0) not in missing]
    if problems:
        name = "<stdin>" if file == "-" else file
        lines = [describe(name, problem) for problem in problems]
        count = f"{len(lines)} problems" if len(lines) > 1 else "1 problem"
        raise CliError(
            f"{name} is not a valid job ({count})\n" + "\n".join(lines),
            "'podium job schema' lists every key with its type, range and default.",
            Exit.USAGE,
        )
    return JobFile(spec, alias)


def describe(name: str, violation: Violation) -> str:
    """`job.yaml:12: training.learning_rat: unknown key; did you mean learning_rate?`"""
    place = f"{name}:{violation.line}" if violation.line else name
    return ": ".join(filter(None, (place, violation.field, violation.description)))


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "'podium job init > job.yaml' writes one to start from."
        raise CliError(f"there is no file {file}", hint, Exit.USAGE) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}", code=Exit.USAGE) from None
