"""Evaluations that the controller keeps: EvaluationService."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.jobs.v1 import evaluation_service_pb2_grpc as pb_grpc
from podium.kit.rpc import retry_unavailable
from podium.sdk.connection.failures import failures
from podium.sdk.paging import pages

if TYPE_CHECKING:
    import builtins

    import grpc

_PAGE = 500
_MESSAGE_BYTES = 2**20
_MESSAGE_SCENARIOS = 1000
_STORE_SECONDS = 120.0
_RETRY_SECONDS = 60.0


class Evaluations:
    """EvaluationService.

    Every method raises `UnavailableError` while the controller cannot be reached,
    `DeadlineExceededError` when it does not answer in time, and `UnauthenticatedError` or
    `PermissionDeniedError` where a token is asked for. What else one raises stands there; all are
    of `podium.core.errors`.
    """

    def __init__(self, channel: Callable[[], grpc.aio.Channel], place: str = "") -> None:
        self._channel = channel
        self._failures = failures("controller", place)

    @property
    def _stub(self) -> pb_grpc.EvaluationServiceAsyncStub:
        return pb_grpc.EvaluationServiceStub(self._channel())

    async def store(
        self,
        evaluation: pb.StoredEvaluation,
        results: Sequence[pb.ScenarioResult],
        *,
        request_id: str = "",
        patience_seconds: float = _RETRY_SECONDS,
    ) -> pb.StoredEvaluation:
        """Stores an evaluation, once, however often the connection is lost.

        Args:
            evaluation: what was evaluated, of what and how; its id and numbers are the
                controller's.
            results: each scenario's, at least one.
            request_id: the same one again, from whatever client, is the same evaluation; made up
                when empty.
            patience_seconds: how long a controller that is away is asked again.

        Raises:
            InvalidArgumentError: there is no scenario, one comes twice, or a number is not finite.
            AlreadyExistsError: `request_id` was used with another one, or its evaluation was
                deleted.
            ResourceExhaustedError: it is too large, or the store is full.
        """
        header = pb.EvaluationHeader(
            evaluation=evaluation, request_id=request_id or uuid.uuid4().hex
        )

        async def messages() -> AsyncIterator[pb.StoreEvaluationRequest]:
            yield pb.StoreEvaluationRequest(header=header)
            for some in _parts(results):
                yield pb.StoreEvaluationRequest(scenarios=pb.ScenarioResults(results=some))

        async def once() -> pb.StoredEvaluation:
            with self._failures():
                response = await self._stub.StoreEvaluation(messages(), timeout=_STORE_SECONDS)
                return response.evaluation

        return await retry_unavailable(once, timeout_s=patience_seconds)

    async def get(self, evaluation_id: str) -> pb.StoredEvaluation:
        """Reads an evaluation, without its scenarios.

        Args:
            evaluation_id: its id.

        Raises:
            NotFoundError: there is no such evaluation.
        """
        request = pb.GetStoredEvaluationRequest(evaluation_id=evaluation_id)
        with self._failures():
            return (await self._stub.GetStoredEvaluation(request)).evaluation

    async def list(
        self, *, project: str = "", environment: str = "", job_id: str = "", name: str = ""
    ) -> AsyncGenerator[pb.StoredEvaluation, None]:
        """Evaluations, newest first.

        Args:
            project, environment, job_id, name: only those of it; empty for all.
        """
        request = pb.ListStoredEvaluationsRequest(
            project=project, environment=environment, job_id=job_id, name=name, page_size=_PAGE
        )
        with self._failures():
            async for each in pages(
                self._stub.ListStoredEvaluations, request, lambda r: r.evaluations
            ):
                yield each

    async def results(self, evaluation_id: str) -> builtins.list[pb.ScenarioResult]:
        """All scenarios of an evaluation, in its order.

        Args:
            evaluation_id: its id.

        Raises:
            NotFoundError: there is no such evaluation.
        """
        request = pb.ListScenarioResultsRequest(evaluation_id=evaluation_id, page_size=_PAGE)
        with self._failures():
            found = pages(self._stub.ListScenarioResults, request, lambda r: r.results)
            return [each async for each in found]

    async def delete(self, evaluation_id: str) -> None:
        """Deletes an evaluation. Again it is no error.

        Args:
            evaluation_id: its id.

        Raises:
            NotFoundError: there never was such an evaluation.
        """
        request = pb.DeleteStoredEvaluationRequest(evaluation_id=evaluation_id)
        with self._failures():
            await self._stub.DeleteStoredEvaluation(request)


def _parts(results: Sequence[pb.ScenarioResult]) -> Iterator[list[pb.ScenarioResult]]:
    """The scenarios in messages that every limit passes."""
    part: list[pb.ScenarioResult] = []
    size = 0
    for result in results:
        size += result.ByteSize()
        if part and (size > _MESSAGE_BYTES or len(part) == _MESSAGE_SCENARIOS):
            yield part
            part, size = [], result.ByteSize()
        part.append(result)
    if part:
        yield part
