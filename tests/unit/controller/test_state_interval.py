"""State is stored behind the weights, at an interval; what has none is made again."""

from __future__ import annotations

import pytest
from podium.core.errors import NotFoundError, UnavailableError
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.retention import last_spare_step, last_step_with_state, stores_state
from support.fakes.bench import JOB, Bench


def spec_of(interval: int, steps: int = 20, keep_last: int = 3, fork: int = 0) -> spec_pb2.JobSpec:
    spec = spec_pb2.JobSpec()
    spec.training.steps = steps
    spec.retention.keep_last = keep_last
    spec.retention.state_interval = interval
    if fork:
        spec.fork.version = fork
    return spec


def bench_of(interval: int, steps: int = 20) -> Bench:
    spec = spec_of(interval, steps)
    return Bench(training=spec.training, retention=spec.retention)


async def take(bench: Bench, *steps: int) -> None:
    """Steps as the loop takes them: their groups are stored first."""
    for step in steps:
        group = trajectory_pb2.Group(id=f"job/s{step}/g0")
        group.trajectories.add(id=f"{group.id}/t0", reward=step)
        await bench.store_groups(step, [group])
        await bench.optimizer.step(step, [group], {}, {})


def resumable(bench: Bench) -> list[int]:
    return sorted(n for n, it in bench.registry.models[JOB].items() if it.state is not None)


@pytest.mark.parametrize(
    ("interval", "steps", "stored"),
    [(1, 4, [1, 2, 3, 4]), (3, 8, [3, 6, 8]), (5, 3, [3]), (0, 2, [1, 2])],
)
def test_every_nth_step_and_the_last_store_state(
    interval: int, steps: int, stored: list[int]
) -> None:
    spec = spec_of(interval, steps)
    assert [n for n in range(1, steps + 1) if stores_state(spec, n)] == stored


def test_the_state_to_be_had_is_that_of_the_interval_or_of_the_fork() -> None:
    assert [last_step_with_state(spec_of(3), n) for n in (0, 2, 3, 7)] == [0, 0, 3, 6]
    assert [last_step_with_state(spec_of(3, fork=4), n) for n in (4, 5, 6)] == [4, 4, 6]


@pytest.mark.parametrize(
    ("interval", "keep_last", "spare"),
    [
        (1, 3, [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]),
        (2, 2, [0, 0, 0, 0, 0, 0, 2, 2, 4, 4, 6]),
        (4, 2, [0] * 11),
        (2, 6, [0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]),
        (1, 1, [0] * 11),
    ],
)
def test_groups_stay_that_a_version_may_be_made_of_again(
    interval: int, keep_last: int, spare: list[int]
) -> None:
    spec = spec_of(interval, keep_last=keep_last)
    assert [last_spare_step(spec, completed) for completed in range(11)] == spare


async def test_weights_do_not_wait_for_state() -> None:
    bench = bench_of(1)
    kept: list[object] = []
    bench.behind = lambda peer, work: kept.append(work)  # type: ignore[method-assign,assignment]
    await bench.optimizer.open(None)
    await take(bench, 1)
    assert bench.registry.published == [(JOB, 0), (JOB, 1)]
    assert resumable(bench) == [0]
    assert bench.optimizer.awaited == 1
    (store,) = kept
    store()  # type: ignore[operator]
    await bench.optimizer.keep_state(1)
    assert resumable(bench) == [0, 1]
    assert bench.optimizer.awaited is None


async def test_a_lost_trainer_takes_again_what_no_state_tells_of() -> None:
    bench, whole = bench_of(3), bench_of(3)
    await whole.optimizer.open(None)
    await take(whole, *range(1, 7))
    await bench.optimizer.open(None)
    await take(bench, 1, 2, 3, 4)

    def lose() -> None:
        bench.trainer.forget()
        raise UnavailableError("trainer cannot be reached", metadata={"peer": "trainer"})

    bench.before("step", lose)
    await take(bench, 5, 6)
    assert [step for _, step in bench.trainer.taken] == [1, 2, 3, 4, 4, 5, 6]
    assert bench.registry.published == whole.registry.published
    for version, stored in whole.registry.models[JOB].items():
        assert bench.registry.models[JOB][version].weights == stored.weights
    assert resumable(bench) == resumable(whole) == [0, 3, 6]
    assert any(
        "goes on from version 3, and takes the steps up to 4" in e.message for e in bench.events
    )


async def test_a_trainer_that_is_still_there_takes_nothing_again() -> None:
    bench = bench_of(3)
    await bench.optimizer.open(None)
    await take(bench, 1, 2, 3, 4)
    await bench.optimizer.open(4)
    assert [step for _, step in bench.trainer.taken] == [1, 2, 3, 4]


async def test_state_that_got_lost_on_its_way_is_that_of_the_version_reached() -> None:
    bench = bench_of(2)
    await bench.optimizer.open(None)
    bench.behind = lambda peer, work: None  # type: ignore[method-assign]
    await take(bench, 1, 2, 3)
    del bench.behind  # type: ignore[method-assign]
    bench.trainer.forget()
    await bench.optimizer.open(3)
    assert [step for _, step in bench.trainer.taken] == [1, 2, 3, 1, 2, 3]
    assert resumable(bench) == [0, 3]


async def test_a_version_whose_groups_are_gone_says_how_to_go_on() -> None:
    bench = bench_of(5)
    await bench.optimizer.open(None)
    group = trajectory_pb2.Group(id="job/s1/g0")
    await bench.optimizer.step(1, [group], {}, {})
    bench.trainer.forget()
    with pytest.raises(JobFailedError, match=r"--set fork\.model=job") as caught:
        await bench.optimizer.open(1)
    assert caught.value.reason == "STATE_LOST"


async def test_a_version_that_somebody_deletes_meanwhile_ends_no_job() -> None:
    bench = bench_of(1)
    await bench.optimizer.open(None)
    await take(bench, 1)
    here = bench.trainer._sessions[JOB]
    assert here.held is not None
    here.stored, here.held.error = None, NotFoundError("no version job@1")
    bench.registry.models[JOB].pop(1)
    here.parent = None
    await take(bench, 2)
    assert any("deleted before its state was stored" in each.message for each in bench.events)


async def test_what_the_job_goes_on_from_when_no_bit_is_the_same() -> None:
    """As on a GPU: the state is of the weights that the trainer has, and of no others."""
    bench = bench_of(2)
    bench.trainer.noisy = True
    await bench.optimizer.open(None)
    await take(bench, 1)
    bench.trainer.forget()
    await bench.optimizer.open(1)
    assert any("not bit for bit version 1; the job goes on" in e.message for e in bench.events)
    await take(bench, 2)
    stored = bench.registry.find(JOB, 2)
    assert stored.state == stored.weights
