"""`podium eval`: measure agents on an environment's scenarios."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from podium.cli.completers import complete_jobs
from podium.cli.connection import connected
from podium.cli.environment_class import environment_class, modules_here, scenarios_here
from podium.cli.exits import CliError, Exit
from podium.cli.integers import Count, Integer
from podium.cli.output import data, note
from podium.cli.settings import read_settings

if TYPE_CHECKING:
    from podium.cli.serving import Pool
    from podium.environments import Agent, Environment
    from podium.sdk import AsyncClient
    from podium.sdk.evaluation import Attempt

_AGENTS = (
    "a policy (`base`, `JOB`, `JOB@VERSION` or `JOB@ALIAS`, such as `JOB@best`), `baseline:NAME`,"
    " or `openai:MODEL`"
)


@click.command("eval", short_help="Measure a policy, a baseline or another model.")
@click.argument("environment")
@click.option(
    "-a",
    "--agent",
    "agents",
    multiple=True,
    shell_complete=complete_jobs,
    required=True,
    metavar="AGENT",
    help=f"{_AGENTS}. Repeat it to compare with the first.",
)
@click.option("--split", default="heldout", show_default=True, help="Whose scenarios.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many scenarios.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 1024),
    default=1,
    show_default=True,
    help="Attempts of each scenario.",
)
@click.option(
    "--threshold",
    type=float,
    help="Success is a task that ended with a reward above this. [default: the environment's "
    "own success, else 0.5]",
)
@click.option(
    "--max-turns",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    help="After which an episode is cut.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0, 5),
    default=1.0,
    show_default=True,
    help="0 is greedy.",
)
@click.option(
    "--max-tokens",
    type=Count(1, bits=32),
    default=128,
    show_default=True,
    help="Longest answer.",
)
@click.option("--seed", type=Integer(), default=0, show_default=True, help="Seed of every episode.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the environment; VALUE is YAML.",
)
@click.option(
    "--chat-template-arg",
    "template_arguments",
    multiple=True,
    metavar="KEY=VALUE",
    help="What the chat template is told besides, such as enable_thinking=false; VALUE is YAML.",
)
@click.option(
    "--environment-address",
    default="",
    metavar="HOST:PORT",
    help="Where a remote environment is served; policies only.",
)
@click.option(
    "--pool",
    default="",
    help="The inference pool of a policy, as `podium job get` names it.  [default: the first one]",
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), default=8, show_default=True, help="At once."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "json", "yaml")),
    default="table",
    show_default=True,
    help="json and yaml have every attempt.",
)
@connected
async def evaluate(
    client: AsyncClient,
    environment: str,
    agents: Sequence[str],
    split: str,
    limit: int | None,
    attempts: int,
    threshold: float | None,
    max_turns: int,
    temperature: float,
    max_tokens: int,
    seed: int,
    settings: Sequence[str],
    template_arguments: Sequence[str],
    environment_address: str,
    pool: str,
    concurrency: int,
    output: str,
) -> None:
    """Measure agents on the scenarios of ENVIRONMENT, a built-in name or `module:Class`.

    Prints success with its 95 % interval, pass@k, reward and turns of each agent, of every
    further agent how it differs from the first on the same scenarios, and what each did with
    the first 20 scenarios; -o json has all of them. A pool that holds one policy (merged weights,
    as on a CPU) serves each that is named in turn, unless a job trains there.

    `openai:MODEL` is asked at OPENAI_BASE_URL with OPENAI_API_KEY, and again where it is busy.
    Attempts that it never answered are left out of all numbers, and the exit code is 3.
    """
    from podium.cli.evaluation_tables import of_scenarios, show_scenarios, show_summaries
    from podium.cli.serving import pool_for
    from podium.sdk.evaluation import answered, compare, summarise
    from podium.sdk.evaluation import by_scenario as attempted

    async with pool_for(client) as served:
        task = _Task(
            client=client,
            served=served,
            environment=environment,
            address=environment_address,
            pool=pool,
            config=read_settings(settings),
            template=read_settings(template_arguments, "--chat-template-arg"),
            split=split,
            limit=limit,
            attempts=attempts,
            max_turns=max_turns,
            temperature=temperature,
            max_tokens=max_tokens,
            seed=seed,
            concurrency=concurrency,
        )
        results = {agent: await task.run(agent) for agent in agents}
    incomplete = _incomplete(results)
    counted = {agent: answered(found) for agent, found in results.items()}
    if incomplete is not None and not any(counted.values()):
        raise incomplete
    summaries = {
        agent: summarise(found, threshold) for agent, found in results.items() if counted[agent]
    }
    first = agents[0]
    comparisons = {
        agent: compare(results[first], results[agent], threshold)
        for agent in list(results)[1:]
        if attempted(counted[first]).keys() & attempted(counted[agent]).keys()
    }
    if output == "table":
        show_summaries(summaries, comparisons, first)
        show_scenarios(counted, threshold)
        if incomplete is not None:
            raise incomplete
        return
    data(
        [
            {
                "agent": agent,
                **asdict(summary),
                "pass_at": {str(k): value for k, value in summary.pass_at.items()},
                "compared_with_first": asdict(comparisons[agent]) if agent in comparisons else None,
                "by_scenario": of_scenarios(counted[agent], threshold),
                "episodes": [
                    {**asdict(attempt), "success": attempt.succeeded(threshold)}
                    for attempt in results[agent]
                ],
            }
            for agent, summary in summaries.items()
        ],
        output,
    )
    if incomplete is not None:
        raise incomplete


def _incomplete(results: Mapping[str, Sequence[Attempt]]) -> CliError | None:
    """Says which attempts are in no number because a model was never heard."""
    lines = []
    for agent, found in results.items():
        silent = [attempt for attempt in found if attempt.unanswered]
        if silent:
            lines.append(
                f"{len(silent)} of {len(found)} attempts of {agent} were never answered, and are in"
                f" none of the numbers: {silent[0].failure}"
            )
    if not lines:
        return None
    hint = "Lower --concurrency, or check OPENAI_BASE_URL, OPENAI_API_KEY and the model's name."
    return CliError("\n".join(lines), hint, Exit.UNREACHABLE)


@dataclass(frozen=True)
class _Task:
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

    async def run(self, agent: str) -> list[Attempt]:
        """Every attempt of one agent.

        Raises:
            CliError: there is no such agent.
            PodiumError: what a service refused.
        """
        kind, colon, name = agent.partition(":")
        if not colon:
            return await self._policy(agent)
        if kind == "baseline":
            return await self._local(self._baseline(name))
        if kind == "openai":
            return await self._model(name)
        raise _wrong_agent(agent)

    async def _policy(self, agent: str) -> list[Attempt]:
        from podium.cli.serving import named
        from podium.core.contract import apply_defaults
        from podium.core.policy_names import resolve_policy
        from podium.types.v1 import policy_pb2, spec_pb2

        policy = await resolve_policy(agent, self.client.checkpoints.get)
        if named(policy) not in (agent, "the base model"):
            note(f"{agent} is {named(policy)}")
        spec = spec_pb2.EnvironmentSpec(name=self.environment, address=self.address)
        spec.config.update(self.config)
        # First: for nothing no policy gives way in the pool.
        scenarios = await self.client.environments.scenarios(spec, self.split, self.limit)
        self._not_empty(scenarios)
        await self.served.serve(policy)
        episode = apply_defaults(spec_pb2.EpisodeSpec(max_turns=self.max_turns))
        episode.chat_template_kwargs.update(self.template)
        sampling = apply_defaults(
            policy_pb2.SamplingParams(temperature=self.temperature, max_tokens=self.max_tokens)
        )
        return await self.client.environments.run(
            spec,
            scenarios,
            policy,
            sampling,
            episode,
            pool=self.pool,
            attempts=self.attempts,
            seed=self.seed,
            concurrency=self.concurrency,
            done=_progress(len(scenarios) * self.attempts),
        )

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


def _progress(count: int) -> Callable[[Attempt], None]:
    seen = itertools.count(1)

    def done(_: Attempt) -> None:
        number = next(seen)
        if number % 50 == 0 or number == count:
            note(f"{number} of {count} episodes")

    return done


def _wrong_agent(agent: str) -> click.UsageError:
    return click.UsageError(f"got --agent {agent!r}; allowed are {_AGENTS}")
