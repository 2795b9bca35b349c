"""The environments that the rollout service has built in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podium.core.specs.generated import EnvironmentSpec
from podium.core.specs.sources import message_of
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc as pb_grpc
from podium.sdk.connection.failures import failures
from podium.sdk.paging import pages
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

if TYPE_CHECKING:
    import builtins

    import grpc

    from podium.sdk.evaluation import Attempt


class Environments:
    """What jobs can train on, besides remote environments.

    Every method raises `UnavailableError` while the rollout service cannot be reached,
    `DeadlineExceededError` when it does not answer in time, and `UnauthenticatedError` or
    `PermissionDeniedError` where a token is asked for. What else one raises stands there; all are
    of `podium.core.errors`.
    """

    def __init__(self, channel: Callable[[], grpc.aio.Channel], place: str = "") -> None:
        self._channel = channel
        self._failures = failures("rollout", place)

    @property
    def _stub(self) -> pb_grpc.RolloutServiceAsyncStub:
        return pb_grpc.RolloutServiceStub(self._channel())

    async def scenarios(
        self,
        environment: spec_pb2.EnvironmentSpec | EnvironmentSpec | Mapping[str, Any],
        split: str,
        limit: int | None = None,
    ) -> builtins.list[trajectory_pb2.Scenario]:
        """The scenarios of a split, in the environment's order.

        Args:
            environment: its name, address and options, as a job has them.
            split: `train` or `heldout`.
            limit: the first so many; None for all.

        Raises:
            NotFoundError: there is no such environment or split.
            InvalidArgumentError: what is wrong with its options.
            FailedPreconditionError: PACKAGE_MISSING, the rollout service lacks what it needs.
        """
        found: builtins.list[trajectory_pb2.Scenario] = []
        known = message_of(environment, spec_pb2.EnvironmentSpec)
        request = pb.ListScenariosRequest(environment=known, split=split)
        with self._failures():
            async for scenario in pages(self._stub.ListScenarios, request, lambda r: r.scenarios):
                found.append(scenario)
                if len(found) == limit:
                    break
        return found

    async def run(
        self,
        /,
        environment: spec_pb2.EnvironmentSpec,
        scenarios: Sequence[trajectory_pb2.Scenario],
        policy: policy_pb2.PolicyRef,
        sampling: policy_pb2.SamplingParams,
        episode: spec_pb2.EpisodeSpec,
        **options: Any,
    ) -> builtins.list[Attempt]:
        """Attempts of a policy, in the order of the scenarios.

        Args:
            environment: its name, address and options, as a job has them.
            scenarios: as `scenarios` gives them.
            policy: who plays, which must be served.
            sampling, episode: with their defaults filled in.
            options: those of `podium.sdk.evaluation.run_policy`: `pool`, `attempts` of each
                scenario, `seed`, `concurrency`, `done`, `recorded`, `known`.

        Raises:
            NotFoundError: there is no such environment or policy.
            InvalidArgumentError: what is wrong with the environment's options, or a setting.
            FailedPreconditionError: NO_TOOL_TEMPLATE, the model cannot be told of the tools.
        """
        from podium.sdk.evaluation import run_policy

        with self._failures():
            return await run_policy(
                self._stub, environment, scenarios, policy, sampling, episode, **options
            )

    async def list(self) -> Sequence[pb.EnvironmentInfo]:
        """The built-in environments."""
        with self._failures():
            response = await self._stub.ListEnvironments(pb.ListEnvironmentsRequest())
        return list(response.environments)
