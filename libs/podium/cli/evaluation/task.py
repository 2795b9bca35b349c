"""What every agent of one `podium eval` is measured on."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from podium.cli.environment_class import environment_class, modules_here, scenarios_here
from podium.cli.output import note

if TYPE_CHECKING:
    from podium.cli.serving import Pool
    from podium.environments import Agent, Environment
    from podium.sdk import AsyncClient
    from podium.sdk.evaluation import Attempt
    from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2

AGENTS = (
    "a policy (`base`, `JOB`, `JOB@VERSION` or `JOB@ALIAS`, such as `JOB@best`), `baseline:NAME`,"
    " or `openai:MODEL`"
)


@dataclass(frozen=True)
class Measured:
    """What came of one agent."""

    attempts: list[Attempt]
    policy: policy_pb2.PolicyRef | None = None
    """None for an agent that is no policy of Podium's."""
    samples: bool = True
    """Whether it draws tokens."""
    records: list[trajectory_pb2.Trajectory] = field(default_factory=list)
    """Of its episodes, for a judge; none of an agent that is no policy."""


@dataclass(frozen=True)
class Task:
    """What every agent of one command is measured on."""

    client: AsyncClient
    served: Pool
    environment: str
    address: str
    pool: str
    config: Mapping[str, Any]
    template: Mapping[str, Any]
    split: str
    limit: int | None
    attempts: int
    max_turns: int
    temperature: float
    max_tokens: int
    seed: int
    concurrency: int
    judged: bool = False
    """Whether a judge is to read the episodes."""

    async def run(self, agent: str) -> Measured:
        """Every attempt of one agent.

        Raises:
            CliError: there is no such agent.
            PodiumError: what a service refused.
        """
        kind, colon, name = agent.partition(":")
        if not colon:
            return await self._policy(agent)
        if kind == "baseline":
            return Measured(await self._local(self._baseline(name)), samples=False)
        if kind == "openai":
            return Measured(await self._model(name))
        raise _wrong_agent(agent)

    def place(self) -> spec_pb2.EnvironmentSpec:
        """Where they act."""
        from podium.types.v1 import spec_pb2

        spec = spec_pb2.EnvironmentSpec(name=self.environment, address=self.address)
        spec.config.update(self.config)
        return spec

    def episode(self) -> spec_pb2.EpisodeSpec:
        """How episodes are played, with every default."""
        from podium.core.contract import apply_defaults
        from podium.types.v1 import spec_pb2

        episode = apply_defaults(spec_pb2.EpisodeSpec(max_turns=self.max_turns))
        episode.chat_template_kwargs.update(self.template)
        return episode

    def sampling(self) -> policy_pb2.SamplingParams:
        """How tokens are drawn, with every default."""
        from podium.core.contract import apply_defaults
        from podium.types.v1 import policy_pb2

        return apply_defaults(
            policy_pb2.SamplingParams(temperature=self.temperature, max_tokens=self.max_tokens)
        )

    async def _policy(self, agent: str) -> Measured:
        from podium.cli.serving import named
        from podium.core.policy_names import resolve_policy

        policy = await resolve_policy(agent, self.client.checkpoints.get)
        if policy.job and not policy.HasField("version"):
            # One version, whatever is published while it is measured.
            policy.version = (await self.client.checkpoints.get(policy.job)).manifest.version
        if named(policy) not in (agent, "the base model"):
            note(f"{agent} is {named(policy)}")
        spec = self.place()
        # First: for nothing no policy gives way in the pool.
        scenarios = await self.client.environments.scenarios(spec, self.split, self.limit)
        self._not_empty(scenarios)
        await self.served.serve(policy)
        records: list[trajectory_pb2.Trajectory] = []
        attempts = await self.client.environments.run(
            spec,
            scenarios,
            policy,
            self.sampling(),
            self.episode(),
            pool=self.pool,
            attempts=self.attempts,
            seed=self.seed,
            concurrency=self.concurrency,
            done=_progress(len(scenarios) * self.attempts),
            recorded=records.append if self.judged else _forget,
        )
        return Measured(attempts, policy, records=records)

    async def _model(self, name: str) -> list[Attempt]:
        import httpx

        from podium.sdk.evaluation import ChatModel

        key = os.environ.get("OPENAI_API_KEY", "")
        base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(base_url=base, headers=headers) as client:
            return await self._local(
                lambda seed: ChatModel(
                    seed,
                    client,
                    name,
                    temperature=self.temperature,
                    max_tokens=self.max_tokens,
                )
            )

    async def _local(self, agent: Callable[[int], Agent]) -> list[Attempt]:
        from podium.sdk.evaluation import run_local

        kind = self._class()
        scenarios_here()
        modules_here()
        # Whoever runs this command chooses its options too.
        os.environ.setdefault("PODIUM_MCP_COMMANDS", "*")
        if self.split not in kind.splits:
            raise click.UsageError(
                f"{kind.name} has no split {self.split!r}; it has {', '.join(kind.splits)}"
            )
        scenarios = list(kind(self.config).listed(self.split))[: self.limit]
        self._not_empty(scenarios)
        return await run_local(
            kind,
            self.config,
            scenarios,
            agent,
            attempts=self.attempts,
            seed=self.seed,
            max_turns=self.max_turns,
            concurrency=self.concurrency,
            done=_progress(len(scenarios) * self.attempts),
        )

    def _not_empty(self, scenarios: Sequence[object]) -> None:
        if not scenarios:
            raise click.UsageError(
                f"{self.environment} has no scenarios in the split {self.split!r}, so there is"
                " nothing to measure"
            )

    def _baseline(self, name: str) -> Callable[[int], Agent]:
        baselines = self._class().baselines
        if name not in baselines:
            known = ", ".join(sorted(baselines)) or "none"
            raise click.UsageError(f"{self.environment} has no baseline {name!r}; it has {known}")
        return baselines[name]

    def _class(self) -> type[Environment]:
        return environment_class(self.environment)


def _forget(_: trajectory_pb2.Trajectory) -> None:
    """Records are large, and only a judge reads them."""


def _progress(count: int) -> Callable[[Attempt], None]:
    seen = itertools.count(1)

    def done(_: Attempt) -> None:
        number = next(seen)
        if number % 50 == 0 or number == count:
            note(f"{number} of {count} episodes")

    return done


def _wrong_agent(agent: str) -> click.UsageError:
    return click.UsageError(f"got --agent {agent!r}; allowed are {AGENTS}")
