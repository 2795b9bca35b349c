"""EvaluationService over gRPC: validates, calls the store, maps the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import grpc
from podium.core.errors import InvalidArgumentError, ResourceExhaustedError, Violation
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.jobs.v1 import evaluation_service_pb2_grpc

from podium_controller.api import paging
from podium_controller.domain.identifiers import DEFAULT_PROJECT
from podium_controller.domain.stored_evaluations import MAX_BYTES, MAX_SCENARIOS, checked
from podium_controller.pools.projects import Projects
from podium_controller.store import EvaluationStore
from podium_controller.store.evaluations import EvaluationFilter

Context = grpc.aio.ServicerContext[Any, Any]

_DEFAULT_PAGE = 100
_DEFAULT_RESULTS = 500
# A page must pass every message limit on its way.
_PAGE_BYTES = 2 * 1024 * 1024


class EvaluationServicer(evaluation_service_pb2_grpc.EvaluationServiceServicer):
    """Every replica answers."""

    def __init__(self, store: EvaluationStore, projects: Projects) -> None:
        self._store = store
        self._projects = projects

    async def StoreEvaluation(
        self, request_iterator: AsyncIterator[pb.StoreEvaluationRequest], context: Context
    ) -> pb.StoreEvaluationResponse:
        """See the proto file."""
        header, results = await _received(request_iterator, self._check)
        # Intervals of 100,000 scenarios take a while, and the loop is other callers' too.
        new = await asyncio.to_thread(checked, header, results)
        return pb.StoreEvaluationResponse(evaluation=await self._store.store(new))

    async def GetStoredEvaluation(
        self, request: pb.GetStoredEvaluationRequest, context: Context
    ) -> pb.GetStoredEvaluationResponse:
        """See the proto file."""
        found = await self._store.get(request.evaluation_id)
        return pb.GetStoredEvaluationResponse(evaluation=found)

    async def ListStoredEvaluations(
        self, request: pb.ListStoredEvaluationsRequest, context: Context
    ) -> pb.ListStoredEvaluationsResponse:
        """See the proto file."""
        cursor = paging.decode(request, [int])
        wanted = EvaluationFilter(
            request.project, request.environment, request.job_id, request.name
        )
        found, before = await self._store.page(
            wanted, int(cursor[0]) if cursor else None, request.page_size or _DEFAULT_PAGE
        )
        token = paging.encode(request, [before]) if before is not None else ""
        return pb.ListStoredEvaluationsResponse(evaluations=found, next_page_token=token)

    async def ListScenarioResults(
        self, request: pb.ListScenarioResultsRequest, context: Context
    ) -> pb.ListScenarioResultsResponse:
        """See the proto file."""
        cursor = paging.decode(request, [int])
        results, after = await self._store.results(
            request.evaluation_id,
            int(cursor[0]) if cursor else -1,
            request.page_size or _DEFAULT_RESULTS,
            _PAGE_BYTES,
        )
        token = paging.encode(request, [after]) if after is not None else ""
        return pb.ListScenarioResultsResponse(results=results, next_page_token=token)

    async def DeleteStoredEvaluation(
        self, request: pb.DeleteStoredEvaluationRequest, context: Context
    ) -> pb.DeleteStoredEvaluationResponse:
        """See the proto file."""
        await self._store.delete(request.evaluation_id)
        return pb.DeleteStoredEvaluationResponse()

    def _check(self, header: pb.EvaluationHeader) -> None:
        evaluation = header.evaluation
        evaluation.project = evaluation.project or DEFAULT_PROJECT
        wrong = self._projects.violations(evaluation.project)
        if wrong:
            field = "header.evaluation.project"
            found = [replace(each, field=field) for each in wrong]
            raise InvalidArgumentError(violations=found, reason="INVALID_EVALUATION")


async def _received(
    requests: AsyncIterator[pb.StoreEvaluationRequest], check: Callable[[pb.EvaluationHeader], None]
) -> tuple[pb.EvaluationHeader, list[pb.ScenarioResult]]:
    """The whole stream; it ends as soon as there is too much of it."""
    header: pb.EvaluationHeader | None = None
    results: list[pb.ScenarioResult] = []
    size = 0
    async for request in requests:
        kind = request.WhichOneof("item")
        if header is None and kind == "header":
            header = request.header
            check(header)
        elif header is not None and kind == "scenarios":
            size += request.ByteSize()
            results.extend(request.scenarios.results)
            if len(results) > MAX_SCENARIOS or size > MAX_BYTES:
                raise ResourceExhaustedError(
                    f"got {len(results)} scenarios of {size} bytes and more; allowed are"
                    f" {MAX_SCENARIOS} of {MAX_BYTES} bytes together",
                    reason="EVALUATION_TOO_LARGE",
                )
        else:
            wanted = "scenarios" if header is not None else "the header first"
            text = f"got {kind or 'nothing'}; allowed is {wanted}"
            raise InvalidArgumentError(violations=[Violation("item", text)])
    if header is None:
        text = "got an empty stream; allowed is the header first, then scenarios"
        raise InvalidArgumentError(violations=[Violation("item", text)])
    return header, results
