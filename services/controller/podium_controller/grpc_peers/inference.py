"""An inference pool over gRPC: every pod of it where its state is meant, any of them otherwise."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import grpc
from podium.core.errors import UnavailableError
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.rpc.fan_out import ask_each
from podium.kit.rpc.members import Members
from podium.types.v1 import policy_pb2, spec_pb2

from podium_controller.grpc_peers.errors import peer_errors

logger = logging.getLogger(__name__)

T = TypeVar("T")
_PEER = "inference"
_PAGE = 1000


class GrpcInference:
    """See `ports.Inference`."""

    def __init__(self, members: Members, load_seconds: float, score_seconds: float) -> None:
        self._members = members
        self._stub = _stub(members.whole)
        self._load_seconds = load_seconds
        self._score_seconds = score_seconds

    async def engine(self) -> pb.GetEngineResponse:
        """See `ports.Inference`. All pods have the same."""
        with peer_errors(_PEER):
            return await self._stub.GetEngine(pb.GetEngineRequest())

    async def load(
        self,
        job_id: str,
        version: int,
        weight_update: spec_pb2.WeightUpdate.ValueType = spec_pb2.WEIGHT_UPDATE_DRAIN,
    ) -> pb.LoadPolicyResponse:
        """See `ports.Inference`."""
        request = pb.LoadPolicyRequest(job=job_id, version=version, weight_update=weight_update)
        answers = await self._each(
            lambda stub: stub.LoadPolicy(request, timeout=self._load_seconds)
        )
        return pb.LoadPolicyResponse(
            policy=answers[0].policy,
            pause_seconds=max(answer.pause_seconds for answer in answers),
            already_loaded=all(answer.already_loaded for answer in answers),
        )

    async def score(
        self, policy: policy_pb2.PolicyRef, token_ids: Sequence[int]
    ) -> pb.ScoreTokensResponse:
        """See `ports.Inference`."""
        request = pb.ScoreTokensRequest(policy=policy, token_ids=token_ids)
        with peer_errors(_PEER):
            return await self._stub.ScoreTokens(request, timeout=self._score_seconds)

    async def unload(self, job_id: str, seconds: float | None = None) -> None:
        """See `ports.Inference`."""
        request = pb.UnloadPolicyRequest(job=job_id)
        timeout = seconds or self._load_seconds
        await self._each(lambda stub: stub.UnloadPolicy(request, timeout=timeout))

    async def policies(self) -> list[pb.LoadedPolicy]:
        """See `ports.Inference`. Once each, however many pods serve it."""
        found = {
            (policy.job, policy.version): policy
            for policies in await self._each(_policies)
            for policy in policies
        }
        return list(found.values())

    async def gpus(self) -> int:
        """See `ports.Inference`."""
        pods = len(await self._members.each())
        return pods * (await self.engine()).gpus

    async def loads(self) -> list[pb.EngineLoad | None]:
        """See `ports.Inference`."""
        answers = await self._each(lambda stub: stub.GetEngine(pb.GetEngineRequest()))
        return [each.load if each.HasField("load") else None for each in answers]

    async def _each(
        self, call: Callable[[pb_grpc.InferenceServiceAsyncStub], Awaitable[T]]
    ) -> list[T]:
        """The answers of all pods that the pool's name has now, at least one.

        All are waited for, whatever one of them says. A pod that went away in
        between is left out: the next one in its place fetches what it is asked for.

        Raises:
            UnavailableError: there is none, or all went away.
            PodiumError: what a pod refused it with.
        """
        channels = await self._members.each()
        if not channels:
            raise UnavailableError("no pod of the pool is ready", metadata={"peer": _PEER})

        async def ask(channel: grpc.aio.Channel) -> T:
            with peer_errors(_PEER):
                return await call(_stub(channel))

        asked = await ask_each(channels, ask, _PEER)
        if not asked.answers:
            raise next(iter(asked.gone.values()))
        for address in asked.gone:
            logger.warning("a pod of a pool went away", extra={"pod": address})
        return list(asked.answers.values())


def _stub(channel: grpc.aio.Channel) -> pb_grpc.InferenceServiceAsyncStub:
    return pb_grpc.InferenceServiceStub(channel)


async def _policies(stub: pb_grpc.InferenceServiceAsyncStub) -> list[pb.LoadedPolicy]:
    request = pb.ListPoliciesRequest(page_size=_PAGE)
    found: list[pb.LoadedPolicy] = []
    while True:
        response = await stub.ListPolicies(request)
        found += response.policies
        request.page_token = response.next_page_token
        if not request.page_token:
            return found
