"""Groups that are asked about at once do not spend a budget several times over."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from podium.types.v1 import spec_pb2
from support.fake_judge import NEVER, FakeJudge, scores, slow
from support.judging import JudgeBench, group_of, model, rewards
from support.waiting import eventually

EACH = 110
"""Tokens of the scripted model's every answer."""


async def judged_at_once(bench: JudgeBench, spec: spec_pb2.RulerSpec, groups: int = 40) -> int:
    """How many of so many groups were judged; the others say why not."""
    asked = [
        bench.score(group_of(f"word {n}", f"word {n} more", group=f"job/s1/g{n}"), spec)
        for n in range(groups)
    ]
    found = await asyncio.gather(*asked)
    skipped = [group for group in found if rewards(group) == [None, None]]
    assert {group.skip_reason for group in skipped} <= {"judge_budget"}
    return groups - len(skipped)


@pytest.mark.parametrize(
    "bound",
    [
        {"max_job_tokens": 150},
        {"max_job_cost": 150 * 2e-6},
    ],
)
async def test_forty_groups_at_once_spend_one_group_too_much_at_most(
    judge: FakeJudge, client: httpx.AsyncClient, bound: dict[str, float]
) -> None:
    judge.then(scores(lambda text: 0.5))
    bench = JudgeBench(judge, client)
    priced = model(judge, prompt_price=2, completion_price=2)
    spec = spec_pb2.RulerSpec(judges=[priced], **bound)  # type: ignore[arg-type]
    assert await judged_at_once(bench, spec) == 2
    assert len(judge.requests) == 2


async def test_what_fits_the_budget_is_asked_at_once(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(scores(lambda text: 0.5))
    bench = JudgeBench(judge, client)
    spec = spec_pb2.RulerSpec(judges=[model(judge)], max_job_tokens=40 * EACH)
    assert await judged_at_once(bench, spec) == 40


async def test_a_group_that_gives_up_leaves_its_share(
    judge: FakeJudge, client: httpx.AsyncClient
) -> None:
    judge.then(slow(scores(lambda text: 0.5), NEVER))
    bench = JudgeBench(judge, client)
    spec = spec_pb2.RulerSpec(judges=[model(judge)], max_job_tokens=EACH)
    giving_up = asyncio.create_task(bench.score(group_of("a", "b"), spec))
    await eventually(lambda: bool(judge.requests))
    giving_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving_up
    judge.then(scores(lambda text: 0.5))
    scored = await bench.score(group_of("a", "c"), spec)
    assert rewards(scored) == [0.5, 0.5]
