"""A job's steps, evaluations and events, of which a look asks for those that are new alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from podium.jobs.v1 import job_service_pb2 as pb
from podium.jobs.v1 import job_service_pb2_grpc as pb_grpc
from podium.kit.rpc import rpc_errors

from podium_console.adapters.growing import PAGE, Growing
from podium_console.domain.evaluations import Evaluations
from podium_console.domain.events import Events
from podium_console.domain.series import StepSeries

_MOST_BYTES = 32 * 2**20
"""Of all jobs' steps, and as much of their events; 500 steps with 57 numbers are half a MB."""


class JobHistory:
    """What jobs have done so far, for all who look."""

    def __init__(self, stub: Callable[[], pb_grpc.JobServiceAsyncStub]) -> None:
        """`stub` calls the controller with the token of whoever asks."""
        self._stub = stub
        self._steps = Growing[pb.Step, StepSeries](StepSeries, _step, _MOST_BYTES)
        self._evaluations = Growing[pb.Evaluation, Evaluations](
            Evaluations, _evaluation, _MOST_BYTES
        )
        self._events = Growing[pb.Event, Events](Events, _event, _MOST_BYTES)

    async def steps(self, job_id: str) -> StepSeries:
        """Every step's numbers.

        Raises:
            PodiumError: as ListSteps.
        """

        async def ask(token: str) -> tuple[Sequence[pb.Step], str]:
            request = pb.ListStepsRequest(job_id=job_id, page_size=PAGE, page_token=token)
            with rpc_errors("controller"):
                found = await self._stub().ListSteps(request)
            return found.steps, found.next_page_token

        return await self._steps.look(job_id, ask)

    async def evaluations(self, job_id: str) -> Evaluations:
        """What every evaluation of its versions measured.

        Raises:
            PodiumError: as ListEvaluations.
        """

        async def ask(token: str) -> tuple[Sequence[pb.Evaluation], str]:
            request = pb.ListEvaluationsRequest(job_id=job_id, page_size=PAGE, page_token=token)
            with rpc_errors("controller"):
                found = await self._stub().ListEvaluations(request)
            return found.evaluations, found.next_page_token

        return await self._evaluations.look(job_id, ask)

    async def events(self, job_id: str) -> Events:
        """Every event.

        Raises:
            PodiumError: as ListEvents.
        """

        async def ask(token: str) -> tuple[Sequence[pb.Event], str]:
            request = pb.ListEventsRequest(job_id=job_id, page_size=PAGE, page_token=token)
            with rpc_errors("controller"):
                found = await self._stub().ListEvents(request)
            return found.events, found.next_page_token

        return await self._events.look(job_id, ask)


def _step(row: pb.Step) -> Hashable:
    return row.number, row.commit_time.ToNanoseconds()


def _evaluation(row: pb.Evaluation) -> Hashable:
    return row.version, row.mode, row.time.ToNanoseconds()


def _event(row: pb.Event) -> Hashable:
    return row.sequence, row.time.ToNanoseconds()
