"""The model that an agent's own code calls and trains. ART's names, where they mean the same."""

from __future__ import annotations

import math
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.core.names import slug
from podium.core.packages import needed
from podium.core.proxies import needs_environment
from podium.core.total_steps import MAX_STEPS
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.training import rollouts
from podium.training.backend import Backend, HasBackend, TrainResult
from podium.training.batch import batch_of
from podium.training.log import Log, summary
from podium.training.sft.files import File
from podium.training.sft.steps import take_steps
from podium.training.spec_field import SpecField
from podium.training.step_config import TrainConfig, TrainSFTConfig, check_rate
from podium.training.trajectories import Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    import openai

REQUEST_SECONDS = 1200.0
"""How long a call of the model may take; as ART's."""

_MAX_NAME = 63
_SPEC = SpecField()


@dataclass
class TrainableModel:
    """A model that trains on what its own calls sampled.

    `name` becomes the job's id, the model's in the registry and on the OpenAI
    API, with the project before it when there is one: `{project}-{name}`.
    Registering a name again goes on where it was.
    """

    name: str
    """Letters, digits and hyphens; what else it has becomes hyphens."""
    project: str = ""
    """Stands before the name; empty for none."""
    base_model: str = ""
    """What is trained: a name of the model cache, or of the Hugging Face hub; empty for the
    spec's."""
    spec: SpecField = _SPEC
    """How it trains; base_model and client are set from here."""
    base_path: str | Path = ".podium/models"
    """Where `log` writes."""
    _backend: Backend | None = field(default=None, repr=False)
    _base_url: str = field(default="", repr=False)
    api_token: str = field(default="", repr=False, init=False)
    """What the OpenAI API asks of calls outside of rollouts, since `register`; empty for none."""

    def __post_init__(self) -> None:
        """Makes the name one that can be served.

        Raises:
            InvalidArgumentError: nothing of it can, or it is too long.
        """
        whole = f"{self.project}-{self.name}" if self.project else self.name
        name = slug(whole)
        if not name or len(name) > _MAX_NAME:
            raise InvalidArgumentError(
                violations=[
                    Violation(
                        "name",
                        f"got {whole!r}; project and name together must have 1 to {_MAX_NAME}"
                        " letters, digits and hyphens",
                    )
                ]
            )
        self.name = name
        spec = self.spec
        spec.base_model = self.base_model or spec.base_model
        spec.client.SetInParent()
        spec.training.steps = spec.training.steps or MAX_STEPS
        self.base_model = spec.base_model

    async def register(self, backend: Backend | HasBackend) -> None:
        """Makes the model's job or goes on with it; returns when it can be called.

        Args:
            backend: where it trains: a client, or its `backend`.

        Raises:
            InvalidArgumentError: what is wrong with the spec, each by its path.
            AlreadyExistsError: the name is another kind of job's, or another base model's.
            FailedPreconditionError: its job has ended.
            UnavailableError: a service cannot be reached.
        """
        own = backend.backend if isinstance(backend, HasBackend) else backend
        self._base_url = await own.register(self.name, self.spec)
        self.api_token = await own.api_token()
        self._backend = own

    @property
    def backend(self) -> Backend:
        """Where it is registered.

        Raises:
            FailedPreconditionError: nowhere yet.
        """
        if self._backend is None:
            raise FailedPreconditionError(
                f"model {self.name} is not registered; await model.register(...) first",
                reason="NOT_REGISTERED",
            )
        return self._backend

    @property
    def inference_base_url(self) -> str:
        """Base URL of the OpenAI API.

        Raises:
            FailedPreconditionError: NOT_REGISTERED.
        """
        _ = self.backend
        return self._base_url

    @property
    def inference_api_key(self) -> str:
        """The key of the rollout that reads it: read it inside the rollout, and keep it there."""
        return rollouts.key_for(self)

    @property
    def inference_model_name(self) -> str:
        """What to name in a request for the newest version."""
        return self.name

    def get_inference_name(self, step: int | None = None) -> str:
        """What to name in a request.

        Args:
            step: of the version after this step; None for the newest one.
        """
        return self.name if step is None else f"{self.name}@{step}"

    def openai_client(self, **options: Any) -> openai.AsyncOpenAI:
        """OpenAI's client for it; one may serve many rollouts, each call under its own's key.

        Args:
            options: those of its constructor; a call may take 1,200 seconds by default.

        Raises:
            FailedPreconditionError: NOT_REGISTERED; or PACKAGE_MISSING, `openai` is not installed.
        """
        library = needed("openai", "openai>=2.54", "an OpenAI client")

        async def use_own_key(request: Any) -> None:
            request.headers["Authorization"] = f"Bearer {self.inference_api_key}"

        http = library.DefaultAsyncHttpxClient(
            event_hooks={"request": [use_own_key]},
            trust_env=needs_environment(self.inference_base_url),
        )
        options = {"timeout": REQUEST_SECONDS, "http_client": http, **options}
        client: openai.AsyncOpenAI = library.AsyncOpenAI(
            base_url=self.inference_base_url, api_key=rollouts.NO_KEY, **options
        )
        return client

    @asynccontextmanager
    async def rollout(self, **fields: Any) -> AsyncIterator[Trajectory]:
        """One attempt: calls made in the block, with its key, are the trajectory's at its end.

        For code that makes its rollouts itself; `gather_trajectory_groups` does it for others.

        Args:
            fields: the trajectory's, such as `reward`.

        Raises:
            FailedPreconditionError: NOT_REGISTERED.
            DataLossError: CAPTURE_DROPPED or CAPTURE_LOST, some of its calls are gone.
        """
        trajectory = Trajectory(**fields)
        with rollouts.entered(rollouts.Rollout()) as rollout:
            yield trajectory
        trajectory.attach(await self.take(rollout.key))
        trajectory.finish()

    async def take(self, key: str) -> list[inference_pb.CapturedCall]:
        """The calls under a rollout's key; only those that have ended, and none when none was made.

        Args:
            key: as `inference_api_key` gave it.

        Raises:
            FailedPreconditionError: NOT_REGISTERED.
            DataLossError: CAPTURE_DROPPED or CAPTURE_LOST, some are gone: sample again.
        """
        return await self.backend.take(key)

    async def train(
        self,
        groups: Iterable[TrajectoryGroup],
        config: TrainConfig | None = None,
        *,
        request_id: str = "",
    ) -> TrainResult:
        """Takes one step on the groups; returns when it is committed and its version served.

        Args:
            groups: attempts of one scenario each, with their rewards. One whose rewards are all
                alike teaches nothing.
            config: the step's learning rate; None for the job's, by its schedule.
            request_id: the same one with the same groups is the same step; made up when empty.

        Raises:
            InvalidArgumentError: there is no attempt, a reward is not finite, or `config` has no
                learning rate that a step can have.
            FailedPreconditionError: NOTHING_CAPTURED; what SubmitBatch fails with; or the job
                ended.
            UnavailableError: a service stayed away for ten minutes.
        """
        batch = batch_of(groups, self.name)
        if config is not None:
            rate = check_rate(config.learning_rate, "config.learning_rate")
            for group in batch:
                group.batch_training.learning_rate = rate
        step = await self.backend.submit(self.name, batch, request_id or uuid.uuid4().hex)
        return await self.backend.trained(self.name, step)

    async def train_sft(
        self,
        rows: Iterable[Trajectory | Mapping[str, Any]] | File,
        config: TrainSFTConfig | None = None,
        *,
        request_id: str = "",
        progress: bool = True,
    ) -> TrainResult:
        """Fine-tunes on conversations, in their order, once; returns after the last step.

        Calls of `train` and of this one may follow each other. `podium.train_sft_from_file` does
        it over epochs; `podium.train_sft` as a job of its own, with held-out rows, and goes on
        where it was interrupted.

        Args:
            rows: attempts, rows with `messages` and `tools` as OpenAI's fine-tuning files have
                them, or such a file. Each of the assistant's messages trains.
            config: rows of a step, and learning rates; None for its defaults.
            request_id: the same with the same rows are the same steps; made up when empty.
            progress: whether a bar shows how far it is.

        Raises:
            InvalidArgumentError: every row that cannot train, or what is wrong with `config`.
            FailedPreconditionError: what SubmitBatch fails with; or the job ended.
            UnavailableError: a service stayed away for ten minutes.
        """
        return await take_steps(
            self.backend,
            self.name,
            self.spec,
            rows,
            config or TrainSFTConfig(),
            request_id or uuid.uuid4().hex,
            progress=progress,
        )

    async def get_step(self) -> int:
        """How many steps it has taken.

        Raises:
            FailedPreconditionError: NOT_REGISTERED.
        """
        return await self.backend.step(self.name)

    async def log(
        self,
        groups: Iterable[TrajectoryGroup | Trajectory] = (),
        split: str = "val",
        *,
        metrics: Mapping[str, float] | None = None,
        step: int | None = None,
    ) -> dict[str, float]:
        """Writes attempts and their mean metrics down, and the metrics to the checkpoint too.

        The files are below `base_path`.

        Args:
            groups: what was attempted; of none only `metrics` are written.
            split: which scenarios they were of, such as `val`: the first part of each metric's
                name.
            metrics: further numbers, by name.
            step: after which step they were played; None for the newest.

        Returns:
            The metrics as `{split}/{name}`: `reward`, `reward_std_dev`, `exception_rate`, the
            means of the attempts' own, and `metrics`.

        Raises:
            FailedPreconditionError: NOT_REGISTERED.
            NotFoundError: there is no checkpoint of this step.
            InvalidArgumentError: a number is not finite.
            OSError: the files cannot be written.
            UnavailableError: a service cannot be reached.
        """
        at = await self.get_step() if step is None else step
        whole = [
            each if isinstance(each, TrajectoryGroup) else TrajectoryGroup([each])
            for each in groups
        ]
        numbers = {f"{split}/{name}": value for name, value in summary(whole).items()}
        numbers |= {f"{split}/{name}": float(value) for name, value in (metrics or {}).items()}
        wrong = [
            Violation(name, f"got {value}; must be finite")
            for name, value in numbers.items()
            if not math.isfinite(value)
        ]
        if wrong:
            raise InvalidArgumentError(violations=wrong)
        Log(Path(self.base_path) / self.name).write(whole, split, at, numbers)
        if numbers:
            await self.backend.record(self.name, at, numbers)
        return numbers

    async def checkpoints(self) -> list[registry_pb.Version]:
        """Its checkpoints, newest first.

        Raises:
            FailedPreconditionError: NOT_REGISTERED.
        """
        return [version async for version in self.backend.checkpoints(self.name)]

    async def download(self, folder: str | Path, step: int | None = None) -> None:
        """Writes a checkpoint to a folder, as PEFT and vLLM load it.

        Args:
            folder: must not exist, or be empty; those above it are made.
            step: after which it was published; None for the newest.

        Raises:
            FailedPreconditionError: NOT_REGISTERED.
            NotFoundError: there is no checkpoint of this step.
            DataLossError: the bytes do not match the manifest.
            OSError: the folder cannot be written.
        """
        at = await self.get_step() if step is None else step
        await self.backend.download(self.name, at, Path(folder))

    async def delete_checkpoints(self, best_checkpoint_metric: str = "val/reward") -> None:
        """Keeps the newest checkpoint and the one of the highest metric.

        Those in use stay too, and those with an alias.

        Args:
            best_checkpoint_metric: as `log` names it, `{split}/{name}`.

        Raises:
            FailedPreconditionError: NOT_REGISTERED.
        """
        await self.backend.retain(self.name, 1, 1, best_checkpoint_metric)

    async def finish(self) -> None:
        """Ends its training for good, as succeeded; what it has published stays.

        Raises:
            FailedPreconditionError: NOT_REGISTERED; or its job has failed or was cancelled.
        """
        await self.backend.finish(self.name)
