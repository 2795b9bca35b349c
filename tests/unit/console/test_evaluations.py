"""Evaluations in the console: a job's own, and those that clients stored."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.sdk import AsyncClient
from podium.types.v1 import spec_pb2
from support import fake_podium as doubles
from support.console import Console, PagedJobs, console
from support.evaluation_contract import scenario
from support.fake_podium import FakePodium, fake_podium
from support.job_records import evaluation, job

pytestmark = pytest.mark.asyncio(loop_scope="session")


class CountingEvaluations(doubles.EvaluationServicer):
    """The controller's own, which counts the pages of scenarios that it was asked for."""

    pages = 0

    async def ListScenarioResults(self, request: Any, context: Any) -> Any:
        type(self).pages += 1
        return await super().ListScenarioResults(request, context)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def storing(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FakePodium]:
    folder: Path = tmp_path_factory.mktemp("evaluations")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(doubles, "FakeJobs", PagedJobs)
        patched.setattr(doubles, "EvaluationServicer", CountingEvaluations)
        async with fake_podium(folder) as found:
            yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(storing: FakePodium) -> AsyncIterator[Console]:
    async with console(storing) as found:
        yield found


async def keep(
    fake: FakePodium, results: list[pb.ScenarioResult], **fields: Any
) -> pb.StoredEvaluation:
    made = pb.StoredEvaluation(**{"agent": "base", "project": "default", **fields})
    made.environment.name = made.environment.name or "email_search"
    made.environment.split = "test"
    async with AsyncClient(fake.addresses) as client:
        return await client.evaluations.store(made, results)


async def get(page: Console, path: str, status: int = 200, **query: Any) -> Any:
    answer = await page.http.get(path, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_a_job_s_evaluations_are_read_once_and_then_their_last_page(
    storing: FakePodium, page: Console
) -> None:
    storing.jobs.known["a"] = job("a")
    fake = storing.jobs
    assert isinstance(fake, PagedJobs)
    fake.evaluations = [evaluation(n, "sampled", n / 200, 0, 1) for n in range(120)]
    fake.evaluations[7].metrics["an_unseen_number"] = 1
    first = await get(page, "/api/jobs/a/evaluations")
    assert (len(first["evaluations"]), first["total"]) == (120, 120)
    assert set(first["evaluations"][7]["metrics"]) == {"success", "reward"}
    assert fake.pages == [50, 50, 20]
    # Whoever looks next asks for the last page that was known, and no other.
    fake.evaluations.append(evaluation(120, "sampled", 0.9, 0, 1))
    second = await get(page, "/api/jobs/a/evaluations")
    assert (second["evaluations"][-1]["version"], second["total"]) == (120, 121)
    assert fake.pages[3:] == [21]
    # One that comes between those that are known is not missed.
    fake.evaluations.insert(-1, evaluation(120, "greedy", 0.9, 0, 1))
    third = await get(page, "/api/jobs/a/evaluations")
    assert [each["mode"] for each in third["evaluations"][-2:]] == ["greedy", "sampled"]
    assert third["total"] == 122
    await get(page, "/api/jobs/none/evaluations", status=404)


async def test_stored_ones_are_listed_by_pages_and_opened(
    storing: FakePodium, page: Console
) -> None:
    made = []
    rubric = spec_pb2.RubricSpec(criteria=[spec_pb2.Criterion(name="n", description="d")])
    kind = spec_pb2.SCORER_KIND_RUBRIC
    scorers = [spec_pb2.Scorer(kind=kind, weight=0.5, rubric=rubric)]
    fields = {"attempts": 2, "reward": spec_pb2.RewardSpec(scorers=scorers)}
    for number in range(5):
        results = [
            scenario(f"s{n}", True, n > 1, failed=n, unanswered=1, metrics={"m": 1})
            for n in range(3)
        ]
        results.append(pb.ScenarioResult(scenario_id="silent", unanswered=2))
        results[0].rewards[0] = math.nan
        made.append(await keep(storing, results, name="paged", agent=f"agent {number}", **fields))
    first = await get(page, "/api/evaluations", name="paged", size=3)
    rest = await get(page, "/api/evaluations", name="paged", size=3, after=first["next"])
    rows = [*first["evaluations"], *rest["evaluations"]]
    assert [row["id"] for row in rows] == [each.id for each in reversed(made)]
    assert rest["next"] == ""
    row = rows[0]
    assert (row["agent"], row["environment"], row["split"]) == ("agent 4", "email_search", "test")
    assert (row["scenarios"], row["counted"], row["unanswered"]) == (4, 6, 5)
    assert row["success"]["mean"] == pytest.approx(4 / 6, abs=1e-6)
    assert row["success"]["low"] < row["success"]["mean"] < row["success"]["high"]
    assert row["win_rate"] is None
    assert (await get(page, "/api/evaluations", name="other"))["evaluations"] == []
    whole = await get(page, f"/api/evaluations/{row['id']}")
    assert (whole["attempts"], whole["version"], whole["max_tokens"]) == (2, None, None)
    assert whole["scorers"] == [{"kind": "rubric", "weight": 0.5}]
    listed = await get(page, f"/api/evaluations/{row['id']}/scenarios", size=3)
    last = await get(page, f"/api/evaluations/{row['id']}/scenarios", after=listed["next"], size=3)
    assert [each["id"] for each in listed["scenarios"]] == ["s0", "s1", "s2"]
    assert listed["scenarios"][0] == {
        "id": "s0",
        "succeeded": 1,
        "attempts": 2,
        "reward": 0,
        "turns": 2,
        "wins": None,
        "failed": 0,
        "unanswered": 1,
    }
    (silent,) = last["scenarios"]
    assert (silent["attempts"], silent["reward"], silent["unanswered"]) == (0, None, 2)
    for path in ("/api/evaluations/none", "/api/evaluations/none/scenarios"):
        await get(page, path, status=404)
    # A token of another list is nobody's.
    await get(page, "/api/evaluations", status=400, name="other", after=first["next"])
    await get(page, "/api/evaluations", status=400, size="x")
    await get(page, "/api/evaluations", status=400, project="NOT A NAME")


async def test_two_are_paired_once_for_all_and_each_look_asks_whether_it_may(
    storing: FakePodium, page: Console
) -> None:
    one = await keep(storing, [scenario(f"s{n}", n > 30, n > 35) for n in range(40)], seed=1)
    two = await keep(storing, [scenario(f"s{n}", n > 10, n > 20) for n in range(40)], seed=2)
    before = CountingEvaluations.pages
    query = {"a": one.id, "b": two.id}
    found = await get(page, "/api/evaluations/compare", **query)
    success = found["success"]
    assert success["mean"] == pytest.approx((29 + 19) / 80 - (9 + 4) / 80)
    assert 0 < success["low"] < success["mean"] < success["high"] < 1
    assert (success["better"], success["worse"], found["scenarios"]) == (25, 0, 40)
    assert found["reward"]["mean"] == success["mean"]
    assert found["notes"] == ["they differ in seed: 1 and 2"]
    assert (found["first"]["id"], found["second"]["id"]) == (one.id, two.id)
    # Those that differ most come first.
    assert found["rows"][0]["first"] == {"succeeded": 0, "attempts": 2, "reward": 0}
    assert found["rows"][0]["second"] == {"succeeded": 2, "attempts": 2, "reward": 1}
    assert len(found["rows"]) == 25
    turned = CountingEvaluations.pages - before
    assert turned == 2
    assert await get(page, "/api/evaluations/compare", **query) == found
    assert CountingEvaluations.pages - before == turned
    back = await get(page, "/api/evaluations/compare", a=two.id, b=one.id)
    assert back["success"]["mean"] == -success["mean"]
    assert back["success"]["worse"] == 25
    # What is known is not told of one that is there no more.
    async with AsyncClient(storing.addresses) as client:
        await client.evaluations.delete(two.id)
    await get(page, "/api/evaluations/compare", status=404, **query)


async def test_those_of_other_scenarios_are_compared_on_demand_alone(
    storing: FakePodium, page: Console
) -> None:
    one = await keep(storing, [scenario("a", True), scenario("b", True)])
    two = await keep(storing, [scenario("b", False), scenario("c", True)])
    three = await keep(storing, [scenario("z", True), pb.ScenarioResult(scenario_id="a")])
    query = {"a": one.id, "b": two.id}
    refused = (await get(page, "/api/evaluations/compare", status=409, **query))["error"]
    assert refused["reason"] == "SCENARIOS_DIFFER"
    assert "1 scenarios are in" in refused["message"]
    found = await get(page, "/api/evaluations/compare", common=1, **query)
    assert (found["scenarios"], found["success"]["mean"], found["success"]["low"]) == (1, -1, None)
    assert "not of the same scenarios" in found["notes"][0]
    # Nothing was answered of the one that they share.
    query = {"a": one.id, "b": three.id, "common": 1}
    refused = (await get(page, "/api/evaluations/compare", status=409, **query))["error"]
    assert refused["reason"] == "NOTHING_IN_COMMON"
    for wrong in ({"a": one.id}, {"a": one.id, "b": two.id, "common": "yes"}):
        await get(page, "/api/evaluations/compare", status=400, **wrong)
    await get(page, "/api/evaluations/compare", status=404, a=one.id, b="none")
