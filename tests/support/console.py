"""A console over real HTTP, in this process, and a job large enough to be slow if anything is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import httpx
from podium.core.errors import UnavailableError
from podium.core.page_tokens import page_of
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk import Addresses
from podium.types.v1 import trajectory_pb2
from podium_console.adapters.http_server import serving
from podium_console.adapters.installation import Installation
from podium_console.domain.views import ENDED
from podium_console.settings import Settings
from podium_console.web.app import build
from starlette.applications import Starlette
from support.fake_job_service import FakeJobs
from support.fake_podium import FakePodium

Row = TypeVar("Row")
Context = grpc.aio.ServicerContext[Any, Any]
MARK = {"x-podium-console": "1"}
"""What the console's own pages send with what changes something."""
JOBS = "/podium.jobs.v1.JobService"
"""Where the API's methods of jobs are."""


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


async def post(here: Console, method: str, body: Any = None, **headers: str) -> httpx.Response:
    """Calls a method of JobService with a message as JSON, or with such bytes."""
    sent = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    headers = {"content-type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    return await here.http.post(f"{JOBS}/{method}", content=sent, headers=headers)


@dataclass
class PagedJobs(FakeJobs):
    """Turns the pages of steps, evaluations and events, as the controller does."""

    pages: list[int] = field(default_factory=list)
    """How many rows each page had that was asked for."""
    token_version: int = 1
    """Tokens of another version are refused."""
    break_after_pages: int | None = None
    """How many more pages there are before the controller goes away; None for all."""

    async def ListSteps(
        self, request: jobs.ListStepsRequest, context: Context
    ) -> jobs.ListStepsResponse:
        self._job(request.job_id)
        found, more = self._page(self.steps_of.get(request.job_id, self.steps), request)
        return jobs.ListStepsResponse(steps=found, next_page_token=more)

    async def ListEvaluations(
        self, request: jobs.ListEvaluationsRequest, context: Context
    ) -> jobs.ListEvaluationsResponse:
        self._job(request.job_id)
        found, more = self._page(self.evaluations, request)
        return jobs.ListEvaluationsResponse(evaluations=found, next_page_token=more)

    async def ListEvents(
        self, request: jobs.ListEventsRequest, context: Context
    ) -> jobs.ListEventsResponse:
        self._job(request.job_id)
        events = [update.event for update in self.updates][: self.listed]
        found, more = self._page(events, request)
        return jobs.ListEventsResponse(events=found, next_page_token=more)

    def _page(
        self,
        rows: Sequence[Row],
        request: jobs.ListStepsRequest | jobs.ListEventsRequest | jobs.ListEvaluationsRequest,
    ) -> tuple[Sequence[Row], str]:
        if self.break_after_pages is not None:
            self.break_after_pages -= 1
            if self.break_after_pages < 0:
                raise UnavailableError("draining")
        made_for = [request.job_id, self.token_version]
        found, more = page_of(rows, request.page_size or 100, request.page_token, made_for)
        self.pages.append(len(found))
        return found, more


@dataclass
class LiveJobs(PagedJobs):
    """Tells its watches what happens while they are open, until the job has ended."""

    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def tell(self, kind: jobs.EventType.ValueType, message: str, **of: Any) -> None:
        """Something happens to the job `live`: of a step, `step=` too."""
        update = jobs.WatchJobResponse(job=self.known["live"], **of)
        update.event.sequence = len(self.updates) + 1
        update.event.type, update.event.message = kind, message
        update.event.time.seconds = 1_800_000_000 + len(self.updates)
        async with self.news:
            self.updates.append(update)
            self.news.notify_all()

    async def WatchJob(
        self, request: jobs.WatchJobRequest, context: Context
    ) -> AsyncIterator[jobs.WatchJobResponse]:
        known, seen = self._job(request.job_id), request.after_sequence
        while known.state not in ENDED:
            async with self.news:
                await self.news.wait_for(lambda seen=seen: len(self.updates) > seen)  # type: ignore[misc]
                found = self.updates[seen:]
            for update in found:
                yield update
            seen += len(found)


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
