"""What the pool of policies needs of the world: an engine, and versions to put into it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.types.v1 import policy_pb2, trajectory_pb2

Run = tuple[int, int]
"""How many tokens, and the version of merged weights that sampled them."""


@dataclass
class Piece:
    """What came since the last piece."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    text: str = ""
    finish_reason: int = trajectory_pb2.FINISH_REASON_UNSPECIFIED
    cached_prompt_tokens: int = 0
    versions: list[Run] = field(default_factory=list)
    """Of the last piece where weights are merged: which versions sampled all of the tokens."""


class Engine(Protocol):
    """Samples, and takes weights."""

    max_model_len: int
    vocab_size: int

    def generate(
        self,
        prompt: Sequence[int],
        sampling: policy_pb2.SamplingParams,
        request_id: str,
        adapter: object | None,
    ) -> AsyncGenerator[Piece, None]:
        """Continues a prompt; closing the generator aborts in the engine.

        Raises:
            UnavailableError: the engine has died.
        """
        ...

    async def score(
        self, token_ids: Sequence[int], request_id: str, adapter: object | None
    ) -> list[float]:
        """[n - 1] log-probs at temperature 1 of all n tokens but the first, in nats.

        Cancelling it aborts in the engine.

        Raises:
            UnavailableError: the engine has died.
        """
        ...

    async def check(self, weights: Path) -> None:
        """Raises FailedPreconditionError (BAD_ADAPTER, BAD_WEIGHTS) for unusable files."""
        ...

    def spread(self, weights: Path) -> AbstractAsyncContextManager[None]:
        """The files are on every node of the engine while the block runs.

        Raises:
            UnavailableError: NODE_FILES, a node cannot store them.
        """
        ...

    async def merge(self, weights: Path | None, version: int) -> None:
        """Exchanges the weights for base plus adapter, or for whole ones.

        What runs must be frozen; nothing that was computed by the old weights is used again.
        What is sampled from then on is told with `version`.
        """
        ...

    def frozen(self) -> AbstractAsyncContextManager[None]:
        """While the block runs, what runs samples nothing; afterwards it goes on.

        Its requests stay in the engine with all that they are, random state, grammar and stop
        strings too, and what they hold is computed anew from their tokens.

        Raises:
            UnavailableError: the engine has died, or cannot be stopped.
        """
        ...

    async def drop(self) -> None:
        """Aborts all that runs."""
        ...

    async def add_adapter(self, name: str, folder: Path) -> object:
        """Registers an adapter and returns its handle."""
        ...

    async def remove_adapter(self, handle: object) -> None:
        """Forgets an adapter."""
        ...


WeightsOf = Callable[[str, int], Path | None]
"""The folder of a version that is served now."""


class VersionSource(Protocol):
    """Where versions come from: the registry."""

    async def pull(
        self, model: str, version: int | str, destination: Path, *, only: tuple[str, ...] = ()
    ) -> registry_pb.Version:
        """Fetches a version into a folder, verified."""
        ...

    async def get_version(self, model: str, version: int | str) -> registry_pb.Version:
        """A version's manifest."""
        ...


class Fetcher(Protocol):
    """Puts versions into folders, each of its own, fit for the engine."""

    async def fetch(
        self, job: str, version: int, weights_of: WeightsOf
    ) -> tuple[Path, AsyncExitStack]:
        """The folder of its adapter or whole weights, and what gives back files and lease.

        Raises:
            NotFoundError: the registry lacks the version.
            FailedPreconditionError: BASE_MODEL_MISMATCH, WEIGHT_MODE, BAD_ADAPTER, BAD_WEIGHTS.
            DataLossError: a digest does not match.
            UnavailableError: the registry is away; NODE_FILES, a node cannot store them.
        """
        ...


class Tokenizer(Protocol):
    """What is needed of a Transformers tokenizer."""

    eos_token: str | None
    """None of one that names no end."""
    eos_token_id: int | None
    chat_template: Any
    """None of a model without one; several by their names."""
    added_tokens_decoder: Mapping[int, Any]
    """By id, what was added to the vocabulary: its `content`, and whether it is `special`."""

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
        """Renders messages."""
        ...

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Text to ids."""
        ...
