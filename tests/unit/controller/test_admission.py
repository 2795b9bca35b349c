"""What is asked of the other services before a job is queued."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
    Violation,
)
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.judge.v1 import judge_service_pb2 as judge_pb
from podium.types.v1 import spec_pb2
from podium_controller.api.admission import Admission
from podium_judge.servicer import JudgeServicer
from podium_judge.settings import Settings as JudgeSettings
from support.fakes.bench import JOB, Bench

RULER = spec_pb2.RewardSpec(scorers=[spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_RULER)])


def asked(**fields: Any) -> tuple[Bench, Admission]:
    """The checks of a job, and what they ask."""
    fields = {"environment": spec_pb2.EnvironmentSpec(name="double", split="train"), **fields}
    bench = Bench(**fields)
    return bench, Admission(bench.peers, bench.pools, bench.projects)


def away(peer: str) -> Callable[[], None]:
    """What a lost peer answers."""

    def answer() -> None:
        raise UnavailableError(f"{peer} cannot be reached", metadata={"peer": peer})

    return answer


def fields(violations: list[Violation]) -> list[str]:
    return [violation.field for violation in violations]


async def test_a_job_gets_rows_as_long_as_the_pool_s_context() -> None:
    bench, admission = asked()
    bench.inference.window = 8192
    assert await admission.check_model(bench.spec) == []
    assert bench.spec.training.max_row_tokens == 8192
    assert admission.warnings(bench.spec) == []
    bench.spec.training.max_row_tokens = 100
    assert "job.spec.training.max_row_tokens" in admission.warnings(bench.spec)[0]


async def test_an_answer_must_fit_the_context() -> None:
    bench, admission = asked()
    bench.spec.rollout.sampling.max_tokens = bench.inference.window
    found = await admission.check_model(bench.spec)
    assert fields(found) == ["job.spec.rollout.sampling.max_tokens"]


async def test_a_base_model_that_no_pool_serves_is_refused() -> None:
    bench, admission = asked()
    bench.spec.base_model = "other"
    with pytest.raises(FailedPreconditionError) as raised:
        await admission.check_model(bench.spec)
    assert raised.value.reason == "BASE_MODEL_NOT_SERVED"


async def test_a_job_runs_only_where_conversations_are_rendered_as_it_asks() -> None:
    bench, admission = asked()
    bench.inference.rendering = spec_pb2.Rendering(
        chat_template_digest="sha256:ab", tool_format="qwen3_coder"
    )
    wanted = bench.spec.rollout.episode.rendering
    wanted.tool_format = "qwen3_coder"
    assert await admission.check_model(bench.spec) == []
    wanted.reasoning_parser = "qwen3"
    wanted.chat_template_digest = "sha256:cd"
    template, parser = await admission.check_model(bench.spec)
    assert template.field == "job.spec.rollout.episode.rendering.chat_template_digest"
    assert "got 'sha256:cd'" in template.description
    assert template.description.endswith("has sha256:ab")
    assert parser.field == "job.spec.rollout.episode.rendering.reasoning_parser"
    assert parser.description.startswith("got 'qwen3'; ")
    assert parser.description.endswith("has none")


async def test_a_job_runs_only_where_what_it_trains_can_be_served() -> None:
    """A GPU's pool serves adapters unless it is asked for merged weights."""
    bench, admission = asked()
    bench.spec.training.lora.rank = 128
    assert await admission.check_model(bench.spec) == []
    bench, admission = asked()
    bench.inference.weight_mode = inference_pb.WEIGHT_MODE_ADAPTER
    bench.inference.max_lora_rank = 64
    training = bench.spec.training
    training.lora.rank = 128
    (rank,) = await admission.check_model(bench.spec)
    assert rank.field == "job.spec.training.lora.rank"
    assert rank.description.startswith("got 128; ")
    assert "up to 64" in rank.description
    training.lora.rank = 64
    assert await admission.check_model(bench.spec) == []
    training.ClearField("lora")
    training.trainable = spec_pb2.TRAINABLE_KIND_FULL
    (kind,) = await admission.check_model(bench.spec)
    assert kind.field == "job.spec.training.trainable"
    assert "'default' serves adapters" in kind.description


@pytest.mark.parametrize("mode", inference_pb.WeightMode.values()[1:])
async def test_a_job_on_a_model_that_cannot_train_is_refused(
    mode: inference_pb.WeightMode.ValueType,
) -> None:
    """A pool may serve one, for judges: a quantised one, say."""
    bench, admission = asked()
    bench.inference.weight_mode = mode
    bench.inference.untrainable = "its weights are quantised"
    (model,) = await admission.check_model(bench.spec)
    assert model.field == "job.spec.base_model"
    assert model.description == (
        f"got {bench.spec.base_model!r}, on which no job can train: its weights are quantised"
    )


async def test_a_job_on_a_model_that_renders_no_conversation_is_refused() -> None:
    """A base model without a chat template: every episode would fail."""
    bench, admission = asked()
    bench.inference.unrenderable = "the model has no chat template; SETTING names one"
    (model,) = await admission.check_model(bench.spec)
    assert model.field == "job.spec.base_model"
    assert model.description == (
        f"got {bench.spec.base_model!r}, of which no conversation can be rendered: the model has"
        " no chat template; SETTING names one"
    )
    # Its client may bring tokens, as with /v1/completions.
    bench.spec.client.SetInParent()
    assert await admission.check_model(bench.spec) == []


async def test_a_pool_that_never_answered_may_serve_it() -> None:
    bench, admission = asked()
    bench.before("engine", away("inference"))
    with pytest.raises(UnavailableError) as raised:
        await admission.check_model(bench.spec)
    assert raised.value.reason == "POOL_UNAVAILABLE"


async def test_an_environment_must_have_its_splits() -> None:
    bench, admission = asked(evaluation=spec_pb2.EvaluationSpec(split="heldout"))
    assert await admission.check_environment(bench.spec) == []
    bench.spec.evaluation.split = "unknown"
    assert fields(await admission.check_environment(bench.spec)) == ["job.spec.evaluation.split"]
    bench.rollout.splits["unknown"] = 0
    assert fields(await admission.check_environment(bench.spec)) == ["job.spec.evaluation.split"]
    bench.spec.environment.name, bench.spec.environment.split = "doubel", "nowhere"
    (found,) = await admission.check_environment(bench.spec)
    assert "did you mean 'double'?" in found.description


async def test_a_job_may_wait_for_the_rollout_service_and_a_draft_may_not() -> None:
    bench, admission = asked()
    bench.before("scenarios", away("rollout"), away("rollout"), away("environment 'double'"))
    assert await admission.check_environment(bench.spec, may_wait=True) == []
    with pytest.raises(UnavailableError):
        await admission.check_environment(bench.spec)
    # A mistyped address is away for ever.
    with pytest.raises(UnavailableError):
        await admission.check_environment(bench.spec, may_wait=True)


async def test_a_judge_is_asked_of_ruler_alone() -> None:
    bench, admission = asked()
    assert await admission.check_judge(bench.spec) == []
    assert "check" not in bench.calls
    bench.spec.reward.CopyFrom(RULER)

    def refuse() -> None:
        raise InvalidArgumentError(violations=[Violation("reward.scorers[0].model", "got none")])

    bench.before("check", refuse, away("judge"))
    assert fields(await admission.check_judge(bench.spec)) == ["job.spec.reward.scorers[0].model"]
    assert await admission.check_judge(bench.spec) == []


async def test_a_budget_that_no_question_fits_is_refused_by_the_name_that_the_job_has_for_it() -> (
    None
):
    bench, admission = asked(reward=RULER)
    async with httpx.AsyncClient() as http:
        servicer = JudgeServicer(JudgeSettings(prices={"m": (1, 1)}), http)

        async def check(reward: spec_pb2.RewardSpec, base_model: str) -> None:
            request = judge_pb.CheckRewardRequest(reward=reward, base_model=base_model)
            await servicer.CheckReward(request, None)

        bench.peers.judge.check = check
        ruler = bench.spec.reward.scorers[0].ruler
        ruler.model = "m"
        ruler.max_job_tokens = 4096
        (found,) = await admission.check_judge(bench.spec)
        assert found.field == "job.spec.reward.scorers[0].ruler.max_job_tokens"
        assert re.match(r"got 4096; allowed is at least 5\d\d\d tokens, ", found.description)
        ruler.max_job_tokens = 0
        bench.spec.budget.max_judge_cost = 1e-3
        (found,) = await admission.check_judge(bench.spec)
        assert found.field == "job.spec.budget.max_judge_cost"
        assert re.match(r"got 0\.001; allowed is at least 0\.005\d+, ", found.description)
        ruler.max_job_cost = 1e-4
        (found,) = await admission.check_judge(bench.spec)
        assert found.field == "job.spec.reward.scorers[0].ruler.max_job_cost"
        ruler.max_job_cost, bench.spec.budget.max_judge_cost = 1, 2
        assert await admission.check_judge(bench.spec) == []


async def test_a_fork_starts_from_the_newest_version_unless_told() -> None:
    bench, admission = asked(fork=spec_pb2.ForkSpec(model=JOB))
    bench.spec.training.steps = 5
    assert fields(await admission.check_fork(bench.spec)) == ["job.spec.fork"]
    await bench.optimizer.open(None)
    await bench.optimizer.step(1, [], {}, {})
    assert await admission.check_fork(bench.spec) == []
    assert bench.spec.fork.version == 1
    bench.registry.find(JOB, 1).manifest.base_model = "another"
    assert fields(await admission.check_fork(bench.spec)) == ["job.spec.fork.model"]
    bench.registry.find(JOB, 1).manifest.base_model = bench.spec.base_model
    bench.spec.training.steps = 1
    assert fields(await admission.check_fork(bench.spec)) == ["job.spec.training.steps"]


async def test_a_fork_goes_on_from_state_and_not_from_weights_alone() -> None:
    bench, admission = asked(fork=spec_pb2.ForkSpec(model=JOB))
    bench.spec.training.steps = 5
    await bench.optimizer.open(None)
    await bench.optimizer.step(1, [], {}, {})
    for stored in bench.registry.models[JOB].values():
        stored.manifest.base_model = bench.spec.base_model
    bench.registry.find(JOB, 1).state = None
    # The newest that it can go on from, unless it is told; then it is told what it may name.
    assert await admission.check_fork(bench.spec) == []
    assert bench.spec.fork.version == 0
    bench.spec.fork.version = 1
    (violation,) = await admission.check_fork(bench.spec)
    assert violation.field == "job.spec.fork.version"
    assert "got 1, which has weights alone; allowed are versions with state, as 0 is" in str(
        violation
    )
    bench.registry.find(JOB, 0).state = None
    (violation,) = await admission.check_fork(bench.spec)
    assert str(violation).endswith("allowed are versions with state")
    bench.spec.fork.ClearField("version")
    assert fields(await admission.check_fork(bench.spec)) == ["job.spec.fork"]


async def test_a_name_that_has_checkpoints_is_taken() -> None:
    bench, admission = asked()
    await admission.check_name(JOB)
    await bench.optimizer.open(None)
    with pytest.raises(AlreadyExistsError):
        await admission.check_name(JOB)
