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

        Args:
            name: its job's id, and what to name in a request.
            base_model: a name of the model cache, or of the Hugging Face hub.
            project: stands before the name, with a hyphen; empty for none.
            fork: the checkpoint a new one starts from: `MODEL`, `MODEL@VERSION` or `MODEL@ALIAS`,
                with its weights, optimizer and step number; empty for the base model.
            options: other fields of `TrainableModel`, such as `spec`.

        Raises:
            InvalidArgumentError: what is wrong with the name or the spec, each by its path.
            NotFoundError: there is no such checkpoint to fork.
            AlreadyExistsError: the name is another kind of job's, or another base model's.
            FailedPreconditionError: its job has ended, or people have paused it.
            DeadlineExceededError: it is not served in time.
            UnavailableError: a service cannot be reached.
        """
        model = TrainableModel(name=name, project=project, base_model=base_model, **options)
        if fork:
            source = await resolve_policy(fork, self._backend.version)
            version = source.version if source.HasField("version") else None
            model.spec.fork.CopyFrom(spec_pb2.ForkSpec(model=source.job, version=version))
        await model.register(self._backend)
        return model
