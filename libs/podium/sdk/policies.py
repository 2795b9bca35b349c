"""Policies that the pool serves: list them, chat with them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.sdk.connection.failures import failures
from podium.sdk.paging import pages
from podium.types.v1 import policy_pb2, trajectory_pb2

if TYPE_CHECKING:
    import builtins

    import grpc

_STREAM_SECONDS = 600.0
_LOAD_SECONDS = 300.0
_RENDER_SECONDS = 120.0


class Policies:
    """InferenceService.

    Every method raises `UnavailableError` while the service cannot be reached,
    `DeadlineExceededError` when it does not answer in time, and `UnauthenticatedError` or
    `PermissionDeniedError` where a token is asked for. What else one raises stands there; all are
    of `podium.core.errors`.
    """

    def __init__(self, channel: Callable[[], grpc.aio.Channel], place: str = "") -> None:
        self._channel = channel
        self._failures = failures("inference", place)

    @property
    def _stub(self) -> pb_grpc.InferenceServiceAsyncStub:
        return pb_grpc.InferenceServiceStub(self._channel())

    async def engine(self) -> pb.GetEngineResponse:
        """Describes the engine: its base model, context length in tokens, and what it can do."""
        with self._failures():
            return await self._stub.GetEngine(pb.GetEngineRequest())

    async def list(self, job: str = "") -> AsyncGenerator[pb.LoadedPolicy, None]:
        """The policies that are loaded, newest version first within a job.

        Args:
            job: only those of this one; empty for all.
        """
        request = pb.ListPoliciesRequest(job=job)
        with self._failures():
            async for policy in pages(self._stub.ListPolicies, request, lambda r: r.policies):
                yield policy

    async def load(self, job: str, version: int) -> pb.LoadPolicyResponse:
        """Has every pod of the pool fetch a version from the registry and serve it.

        One pod is called, which orders it of the others: from outside a cluster they cannot be
        reached, nor seen. It is given 300 seconds.

        Args:
            job: the model, by its job's id.
            version: its number.

        Raises:
            NotFoundError: the registry has no such version.
            FailedPreconditionError: POOL_IN_USE, a merged pool serves another job; WEIGHT_MODE,
                BASE_MODEL_MISMATCH, BAD_ADAPTER or BAD_WEIGHTS, it does not fit this pool.
            DataLossError: its files are damaged.
            UnavailableError: the service cannot be reached; REQUESTS_DID_NOT_END or
                WEIGHTS_NOT_EXCHANGED, the old version is served on.
        """
        request = pb.LoadPolicyRequest(job=job, version=version, whole_pool=True)
        with self._failures():
            return await self._stub.LoadPolicy(request, timeout=_LOAD_SECONDS)

    async def unload(self, job: str, version: int | None = None) -> None:
        """Has the pod that is called stop serving a version, or all of a job's.

        In a pool of merged weights the base model is served again. Requests do not bring it back:
        `load` does. What is not loaded is no error.

        Args:
            job: the model, by its job's id.
            version: its number; None for all.
        """
        request = pb.UnloadPolicyRequest(job=job, version=version)
        with self._failures():
            await self._stub.UnloadPolicy(request, timeout=_LOAD_SECONDS)

    async def take_capture(self, key: str) -> builtins.list[pb.CapturedCall]:
        """The calls of the OpenAI API under a rollout's key: those that have ended, oldest first.

        Args:
            key: the bearer token that they came with, which begins with `podium-rollout-`.

        Raises:
            NotFoundError: NOTHING_CAPTURED, no call came with the key.
            DataLossError: CAPTURE_DROPPED or CAPTURE_LOST, some are gone: sample again.
            UnavailableError: the service, or a pod that may have some, does not answer.
        """
        with self._failures():
            stream = self._stub.TakeCapture(pb.TakeCaptureRequest(key=key), timeout=_STREAM_SECONDS)
            return [response.call async for response in stream]

    async def demonstrate(
        self, request: pb.RenderDemonstrationRequest
    ) -> pb.RenderDemonstrationResponse:
        """A whole conversation as tokens, and which of them the assistant would have sampled.

        Args:
            request: the messages and tools.

        Raises:
            InvalidArgumentError: a message cannot be rendered, by its field.
            FailedPreconditionError: NO_TOOL_TEMPLATE, the model's template knows no tools;
                HISTORY_NOT_CONTINUABLE, it rewrites what came before.
        """
        with self._failures():
            return await self._stub.RenderDemonstration(request, timeout=_RENDER_SECONDS)

    async def stream_chat(
        self,
        messages: Sequence[trajectory_pb2.Message],
        *,
        policy: policy_pb2.PolicyRef | None = None,
        sampling: policy_pb2.SamplingParams | None = None,
        tools: Sequence[trajectory_pb2.Tool] = (),
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[pb.StreamChatResponse, None]:
        """The answer to a conversation, piece by piece.

        Args:
            messages: the conversation, oldest first.
            policy: who answers; None for the base model.
            sampling: temperature and the like; None for the defaults of the contract.
            tools: what it may call.
            chat_template_kwargs: what the chat template is told besides, such as
                `{"enable_thinking": False}`.

        Raises:
            NotFoundError: POLICY_NOT_LOADED, the policy is not served.
            InvalidArgumentError: a message or a setting is wrong, by its field.
            FailedPreconditionError: the template cannot render it, as of tools that it does not
                know.
            DataLossError: the policy's files are damaged.
            ResourceExhaustedError: the engine's queue is full.
            UnavailableError: the service cannot be reached, or the policy is still being loaded.
        """
        request = pb.StreamChatRequest(
            policy=policy, messages=messages, sampling=sampling, tools=tools
        )
        request.chat_template_kwargs.update(dict(chat_template_kwargs or {}))
        call = self._stub.StreamChat(request, timeout=_STREAM_SECONDS)
        try:
            with self._failures():
                async for piece in call:
                    yield piece
        finally:
            call.cancel()
