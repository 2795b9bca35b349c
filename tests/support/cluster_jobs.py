"""Jobs of a release in a cluster, as somebody outside of it submits and follows them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

import pytest
from podium import AsyncClient
from podium.core.contract import to_plain
from podium.core.errors import PodiumError
from support.kubernetes_cluster import RELEASE, Installation

JOB = """
recovery_timeout_seconds: 1800
base_model: smollm2-135m-instruct
environment: {{name: email_search, config: {{actions: [search, select]}}}}
rollout:
  group_size: 4
  groups_per_step: 2
  sampling: {{temperature: 1.0, max_tokens: 16}}
  episode: {{max_turns: 2}}
training:
  steps: {steps}
  learning_rate: 2.0e-4
  lora: {{rank: 8}}
  loss: {{kl_coefficient: 0.01}}
"""

ENDED = {"succeeded", "failed", "cancelled"}
# More steps than any test sees the end of.
ENDLESS = 1000
LASTING = "left"
"""The job that the last tests find, replace and leave in its middle."""


SERVICES = {
    "PODIUM_ADDRESS": ("controller", 50051),
    "PODIUM_REGISTRY_ADDRESS": ("registry", 50052),
    "PODIUM_INFERENCE_ADDRESS": ("inference-default", 50053),
    "PODIUM_ROLLOUT_ADDRESS": ("rollout", 50054),
}


@contextmanager
def outside(
    installation: Installation, variables: Sequence[str] = tuple(SERVICES)
) -> Iterator[dict[str, str]]:
    """The environment of a client outside of the cluster, to the pods that answer now."""
    with ExitStack() as stack:
        addresses = {}
        for variable in variables:
            component, port = SERVICES[variable]
            forward = installation.cluster.forward(f"svc/{RELEASE}-{component}", port)
            # A name that the certificate has.
            address = stack.enter_context(forward).replace("127.0.0.1", "localhost")
            addresses[variable] = address
        yield {
            **os.environ,
            **installation.certificate,
            **addresses,
            "PODIUM_TOKEN": installation.token,
        }


def client_of(environment: Mapping[str, str], timeout: float = 30) -> AsyncClient:
    """The SDK in such an environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return AsyncClient(timeout=timeout)


def submit(client: dict[str, str], job_id: str, steps: int, *settings: str) -> None:
    """`settings` are of `--set`."""
    given = [part for setting in settings for part in ("--set", setting)]
    command = ("job", "submit", "-f", "-", "--id", job_id, *given)
    podium(client, *command, text_in=JOB.format(steps=steps))


def follow(installation: Installation, job_id: str) -> None:
    """Waits until a job has ended; it must have succeeded, with every step once."""
    job = until(installation, job_id, lambda job: job["state"] in ENDED)
    with outside(installation, ["PODIUM_ADDRESS"]) as client:
        steps = json.loads(podium(client, "job", "steps", job_id, "-o", "json"))
    wanted = int(job["spec"]["training"]["steps"])
    assert [int(step["number"]) for step in steps] == list(range(1, wanted + 1))


def in_the_middle(installation: Installation, job_id: str) -> None:
    """A long job after its first step: the one of an earlier test, or a new one."""
    with outside(installation, ["PODIUM_ADDRESS"]) as client:
        if job_id not in podium(client, "job", "list", "-o", "name").split():
            submit(client, job_id, ENDLESS)
    reached(installation, job_id, 1)


def goes_on(installation: Installation, job_id: str, steps: int = 2) -> None:
    """Waits until a long job has done so many steps more; each was done once.

    The first of them may have been all but done.
    """
    reached(installation, job_id, completed(installation, job_id) + steps)
    with outside(installation, ["PODIUM_ADDRESS"]) as client:
        made = json.loads(podium(client, "job", "steps", job_id, "-o", "json"))
    numbers = [int(step["number"]) for step in made]
    assert numbers == list(range(1, len(numbers) + 1))


def completed(installation: Installation, job_id: str) -> int:
    """How many steps a job has done."""
    return int(until(installation, job_id, lambda job: True).get("completed_steps", 0))


def reached(installation: Installation, job_id: str, steps: int) -> None:
    """Waits until a job has done that many steps."""
    until(installation, job_id, lambda job: int(job.get("completed_steps", 0)) >= steps)


def until(
    installation: Installation,
    job_id: str,
    condition: Callable[[dict[str, Any]], bool],
    *,
    within: float = 1200,
) -> dict[str, Any]:
    """The job once the condition holds, through a controller that comes and goes."""
    end = time.monotonic() + within
    with closing(_looks(installation, job_id)) as looks:
        for job in looks:
            if job and condition(job):
                told = f"{job['state']}: {job.get('failure_reason')}: {job.get('failure_message')}"
                assert job["state"] not in ENDED - {"succeeded"}, told
                return job
            assert job.get("state") not in ENDED, f"{job}\n{installation.cluster.state()}"
            assert time.monotonic() < end, f"{job}\n{installation.cluster.state()}"
    raise AssertionError("looks have no end")


def _looks(installation: Installation, job_id: str) -> Generator[dict[str, Any], None, None]:
    """The job, twice a second and by one forward for as long as that holds; {} where none does."""
    while True:
        controller = outside(installation, ["PODIUM_ADDRESS"])
        with suppress(AssertionError, PodiumError), controller as client:
            while True:
                yield asyncio.run(_job(client, job_id))
                time.sleep(0.5)
        yield {}
        time.sleep(0.5)


async def _job(environment: Mapping[str, str], job_id: str) -> dict[str, Any]:
    """As `podium job get ID -o json` has it, without a process of its own at each look."""
    async with client_of(environment, timeout=10) as client:
        found: dict[str, Any] = to_plain(await client.jobs.get(job_id))
        return found


def podium(client: dict[str, str], *arguments: str, text_in: str | None = None) -> str:
    """What the CLI prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "podium.cli", *arguments],
        env=client,
        input=text_in,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
