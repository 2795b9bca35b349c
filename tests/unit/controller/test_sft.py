"""What the controller does otherwise for supervised fine-tuning."""

from __future__ import annotations

import pytest
from podium.core.errors import FailedPreconditionError
from podium.core.sft import HELDOUT
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2, trajectory_pb2
from podium_controller.api import submissions
from podium_controller.api.specification import complete, violations
from podium_controller.domain.coach.window import Window
from podium_controller.domain.ports import JUDGED, GroupKey, JobRecord
from podium_controller.domain.step_metrics import own_metrics
from podium_controller.training.aliases import BEST
from podium_controller.training.judging import Judging, Scoring
from podium_controller.training.scoring import scoring_of
from support.fakes.bench import JOB, Bench

SUPERVISED = spec_pb2.TrainingSpec(
    steps=3, loss=spec_pb2.LossSpec(objective=spec_pb2.OBJECTIVE_SUPERVISED)
)


def sft_spec() -> spec_pb2.JobSpec:
    spec = spec_pb2.JobSpec(base_model="m", training=SUPERVISED)
    spec.client.SetInParent()
    spec.sft.SetInParent()
    return spec


def row(split: str = "", policy: str = "another") -> trajectory_pb2.Group:
    """A demonstration, or what another job sampled."""
    made = trajectory_pb2.Group(scenario=trajectory_pb2.Scenario(id="row-1", split=split))
    tokens = made.trajectories.add().histories.add().tokens
    tokens.token_ids.extend([1, 2, 3])
    tokens.spans.add(start=1, length=2, policy=policy, weights_version=9)
    return made


def told(spec: spec_pb2.JobSpec) -> list[str]:
    return [v.field for v in violations(pb.Job(spec=complete(spec)))]


def test_a_job_of_rows_has_defaults_and_needs_its_client_and_its_objective() -> None:
    spec = sft_spec()
    assert told(spec) == []
    full = complete(spec).sft
    assert (full.epochs, full.batch_size, full.shuffle) == (1, 8, True)
    spec.training.loss.objective = spec_pb2.OBJECTIVE_CLIPPED
    spec.reward.scorers.add(kind=spec_pb2.SCORER_KIND_ENVIRONMENT)
    assert told(spec) == ["job.spec.training.loss.objective", "job.spec.reward.scorers"]
    other = sft_spec()
    other.ClearField("client")
    assert "job.spec.sft" in told(other)


def test_anybodys_tokens_may_be_learned_from_but_only_by_the_supervised_objective() -> None:
    (group,) = submissions.groups_for(JOB, sft_spec(), 5, [row()])
    assert group.trajectories[0].id == f"{JOB}/s5/g0/t0"
    assert group.scenario.id == "row-1"
    own = sft_spec()
    own.ClearField("sft")
    assert submissions.groups_for(JOB, own, 5, [row()])
    own.training.loss.objective = spec_pb2.OBJECTIVE_REINFORCE
    with pytest.raises(FailedPreconditionError, match="another policy"):
        submissions.groups_for(JOB, own, 5, [row()])


async def test_no_judge_is_asked_of_rows() -> None:
    bench = Bench(sft=spec_pb2.SftSpec())
    key = GroupKey(JOB, 1, 0)
    reward = spec_pb2.RewardSpec()
    judging = Judging(bench.judge, reward, bench.recovery, bench.ledger, bench.spending)

    def scoring(spec: spec_pb2.JobSpec) -> Scoring:
        job = JobRecord(JOB, spec, 0, 0, "")
        return scoring_of(job, judging, None, bench.recovery, bench.ledger, bench.reporter)

    how = scoring(bench.spec)
    assert await how.score(key, row()) == row()
    assert (await bench.ledger.stored_groups(JOB, 1))[0].status == JUDGED
    assert bench.calls == []
    judged = scoring(spec_pb2.JobSpec())
    await judged.score(key, row())
    assert bench.calls == ["score"]


async def test_a_batch_of_demonstrations_is_scored_by_nobody_and_may_be_of_anybody() -> None:
    bench = Bench(client=spec_pb2.ClientSpec())
    reward = spec_pb2.RewardSpec()
    judging = Judging(bench.judge, reward, bench.recovery, bench.ledger, bench.spending)
    job = JobRecord(JOB, bench.spec, 0, 0, "")
    how = scoring_of(job, judging, None, bench.recovery, bench.ledger, bench.reporter)
    shown = row()
    shown.batch_training.supervised = True
    shown.batch_training.learning_rate = 1e-3
    (group,) = submissions.groups_for(JOB, bench.spec, 5, [shown])
    assert group.batch_training == shown.batch_training
    with pytest.raises(FailedPreconditionError, match="another policy"):
        submissions.groups_for(JOB, bench.spec, 5, [row()])
    await how.score(GroupKey(JOB, 1, 0), group)
    assert bench.calls == []
    assert own_metrics(bench.spec, [group], 0) == {"groups": 1, "trajectories": 1}
    await how.score(GroupKey(JOB, 1, 1), row())
    assert bench.calls == ["score"]


def test_a_coach_looks_at_what_the_policy_sampled_alone() -> None:
    spec = spec_pb2.JobSpec()
    spec.client.SetInParent()
    shown = pb.Step(number=2, metrics={"groups": 1, "trajectories": 1})
    own = pb.Step(number=1, metrics={"groups": 1, "trajectories": 4, "tokens_sampled": 9})
    assert Window([own, shown], spec).steps == [own]
    assert Window([own, shown], sft_spec()).steps == [own, shown]


async def test_the_least_loss_on_held_out_rows_is_the_best_version() -> None:
    bench = Bench(sft=spec_pb2.SftSpec(), client=spec_pb2.ClientSpec())
    await bench.optimizer.open(None)
    for step, loss in enumerate((2.0, 1.5, 1.8), 1):
        await bench.optimizer.step(step, [trajectory_pb2.Group(id=f"g{step}")], {}, {})
        await bench.aliases.measured(step, loss)
    for none in (float("nan"), float("-inf")):
        await bench.aliases.measured(3, none)
    assert bench.registry.aliases[JOB, BEST] == 2
    version = await bench.registry.version(JOB, 3)
    assert version is not None
    assert dict(version.evaluation_metrics) == {"val/loss": 1.8, "val/reward": -1.8}


async def test_an_evaluations_own_metric_says_what_is_best() -> None:
    evaluation = spec_pb2.EvaluationSpec(best_metric="success")
    bench = Bench(client=spec_pb2.ClientSpec(), evaluation=evaluation)
    await bench.optimizer.open(None)
    await bench.aliases.measured(0, 1.0)
    assert (JOB, BEST) not in bench.registry.aliases


def test_rows_are_no_samples_and_have_no_rewards() -> None:
    found = own_metrics(sft_spec(), [row(), row(HELDOUT)], 0)
    assert found == {"groups": 2, "trajectories": 2, "groups_heldout": 1}
    assert "tokens_sampled" in own_metrics(spec_pb2.JobSpec(), [row()], 0)
