"""What the store of evaluations holds, on each database.

A module that imports these tests has a fixture `evaluation_stores`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import pytest
from podium.core.errors import AlreadyExistsError, NotFoundError, ResourceExhaustedError
from podium.jobs.v1 import evaluation_service_pb2 as pb
from podium.types.v1 import policy_pb2
from podium_controller.domain.stored_evaluations import NewEvaluation, checked
from podium_controller.store import EvaluationStore
from podium_controller.store.evaluations import EvaluationFilter

ANY = EvaluationFilter()


class EvaluationStores(Protocol):
    """Makes a replica's store, on the database that all have."""

    def __call__(self, **limits: Any) -> EvaluationStore: ...


def scenario(name: str, *successes: bool, **fields: Any) -> pb.ScenarioResult:
    """Attempts whose reward is 1 for a success and 0 otherwise, of two turns each."""
    return pb.ScenarioResult(
        scenario_id=name,
        successes=successes,
        rewards=[float(each) for each in successes],
        turns=[2] * len(successes),
        **fields,
    )


def new(request_id: str, results: Sequence[pb.ScenarioResult] = (), **fields: Any) -> NewEvaluation:
    header = pb.EvaluationHeader(request_id=request_id)
    header.evaluation.CopyFrom(pb.StoredEvaluation(agent="base", project="default", **fields))
    header.evaluation.environment.name = "email_search"
    return checked(header, results or [scenario("a/1", True, False), scenario("b", True, True)])


async def test_a_request_from_many_clients_at_once_is_one_evaluation(
    evaluation_stores: EvaluationStores,
) -> None:
    replicas = [evaluation_stores(), evaluation_stores()]
    made = await asyncio.gather(*(replicas[i % 2].store(new("r")) for i in range(20)))
    assert len({each.id for each in made}) == 1
    page, before = await replicas[0].page(ANY, None, 10)
    assert ([each.id for each in page], before) == ([made[0].id], None)
    with pytest.raises(AlreadyExistsError) as raised:
        await replicas[1].store(new("r", name="another"))
    assert raised.value.reason == "REQUEST_ID_REUSED"
    # A name is nobody's alone.
    twice = [await replicas[0].store(new(f"s{i}", name="the/same")) for i in range(2)]
    assert twice[0].id != twice[1].id
    found, _ = await replicas[0].page(EvaluationFilter(name="the/same"), None, 10)
    assert [each.id for each in found] == [twice[1].id, twice[0].id]


async def test_lists_are_by_project_environment_and_job_in_pages(
    evaluation_stores: EvaluationStores,
) -> None:
    store = evaluation_stores()
    for number in range(5):
        policy = policy_pb2.PolicyRef(job="mail", version=number) if number % 2 else None
        await store.store(new(f"r{number}", name=str(number), policy=policy))
    page, before = await store.page(ANY, None, 2)
    rest, last = await store.page(ANY, before, 10)
    assert [each.name for each in [*page, *rest]] == ["4", "3", "2", "1", "0"]
    assert (len(page), last) == (2, None)
    of_job, _ = await store.page(EvaluationFilter(job_id="mail"), None, 10)
    assert [each.policy.version for each in of_job] == [3, 1]
    assert await store.page(EvaluationFilter(project="other"), None, 10) == ([], None)
    assert await store.page(EvaluationFilter(environment="chess"), None, 10) == ([], None)


async def test_ten_thousand_scenarios_come_back_in_their_order_and_in_pages_of_bytes(
    evaluation_stores: EvaluationStores,
) -> None:
    store = evaluation_stores()
    results = [scenario(f"s/{i % 7}/{i}", i % 3 == 0) for i in range(10_000)]
    stored = await store.store(new("r", results))
    assert (stored.scenarios, stored.counted) == (10_000, 10_000)
    found: list[pb.ScenarioResult] = []
    after: int | None = -1
    pages = 0
    while after is not None:
        page, after = await store.results(stored.id, after, 1000, 20_000)
        assert sum(each.ByteSize() for each in page) <= 20_000
        found += page
        pages += 1
    assert found == results
    assert pages > 10
    # One that is larger than a page is one.
    alone, after = await store.results(stored.id, -1, 1000, 1)
    assert (len(alone), after) == (1, 0)


async def test_what_is_deleted_is_gone_and_its_request_is_not_done_again(
    evaluation_stores: EvaluationStores,
) -> None:
    store = evaluation_stores()
    kept, gone = await store.store(new("kept")), await store.store(new("gone"))
    await store.delete(gone.id)
    await store.delete(gone.id)
    for read in (store.get(gone.id), store.results(gone.id, -1, 10, 10_000)):
        with pytest.raises(NotFoundError):
            await read
    with pytest.raises(NotFoundError):
        await store.delete("eval-never")
    with pytest.raises(AlreadyExistsError) as raised:
        await store.store(new("gone"))
    assert raised.value.reason == "EVALUATION_DELETED"
    assert [each.id for each in (await store.page(ANY, None, 10))[0]] == [kept.id]
    assert len((await store.results(kept.id, -1, 10, 10_000))[0]) == 2


async def test_there_is_no_room_above_the_limit_until_one_goes(
    evaluation_stores: EvaluationStores,
) -> None:
    store = evaluation_stores(max_bytes=600)
    first = await store.store(new("1", [scenario("a" * 200, True)]))
    with pytest.raises(ResourceExhaustedError, match="EVALUATION_STORE_MAX_BYTES") as raised:
        await store.store(new("2", [scenario("a" * 256, True), scenario("b" * 200, True)]))
    assert raised.value.reason == "EVALUATIONS_FULL"
    # The first is still told to whoever stores it again.
    assert (await store.store(new("1", [scenario("a" * 200, True)]))).id == first.id
    await store.delete(first.id)
    await store.store(new("2", [scenario("a" * 256, True), scenario("b" * 200, True)]))


async def test_old_ones_go_when_another_is_stored(evaluation_stores: EvaluationStores) -> None:
    old = await evaluation_stores().store(new("old"))
    day = evaluation_stores(days=1)
    recent = await day.store(new("recent"))
    assert (await day.get(old.id)).id == old.id
    # Of everything that was stored before this moment.
    moment = evaluation_stores(days=1e-12)
    last = await moment.store(new("last"))
    assert [each.id for each in (await day.page(ANY, None, 10))[0]] == [last.id]
    assert recent.id != last.id
