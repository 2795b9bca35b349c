"""`podium.rollout.v1.RolloutService`: validates, calls the domain, maps the result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
from podium.core.contract import apply_defaults
from podium.environments.catalog import builtin_names, load
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc as pb_grpc

from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.group import GroupRunner

SERVICE = "podium.rollout.v1.RolloutService"
_Context = grpc.aio.ServicerContext[Any, Any]


class RolloutServicer(pb_grpc.RolloutServiceServicer):
    """See the contract for what each method does and how it fails."""

    def __init__(self, collector: GroupRunner, environments: Environments) -> None:
        """Both live as long as the service."""
        self._collector = collector
        self._environments = environments

    async def CollectGroup(
        self, request: pb.CollectGroupRequest, context: _Context
    ) -> AsyncIterator[pb.CollectGroupResponse]:
        apply_defaults(request.sampling)
        apply_defaults(request.episode)
        async with aclosing(self._collector.collect(request)) as trajectories:
            async for trajectory in trajectories:
                yield pb.CollectGroupResponse(trajectory=trajectory)

    async def ListScenarios(
        self, request: pb.ListScenariosRequest, context: _Context
    ) -> pb.ListScenariosResponse:
        page, token = await self._environments.scenarios(
            request.environment, request.split, request.page_size, request.page_token
        )
        return pb.ListScenariosResponse(scenarios=page, next_page_token=token)

    async def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: _Context
    ) -> pb.ListEnvironmentsResponse:
        return builtin_environments(workers=1)


def builtin_environments(workers: int) -> pb.ListEnvironmentsResponse:
    """Those that this server has built in, and how many processes run episodes now."""
    kinds = [load(name) for name in builtin_names()]
    return pb.ListEnvironmentsResponse(
        environments=[
            pb.EnvironmentInfo(name=kind.name, description=kind.description, splits=kind.splits)
            for kind in kinds
        ],
        workers=workers,
    )
