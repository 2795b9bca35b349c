"""Models that a client drives, without `await`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.core.packages import needed
from podium.core.proxies import needs_environment
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.sdk.models import Models
from podium.sdk.portal import Portal
from podium.sdk.words import words_of
from podium.training import rollouts
from podium.training.backend import TrainResult
from podium.training.model import REQUEST_SECONDS, TrainableModel
from podium.training.sft.files import File
from podium.training.step_config import TrainConfig, TrainSFTConfig
from podium.training.trajectories import Trajectory, TrajectoryGroup

if TYPE_CHECKING:
    import openai


class SyncModels:
    """As `podium.sdk.models.Models`."""

    def __init__(self, portal: Portal, models: Models) -> None:
        self._portal = portal
        self._models = models

    @words_of(Models.register)
    def register(
        self, name: str, base_model: str, *, project: str = "", fork: str = "", **options: Any
    ) -> SyncModel:
        """A model by name, made if there is none, when it can be called; see `Models`."""
        model = self._portal.call(
            lambda: self._models.register(name, base_model, project=project, fork=fork, **options)
        )
        return SyncModel(self._portal, model)


class SyncModel:
    """As `podium.training.TrainableModel`, for agents that make their rollouts in threads."""

    def __init__(self, portal: Portal, model: TrainableModel) -> None:
        self._portal = portal
        self._model = model

    @property
    def name(self) -> str:
        """The job's id, and what to name in a request."""
        return self._model.name

    @property
    @words_of(TrainableModel.inference_base_url)
    def inference_base_url(self) -> str:
        """Base URL of the OpenAI API."""
        return self._model.inference_base_url

    @property
    @words_of(TrainableModel.inference_api_key)
    def inference_api_key(self) -> str:
        """The key of the rollout that reads it."""
        return self._model.inference_api_key

    @property
    @words_of(TrainableModel.inference_model_name)
    def inference_model_name(self) -> str:
        """As `name`."""
        return self._model.inference_model_name

    @words_of(TrainableModel.get_inference_name)
    def get_inference_name(self, step: int | None = None) -> str:
        """What to name in a request: the newest version, or that of a step."""
        return self._model.get_inference_name(step)

    @words_of(TrainableModel.openai_client)
    def openai_client(self, **options: Any) -> openai.OpenAI:
        """OpenAI's client for it; one may serve many rollouts, each call under its own's key."""
        library = needed("openai", "openai>=2.54", "an OpenAI client")

        def use_own_key(request: Any) -> None:
            request.headers["Authorization"] = f"Bearer {self.inference_api_key}"

        http = library.DefaultHttpxClient(
            event_hooks={"request": [use_own_key]},
            trust_env=needs_environment(self.inference_base_url),
        )
        options = {"timeout": REQUEST_SECONDS, "http_client": http, **options}
        client: openai.OpenAI = library.OpenAI(
            base_url=self.inference_base_url, api_key=rollouts.NO_KEY, **options
        )
        return client

    @contextmanager
    @words_of(TrainableModel.rollout)
    def rollout(self, **fields: Any) -> Iterator[Trajectory]:
        """One attempt: calls made in the block, in its thread, are the trajectory's at its end."""
        trajectory = Trajectory(**fields)
        with rollouts.entered(rollouts.Rollout()) as rollout:
            yield trajectory
        trajectory.attach(self._portal.call(self._model.take, rollout.key))
        trajectory.finish()

    @words_of(TrainableModel.train)
    def train(
        self,
        groups: Iterable[TrajectoryGroup],
        config: TrainConfig | None = None,
        *,
        request_id: str = "",
    ) -> TrainResult:
        """Takes one step on the groups; returns when it is committed and its version served."""
        given = list(groups)
        return self._portal.call(lambda: self._model.train(given, config, request_id=request_id))

    @words_of(TrainableModel.train_sft)
    def train_sft(
        self,
        rows: Iterable[Trajectory | Mapping[str, Any]] | File,
        config: TrainSFTConfig | None = None,
        *,
        request_id: str = "",
        progress: bool = True,
    ) -> TrainResult:
        """Fine-tunes on conversations, in their order, once; returns after the last step."""
        return self._portal.call(
            lambda: self._model.train_sft(rows, config, request_id=request_id, progress=progress)
        )

    @words_of(TrainableModel.get_step)
    def get_step(self) -> int:
        """How many steps it has taken."""
        return self._portal.call(self._model.get_step)

    @words_of(TrainableModel.log)
    def log(
        self,
        groups: Iterable[TrajectoryGroup | Trajectory] = (),
        split: str = "val",
        *,
        metrics: Mapping[str, float] | None = None,
        step: int | None = None,
    ) -> dict[str, float]:
        """Writes attempts and their mean metrics down, and the metrics to the checkpoint too."""
        given = list(groups)
        return self._portal.call(lambda: self._model.log(given, split, metrics=metrics, step=step))

    @words_of(TrainableModel.checkpoints)
    def checkpoints(self) -> list[registry_pb.Version]:
        """Its checkpoints, newest first."""
        return self._portal.call(self._model.checkpoints)

    @words_of(TrainableModel.download)
    def download(self, folder: str | Path, step: int | None = None) -> None:
        """Writes a checkpoint, the newest by default, to a folder."""
        self._portal.call(lambda: self._model.download(folder, step))

    @words_of(TrainableModel.delete_checkpoints)
    def delete_checkpoints(self, best_checkpoint_metric: str = "val/reward") -> None:
        """Keeps the newest checkpoint and the one of the highest metric."""
        self._portal.call(self._model.delete_checkpoints, best_checkpoint_metric)

    @words_of(TrainableModel.finish)
    def finish(self) -> None:
        """Ends its training for good, as succeeded."""
        self._portal.call(self._model.finish)
