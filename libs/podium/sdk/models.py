"""Models that a client drives."""

from __future__ import annotations

from typing import Any

from podium.training.backend import Backend
from podium.training.model import TrainableModel


class Models:
    """Makes models and goes on with them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def register(
        self, name: str, base_model: str, *, project: str = "", **options: Any
    ) -> TrainableModel:
        """A model by name, made if there is none, when it can be called.

        `options` are TrainableModel's. Raises what `RemoteBackend.register` does.
        """
        model = TrainableModel(name=name, project=project, base_model=base_model, **options)
        await model.register(self._backend)
        return model
