"""Aliases that the pages set, and what they show of usage; over real gRPC and real HTTP."""

from __future__ import annotations

import math
from typing import Any

import pytest
from podium.jobs.v1 import job_service_pb2 as jobs
from support.console import MARK, Console
from support.fake_podium import FakePodium

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def ok(here: Console, path: str, **query: Any) -> Any:
    answer = await here.http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_an_alias_is_pointed_elsewhere_unless_it_has_moved_meanwhile(
    fake: FakePodium, here: Console
) -> None:
    for version in (1, 2, 3):
        fake.registry.publish("a", version, {"adapter/a": b"x"}).ClearField("aliases")
    where = "/api/models/a/aliases/prod"

    async def point(**body: Any) -> Any:
        return await here.http.post(where, json=body, headers=MARK)

    assert await ok(here, where) == {"version": None}
    done = await point(version=2, expected=None)
    assert (done.status_code, done.json()["aliases"]) == (200, ["prod"])
    assert await ok(here, where) == {"version": 2}
    moved = await point(version=3, expected=None)
    assert (moved.status_code, moved.json()["error"]["reason"]) == (409, "ALIAS_MOVED")
    assert (await point(version=3, expected=2)).status_code == 200
    assert await ok(here, where) == {"version": 3}
    assert (await point(version=9, expected=3)).status_code == 404
    for body in ({}, {"version": "3"}, {"version": True}, {"version": -1}, {"version": 2**63}):
        refused = await point(**body)
        (violation,) = refused.json()["error"]["violations"]
        assert (refused.status_code, violation["field"]) == (400, "version")
    (violation,) = (await point(version=1, expected="x")).json()["error"]["violations"]
    assert violation["field"] == "expected"
    # As everything that changes something, from the console's own pages alone.
    assert (await here.http.post(where, json={"version": 1})).status_code == 403
    assert await ok(here, where) == {"version": 3}


async def test_usage_is_told_by_job_and_project_with_budgets(
    fake: FakePodium, here: Console
) -> None:
    whole = jobs.Usage(sampled_tokens=7, trainer_gpu_seconds=3600, judge_cost=0.5, gpu_cost=2.25)
    fake.jobs.used = [
        jobs.UsageRow(job_id="b", project="p", usage=whole),
        jobs.UsageRow(job_id="a", project="q", usage=jobs.Usage(judge_cost=math.inf)),
    ]
    fake.jobs.budgets = [
        jobs.ProjectBudget(
            project="p", max_gpu_hours=0, gpu_hours=1, max_total_judge_cost=2, total_judge_cost=1.5
        )
    ]
    page = await ok(here, "/api/usage", size=1, days=7, project="p")
    (row,) = page["rows"]
    assert (row["job"], row["project"], row["sampled_tokens"], row["gpu_cost"]) == (
        "b",
        "p",
        7,
        2.25,
    )
    (budget,) = page["budgets"]
    assert (budget["max_gpu_hours"], budget["gpu_hours"], budget["max_judge_cost"]) == (0, 1, None)
    assert (budget["max_total_gpu_hours"], budget["max_total_judge_cost"]) == (None, 2)
    assert budget["total_judge_cost"] == 1.5
    asked = fake.jobs.asked_usage[-1]
    assert (asked.page_size, asked.project, asked.by_project) == (1, "p", False)
    assert asked.start_time.seconds > 0
    rest = await ok(here, "/api/usage", after=page["next"], project="p")
    assert ([each["job"] for each in rest["rows"]], rest["budgets"]) == (["a"], [])
    # Without a price there is no cost, and what is no number is none.
    assert (rest["rows"][0]["gpu_cost"], rest["rows"][0]["judge_cost"]) == (None, None)
    await ok(here, "/api/usage", by="project")
    assert fake.jobs.asked_usage[-1].by_project
    assert not fake.jobs.asked_usage[-1].HasField("start_time")
    for query, field in (({"by": "team"}, "by"), ({"days": "-1"}, "days"), ({"days": "x"}, "days")):
        refused = await here.http.get("/api/usage", params=query)
        (violation,) = refused.json()["error"]["violations"]
        assert (refused.status_code, violation["field"]) == (400, field)
    fake.jobs.known["a"].usage.sampled_tokens = 11
    assert (await ok(here, "/api/jobs/a"))["usage"]["sampled_tokens"] == 11


async def test_checkpoints_have_aliases_and_what_they_came_from(
    fake: FakePodium, here: Console
) -> None:
    fake.registry.publish("a", 1, {"adapter/a": b"x"})
    child = fake.registry.publish("a", 2, {"adapter/a": b"xyz"})
    child.manifest.parents.add(model="a", version=1)
    assert [each["name"] for each in (await ok(here, "/api/models"))["models"]] == ["a"]
    newest = (await ok(here, "/api/models/a"))["versions"][0]
    assert (newest["aliases"], newest["bytes"]) == (["latest"], 3)
    assert newest["has_state"] is False
    assert newest["parents"] == [{"model": "a", "version": 1}]
