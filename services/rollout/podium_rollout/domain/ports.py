"""What an episode needs of the world: a policy, environments, and the sessions they give."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from podium.environment.v1 import environment_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.types.v1 import spec_pb2, trajectory_pb2


class EnvironmentRaisedError(Exception):
    """A remote environment's own code raised."""

    def __init__(self, kind: str, text: str, error_id: str) -> None:
        """`kind` is the exception's class there, `error_id` is in that server's log."""
        super().__init__(text)
        self.kind = kind
        self.error_id = error_id


class PlayerFailedError(Exception):
    """A model that plays beside the policy gave no answer; its words are for the job's owner."""


@dataclass(frozen=True)
class PlayerAnswer:
    """What a model that plays beside the policy said."""

    message: trajectory_pb2.Message
    prompt_tokens: int
    """As its API counts them; 0 where it does not."""
    completion_tokens: int


class PlayerModel(Protocol):
    """A model that plays beside the policy, in one conversation of one episode."""

    async def answer(
        self,
        messages: Sequence[trajectory_pb2.Message],
        tools: Sequence[trajectory_pb2.Tool],
        seed: int,
    ) -> PlayerAnswer:
        """Its next message in a conversation, with the tools that are on offer to it.

        Raises:
            PlayerFailedError: it gives none, after the retries.
        """
        ...


class PlayerModels(Protocol):
    """Knows the models that jobs name as players."""

    def player(self, spec: spec_pb2.ModelPlayer, field: str) -> PlayerModel:
        """The model of `spec`, which stands at `field`; asks nothing yet.

        Raises:
            InvalidArgumentError: a key that does not exist, or may not go there.
        """
        ...


class Policy(Protocol):
    """Renders what is new and samples what follows, in one call."""

    async def generate(
        self, request: inference_pb.GenerateRequest
    ) -> inference_pb.GenerateResponse:
        """What the policy samples after the prompt, and how its end was rendered.

        Raises the exceptions of `podium.core.errors`; see the contract.
        """
        ...


class Session(Protocol):
    """One episode of an environment."""

    async def reset(self, scenario: trajectory_pb2.Scenario, seed: int) -> pb.Observation:
        """Begins it."""
        ...

    async def step(self, action: trajectory_pb2.Message) -> pb.StepResponse:
        """Acts."""
        ...

    async def score(self) -> pb.ScoreResponse:
        """Settles the reward."""
        ...


class Environments(Protocol):
    """Opens episodes of environments by name or address."""

    def session(
        self, spec: spec_pb2.EnvironmentSpec, episode: spec_pb2.EpisodeSpec, label: str
    ) -> AbstractAsyncContextManager[Session]:
        """An episode, after waiting for a slot; closed when the block ends.

        Raises:
            NotFoundError: an unknown environment.
            InvalidArgumentError: options that the environment refuses.
            ResourceExhaustedError: no slot came free in time.
            UnavailableError: the environment's server is away.
        """
        ...
