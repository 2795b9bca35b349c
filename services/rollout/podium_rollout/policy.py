"""The inference pool, as the agent loop sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import grpc
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.rpc import connect, rpc_errors
from podium.types.v1 import policy_pb2, trajectory_pb2

_PEER = "inference"


class Policy(Protocol):
    """Renders prompts and samples continuations.

    Both raise the exceptions of `podium.core.errors`; see the contract.
    """

    async def render(
        self,
        messages: Sequence[trajectory_pb2.Message],
        tools: Sequence[trajectory_pb2.Tool],
        prefix_ids: Sequence[int] = (),
        prefix_messages: int = 0,
    ) -> list[int]:
        """Token ids of the next prompt."""
        ...

    async def generate(
        self,
        prompt: Sequence[int],
        policy: policy_pb2.PolicyRef,
        sampling: policy_pb2.SamplingParams,
    ) -> pb.Generation:
        """What the policy samples after the prompt."""
        ...


class InferencePolicy:
    """`Policy` over `podium.inference.v1`."""

    def __init__(self, address: str, *, generate_timeout_s: float, token: str = "") -> None:
        """Connects lazily."""
        self._channel: grpc.aio.Channel = connect(address, token=token)
        self._stub: pb_grpc.InferenceServiceAsyncStub = pb_grpc.InferenceServiceStub(self._channel)
        self._timeout = generate_timeout_s

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()

    async def render(
        self,
        messages: Sequence[trajectory_pb2.Message],
        tools: Sequence[trajectory_pb2.Tool],
        prefix_ids: Sequence[int] = (),
        prefix_messages: int = 0,
    ) -> list[int]:
        """See `Policy`."""
        request = pb.RenderRequest(
            messages=messages, tools=tools, prefix_ids=prefix_ids, prefix_messages=prefix_messages
        )
        with rpc_errors(_PEER):
            return list((await self._stub.Render(request)).token_ids)

    async def generate(
        self,
        prompt: Sequence[int],
        policy: policy_pb2.PolicyRef,
        sampling: policy_pb2.SamplingParams,
    ) -> pb.Generation:
        """See `Policy`."""
        request = pb.GenerateRequest(policy=policy, prompt_token_ids=prompt, sampling=sampling)
        with rpc_errors(_PEER):
            return (await self._stub.Generate(request, timeout=self._timeout)).generation
