"""`python -m bench.coach`: what the coach says of ten sick jobs and of three healthy ones.

Real jobs, one after the other, on one stack of the six services with a real model: vLLM samples,
the trainer trains, and the controller's coach speaks as it does for everybody. Doubles: none but
the judges' models, which follow a written rule.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from podium.core.findings import finding_of
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import Launcher, LauncherConfig
from podium.local.launcher.task import TaskServer
from podium.sdk.client import AsyncClient
from podium.sdk.connection.addresses import locate

from bench.coach.judge_server import judge_server
from bench.coach.patients import MODEL, Patient, patients

TASK = Path(__file__).with_name("task.py")
NEEDED = 9
_JOB_SECONDS = 1800.0


@dataclass
class Outcome:
    """What was said of a job."""

    name: str
    cause: str
    right: str
    state: str
    seconds: float
    said: list[str] = field(default_factory=list)
    """Reasons of the warnings that tell of findings, in their order."""
    messages: list[str] = field(default_factory=list)
    """All warnings and recoveries."""
    steps: list[dict[str, float]] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """The cause is named first, and of a healthy job nothing is said; neither of half a job."""
        said = self.said[:1] == [self.right] if self.right else not self.said
        return said and self.state == "succeeded"


def main() -> int:
    """Returns 1 when fewer than nine of ten are named, or a healthy job is said to be sick."""
    options = _options()
    outcomes = asyncio.run(_run(options.output, options.only))
    print(_table(outcomes))
    sick = [each for each in outcomes if each.right]
    healthy = [each for each in outcomes if not each.right]
    named = sum(each.is_right for each in sick)
    silent = sum(each.is_right for each in healthy)
    print(f"\nnamed {named} of {len(sick)}, silent on {silent} of {len(healthy)}")
    return 0 if named >= min(NEEDED, len(sick)) and silent == len(healthy) else 1


async def _run(output: Path, only: list[str]) -> list[Outcome]:
    data_dir = output.parent / "coach"
    shutil.rmtree(data_dir, ignore_errors=True)
    data_dir.mkdir(parents=True)
    outcomes = []
    config = LauncherConfig(data_dir=data_dir, port_base=0, model=MODEL)
    with judge_server() as judge:
        async with (
            Launcher(config),
            TaskServer(str(TASK), "words", data_dir, lambda event: None) as task,
            AsyncClient(locate(data_dir=data_dir)) as client,
        ):
            known = {patient.name: patient for patient in patients(judge)}
            for name in only or known:
                patient = known[name]
                patient.spec.environment.address = task.address
                outcomes.append(await _play(client, patient))
                print(_line(outcomes[-1]), flush=True)
                # One that is cut short leaves what it has seen.
                _write(output, outcomes)
    shutil.rmtree(data_dir)
    return outcomes


def _write(output: Path, outcomes: list[Outcome]) -> None:
    output.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")


async def _play(client: AsyncClient, patient: Patient) -> Outcome:
    began = time.monotonic()
    job = await client.jobs.create(patient.spec, job_id=patient.name)
    job = await client.jobs.wait(job.id, within=_JOB_SECONDS)
    outcome = Outcome(
        patient.name,
        patient.cause,
        patient.right,
        jobs.JobState.Name(job.state).removeprefix("JOB_STATE_").lower(),
        round(time.monotonic() - began, 1),
    )
    async for event in client.jobs.events(job.id):
        if event.type in (jobs.EVENT_TYPE_WARNING, jobs.EVENT_TYPE_RECOVERY):
            outcome.messages.append(event.message)
        if event.type == jobs.EVENT_TYPE_WARNING and (reason := finding_of(event.message)):
            outcome.said.append(reason)
    async for step in client.jobs.steps(job.id):
        outcome.steps.append(dict(step.metrics))
    return outcome


def _line(outcome: Outcome) -> str:
    said = ", ".join(outcome.said) or "nothing"
    verdict = "right" if outcome.is_right else "WRONG"
    return (
        f"{outcome.name:<13} {outcome.state:<10} {len(outcome.steps):>3} steps "
        f"{outcome.seconds:>6.1f} s  {verdict:<6} {said}"
    )


def _table(outcomes: list[Outcome]) -> str:
    lines = ["", "| job | what ails it | the coach said | right? |", "|---|---|---|---|"]
    for each in outcomes:
        said = ", ".join(f"`{reason}`" for reason in each.said) or "nothing"
        lines.append(
            f"| {each.name} | {each.cause} | {said} | {'yes' if each.is_right else 'NO'} |"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.coach", description=__doc__)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="names")
    parser.add_argument("--output", type=Path, default=Path("build/bench/coach.json"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
