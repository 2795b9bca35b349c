"""Models that a client drives."""

from __future__ import annotations

from typing import Any

from podium.core.policy_names import resolve_policy
from podium.training.backend import Backend
from podium.training.model import TrainableModel
from podium.types.v1 import spec_pb2


class Models:
    """Makes models and goes on with them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def register(
        self,
        name: str,
        base_model: str,
        *,
        project: str = "",
        fork: str = "",
        **options: Any,
    ) -> TrainableModel:
        """A model by name, made if there is none, when it can be called.

        A new one starts from the checkpoint `fork`, `MODEL`, `MODEL@VERSION` or
        `MODEL@ALIAS`, weights, optimizer and step number, when that is given. `options` are
        TrainableModel's. Raises what `RemoteBackend.register` does.
        """
        model = TrainableModel(name=name, project=project, base_model=base_model, **options)
        if fork:
            source = await resolve_policy(fork, self._backend.version)
            version = source.version if source.HasField("version") else None
            model.spec.fork.CopyFrom(spec_pb2.ForkSpec(model=source.job, version=version))
        await model.register(self._backend)
        return model
