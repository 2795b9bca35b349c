"""The demo from an empty folder to a trained policy."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from podium.cli.demo.result import measure, tell
from podium.cli.episodes import role_name
from podium.cli.exits import CliError, Exit
from podium.cli.html_report import collect, render
from podium.cli.job.submit import load
from podium.cli.local_training import follow, need_success, stack_config
from podium.cli.output import note
from podium.cli.stack import print_event
from podium.core.errors import FailedPreconditionError
from podium.core.job_environments import title_of
from podium.core.names import slug
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import Launcher, upfile
from podium.local.models import resolve
from podium.sdk.client import AsyncClient
from podium.sdk.connection.addresses import locate
from podium.types.v1 import trajectory_pb2

_MAX_ID = 63


@dataclass(frozen=True)
class Demo:
    """What to run. `settings` are `KEY=VALUE` on top of the job file."""

    job_file: Path
    settings: tuple[str, ...]
    folder: Path
    keep: bool = False
    ready_timeout_seconds: float = 300.0

    @property
    def stack(self) -> Path:
        """The data directory of the stack."""
        return self.folder / "stack"


async def run(demo: Demo) -> int:
    """Runs the demo; returns an exit code."""
    spec = load(str(demo.job_file), demo.settings).spec
    resolve(spec.base_model)
    _clear(demo)
    note(click.style("starting the six services", bold=True))
    config = stack_config(demo.stack, spec.base_model, demo.ready_timeout_seconds)
    async with Launcher(config, print_event) as stack:
        addresses = locate(data_dir=demo.stack)
        async with AsyncClient(addresses) as client:
            name = slug(title_of(spec))[:_MAX_ID].strip("-") or "job"
            job = await client.jobs.create(spec, job_id=name, request_id=name)
            note(click.style(f"\ntraining {spec.base_model} on {title_of(spec)}", bold=True))
            note(f"watch it from elsewhere: podium job watch {job.id} --data-dir {demo.stack}\n")
            job = await follow(client, job.id)
            need_success(job, demo.stack)
            await _results(demo, client, job)
        _how_to_chat(demo, job)
        if demo.keep:
            note("\nthe services stay up; Ctrl-C stops them")
            ended = await stack.wait()
            raise CliError(f"{ended} does not stay up", f"Its log is {stack.log(ended)}.")
    return Exit.OK


async def _results(demo: Demo, client: AsyncClient, job: jobs.Job) -> None:
    data = await collect(client, job.id, episodes=3)
    result = measure(data)
    click.echo(tell(data, result))
    report, summary = demo.folder / "report.html", demo.folder / "result.json"
    await asyncio.to_thread(report.write_text, render(data), encoding="utf-8")
    await asyncio.to_thread(summary.write_text, result.json())
    await asyncio.to_thread(_write_prompt, demo, data.after)
    click.echo(f"\nreport   {report}\nnumbers  {summary}")


def _write_prompt(demo: Demo, episodes: Sequence[trajectory_pb2.Trajectory]) -> None:
    """One held-out scenario's opening, to chat with: what comes first, and the question."""
    for episode in episodes[:1]:
        *earlier, question = opening(episode)
        (demo.folder / "history.json").write_text(json.dumps(earlier, indent=2), encoding="utf-8")
        (demo.folder / "question.txt").write_text(question["content"] + "\n", encoding="utf-8")


def opening(episode: trajectory_pb2.Trajectory) -> list[dict[str, str]]:
    """The messages before the first sampled one, the environment's worked example included."""
    messages = episode.histories[0].messages
    answers = [i for i, m in enumerate(messages) if m.role == trajectory_pb2.ROLE_ASSISTANT]
    # Listed episodes come without tokens, so the turns tell which answers were sampled.
    first = answers[-round(episode.metrics["turns"])]
    return [
        {
            "role": role_name(message.role),
            "content": message.content,
        }
        for message in messages[:first]
    ]


def _how_to_chat(demo: Demo, job: jobs.Job) -> None:
    version = f"{job.id}@{job.completed_steps}"
    where = f"--data-dir {demo.stack}"
    opened = f"--history {demo.folder / 'history.json'} < {demo.folder / 'question.txt'}"
    lines = [
        f"podium chat {where} -m {version}",
        f"podium chat {where} -m {version} {opened}",
    ]
    if not demo.keep:
        lines.insert(0, f"podium up {where} &")
    click.echo("\nchat with the trained policy, freely or on a scenario it has not seen:")
    for line in lines:
        click.echo(f"  {line}")


def _clear(demo: Demo) -> None:
    if upfile.read(demo.stack) is not None:
        raise FailedPreconditionError(
            f"a demo still runs in {demo.stack}; stop it with 'podium down --data-dir {demo.stack}'"
        )
    for path in (demo.stack, *demo.folder.glob("*.txt"), demo.folder / "history.json"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    demo.folder.mkdir(parents=True, exist_ok=True)
