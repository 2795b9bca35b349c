"""A console over real HTTP, in this process, and a job large enough to be slow if anything is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx
from podium.core.page_tokens import page_of
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk import Addresses
from podium.types.v1 import trajectory_pb2
from podium_console.adapters.http_server import serving
from podium_console.adapters.installation import Installation
from podium_console.settings import Settings
from podium_console.web.app import build
from starlette.applications import Starlette
from support.fake_job_service import FakeJobs
from support.fake_podium import FakePodium

Context = grpc.aio.ServicerContext[Any, Any]
MARK = {"x-podium-console": "1"}
"""What the console's own pages send with what changes something."""


@dataclass
class Console:
    """One that runs."""

    url: str
    draining: asyncio.Event
    app: Starlette
    http: httpx.AsyncClient = field(repr=False)


@asynccontextmanager
async def console(fake: FakePodium | Addresses, **settings: Any) -> AsyncIterator[Console]:
    """Serves the console of the doubles, or of a stack, on a free port."""
    here = fake if isinstance(fake, Addresses) else fake.addresses
    given = {
        "port": 0,
        "controller_address": here.controller,
        "registry_address": here.registry,
        "inference_address": here.inference,
        "rollout_address": here.rollout,
        "refresh_seconds": 0.05,
        "drain_seconds": 1,
        **settings,
    }
    chosen = Settings(**given)
    installation, draining = Installation(chosen), asyncio.Event()
    scheme = "https" if chosen.tls_certificate_file else "http"
    try:
        guarded = build(chosen, installation, draining)
        async with serving(guarded, chosen) as port:
            url = f"{scheme}://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=url, timeout=30) as http:
                yield Console(url, draining, guarded.app, http)
            draining.set()
    finally:
        await installation.close()


class PagedJobs(FakeJobs):
    """Turns the pages of steps that it is asked for, as the controller does."""

    async def ListSteps(
        self, request: jobs.ListStepsRequest, context: Context
    ) -> jobs.ListStepsResponse:
        self._job(request.job_id)
        size = request.page_size or 100
        found, more = page_of(self.steps, size, request.page_token, [request.job_id])
        return jobs.ListStepsResponse(steps=found, next_page_token=more)


def trajectory(
    trajectory_id: str, *texts: str, reward: float = 0.5, explanation: str = ""
) -> trajectory_pb2.Trajectory:
    """An episode in which user and assistant say these texts in turn."""
    made = trajectory_pb2.Trajectory(
        id=trajectory_id,
        group_id=trajectory_id.rpartition("/")[0],
        scenario_id="scenario-7",
        attempt=int(trajectory_id.rpartition("/t")[2]),
        reward=reward,
        stop_reason=trajectory_pb2.STOP_REASON_TERMINATED,
        explanation=explanation,
    )
    made.start_time.seconds, made.end_time.seconds = 1_800_000_000, 1_800_000_012
    made.reward_parts["ruler"] = reward
    made.metrics["success"] = float(reward > 0.5)
    history = made.histories.add()
    for at, text in enumerate(texts or ("Find the invoice.", "search('invoice')")):
        role = trajectory_pb2.ROLE_ASSISTANT if at % 2 else trajectory_pb2.ROLE_USER
        history.messages.add(role=role, content=text)
    history.tokens.spans.add(start=3, length=12, weights_version=1)
    return made
