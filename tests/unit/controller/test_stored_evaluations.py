"""EvaluationService over a channel: what comes in, and the numbers that follow from it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from podium.core.errors import InvalidArgumentError, ResourceExhaustedError
from podium.core.statistics import clustered_mean_interval, clustered_proportion_interval
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.jobs.v1 import evaluation_service_pb2_grpc as pb_grpc
from podium.kit.rpc import Server, ServerSettings, connect, rpc_errors
from podium.types.v1 import spec_pb2
from podium_controller.api.evaluation_servicer import EvaluationServicer
from podium_controller.domain import stored_evaluations
from podium_controller.pools.projects import ProjectLimits, Projects
from podium_controller.store import Database, EvaluationStore
from support.empty_database import empty_database
from support.evaluation_contract import scenario

if TYPE_CHECKING:
    Stub = pb_grpc.EvaluationServiceAsyncStub

PAIR = [scenario("a", True, False), scenario("b", True, True)]


@asynccontextmanager
async def served(folder: Path, projects: Projects | None = None) -> AsyncIterator[Stub]:
    database = Database(await empty_database(folder))
    server = Server("controller", ServerSettings())
    server.add(
        pb_grpc.add_EvaluationServiceServicer_to_server,
        EvaluationServicer(EvaluationStore(database), projects or Projects()),
        "podium.jobs.v1.EvaluationService",
    )
    await server.start()
    try:
        async with connect(f"127.0.0.1:{server.port}") as channel:
            yield pb_grpc.EvaluationServiceStub(channel)
    finally:
        await server.stop(0)
        await database.close()


def header(request_id: str = "r", **fields: object) -> pb.StoreEvaluationRequest:
    request = pb.StoreEvaluationRequest()
    request.header.request_id = request_id
    made = pb.StoredEvaluation(agent="mail@best", **fields)  # type: ignore[arg-type]
    made.environment.name = "email_search"
    request.header.evaluation.CopyFrom(made)
    return request


def some(results: Sequence[pb.ScenarioResult]) -> pb.StoreEvaluationRequest:
    return pb.StoreEvaluationRequest(scenarios=pb.ScenarioResults(results=results))


def rewarded(*rewards: float) -> pb.ScenarioResult:
    result = scenario("a", True, True)
    result.rewards[:] = rewards
    return result


async def store(stub: Stub, *messages: pb.StoreEvaluationRequest) -> pb.StoredEvaluation:
    def stream() -> Iterator[pb.StoreEvaluationRequest]:
        yield from messages

    with rpc_errors("controller"):
        return (await stub.StoreEvaluation(stream())).evaluation


async def test_a_reward_that_nobody_could_have_asked_for_is_refused_by_its_field(
    tmp_path: Path,
) -> None:
    empty = spec_pb2.RewardSpec(scorers=[{"kind": spec_pb2.SCORER_KIND_RUBRIC}])
    http = spec_pb2.RewardSpec(scorers=[{"kind": spec_pb2.SCORER_KIND_HTTP}])
    http.scorers[0].http.base_url = "no address"
    async with served(tmp_path) as stub:
        with pytest.raises(InvalidArgumentError) as raised:
            await store(stub, header(reward=http, judge=empty, reference="base"), some(PAIR))
    assert [violation.field for violation in raised.value.violations] == [
        "header.evaluation.reward.scorers[0].http.base_url",
        "header.evaluation.judge.scorers[0].rubric.criteria",
    ]


async def test_rewards_at_the_end_of_a_double_are_stored_and_counted(tmp_path: Path) -> None:
    """`podium eval` had played all attempts when it was refused."""
    results = [rewarded(1e308, 1e308), rewarded(1e308, -1e308)]
    results[1].scenario_id = "b"
    async with served(tmp_path) as stub:
        kept = await store(stub, header(), some(results))
    assert kept.mean_reward.mean == pytest.approx(5e307)
    assert kept.mean_reward.low < 5e307 < kept.mean_reward.high


async def test_the_numbers_are_the_servers_and_their_intervals_count_scenarios(
    tmp_path: Path,
) -> None:
    nan = math.nan
    judge = spec_pb2.RewardSpec(scorers=[spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)])
    results = [
        pb.ScenarioResult(
            scenario_id="a",
            successes=[True, False],
            rewards=[0.5, nan],
            turns=[1, 2],
            wins=[1, 0.5],
        ),
        scenario("b", True, True, wins=[0, nan], failed=1, metrics={"words": 3.5}),
        pb.ScenarioResult(scenario_id="silent", unanswered=2),
    ]
    async with served(tmp_path) as stub:
        # What only the server knows is not taken from a client.
        lies = {"id": "mine", "scenarios": 7, "success": pb.Interval(mean=1)}
        made = await store(
            stub,
            header(judge=judge, reference="base", **lies),
            some(results[:1]),
            some(results[1:]),
        )
        request = pb.GetStoredEvaluationRequest(evaluation_id=made.id)
        assert (await stub.GetStoredEvaluation(request)).evaluation == made
        listed = await stub.ListScenarioResults(
            pb.ListScenarioResultsRequest(evaluation_id=made.id, page_size=2)
        )
        again = await store(stub, header(judge=judge, reference="base"), some(results))
    assert made.id.startswith("eval-")
    assert again.id == made.id
    assert (made.project, made.attempts, made.agent) == ("default", 1, "mail@best")
    assert (made.scenarios, made.counted, made.unanswered) == (3, 4, 2)
    low, high = clustered_proportion_interval([[1, 0], [1, 1]])
    assert (made.success.mean, made.success.low, made.success.high) == (0.75, low, high)
    bounds = clustered_mean_interval([[0.5], [1, 1]], [[1], [1, 1]])
    assert made.mean_reward.mean == pytest.approx(2.5 / 3)
    assert (made.mean_reward.low, made.mean_reward.high) == bounds
    assert made.win_rate.mean == 0.5
    assert [each.scenario_id for each in listed.results] == ["a", "b"]
    assert listed.results[1].metrics == {"words": 3.5}
    assert listed.next_page_token


@pytest.mark.parametrize(
    ("messages", "field", "words"),
    [
        ([], "item", "got an empty stream"),
        ([some(PAIR)], "item", "allowed is the header first"),
        ([header(), header()], "item", "got header; allowed is scenarios"),
        ([header()], "scenarios", "got none"),
        ([header(), some([])], "scenarios.results", "required"),
        (
            [header(), some([*PAIR, scenario("a", True)])],
            "scenarios[0].scenario_id",
            "got 'a' 2 times; allowed is once",
        ),
        (
            [header(), some([pb.ScenarioResult(scenario_id="a", successes=[True])])],
            "scenarios[0].rewards",
            "got 0; allowed is one for each of successes, 1",
        ),
        (
            [header(), some([rewarded(1, -math.inf)])],
            "scenarios[0].rewards",
            "got -inf; allowed are finite numbers, and NaN",
        ),
        (
            [header(), some([scenario("a", True, wins=[1.0])])],
            "scenarios[0].wins",
            "needs header.evaluation.judge",
        ),
        (
            [header(), some([scenario("a", True, metrics={"m": math.nan})])],
            "scenarios[0].metrics['m']",
            "got nan; allowed are finite",
        ),
        (
            [header(judge=spec_pb2.RewardSpec()), some(PAIR)],
            "header.evaluation.reference",
            "is req",
        ),
        ([header(project="nobody"), some(PAIR)], "header.evaluation.project", "allowed are defa"),
    ],
)
async def test_what_cannot_be_is_refused_by_its_field(
    messages: list[pb.StoreEvaluationRequest], field: str, words: str, tmp_path: Path
) -> None:
    projects = Projects({"research": ProjectLimits()})
    async with served(tmp_path, projects) as stub:
        with pytest.raises(InvalidArgumentError) as raised:
            await store(stub, *messages)
        (violation, *_) = raised.value.violations
        assert violation.field == field
        assert words in violation.description
        # Nothing of it stays.
        listed = await stub.ListStoredEvaluations(pb.ListStoredEvaluationsRequest())
        assert not listed.evaluations


async def test_a_stream_that_breaks_or_is_too_large_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path) as stub:
        call = stub.StoreEvaluation()
        await call.write(header())
        await call.write(some(PAIR))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        monkeypatch.setattr("podium_controller.api.evaluation_servicer.MAX_SCENARIOS", 3)
        with pytest.raises(ResourceExhaustedError) as raised:
            await store(
                stub, header(), some(PAIR), some([scenario("c", True), scenario("d", True)])
            )
        assert raised.value.reason == "EVALUATION_TOO_LARGE"
        listed = await stub.ListStoredEvaluations(pb.ListStoredEvaluationsRequest())
        assert not listed.evaluations
    assert stored_evaluations.MAX_SCENARIOS >= 10_000
