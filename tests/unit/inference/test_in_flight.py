"""Weights that change in flight: what runs goes on, and each token is told with its version."""

from __future__ import annotations

import asyncio

import pytest
from podium.core.errors import NotFoundError, UnavailableError
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_inference.domain import metrics
from support.stepped_engine import SteppedPool, runs, settled

DRAIN = spec_pb2.WEIGHT_UPDATE_DRAIN


async def test_what_runs_is_not_waited_for_and_goes_on_under_the_new_weights() -> None:
    pool, moved = SteppedPool(), metrics.MOVED._value.get()
    await pool.load(1)
    first, second = await pool.asking(5), await pool.asking(2)
    await pool.step(2)
    await pool.load(2)
    third = await pool.asking(1)
    assert not first.done()
    assert [s.running for s in pool.pool.served()] == [2]
    await pool.step(3)
    answer = await first
    assert list(answer.token_ids) == [1, 1, 2, 2, 2]
    assert (runs(answer), answer.weights_version) == ([(2, 1), (3, 2)], 1)
    # What had ended, and what began afterwards, is of one version.
    assert [(runs(each), each.weights_version) for each in (await second, await third)] == [
        ([], 1),
        ([], 2),
    ]
    assert answer.finish_reason == trajectory_pb2.FINISH_REASON_LENGTH
    assert (len(answer.logprobs), answer.policy) == (5, "job")
    assert pool.held == [2]
    assert metrics.MOVED._value.get() == moved + 1
    assert [s.running for s in pool.pool.served()] == [0]


async def test_without_the_jobs_word_it_is_waited_for() -> None:
    pool = SteppedPool()
    await pool.load(1)
    answer = await pool.asking(3)
    await pool.step()
    load = pool.loading(2, DRAIN)
    await settled()
    late = await pool.asking(1)
    await pool.step()
    assert not load.done()
    await pool.step()
    await load
    await pool.step()
    assert (runs(await answer), (await answer).weights_version) == ([], 1)
    assert (await late).weights_version == 2


async def test_versions_follow_each_other_and_may_go_back() -> None:
    """A job that begins again from a version that is whole loads an older one."""
    pool = SteppedPool()
    await pool.load(1)
    answer = await pool.asking(9)
    for version in (3, 2, 0):
        await pool.step(2)
        await pool.load(version)
    await pool.step(3)
    assert runs(await answer) == [(2, 1), (2, 3), (2, 2), (3, 0)]
    assert (await answer).weights_version == 0


async def test_an_answer_without_a_token_yet_is_of_the_new_version_alone() -> None:
    pool = SteppedPool()
    await pool.load(1)
    answer = await pool.asking(2)
    await pool.load(0)
    await pool.step(2)
    assert (runs(await answer), (await answer).weights_version) == ([], 0)


async def test_what_ends_while_the_engine_stops_is_of_the_old_version_alone() -> None:
    pool = SteppedPool()
    await pool.load(1)
    answer, other = await pool.asking(2), await pool.asking(3)
    await pool.step()
    pool.engine.while_freezing = pool.engine.step
    await pool.load(2)
    await pool.step()
    assert (runs(await answer), (await answer).weights_version) == ([], 1)
    assert runs(await other) == [(2, 1), (1, 2)]


async def test_a_stream_tells_the_versions_with_its_last_piece() -> None:
    pool = SteppedPool()
    await pool.load(1)
    stream = pool.streaming(3)
    pieces = []
    for version in (1, 2):
        reading = asyncio.ensure_future(anext(stream))
        await settled()
        await pool.step()
        pieces.append(await reading)
        await pool.load(version + 1)
    last = asyncio.ensure_future(anext(stream))
    await settled()
    await pool.step()
    assert [runs(piece) for piece in pieces] == [[], []]
    assert runs(await last) == [(1, 1), (1, 2), (1, 3)]
    assert (await last).weights_version == 1


async def test_what_names_its_version_ends_first_and_holds_nobody_else_back() -> None:
    pool = SteppedPool()
    await pool.load(1)
    named, free = await pool.asking(3, version=1), await pool.asking(6)
    await pool.step()
    load = pool.loading(2)
    await settled()
    late, of_old = await pool.asking(5), await pool.asking(1, version=1)
    of_new = await pool.asking(1, version=2)
    await pool.step()
    assert not load.done()
    assert not of_old.done()
    await pool.step()
    await load
    await settled()
    await pool.step(3)
    assert (runs(await named), (await named).weights_version) == ([], 1)
    assert runs(await free) == [(3, 1), (3, 2)]
    assert runs(await late) == [(2, 1), (3, 2)]
    assert (await of_new).weights_version == 2
    with pytest.raises(NotFoundError, match="which is newer"):
        await of_old


async def test_a_score_is_of_one_version() -> None:
    pool = SteppedPool()
    await pool.load(1)
    score = pool.scoring()
    await settled()
    load = pool.loading(2)
    await settled()
    assert not load.done()
    pool.engine.scoring.set()
    await load
    assert (list((await score).logprobs), (await score).weights_version) == ([-1.0], 1)


async def test_the_base_models_answers_end_before_a_jobs_first_version_comes() -> None:
    pool = SteppedPool()
    answer = await pool.asking(2, job="")
    load = pool.loading(1)
    await settled()
    await pool.step()
    assert not load.done()
    await pool.step()
    await load
    assert ((await answer).policy, (await answer).weights_version) == ("", 0)


async def test_weights_that_cannot_be_exchanged_leave_the_old_ones_at_work() -> None:
    pool = SteppedPool()
    await pool.load(1)
    answer = await pool.asking(4)
    await pool.step()
    pool.engine.fails = [RuntimeError("no such layer")]
    with pytest.raises(UnavailableError, match="no such layer") as caught:
        await pool.load(2)
    assert caught.value.reason == "WEIGHTS_NOT_EXCHANGED"
    assert pool.held == [1]
    assert [(s.version, s.running) for s in pool.pool.served()] == [(1, 1)]
    await pool.step()
    await pool.load(3)
    await pool.step(2)
    assert runs(await answer) == [(2, 1), (2, 3)]


async def test_an_engine_that_cannot_be_stopped_goes_on_as_before() -> None:
    pool = SteppedPool()
    await pool.load(1)
    answer = await pool.asking(2)
    pool.engine.freezes = False
    with pytest.raises(UnavailableError, match="cannot be stopped"):
        await pool.load(2)
    await pool.step(2)
    assert (runs(await answer), (await answer).weights_version) == ([], 1)
    assert pool.held == [1]


async def test_where_the_old_weights_are_lost_too_nothing_is_sampled_by_what_is_left() -> None:
    pool = SteppedPool()
    await pool.load(1)
    answer = await pool.asking(4)
    await pool.step()
    pool.engine.fails = [RuntimeError("no such layer"), OSError("no disk")]
    with pytest.raises(UnavailableError, match="no such layer"):
        await pool.load(2)
    with pytest.raises(UnavailableError, match="is lost") as caught:
        await answer
    assert caught.value.reason == "WEIGHTS_NOT_EXCHANGED"
    assert (pool.pool.served(), pool.held) == ([], [])
    await pool.load(3)
    healed = await pool.asking(1)
    await pool.step()
    assert (await healed).weights_version == 3


async def test_a_client_that_goes_away_during_the_exchange_leaves_nothing_behind() -> None:
    pool = SteppedPool()
    await pool.load(1)
    gone, stays = await pool.asking(4), await pool.asking(2)
    pool.engine.merging = asyncio.Event()
    load = pool.loading(2)
    await settled()
    assert pool.engine.is_frozen
    waiting = await pool.asking(1)
    gone.cancel()
    await settled()
    pool.engine.merging.set()
    await load
    await settled()
    assert [s.running for s in pool.pool.served()] == [2]
    await pool.step(2)
    assert ((await stays).weights_version, (await waiting).weights_version) == (2, 2)
    await pool.unload()
    assert pool.engine.version == 0


async def test_unloading_waits_for_what_moved() -> None:
    pool = SteppedPool()
    await pool.load(1)
    answer = await pool.asking(2)
    await pool.load(2)
    unload = asyncio.create_task(pool.unload())
    await settled()
    await pool.step()
    assert not unload.done()
    await pool.step()
    await unload
    assert (await answer).weights_version == 2
    assert pool.held == []


async def test_a_version_that_a_request_brings_comes_in_as_the_jobs_versions_do() -> None:
    pool = SteppedPool()
    await pool.load(1)
    answer = await pool.asking(2)
    await pool.step()
    newer = await pool.asking(1, version=2)
    await pool.step()
    assert runs(await answer) == [(1, 1), (1, 2)]
    assert (await newer).weights_version == 2


async def test_adapters_answers_end_as_they_began_and_nothing_waits_for_that() -> None:
    pool = SteppedPool(merged=False)
    await pool.load(1)
    answer = await pool.asking(2)
    for version in (2, 3):
        await pool.load(version)
    assert [s.version for s in pool.pool.served()] == [0, 3, 2]
    await pool.step()
    # Its adapter and its files stay for as long as it runs.
    assert (pool.engine.adapters, pool.held) == (["job@1", "job@2", "job@3"], [1, 2, 3])
    await pool.step()
    assert (runs(await answer), (await answer).weights_version) == ([], 1)
    await settled()
    assert (pool.engine.adapters, pool.held) == (["job@2", "job@3"], [2, 3])


async def test_a_pool_of_adapters_waits_without_the_jobs_word() -> None:
    pool = SteppedPool(merged=False)
    await pool.load(1)
    answer = await pool.asking(1)
    await pool.load(2, DRAIN)
    load = pool.loading(3, DRAIN)
    await settled()
    assert not load.done()
    await pool.step()
    await load
    assert (await answer).weights_version == 1
    assert pool.held == [2, 3]


async def test_a_pool_that_closes_gives_back_what_still_runs_under_an_older_adapter() -> None:
    pool = SteppedPool(merged=False)
    await pool.load(1)
    answer = await pool.asking(2)
    for version in (2, 3):
        await pool.load(version)
    await pool.pool.close()
    assert pool.held == []
    answer.cancel()
