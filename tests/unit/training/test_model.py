"""A model that an agent trains: the whole loop in this process."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)
from podium.sdk.models import Models
from podium.training import (
    History,
    Model,
    TrainableModel,
    TrainConfig,
    Trajectory,
    TrajectoryGroup,
    gather_trajectory_groups,
)
from podium.training.batch import batch_of
from podium.training.in_process import InProcessBackend
from podium.types.v1 import spec_pb2, trajectory_pb2


def number(messages: list[dict[str, Any]], step: int) -> str:
    return f"{step}: {random.random()}"


@pytest.fixture
def backend() -> Iterator[InProcessBackend]:
    with InProcessBackend(number) as running:
        yield running


async def rollout(model: TrainableModel, scenario: str) -> Trajectory:
    answer = await model.openai_client().chat.completions.create(
        model=model.get_inference_name(), messages=[{"role": "user", "content": scenario}]
    )
    text = answer.choices[0].message.content or ""
    return Trajectory(reward=float(text.partition(": ")[2]), metrics={"words": 2, "good": True})


async def groups_of(model: TrainableModel) -> list[TrajectoryGroup]:
    return await gather_trajectory_groups(
        TrajectoryGroup(
            (rollout(model, scenario) for _ in range(3)), metadata={"scenario_id": scenario}
        )
        for scenario in ("a", "b")
    )


async def test_the_loop(backend: InProcessBackend, tmp_path: Path) -> None:
    model = TrainableModel(name="Agent 7", project="demo", base_model="none", base_path=tmp_path)
    await model.register(backend)
    assert model.name == "demo-agent-7"
    for step in range(1, 4):
        groups = await groups_of(model)
        logged = await model.log(groups, split="val")
        result = await model.train(groups, config=TrainConfig(learning_rate=1e-5))
        assert result.step == step == await model.get_step()
        mean = sum(each.reward for group in groups for each in group) / 6
        assert result.metrics["reward_mean"] == pytest.approx(mean)
        assert logged["val/reward"] == pytest.approx(mean)
        assert (logged["val/words"], logged["val/good"], logged["val/exception_rate"]) == (2, 1, 0)
    for step, batch in enumerate(backend.batches[model.name]):
        assert [group.scenario.id for group in batch] == ["a", "b"]
        for trajectory in (each for group in batch for each in group.trajectories):
            (history,) = trajectory.histories
            (span,) = history.tokens.spans
            assert (span.policy, span.weights_version) == (model.name, step)
            sampled = list(history.tokens.token_ids)[span.start :]
            assert bytes(sampled[:-1]).decode() == history.messages[-1].content
            assert float(history.messages[-1].content[3:]) == trajectory.environment_reward

    versions = await model.checkpoints()
    assert [version.manifest.version for version in versions] == [3, 2, 1, 0]
    best = max(versions[1:], key=lambda version: version.evaluation_metrics["val/reward"])
    await model.delete_checkpoints()
    kept = {3, best.manifest.version}
    assert {version.manifest.version for version in await model.checkpoints()} == kept
    history = [json.loads(line) for line in (tmp_path / model.name / "history.jsonl").open()]
    assert [row["step"] for row in history] == [0, 1, 2]
    written = (tmp_path / model.name / "trajectories" / "val" / "0002.jsonl").read_text()
    first = json.loads(written.splitlines()[0])
    assert first["metadata"] == {"scenario_id": "a"}
    assert first["trajectories"][0]["messages"][0] == {"role": "user", "content": "a"}
    await model.finish()
    with pytest.raises(FailedPreconditionError):
        await model.train(await groups_of(model))


async def test_a_step_has_the_learning_rate_that_its_call_names(backend: InProcessBackend) -> None:
    model = TrainableModel(name="m", base_model="none")
    await model.register(backend)
    await model.train(await groups_of(model), config=TrainConfig(learning_rate=3e-4))
    await model.train(await groups_of(model))
    named, plain = backend.batches["m"]
    assert {group.batch_training.learning_rate for group in named} == {3e-4}
    assert not any(group.HasField("batch_training") for group in plain)
    for wrong in (0, -1e-5, 2, float("nan"), True, "1e-5"):
        with pytest.raises(InvalidArgumentError, match=r"config\.learning_rate: got "):
            await model.train(await groups_of(model), TrainConfig(learning_rate=wrong))  # type: ignore[arg-type]


def test_without_openai_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(FailedPreconditionError, match="pip install 'openai"):
        Model("baseline", "http://h/v1").openai_client()


async def test_what_failed_trains_as_failed(backend: InProcessBackend) -> None:
    model = TrainableModel(name="m", base_model="none")
    await model.register(backend)

    async def fail() -> Trajectory:
        raise ValueError("no such email")

    groups = await gather_trajectory_groups(
        [TrajectoryGroup([rollout(model, "a"), fail()])], max_exceptions=1
    )
    (group,) = batch_of(groups, model.name)
    good, failed = group.trajectories
    assert good.stop_reason == trajectory_pb2.STOP_REASON_TERMINATED
    assert dict(good.metrics) == {"words": 2.0, "good": 1.0}
    assert failed.stop_reason == trajectory_pb2.STOP_REASON_FAILED
    assert (failed.failure.type, failed.failure.message) == ("ValueError", "no such email")
    assert not failed.HasField("environment_reward")
    assert (await model.train(groups)).step == 1


async def test_old_tokens_do_not_train_and_a_repeated_request_is_one_step(
    backend: InProcessBackend,
) -> None:
    model = TrainableModel(name="m", base_model="none")
    await model.register(backend)
    groups = await groups_of(model)
    assert (await model.train(groups, request_id="r")).step == 1
    assert (await model.train(groups, request_id="r")).step == 1
    with pytest.raises(AlreadyExistsError):
        await model.train(groups[:1], request_id="r")
    with pytest.raises(FailedPreconditionError) as stale:
        await model.train(groups)
    assert stale.value.reason == "STALE_BATCH"


async def test_what_cannot_train_says_why(backend: InProcessBackend) -> None:
    model = TrainableModel(name="m", base_model="none")
    with pytest.raises(FailedPreconditionError, match="not registered"):
        _ = model.inference_base_url
    await model.register(backend)
    with pytest.raises(InvalidArgumentError, match="no attempts"):
        await model.train([])
    with pytest.raises(FailedPreconditionError, match=r"model\.rollout") as nothing:
        await model.train([TrajectoryGroup([Trajectory(), Trajectory(reward=1)])])
    assert nothing.value.reason == "NOTHING_CAPTURED"
    groups = await groups_of(model)
    groups[1].trajectories[2].reward = float("inf")
    with pytest.raises(InvalidArgumentError) as infinite:
        await model.train(groups)
    assert infinite.value.violations[0].field == "groups[1].trajectories[2].reward"
    with pytest.raises(NotFoundError):
        await backend.step("nobody")


def test_a_name_is_one_that_can_be_served() -> None:
    for name in ("", "!!", "x" * 64):
        with pytest.raises(InvalidArgumentError, match="name"):
            TrainableModel(name=name)
    spec = spec_pb2.JobSpec(training=spec_pb2.TrainingSpec(steps=7, learning_rate=1e-4))
    model = TrainableModel(name="2048", project="Games", base_model="b", spec=spec)
    assert (model.name, model.get_inference_name(3)) == ("games-2048", "games-2048@3")
    assert (model.spec.training.steps, model.spec.base_model) == (7, "b")
    assert model.spec.HasField("client")
    assert not spec.HasField("client")


async def test_a_model_that_is_not_trained_is_only_called(backend: InProcessBackend) -> None:
    trained = TrainableModel(name="m", base_model="none")
    await trained.register(backend)
    baseline = Model("base", trained.inference_base_url, inference_model_name="m")
    async with baseline.openai_client() as client:
        answer = await client.chat.completions.create(
            model=baseline.get_inference_name(), messages=[{"role": "user", "content": "x"}]
        )
    assert (answer.choices[0].message.content or "").startswith("0: ")


async def test_the_log_keeps_additional_histories(
    backend: InProcessBackend, tmp_path: Path
) -> None:
    model = TrainableModel(name="m", base_model="none", base_path=tmp_path)
    await model.register(backend)
    said = [{"role": "user", "content": "look it up"}]
    history = History(messages_and_choices=said)
    await model.log([Trajectory(additional_histories=[history], reward=1.0)])
    (line,) = (tmp_path / "m" / "trajectories" / "val" / "0000.jsonl").open()
    (logged,) = json.loads(line)["trajectories"]
    assert logged["additional_histories"] == [{"messages": said, "tools": None}]


@pytest.mark.parametrize("value", [math.nan, math.inf])
async def test_the_log_names_what_is_no_number_before_it_writes(
    backend: InProcessBackend, tmp_path: Path, value: float
) -> None:
    model = TrainableModel(name="m", base_model="none", base_path=tmp_path)
    await model.register(backend)
    group = TrajectoryGroup([Trajectory(reward=value), Trajectory(reward=1.0)])
    with pytest.raises(InvalidArgumentError) as caught:
        await model.log([group], metrics={"own": value})
    assert [each.field for each in caught.value.violations] == [
        "val/reward",
        "val/reward_std_dev",
        "val/own",
    ]
    assert not (tmp_path / "m").exists()
    huge = TrajectoryGroup([Trajectory(reward=1.7e308), Trajectory(reward=1.7e308)])
    assert (await model.log([huge]))["val/reward"] == 1.7e308


async def test_a_fork_goes_on_from_a_checkpoint(backend: InProcessBackend) -> None:
    models = Models(backend)
    source = await models.register("source", "none")
    for _ in range(3):
        await source.train(await groups_of(source))
    fork = await models.register("fork", "none", fork="source@2")
    assert await fork.get_step() == 2
    assert (await fork.train(await groups_of(fork))).step == 3
    assert [v.manifest.version for v in await fork.checkpoints()] == [3, 2]
    newest = await models.register("newest", "none", fork="source")
    assert await newest.get_step() == 3
    backend.aliases["source", "best"] = 1
    best = await models.register("best", "none", fork="source@best")
    assert best.spec.fork.version == await best.get_step() == 1
    for missing in ("source@9", "source@worst"):
        with pytest.raises(NotFoundError):
            await models.register("third", "none", fork=missing)
