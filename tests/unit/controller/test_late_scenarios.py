"""An environment that is away when a job begins, and has not said what it has to attempt."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest
from podium.core.skip_reasons import ENVIRONMENT_UNAVAILABLE, NO_ENVIRONMENT_ANSWERS
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.domain.errors import JobFailedError
from podium_controller.domain.ports import GroupKey, JobRecord
from podium_controller.pools.projects import ProjectLimits, Projects
from podium_controller.scheduling.meter import Meter
from podium_controller.training.draws import Draw
from podium_controller.training.group_sources import DrawnGroups, EpisodeScenarios, RolloutGroups
from podium_controller.training.judge_spending import ProjectAccounts
from podium_controller.training.loop import TrainingLoop
from podium_controller.training.recovery import Recovery
from podium_controller.training.sources import Sources
from support.fakes.bench import JOB, Bench

NAMES = ("chess", "go")


def both(**fields: object) -> Bench:
    """A job of two environments, as often the one as the other."""
    environments = [
        spec_pb2.WeightedEnvironment(
            name=name,
            environment=spec_pb2.EnvironmentSpec(name=name, split="train"),
            weight=1,
            from_step=1,
        )
        for name in NAMES
    ]
    rollout = spec_pb2.RolloutSpec(groups_per_step=2, group_size=2, max_concurrent_groups=4)
    return Bench(rollout=rollout, environments=environments, **fields)


def sources_of(bench: Bench, seconds: float) -> Sources:
    """The job's, which waits so long for who is lost."""
    recovery = Recovery(bench.reporter, bench.control, seconds)
    source = replace(bench.source, recovery=recovery, environment=bench.spec.environment)
    record = JobRecord(JOB, bench.spec, 0, 0, "")
    return Sources(record, bench.peers, source, bench.reporter, bench.control)


def events(bench: Bench, kind: pb.EventType.ValueType) -> list[str]:
    return [each.message for each in bench.events if each.type == kind]


async def test_a_jobs_only_environment_is_waited_for_and_the_job_says_so() -> None:
    bench = Bench()
    bench.spec.environment.name = "chess"
    bench.spec.environment.split = "train"
    bench.rollout.away = {"chess"}
    listing = asyncio.create_task(sources_of(bench, 60).for_training())
    row = bench.database.jobs[JOB]
    while row.wait_reason != NO_ENVIRONMENT_ANSWERS:
        await asyncio.sleep(0)
    assert row.wait_message == "environment 'chess'"
    bench.rollout.away = ()
    ((_, order, _),) = await listing
    assert order.at(0).id.startswith("train-")
    first, last = events(bench, pb.EVENT_TYPE_RECOVERY)
    assert first.startswith("environment is lost (environment 'chess'); waiting for it")
    assert last.startswith("environment is back")


async def test_one_that_stays_away_fails_the_job_with_that_reason_after_its_time() -> None:
    bench = both()
    bench.rollout.away = NAMES
    with pytest.raises(JobFailedError, match="environment stayed away for more than") as caught:
        await sources_of(bench, 0.05).for_training()
    assert caught.value.reason == NO_ENVIRONMENT_ANSWERS


async def groups_of(
    bench: Bench, sources: Sources, listed: list[EpisodeScenarios]
) -> dict[str, trajectory_pb2.Group]:
    """Those of a step by their environment, as they are collected."""
    made = RolloutGroups(JOB, bench.spec.rollout, listed, sources.mixture())
    groups = [await made.sample(GroupKey(JOB, 1, n), n) for n in range(2)]
    return {each.trajectories[0].environment: each for each in groups}


async def served(bench: Bench) -> None:
    await bench.optimizer.open(None)
    await bench.serving.serve(0)
    bench.inference.version = 0


async def test_of_two_the_one_that_is_away_costs_its_groups_until_it_is_there() -> None:
    bench, whole = both(), both()
    await served(bench)
    await served(whole)
    bench.rollout.away = {"chess"}
    sources = sources_of(bench, 0.05)
    listed = await sources.for_training()
    found = await groups_of(bench, sources, listed)
    assert found["chess"].skip_reason == ENVIRONMENT_UNAVAILABLE
    assert found["chess"].trajectories[0].failure.type == NO_ENVIRONMENT_ANSWERS
    assert (found["go"].skip_reason, found["go"].scenario.split) == ("", "train")
    assert any("had no environment" in each for each in events(bench, pb.EVENT_TYPE_WARNING))
    # What is drawn for no step, likewise.
    drawn = DrawnGroups(JOB, bench.spec.rollout, listed, sources.mixture())
    late = await drawn.sample(Draw(0, 0, 0), 1, lambda: None)
    assert late.skip_reason == ENVIRONMENT_UNAVAILABLE
    assert [source.is_lost for source, _, _ in listed] == [True, False]
    # Once it is there its scenarios come in the order in which they always do.
    bench.rollout.away = ()
    found = await groups_of(bench, sources, listed)
    others = sources_of(whole, 60)
    never = await groups_of(whole, others, await others.for_training())
    scenarios = {name: each.scenario.id for name, each in found.items()}
    assert scenarios == {name: each.scenario.id for name, each in never.items()}
    assert {each.skip_reason for each in found.values()} == {""}
    assert not any(source.is_lost for source, _, _ in listed)


async def test_versions_are_not_evaluated_until_each_environment_was_there() -> None:
    evaluation = spec_pb2.EvaluationSpec(split="heldout", every_steps=1, samples=1, scenarios=2)
    bench = both(
        evaluation=evaluation,
        training=spec_pb2.TrainingSpec(steps=2),
    )
    bench.spec.recovery_timeout_seconds = 1
    bench.rollout.away = {"chess"}
    bench.rollout.loses = lambda request: (
        NO_ENVIRONMENT_ANSWERS if request.environment.name in bench.rollout.away else ""
    )
    bench.before("step", lambda: None, lambda: setattr(bench.rollout, "away", ()))
    job = JobRecord(JOB, bench.spec, 0, 0, "")
    meter = Meter(bench.ledger.usage, time.monotonic, Projects())
    loop = TrainingLoop(
        job,
        bench.peers,
        bench.pool,
        bench.trainer,  # type: ignore[arg-type]
        bench.ledger,
        bench.control,
        ProjectLimits(),
        meter.begin(job, bench.pool, "default", 0),
        ProjectAccounts(),
    )
    try:
        await loop.run()
    finally:
        await loop.close()
    measured, _ = await bench.jobs.evaluations(JOB, None, 100)
    assert [each.version for each in measured] == [2]
    assert measured[0].episodes == 4
    told = [each for each in events(bench, pb.EVENT_TYPE_WARNING) if "no version is eval" in each]
    assert len(told) >= 2
