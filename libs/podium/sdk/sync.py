"""The synchronous client: the asynchronous one on a thread of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

from podium.inference.v1 import inference_service_pb2
from podium.jobs.v1 import job_service_pb2
from podium.registry.v1 import registry_service_pb2
from podium.rollout.v1 import rollout_service_pb2
from podium.sdk.addresses import Addresses
from podium.sdk.client import AsyncClient
from podium.sdk.sync_models import SyncModels
from podium.training.backend import Backend
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

ItemT = TypeVar("ItemT")


class Client:
    """Talks to a Podium installation. Use it in a `with` block; safe for one thread at a time."""

    def __init__(
        self,
        addresses: Addresses | None = None,
        *,
        context: str = "",
        timeout: float = 30.0,
        backend: Backend | None = None,
    ) -> None:
        """As `AsyncClient`."""
        self._exit = ExitStack()
        self._portal = self._exit.enter_context(start_blocking_portal())
        try:
            self._client = self._portal.call(
                lambda: AsyncClient(addresses, context=context, timeout=timeout, backend=backend)
            )
        except BaseException:
            self._exit.close()
            raise
        self._exit.callback(self._portal.call, self._client.close)
        self.jobs = SyncJobs(self._portal, self._client)
        self.policies = SyncPolicies(self._portal, self._client)
        self.checkpoints = SyncCheckpoints(self._portal, self._client)
        self.environments = SyncEnvironments(self._portal, self._client)
        self.models = SyncModels(self._portal, self._client.models)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the channels and ends the thread. Idempotent."""
        self._exit.close()


class _Part:
    def __init__(self, portal: BlockingPortal, client: AsyncClient) -> None:
        self._portal = portal
        self._client = client

    def _iterate(self, make: Callable[[], AsyncGenerator[ItemT, None]]) -> Iterator[ItemT]:
        source = make()

        async def advance() -> tuple[ItemT, ...]:
            async for item in source:
                return (item,)
            return ()

        try:
            while item := self._portal.call(advance):
                yield item[0]
        finally:
            self._portal.call(source.aclose)


class SyncJobs(_Part):
    """As `podium.sdk.jobs.Jobs`."""

    def create(
        self,
        spec: spec_pb2.JobSpec,
        *,
        job_id: str = "",
        request_id: str = "",
        validate_only: bool = False,
    ) -> job_service_pb2.Job:
        """Creates a job."""
        return self._portal.call(
            lambda: self._client.jobs.create(
                spec, job_id=job_id, request_id=request_id, validate_only=validate_only
            )
        )

    def get(self, job_id: str) -> job_service_pb2.Job:
        """Reads a job."""
        return self._portal.call(self._client.jobs.get, job_id)

    def cancel(self, job_id: str) -> job_service_pb2.Job:
        """Asks a job to stop for good."""
        return self._portal.call(self._client.jobs.cancel, job_id)

    def pause(self, job_id: str) -> job_service_pb2.Job:
        """Asks a job to stop after the step that it is in."""
        return self._portal.call(self._client.jobs.pause, job_id)

    def resume(self, job_id: str) -> job_service_pb2.Job:
        """Lets a paused job go on."""
        return self._portal.call(self._client.jobs.resume, job_id)

    def delete(self, job_id: str) -> None:
        """Deletes a job that has ended."""
        self._portal.call(self._client.jobs.delete, job_id)

    def list(
        self, states: Sequence[job_service_pb2.JobState.ValueType] = (), *, project: str = ""
    ) -> Iterator[job_service_pb2.Job]:
        """Jobs, newest first."""
        return self._iterate(lambda: self._client.jobs.list(states, project=project))

    def events(self, job_id: str) -> Iterator[job_service_pb2.Event]:
        """A job's events so far."""
        return self._iterate(lambda: self._client.jobs.events(job_id))

    def steps(self, job_id: str) -> Iterator[job_service_pb2.Step]:
        """A job's committed steps."""
        return self._iterate(lambda: self._client.jobs.steps(job_id))

    def evaluations(self, job_id: str) -> Iterator[job_service_pb2.Evaluation]:
        """A job's evaluations."""
        return self._iterate(lambda: self._client.jobs.evaluations(job_id))

    def trajectories(
        self, job_id: str, *, step: int | None = None, evaluation: bool = False
    ) -> Iterator[trajectory_pb2.Trajectory]:
        """A job's trajectories."""
        return self._iterate(
            lambda: self._client.jobs.trajectories(job_id, step=step, evaluation=evaluation)
        )

    def watch(
        self, job_id: str, *, after_sequence: int = 0
    ) -> Iterator[job_service_pb2.WatchJobResponse]:
        """A job's events, until the one that ends it."""
        return self._iterate(lambda: self._client.jobs.watch(job_id, after_sequence=after_sequence))

    def wait(self, job_id: str, *, within: float | None = None) -> job_service_pb2.Job:
        """Waits until a job has ended."""
        return self._portal.call(lambda: self._client.jobs.wait(job_id, within=within))


class SyncPolicies(_Part):
    """As `podium.sdk.policies.Policies`."""

    def engine(self) -> inference_service_pb2.GetEngineResponse:
        """Describes the engine."""
        return self._portal.call(self._client.policies.engine)

    def list(self, job: str = "") -> Iterator[inference_service_pb2.LoadedPolicy]:
        """The policies that are loaded."""
        return self._iterate(lambda: self._client.policies.list(job))

    def load(self, job: str, version: int) -> inference_service_pb2.LoadPolicyResponse:
        """Has the pool serve a version."""
        return self._portal.call(self._client.policies.load, job, version)

    def stream_chat(
        self,
        messages: Sequence[trajectory_pb2.Message],
        *,
        policy: policy_pb2.PolicyRef | None = None,
        sampling: policy_pb2.SamplingParams | None = None,
    ) -> Iterator[inference_service_pb2.StreamChatResponse]:
        """The answer to a conversation, piece by piece."""
        return self._iterate(
            lambda: self._client.policies.stream_chat(messages, policy=policy, sampling=sampling)
        )


class SyncCheckpoints(_Part):
    """As `podium.sdk.checkpoints.Checkpoints`."""

    def models(self) -> Iterator[registry_service_pb2.Model]:
        """The models, by name."""
        return self._iterate(self._client.checkpoints.models)

    def list(self, model: str) -> Iterator[registry_service_pb2.Version]:
        """The versions of a model."""
        return self._iterate(lambda: self._client.checkpoints.list(model))

    def get(self, model: str, version: int | str = "latest") -> registry_service_pb2.Version:
        """Reads a version by number or alias."""
        return self._portal.call(self._client.checkpoints.get, model, version)

    def download(
        self, version: registry_service_pb2.Version, folder: Path, prefix: str = ""
    ) -> None:
        """Writes a version's files to a folder."""
        self._portal.call(self._client.checkpoints.download, version, folder, prefix)


class SyncEnvironments(_Part):
    """As `podium.sdk.environments.Environments`."""

    def list(self) -> Sequence[rollout_service_pb2.EnvironmentInfo]:
        """The built-in environments."""
        return self._portal.call(self._client.environments.list)
