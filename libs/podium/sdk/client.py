"""The asynchronous client."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import cast

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.specs.sources import JobSource
from podium.sdk.backend import RemoteBackend
from podium.sdk.checkpoints import Checkpoints
from podium.sdk.chosen import Chosen
from podium.sdk.connection.addresses import Addresses, locate
from podium.sdk.connection.channels import Channels
from podium.sdk.environments import Environments
from podium.sdk.evaluations import Evaluations
from podium.sdk.in_process import BackendCheckpoints, NotCovered, not_covered
from podium.sdk.jobs import Jobs
from podium.sdk.judge import Judge
from podium.sdk.models import Models
from podium.sdk.policies import Policies
from podium.sdk.runs import JobRun, run_job
from podium.sdk.sessions import Sessions
from podium.sdk.sft import SftRun, run_sft
from podium.training.backend import Backend
from podium.training.sft.files import File, Source


class AsyncClient:
    """Talks to a Podium installation.

    Channels are opened when they are first used, so a client that only
    manages jobs needs only the controller.
    """

    def __init__(
        self,
        addresses: Addresses | None = None,
        *,
        context: str = "",
        timeout: float = 30.0,
        backend: Backend | None = None,
    ) -> None:
        """Connects to nothing yet.

        With a `backend` of this process (`podium.InProcessBackend`) it is a client for tests,
        which talks to no installation. Covered are `models`, with all that a model does, and
        `checkpoints` but for `checkpoints.models`. Every method of `jobs`, `policies`,
        `environments`, `sessions`, `evaluations` and `judge`, and `train` and `openai_address`,
        raise UnimplementedError (NOT_IN_PROCESS), which names the method. The backend stays open:
        whoever made it closes it.

        Args:
            addresses: where the services are; by default what `locate` finds.
            context: name of an installation that `podium login` saved, in place of addresses.
            timeout: deadline of one unary call, in seconds.
            backend: where models train, in place of an installation.

        Raises:
            NotFoundError: there is no such context.
            InvalidArgumentError: the file of contexts is broken, or both a backend and an
                installation are named.
        """
        if backend is not None:
            if addresses is not None or context:
                raise InvalidArgumentError(
                    violations=[
                        Violation("backend", "takes the place of addresses and context; name one")
                    ]
                )
            addresses = Addresses("", "", "", "", "", source="a backend in this process")
        self.addresses = addresses or locate(context=context)
        self._channels = Channels(self.addresses, timeout)
        channel, place = self._channels.service("controller")
        self.sessions = Sessions(channel, lambda: self._channels.blocking("controller"), place)
        self.policies = Policies(*self._channels.service("inference"))
        self.checkpoints = Checkpoints(*self._channels.service("registry"))
        self.jobs = Jobs(channel, place, self.checkpoints.get)
        self.environments = Environments(*self._channels.service("rollout"))
        self.judge = Judge(*self._channels.service("judge"))
        self.evaluations = Evaluations(channel, place)
        self._in_process = backend is not None
        self.backend: Backend = backend or RemoteBackend(self)
        """Where models of `podium.training` train."""
        if backend is not None:
            self.jobs = cast(Jobs, NotCovered("jobs", Jobs))
            self.policies = cast(Policies, NotCovered("policies", Policies))
            self.checkpoints = cast(Checkpoints, BackendCheckpoints(backend))
            self.environments = cast(Environments, NotCovered("environments", Environments))
            self.sessions = cast(Sessions, NotCovered("sessions", Sessions))
            self.judge = cast(Judge, NotCovered("judge", Judge))
            self.evaluations = cast(Evaluations, NotCovered("evaluations", Evaluations))
        self.models = Models(self.backend)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the channels, and what leads to them. Idempotent.

        Jobs that it drove are no longer held for it.
        """
        if not self._in_process:
            await self.sessions.close()
        await self._channels.close()

    async def train(
        self,
        spec: JobSource,
        *,
        job_id: str = "",
        follow: bool = True,
        progress: bool = True,
        within: float | None = None,
    ) -> JobRun:
        """Submits a job and follows it to its end; see `podium.train`.

        Raises:
            InvalidArgumentError: what is wrong with the spec, each by its path.
            OSError: the file cannot be read.
            FailedPreconditionError: the job failed (JOB_FAILED) or was cancelled (JOB_CANCELLED).
            DeadlineExceededError: it has not ended `within` that many seconds (WAIT_TIMEOUT).
            UnavailableError: the controller cannot be reached.
            UnimplementedError: NOT_IN_PROCESS, the client is one of a backend in this process.
        """
        if self._in_process:
            raise not_covered("train")
        return await run_job(
            self.jobs,
            self.checkpoints,
            spec,
            job_id=job_id,
            follow=follow,
            progress=progress,
            within=within,
        )

    async def train_sft(
        self,
        spec: JobSource,
        data: Source | Sequence[File] | None = None,
        *,
        heldout: Source | None = None,
        from_job: Chosen | None = None,
        job_id: str = "",
        skip_bad: bool = False,
        progress: bool = True,
    ) -> SftRun:
        """Fine-tunes on conversations; see `podium.train_sft`.

        Raises:
            InvalidArgumentError: every row that cannot train, by file, number and field; or what
                is wrong with the spec.
            AlreadyExistsError: JOB_DIFFERS, `job_id` was begun with another spec or other rows.
            FailedPreconditionError: the job failed or was cancelled; NOTHING_CHOSEN of
                `from_job`; BASE_MODEL_DIFFERS, the pool at hand serves another base model.
            UnavailableError: a service cannot be reached.
            UnimplementedError: NOT_IN_PROCESS, the client is one of a backend in this process.
        """
        if self._in_process:
            raise not_covered("train_sft")
        return await run_sft(
            self,
            self.backend,
            spec,
            data,
            heldout=heldout,
            from_job=from_job,
            job_id=job_id,
            skip_bad=skip_bad,
            progress=progress,
        )

    async def openai_address(self, port: int) -> str:
        """`host:port` of the OpenAI API.

        Args:
            port: where the inference service has it, such as 50083.

        Raises:
            PodiumError: why it cannot be reached.
            UnimplementedError: NOT_IN_PROCESS, the client is one of a backend in this process.
        """
        if self._in_process:
            raise not_covered("openai_address")
        return await self._channels.http("inference", port)

    async def openai_token(self) -> str:
        """The bearer token that the OpenAI API asks for; empty where none is known.

        Raises:
            PodiumError: why a release's Secret cannot be read.
            UnimplementedError: NOT_IN_PROCESS, the client is one of a backend in this process.
        """
        if self._in_process:
            raise not_covered("openai_token")
        return await self._channels.token()
