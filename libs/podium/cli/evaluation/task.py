"""What every agent of one `podium eval` is measured on."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from podium.cli.environment_class import environment_class, scenarios_here
from podium.cli.evaluation.journal import EarlierAttempt, Journal, Journals, digest_of
from podium.cli.output import note

if TYPE_CHECKING:
    from podium.cli.serving import ServedPool
    from podium.environments import Agent, Environment, Scenario
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
    """Of its episodes, for a judge; none without one."""
    scenarios: Mapping[str, trajectory_pb2.Scenario] = field(default_factory=dict)
    """By their ids, for a scorer that is told of them; none without one."""


@dataclass(frozen=True)
class EvaluationTask:
    """What every agent of one command is measured on."""

    client: AsyncClient
    served: ServedPool
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
    journals: Journals
    """Where what was measured before is, and what is measured now is kept."""
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
            return await self._local(agent, self._baseline(name), samples=False)
        if kind == "openai":
            return await self._model(name)
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

    def _journal(self, agent: str, **more: object) -> Journal:
        import podium
        from podium.core.contract import to_plain

        return self.journals.open(
            agent,
            {
                "split": self.split,
                "attempts": self.attempts,
                "options": to_plain(self.place().config),
                "episode": to_plain(self.episode()),
                "sampling": to_plain(self.sampling()),
                "seed": self.seed,
                "version of Podium": podium.__version__,
                **more,
            },
        )

    async def _policy(self, agent: str) -> Measured:
        from podium.cli.serving import named
        from podium.core.policy_names import resolve_policy

        journal = self._journal(agent, pool=self.pool)
        policy = journal.policy or await resolve_policy(agent, self.client.checkpoints.get)
        if policy.job and not policy.HasField("version"):
            # One version, whatever is published while it is measured.
            policy.version = (await self.client.checkpoints.get(policy.job)).manifest.version
        if named(policy) not in (agent, "the base model"):
            note(f"{agent} is {named(policy)}")
        spec = self.place()
        # First: for nothing no policy gives way in the pool.
        scenarios = await self.client.environments.scenarios(spec, self.split, self.limit)
        self._not_empty(scenarios)
        journal.begin(policy)
        digests = {each.id: digest_of(each) for each in scenarios}
        known = journal.known(digests, self.attempts, recorded=self.judged)
        whole = whole_scenarios(known, self.attempts)
        if len(whole) < len(digests) * self.attempts:
            await self.served.serve(policy)
        recorder = _Recorder(self.judged, whole)
        advance = self._progress(agent, len(scenarios), len(whole))

        def done(attempt: Attempt) -> None:
            journal.keep(attempt, digests[attempt.scenario_id], recorder.latest())
            advance()

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
            done=done,
            recorded=recorder.take,
            known={key: each.attempt for key, each in whole.items()},
        )
        by_id = {each.id: each for each in scenarios} if self.judged else {}
        return Measured(attempts, policy, records=recorder.records, scenarios=by_id)

    async def _model(self, name: str) -> Measured:
        import httpx

        from podium.chat import Transport
        from podium.sdk.evaluation import ChatModel

        key = os.environ.get("OPENAI_API_KEY", "")
        base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        out = Transport("model")
        async with httpx.AsyncClient(base_url=base, headers=headers, transport=out) as client:
            return await self._local(
                f"openai:{name}",
                lambda seed: ChatModel(
                    seed,
                    client,
                    name,
                    temperature=self.temperature,
                    max_tokens=self.max_tokens,
                ),
                address=base,
            )

    async def _local(
        self, agent: str, make: Callable[[int], Agent], samples: bool = True, **depends: object
    ) -> Measured:
        from podium.sdk.evaluation import run_local

        kind = self._class()
        scenarios_here()
        # Whoever runs this command chooses its options too.
        os.environ.setdefault("PODIUM_MCP_COMMANDS", "*")
        if self.split not in kind.splits:
            raise click.UsageError(
                f"{kind.name} has no split {self.split!r}; it has {', '.join(kind.splits)}"
            )
        scenarios = list(kind(self.config).listed(self.split))[: self.limit]
        self._not_empty(scenarios)
        journal = self._journal(agent, **depends)
        digests = {each.id: digest_of(each) for each in scenarios}
        known = journal.known(digests, self.attempts, recorded=self.judged)
        recorder = _Recorder(self.judged, known)
        advance = self._progress(agent, len(scenarios), len(known))

        def done(attempt: Attempt) -> None:
            journal.keep(attempt, digests[attempt.scenario_id], recorder.latest())
            advance()

        attempts = await run_local(
            kind,
            self.config,
            scenarios,
            make,
            attempts=self.attempts,
            seed=self.seed,
            max_turns=self.max_turns,
            concurrency=self.concurrency,
            done=done,
            recorded=recorder.take if self.judged else None,
            known={key: each.attempt for key, each in known.items()},
        )
        by_id = _scenarios(scenarios, self.split) if self.judged else {}
        return Measured(attempts, samples=samples, records=recorder.records, scenarios=by_id)

    def _progress(self, agent: str, scenarios: int, known: int) -> Callable[[], None]:
        count = scenarios * self.attempts
        if known:
            note(f"{agent}: {known} of {count} episodes are there from an interrupted run")
        seen = itertools.count(known + 1)

        def advance() -> None:
            number = next(seen)
            if number % 50 == 0 or number == count:
                note(f"{number} of {count} episodes")

        return advance

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


def whole_scenarios(
    known: Mapping[tuple[str, int], EarlierAttempt], attempts: int
) -> dict[tuple[str, int], EarlierAttempt]:
    """Those of scenarios of which every attempt is known: a group is collected whole."""
    counts = Counter(scenario for scenario, _ in known)
    return {key: each for key, each in known.items() if counts[key[0]] == attempts}


def _scenarios(scenarios: Sequence[Scenario], split: str) -> dict[str, trajectory_pb2.Scenario]:
    from podium.core.outside import clean, struct_of
    from podium.types.v1 import trajectory_pb2

    made = [
        trajectory_pb2.Scenario(id=clean(each.id), split=split, data=struct_of(each.data))
        for each in scenarios
    ]
    return {each.id: each for each in made}


class _Recorder:
    """The episodes for a judge: records are large, and nobody else reads them."""

    def __init__(self, wanted: bool, known: Mapping[tuple[str, int], EarlierAttempt]) -> None:
        from podium.types.v1 import trajectory_pb2

        self.records = [
            trajectory_pb2.Trajectory.FromString(each.record)
            for each in (known.values() if wanted else ())
        ]
        self._wanted = wanted
        self._latest: list[trajectory_pb2.Trajectory] = []

    def take(self, record: trajectory_pb2.Trajectory) -> None:
        """Of the attempt that is told of next."""
        if self._wanted:
            self._latest.append(record)

    def latest(self) -> trajectory_pb2.Trajectory | None:
        """That of the attempt that was told of; None where it has none, or nobody wants it."""
        if not self._latest:
            return None
        self.records.append(self._latest.pop())
        return self.records[-1]


def _wrong_agent(agent: str) -> click.UsageError:
    return click.UsageError(f"got --agent {agent!r}; allowed are {AGENTS}")
