"""One job through the real controller, rollout, inference and judge services, fuzzed by its seed.

Doubles are the engine, the judge's model, the trainer's arithmetic and the environment, which hands
back all that it is told. Calls between the services are real gRPC, and the registry is a process.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_hex
from typing import Any

from fuzz import wilder
from podium.environments import Message, Scenario, StepResult, catalog
from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.types.v1 import policy_pb2, spec_pb2
from prometheus_client import REGISTRY
from support.controlled import ENDED, Client
from support.fake_judge import Answer, completion, fake_judge, scores, shown
from support.fleet import Fleet
from support.fleet_doubles import BASE_MODEL
from support.judging import judge_service
from support.one_process import services
from support.rollout_service import environment_here
from support.wild_services import Echo, WildError

GROUPS, ATTEMPTS, STEPS, TURNS = 16, 8, 8, 12
CRITERIA = ("right", "brief")
_MOST = 4_000
"""Bytes of most replies: a token is a byte here."""
_TIRED = 3
"""From this time on a question is answered well: a job asks each of its groups in three rounds, and
ends, as it should, where not one of them has a score in any."""


@dataclass
class Counts:
    """What was said, and what came of it."""

    replies: int = 0
    calls: int = 0
    answers: int = 0
    jobs: int = 0
    wrong: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Takes another's."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


class Wide(Echo):
    """As many scenarios as a step has groups."""

    calls = raised = 0
    # A turn costs less than an episode.
    ends = 0.08

    def scenarios(self, split: str) -> Sequence[Scenario]:
        return [Scenario(f"s{number}", {}) for number in range(GROUPS)]

    async def step(self, action: Message) -> StepResult:
        Wide.calls += len(action.tool_calls)
        try:
            return await super().step(action)
        except WildError:
            Wide.raised += 1
            raise


class _Defects(logging.Handler):
    """What a service logs as its own defect."""

    def __init__(self, counts: Counts) -> None:
        super().__init__(logging.ERROR)
        self._counts = counts

    def emit(self, record: logging.LogRecord) -> None:
        self._counts.wrong.append(f"logged: {self.format(record)}")


def _internal(remote: bool) -> float:
    """Calls that ended so, but for those of a remote environment that raised on purpose."""
    ended = sum(
        sample.value
        for metric in REGISTRY.collect()
        if metric.name == "podium_grpc_server_handled"
        for sample in metric.samples
        if sample.labels.get("code") in ("INTERNAL", "UNKNOWN") and sample.name.endswith("_total")
    )
    return ended - Wide.raised * remote


async def fuzz(seed: int, fleet: Fleet, groups: int = GROUPS, steps: int = STEPS) -> Counts:
    """A job to its end; `wrong` of what comes back is empty when nothing was."""
    counts = Counts()
    handler = _Defects(counts)
    remote = bool(seed % 2)
    before, calls = _internal(remote), Wide.calls
    logging.getLogger("podium").addHandler(handler)
    catalog._BUILTIN["wide"] = "fuzz.stack:Wide"
    try:
        async with _services(seed, fleet, counts) as (client, environment, scorers):
            spec = _spec(seed, environment * remote, scorers_of(seed, scorers), groups, steps)
            # A registry keeps the name of a seed's former job.
            job = await client.create(spec, f"fuzz-{seed}-{token_hex(4)}")
            job = await client.until(job.id, lambda job: job.state in ENDED, within=3600, every=1.0)
            counts.jobs += 1
            counts.outcomes[jobs_pb.JobState.Name(job.state)] += 1
            if job.state != jobs_pb.JOB_STATE_SUCCEEDED:
                counts.wrong.append(f"{job.failure_reason}: {job.failure_message}")
    finally:
        logging.getLogger("podium").removeHandler(handler)
        del catalog._BUILTIN["wide"]
    counts.calls += Wide.calls - calls
    if internal := _internal(remote) - before:
        counts.wrong.append(f"{internal:g} calls ended with INTERNAL")
    counts.wrong = [f"seed {seed}: {each}" for each in counts.wrong]
    return counts


@asynccontextmanager
async def _services(
    seed: int, fleet: Fleet, counts: Counts
) -> AsyncIterator[tuple[Client, str, str]]:
    """A client of the controller, where an environment is besides rollout's own, and scorers."""
    call_format = wilder.CALL_FORMATS[seed % len(wilder.CALL_FORMATS)]
    reasoning = wilder.REASONING[seed % len(wilder.REASONING)]

    # What is said follows from the job's seed and the request, and from nothing else.
    def say(prompt: Sequence[int], sampling: policy_pb2.SamplingParams) -> str:
        counts.replies += 1
        wild = wilder.of(seed, "reply", sampling.seed)
        most = 30_000 if wild.chance(0.002) else _MOST
        # What a tokenizer decodes is UTF-8, but may hold NUL, and escapes of anything.
        return wild.reply_in(call_format, reasoning).encode(errors="replace").decode()[:most]

    async with AsyncExitStack() as stack:
        model = stack.enter_context(fake_judge())
        asked: Counter[str] = Counter()

        def behave(request: dict[str, Any]) -> Answer:
            counts.answers += 1
            model.requests.clear()
            question = sha256(json.dumps(request).encode()).hexdigest()
            asked[question] += 1
            if asked[question] >= _TIRED:
                return _well_judged(request)
            # The same question again, after an answer that was none, has another.
            return _judged(wilder.of(seed, "judge", question, asked[question]), request)

        model.then(behave)
        environment = await stack.enter_async_context(environment_here(Wide))
        judge = await stack.enter_async_context(judge_service(model, request_timeout_seconds=120.0))
        client = await stack.enter_async_context(
            services(
                fleet,
                say,
                f"fuzz-{seed}",
                call_format=call_format,
                reasoning_parser=reasoning,
                judge=judge,
                poll_seconds=1.0,
            )
        )
        yield client, environment, model.base_url.removesuffix("/v1")


def _asker(request: dict[str, Any]) -> str:
    """Who asks: a user's scorer, a reward model, a rubric's judge or RULER's."""
    if "trajectories" in request:
        return "scorer"
    if "seed" not in request:
        return "reward model"
    return "rubric" if "Grade one attempt" in request["messages"][0]["content"] else "ruler"


def _judged(wild: wilder.Wilder, request: dict[str, Any]) -> Answer:
    """What is answered by whoever scores."""
    if wild.chance(0.02):
        body = wild.text().encode(errors="replace")
        return Answer(wild.choice((200, 401, 402, 403, 404, 405, 418, 422, 429, 500)), body)
    match _asker(request):
        case "scorer":
            said = wild.scores(len(request["trajectories"]))
        case "reward model":
            said = wild.reward()
        case "rubric":
            return Answer(body=wild.completion(list(CRITERIA), "criterion"))
        case _:
            return Answer(body=wild.completion(list(shown(request))))
    return Answer(body=said.encode(errors="surrogatepass"))


def _well_judged(request: dict[str, Any]) -> Answer:
    """One score for all, as whoever was asked writes it."""
    match _asker(request):
        case "scorer":
            said: dict[str, Any] = {"scores": [0.5] * len(request["trajectories"])}
        case "reward model":
            said = {"data": [{"data": [0.5], "probs": [0.5]}]}
        case "rubric":
            # A judge that has refused a schema is asked without one: `grades` would look there.
            each = {"explanation": "Fair.", "score": 0.5}
            said = {"scores": [{"criterion": name, **each} for name in CRITERIA]}
            return completion(json.dumps(said))
        case _:
            return scores(lambda _: 0.5)(request)
    return Answer(body=json.dumps(said).encode())


def scorers_of(seed: int, address: str) -> list[spec_pb2.Scorer]:
    """Who scores in a job of that seed; `address` is where all of them are asked."""
    environment = spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_ENVIRONMENT)
    # Ample, so that what a job's judges may use is divided and never used up.
    ruler = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RULER, ruler=spec_pb2.RulerSpec(max_job_tokens=2**62)
    )
    criteria = [spec_pb2.Criterion(name=each, description="It is.") for each in CRITERIA]
    rubric = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_RUBRIC, rubric=spec_pb2.RubricSpec(criteria=criteria)
    )
    weighted = spec_pb2.Scorer(
        kind=spec_pb2.SCORER_KIND_WEIGHTED,
        weighted=spec_pb2.WeightedCriteria(task_type="email_search"),
    )

    def http(protocol: spec_pb2.HttpScorerProtocol.ValueType, **fields: Any) -> spec_pb2.Scorer:
        asked = spec_pb2.HttpScorerSpec(base_url=address, protocol=protocol, **fields)
        return spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=asked)

    score = http(spec_pb2.HTTP_SCORER_PROTOCOL_SCORE)
    pooling = http(spec_pb2.HTTP_SCORER_PROTOCOL_POOLING, max_job_tokens=2**62)
    classify = http(spec_pb2.HTTP_SCORER_PROTOCOL_CLASSIFY, class_index=0, call_price=1e-6)
    return (
        [environment],
        [environment, ruler],
        [environment, ruler, weighted],
        [rubric],
        [environment, score],
        [pooling, classify],
        [ruler, rubric, score],
    )[seed % 7]


def _spec(
    seed: int, environment: str, scorers: list[spec_pb2.Scorer], groups: int, steps: int
) -> spec_pb2.JobSpec:
    return spec_pb2.JobSpec(
        base_model=BASE_MODEL,
        environment=spec_pb2.EnvironmentSpec(name="wide", address=environment),
        rollout=spec_pb2.RolloutSpec(
            group_size=ATTEMPTS,
            groups_per_step=groups,
            max_concurrent_groups=4,
            episode=spec_pb2.EpisodeSpec(max_turns=TURNS),
        ),
        reward=spec_pb2.RewardSpec(scorers=scorers),
        training=spec_pb2.TrainingSpec(steps=steps),
        seed=seed,
        recovery_timeout_seconds=600,
    )
