"""The synchronous client: the asynchronous one on a thread of its own."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from podium.core.specs.sources import JobSource
from podium.sdk.checkpoints import Checkpoints
from podium.sdk.chosen import Chosen
from podium.sdk.client import AsyncClient
from podium.sdk.connection.addresses import Addresses
from podium.sdk.environments import Environments
from podium.sdk.evaluations import Evaluations
from podium.sdk.jobs import Jobs
from podium.sdk.judge import Judge
from podium.sdk.policies import Policies
from podium.sdk.portal import Portal
from podium.sdk.runs import JobRun
from podium.sdk.sessions import Sessions
from podium.sdk.sft import SftRun
from podium.sdk.sync_models import SyncModels
from podium.sdk.words import words_of
from podium.training.backend import Backend
from podium.training.sft.files import File, Source

P = ParamSpec("P")
R = TypeVar("R")
PartT = TypeVar("PartT")


class _Part:
    """A part of the client, whose methods are those of the asynchronous one's."""

    def __init__(self, portal: Portal, part: Any) -> None:
        self._portal = portal
        self._part = part


def _called(
    method: Callable[Concatenate[PartT, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """The method without `await`."""

    @functools.wraps(method)
    def call(self: _Part, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # By name: the part may be a backend's, in this process.
        own = getattr(self._part, method.__name__)
        result: R = self._portal.call(lambda: own(*args, **kwargs))
        return result

    return call


def _iterated(
    method: Callable[Concatenate[PartT, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Any, P], Iterator[R]]:
    """The method as a plain iterator; closing it ends the call."""

    @functools.wraps(method)
    def iterate(self: _Part, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        source: AsyncGenerator[R, None] = getattr(self._part, method.__name__)(*args, **kwargs)

        async def advance() -> tuple[R, ...]:
            async for item in source:
                return (item,)
            return ()

        try:
            while item := self._portal.call(advance):
                yield item[0]
        finally:
            self._portal.call(source.aclose)

    return iterate


class SyncJobs(_Part):
    """As `podium.sdk.jobs.Jobs`."""

    create = _called(Jobs.create)
    get = _called(Jobs.get)
    cancel = _called(Jobs.cancel)
    pause = _called(Jobs.pause)
    resume = _called(Jobs.resume)
    delete = _called(Jobs.delete)
    list = _iterated(Jobs.list)
    events = _iterated(Jobs.events)
    steps = _iterated(Jobs.steps)
    evaluations = _iterated(Jobs.evaluations)
    trajectories = _iterated(Jobs.trajectories)
    deleted_trajectories = _called(Jobs.deleted_trajectories)
    usage = _iterated(Jobs.usage)
    budgets = _called(Jobs.budgets)
    watch = _iterated(Jobs.watch)
    wait = _called(Jobs.wait)


class SyncPolicies(_Part):
    """As `podium.sdk.policies.Policies`."""

    engine = _called(Policies.engine)
    list = _iterated(Policies.list)
    load = _called(Policies.load)
    unload = _called(Policies.unload)
    take_capture = _called(Policies.take_capture)
    demonstrate = _called(Policies.demonstrate)
    stream_chat = _iterated(Policies.stream_chat)


class SyncCheckpoints(_Part):
    """As `podium.sdk.checkpoints.Checkpoints`."""

    models = _iterated(Checkpoints.models)
    list = _iterated(Checkpoints.list)
    get = _called(Checkpoints.get)
    record = _called(Checkpoints.record)
    retain = _called(Checkpoints.retain)
    download = _called(Checkpoints.download)


class SyncEnvironments(_Part):
    """As `podium.sdk.environments.Environments`."""

    scenarios = _called(Environments.scenarios)
    run = _called(Environments.run)
    list = _called(Environments.list)


class SyncSessions(_Part):
    """As `podium.sdk.sessions.Sessions`."""

    submit = _called(Sessions.submit)
    finish = _called(Sessions.finish)
    drive = _called(Sessions.drive)
    close = _called(Sessions.close)


class SyncEvaluations(_Part):
    """As `podium.sdk.evaluations.Evaluations`."""

    store = _called(Evaluations.store)
    get = _called(Evaluations.get)
    list = _iterated(Evaluations.list)
    results = _called(Evaluations.results)
    delete = _called(Evaluations.delete)


class SyncJudge(_Part):
    """As `podium.sdk.judge.Judge`."""

    score = _called(Judge.score)
    check = _called(Judge.check)


class Client:
    """Talks to a Podium installation. Use it in a `with` block; safe for one thread at a time.

    A process that is forked opens one of its own.

    All that `AsyncClient` has is here, without `await` and `async for`.
    """

    @words_of(AsyncClient.__init__)
    def __init__(
        self,
        addresses: Addresses | None = None,
        *,
        context: str = "",
        timeout: float = 30.0,
        backend: Backend | None = None,
    ) -> None:
        """As `AsyncClient`."""
        portal = self._portal = Portal()
        try:
            client = portal.call(
                lambda: AsyncClient(addresses, context=context, timeout=timeout, backend=backend)
            )
        except BaseException:
            portal.close()
            raise
        self._client = client
        portal.on_close(client.close)
        self.addresses = client.addresses
        self.backend = client.backend
        self.jobs = SyncJobs(portal, client.jobs)
        self.policies = SyncPolicies(portal, client.policies)
        self.checkpoints = SyncCheckpoints(portal, client.checkpoints)
        self.environments = SyncEnvironments(portal, client.environments)
        self.sessions = SyncSessions(portal, client.sessions)
        self.judge = SyncJudge(portal, client.judge)
        self.evaluations = SyncEvaluations(portal, client.evaluations)
        self.models = SyncModels(portal, client.models)

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
        self._portal.close()

    @words_of(AsyncClient.train)
    def train(
        self,
        spec: JobSource,
        *,
        job_id: str = "",
        follow: bool = True,
        progress: bool = True,
        within: float | None = None,
    ) -> JobRun:
        """See `AsyncClient.train`."""
        return self._portal.call(
            lambda: self._client.train(
                spec, job_id=job_id, follow=follow, progress=progress, within=within
            )
        )

    @words_of(AsyncClient.train_sft)
    def train_sft(
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
        """See `AsyncClient.train_sft`."""
        return self._portal.call(
            lambda: self._client.train_sft(
                spec,
                data,
                heldout=heldout,
                from_job=from_job,
                job_id=job_id,
                skip_bad=skip_bad,
                progress=progress,
            )
        )

    @words_of(AsyncClient.openai_address)
    def openai_address(self, port: int) -> str:
        """See `AsyncClient.openai_address`."""
        return self._portal.call(self._client.openai_address, port)

    @words_of(AsyncClient.openai_token)
    def openai_token(self) -> str:
        """See `AsyncClient.openai_token`."""
        return self._portal.call(self._client.openai_token)


def train(
    spec: JobSource,
    *,
    job_id: str = "",
    follow: bool = True,
    progress: bool = True,
    within: float | None = None,
    addresses: Addresses | None = None,
    context: str = "",
) -> JobRun:
    """Trains: submits a job to the installation that is found, and follows it to its end.

        run = podium.train("job.yaml")
        print(run.metrics["reward_mean"], run.best_version)

    In asynchronous code `await AsyncClient().train(spec)` does the same. A job goes on when it is
    no longer followed: after Ctrl-C, at the end of `within`, and when the connection is lost.

    Args:
        spec: a `podium.JobSpec`, its message, a dict, or the path of a job file.
        job_id: its id; empty lets the server choose.
        follow: False returns as soon as the job is created.
        progress: whether steps and warnings are shown: a bar in a terminal (with `rich`) or a
            notebook, lines on stderr elsewhere.
        within: seconds to follow at most; None for as long as it takes.
        addresses: where the services are; by default what `locate` finds.
        context: name of an installation that `podium login` saved, in place of addresses.

    Raises:
        InvalidArgumentError: what is wrong with the spec, each by its path.
        OSError: the file cannot be read.
        FailedPreconditionError: the job failed (JOB_FAILED) or was cancelled (JOB_CANCELLED).
        DeadlineExceededError: it has not ended `within` that many seconds (WAIT_TIMEOUT).
        UnavailableError: the controller cannot be reached.
    """
    with Client(addresses, context=context) as client:
        return client.train(spec, job_id=job_id, follow=follow, progress=progress, within=within)


def train_sft(
    spec: JobSource,
    data: Source | Sequence[File] | None = None,
    *,
    heldout: Source | None = None,
    from_job: Chosen | None = None,
    job_id: str = "",
    skip_bad: bool = False,
    progress: bool = True,
    addresses: Addresses | None = None,
    context: str = "",
) -> SftRun:
    """Fine-tunes on conversations: renders them, and drives a job over them to its end.

        run = podium.train_sft("sft.yaml", "train.jsonl", heldout="heldout.jsonl")
        print(run.heldout_losses, run.best_version)

    In asynchronous code `await AsyncClient().train_sft(…)` does the same. Called again with the
    same rows and spec after it was interrupted, it goes on after the last committed step.

    Args:
        spec: a `podium.JobSpec`, its message, a dict, or the path of a job file, without
            `training.steps` for all steps of all epochs. `sft` has epochs and batch size.
        data: files that end in `.jsonl` or `.parquet`, or rows as dicts: `messages` and `tools`
            as OpenAI's fine-tuning files have them.
        heldout: rows whose loss is measured, and which do not train.
        from_job: episodes of a job to train on, with their exact tokens, besides `data`.
        job_id: its id; empty for one of the spec and the rows.
        skip_bad: rows that cannot train are left out, counted and logged.
        progress: whether steps are shown, as by `podium.train`.
        addresses: where the services are; by default what `locate` finds.
        context: name of an installation that `podium login` saved, in place of addresses.

    Raises:
        InvalidArgumentError, AlreadyExistsError, FailedPreconditionError, UnavailableError: as
            `AsyncClient.train_sft`.
    """
    with Client(addresses, context=context) as client:
        return client.train_sft(
            spec,
            data,
            heldout=heldout,
            from_job=from_job,
            job_id=job_id,
            skip_bad=skip_bad,
            progress=progress,
        )
