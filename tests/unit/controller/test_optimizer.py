"""A step is taken when its version is published, whatever became of the calls."""

from __future__ import annotations

import dataclasses

import pytest
from podium.core.errors import AlreadyExistsError, UnavailableError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import trajectory_pb2
from support.fakes.bench import Bench


def groups(*ids: str) -> list[trajectory_pb2.Group]:
    """Each of one attempt."""
    return [
        trajectory_pb2.Group(id=id_, trajectories=[trajectory_pb2.Trajectory(id=f"{id_}/t0")])
        for id_ in ids
    ]


async def test_a_new_job_has_a_version_of_what_it_begins_with() -> None:
    bench = Bench()
    await bench.optimizer.open(None)
    assert bench.registry.published == [("job", 0)]
    await bench.optimizer.open(None)
    assert bench.registry.published == [("job", 0)]


async def test_what_the_trainer_warns_of_is_an_event_once_however_often_it_opens() -> None:
    bench = Bench()
    bench.trainer.warnings = ["its experts are frozen"]
    await bench.optimizer.open(None)
    await bench.optimizer.step(1, groups("a"), {}, {})
    bench.trainer.forget()
    bench.trainer.warnings.append("another thing")
    await bench.optimizer.open(1)
    told = [each.message for each in bench.events if each.type == pb.EVENT_TYPE_WARNING]
    assert told == ["its experts are frozen", "another thing"]


async def test_a_step_has_its_groups_and_numbers_in_its_version() -> None:
    bench = Bench()
    await bench.optimizer.open(None)
    seconds: dict[str, float] = {}
    taken = await bench.optimizer.step(1, groups("a", "b"), {"reward_mean": 0.5}, seconds)
    assert (taken.version, taken.group_ids) == (1, ["a", "b"])
    found = await bench.optimizer.find(1)
    assert found is not None
    assert found.group_ids == ["a", "b"]
    assert found.metrics["reward_mean"] == 0.5
    assert found.metrics["train/loss"] == 1.0
    assert seconds.keys() == {"train", "publish"}
    assert await bench.optimizer.find(2) is None


async def test_a_version_that_a_former_run_stored_late_is_the_step() -> None:
    """Simulated seed 50808: the job failed with VERSION_EXISTS."""
    bench = Bench()
    bench.trainer.noisy = True
    await bench.optimizer.open(None)
    await bench.trainer.step("job", 1, groups("a"))
    late = bench.trainer._sessions["job"]
    stored = dataclasses.replace(bench.registry.find("job", 0), weights=late.weights)
    manifest = type(stored.manifest)(model="job", version=1, group_ids=["a"])
    bench.trainer.forget()
    await bench.optimizer.open(0)

    def store() -> None:
        bench.registry.create(manifest, stored.weights)
        bench.registry.add_state("job", 1, stored.weights)

    bench.before("save", store)
    taken = await bench.optimizer.step(1, groups("a"), {}, {})
    assert taken.group_ids == ["a"]
    await bench.optimizer.step(2, groups("b"), {}, {})
    weights = bench.registry.find("job", 2).weights
    assert weights[: len(stored.weights)] == stored.weights


async def test_a_version_of_other_groups_is_nobody_s_step() -> None:
    bench = Bench()
    await bench.optimizer.open(None)
    manifest = type(bench.registry.find("job", 0).manifest)(model="job", version=1)
    bench.before("save", lambda: bench.registry.create(manifest, ("somebody's",)))
    with pytest.raises(AlreadyExistsError):
        await bench.optimizer.step(1, groups("a"), {}, {})


async def test_a_trainer_that_was_lost_is_opened_at_the_version_before() -> None:
    bench = Bench()
    await bench.optimizer.open(None)

    def lose() -> None:
        bench.trainer.forget()
        raise UnavailableError("trainer cannot be reached", metadata={"peer": "trainer"})

    bench.before("save", lose)
    await bench.optimizer.step(1, groups("a"), {}, {})
    assert bench.trainer.taken == [("job", 1), ("job", 1)]
    assert bench.registry.published == [("job", 0), ("job", 1)]
    told = [e.message for e in bench.events if e.type == pb.EVENT_TYPE_RECOVERY]
    assert told[0].startswith("trainer is lost")
    assert told[-1].startswith("trainer is back")


async def test_a_damaged_version_is_made_again_from_the_one_before() -> None:
    bench = Bench()
    await bench.optimizer.open(None)
    for step in (1, 2):
        made = groups(f"job/s{step}/g0")
        await bench.store_groups(step, made)
        await bench.optimizer.step(step, made, {}, {})
    whole = bench.registry.find("job", 2).weights
    bench.registry.find("job", 2).damaged = True
    bench.trainer.forget()
    await bench.optimizer.restore(2, bench.damage("job", 2))
    assert not bench.registry.find("job", 2).damaged
    assert bench.registry.pull("job", 2) == whole
    assert any("version 2 is whole again" in each.message for each in bench.events)
