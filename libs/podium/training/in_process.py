"""The backend of tests: the whole API in this process, with a function for a model.

An agent's rollouts, rewards and training loop run as they will against a real
installation: real HTTP with OpenAI's API on a port of this machine, captured
calls, batches held to the contract's rules. Only nothing is learned.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from podium.core.means import mean_of
from podium.core.token_records import token_record_violations
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.training.backend import TrainResult
from podium.training.in_process_api import Answer, InProcessApi, demonstrated
from podium.types.v1 import spec_pb2, trajectory_pb2


class InProcessBackend:
    """Serves and "trains" models with a function's answers. See `Backend`."""

    def __init__(self, answer: Callable[[list[dict[str, Any]], int], Answer]) -> None:
        """`answer(messages, step)` is what the model says after so many steps.

        Text, or an assistant's message as chat completions write it.
        """
        self.batches: dict[str, list[Sequence[trajectory_pb2.Group]]] = {}
        """What was trained on, by model and step."""
        self.aliases: dict[tuple[str, str], int] = {}
        """The step that an alias of a model names; `latest` names the newest by itself."""
        self._versions: dict[str, dict[int, registry_pb.Version]] = {}
        self._requests: dict[tuple[str, str], int] = {}
        self._finished: set[str] = set()
        self._first: dict[str, int] = {}
        """The step that a model began at."""
        self._lock = threading.Lock()
        self._calls: dict[str, list[inference_pb.CapturedCall]] = {}
        self._api = InProcessApi(answer, self._step_of, self._keep)

    def close(self) -> None:
        """Stops serving. Idempotent."""
        self._api.close()

    def __enter__(self) -> InProcessBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def register(self, name: str, spec: spec_pb2.JobSpec) -> str:
        """See `Backend`."""
        if name not in self.batches:
            self._first[name] = await self._forked(spec)
            self.batches[name] = []
            self._publish(name, spec.base_model)
        return self._api.base_url

    async def step(self, name: str) -> int:
        """See `Backend`.

        Raises:
            NotFoundError: JOB_NOT_FOUND, no model of this name is registered.
        """
        return self._first.get(name, 0) + len(self._batches(name))

    async def submit(
        self, name: str, groups: Sequence[trajectory_pb2.Group], request_id: str
    ) -> int:
        """See `Backend`; strictly on-policy.

        Args:
            groups: one message a scenario; each call's tokens are of the model's newest step.

        Returns:
            The step that the groups are, counted from 1, or from the fork's step on.

        Raises:
            NotFoundError: JOB_NOT_FOUND, no model of this name is registered.
            FailedPreconditionError: JOB_ENDED, it has finished; or STALE_BATCH, tokens of another
                step or model.
            AlreadyExistsError: REQUEST_ID_REUSED, the id came with other groups.
            InvalidArgumentError: INVALID_BATCH, each record of tokens that contradicts itself, by
                its path.
        """
        batches = self._batches(name)
        if name in self._finished:
            raise FailedPreconditionError(f"job {name} has succeeded", reason="JOB_ENDED")
        known = self._requests.get((name, request_id))
        if known is not None:
            if list(batches[known - self._first[name] - 1]) != list(groups):
                raise AlreadyExistsError(
                    f"request_id {request_id!r} was used with other groups",
                    reason="REQUEST_ID_REUSED",
                )
            return known
        step = await self.step(name)
        _check(name, step, groups)
        base_model = self._version(name, step).manifest.base_model
        batches.append(groups)
        self._requests[name, request_id] = step + 1
        self._publish(name, base_model)
        return step + 1

    async def trained(self, name: str, step: int) -> TrainResult:
        """See `Backend`."""
        groups = self._batches(name)[step - self._first[name] - 1]
        rewards = [
            trajectory.environment_reward
            for group in groups
            for trajectory in group.trajectories
            if trajectory.HasField("environment_reward")
        ]
        metrics = {"groups": float(len(groups))}
        if rewards:
            metrics["reward_mean"] = mean_of(rewards)
        return TrainResult(step, metrics)

    async def api_token(self) -> str:
        """See `Backend`. It asks for none."""
        return ""

    async def take(self, key: str) -> list[inference_pb.CapturedCall]:
        """See `Backend`."""
        with self._lock:
            return list(self._calls.get(key, ()))

    async def demonstrate(
        self, request: inference_pb.RenderDemonstrationRequest
    ) -> inference_pb.RenderDemonstrationResponse:
        """See `Backend`; by the template that its API captures calls in."""
        return demonstrated(request)

    async def finish(self, name: str) -> None:
        """See `Backend`.

        Raises:
            NotFoundError: JOB_NOT_FOUND, no model of this name is registered.
        """
        self._batches(name)
        self._finished.add(name)

    async def record(self, name: str, step: int, metrics: Mapping[str, float]) -> None:
        """See `Backend`.

        Raises:
            NotFoundError: there is no such version.
        """
        self._version(name, step).evaluation_metrics.update(metrics)

    async def checkpoints(self, name: str) -> AsyncGenerator[registry_pb.Version, None]:
        """See `Backend`."""
        for step in sorted(self._versions.get(name, {}), reverse=True):
            yield self._versions[name][step]

    async def version(self, name: str, which: int | str) -> registry_pb.Version:
        """See `Backend`; of aliases, `latest` and those in `aliases`.

        Raises:
            NotFoundError: there is no such model, version or alias.
        """
        if isinstance(which, int):
            return self._version(name, which)
        if which == "latest":
            return self._version(name, await self.step(name))
        if (name, which) not in self.aliases:
            raise NotFoundError(f"{name} has no alias {which!r}")
        return self._version(name, self.aliases[name, which])

    async def download(self, name: str, step: int, folder: Path) -> None:
        """A function has no weights.

        Raises:
            FailedPreconditionError: always.
        """
        raise FailedPreconditionError(
            f"{name}@{self._version(name, step).manifest.version} is a function of this process;"
            " it has no weights",
            reason="NO_WEIGHTS",
        )

    async def retain(self, name: str, keep_last: int, keep_best: int, metric: str) -> None:
        """See `Backend`."""
        versions = self._versions.get(name, {})
        rated = [step for step in versions if metric in versions[step].evaluation_metrics]
        best = sorted(rated, key=lambda step: -versions[step].evaluation_metrics[metric])
        kept = {*sorted(versions)[-keep_last:], *best[:keep_best]}
        for step in [step for step in versions if step not in kept]:
            del versions[step]

    def _batches(self, name: str) -> list[Sequence[trajectory_pb2.Group]]:
        if name not in self.batches:
            raise NotFoundError(f"there is no job {name!r}", reason="JOB_NOT_FOUND")
        return self.batches[name]

    async def _forked(self, spec: spec_pb2.JobSpec) -> int:
        """The step that a new model begins at."""
        if not spec.HasField("fork"):
            return 0
        fork = spec.fork
        at = fork.version if fork.HasField("version") else await self.step(fork.model)
        return int(self._version(fork.model, at).manifest.version)

    def _version(self, name: str, step: int) -> registry_pb.Version:
        if step not in self._versions.get(name, {}):
            raise NotFoundError(f"there is no version {step} of {name}")
        return self._versions[name][step]

    def _publish(self, name: str, base_model: str) -> None:
        made = registry_pb.Version()
        made.manifest.model, made.manifest.base_model = name, base_model
        made.manifest.version = self._first[name] + len(self.batches[name])
        self._versions.setdefault(name, {}).setdefault(made.manifest.version, made)

    def _step_of(self, name: str) -> int | None:
        if name not in self.batches:
            return None
        return self._first[name] + len(self.batches[name])

    def _keep(self, key: str, call: inference_pb.CapturedCall) -> None:
        with self._lock:
            self._calls.setdefault(key, []).append(call)


def _check(name: str, version: int, groups: Sequence[trajectory_pb2.Group]) -> None:
    """What the controller would refuse, too."""
    violations = []
    for index, group in enumerate(groups):
        for number, trajectory in enumerate(group.trajectories):
            for place, history in enumerate(trajectory.histories):
                path = f"groups[{index}].trajectories[{number}].histories[{place}].tokens"
                violations += token_record_violations(history.tokens, path)
                for span in history.tokens.spans:
                    is_own = span.policy == name and span.weights_version == version
                    if not (is_own or group.batch_training.supervised):
                        raise FailedPreconditionError(
                            f"groups[{index}] holds tokens of {span.policy}@{span.weights_version};"
                            f" {name}@{version} is to be trained: sample it again",
                            reason="STALE_BATCH",
                        )
    if violations:
        raise InvalidArgumentError(violations=violations, reason="INVALID_BATCH")
