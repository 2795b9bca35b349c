"""`train_sft` of a model, and ART's helpers beside it, against a backend in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from podium import (
    TrainableModel,
    TrainConfig,
    TrainSFTConfig,
    Trajectory,
    TrajectoryGroup,
    create_lr_schedule,
    create_sft_dataset_iterator,
    gather_trajectory_groups,
    iterate_file,
    train_sft_from_file,
)
from podium.core.errors import InvalidArgumentError
from podium.training.in_process import InProcessBackend


@pytest.fixture
def backend() -> Iterator[InProcessBackend]:
    with InProcessBackend(lambda messages, step: "yes") as running:
        yield running


async def registered(backend: InProcessBackend, **spec: Any) -> TrainableModel:
    model = TrainableModel("m", base_model="none", spec=spec)
    await model.register(backend)
    return model


def row(number: int, *more: dict[str, Any]) -> dict[str, Any]:
    asked = {"role": "user", "content": f"ask {number}"}
    return {"messages": [asked, {"role": "assistant", "content": f"answer {number}"}, *more]}


def file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "train.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    return path


def taught(backend: InProcessBackend) -> list[list[str]]:
    """By step, what the spans of its rows say."""
    return [
        [
            bytes(history.tokens.token_ids[span.start : span.start + span.length - 1]).decode()
            for group in batch
            for attempt in group.trajectories
            for history in attempt.histories
            for span in history.tokens.spans
        ]
        for batch in backend.batches["m"]
    ]


def rates(backend: InProcessBackend) -> list[float]:
    """By step."""
    return [batch[0].batch_training.learning_rate for batch in backend.batches["m"]]


async def test_a_model_is_shown_rows_samples_and_is_shown_more(backend: InProcessBackend) -> None:
    model = await registered(backend)
    attempt = Trajectory(messages_and_choices=row(0)["messages"])
    config = TrainSFTConfig(learning_rate=[1e-3, 5e-4], batch_size=2)
    assert (await model.train_sft([attempt, row(1), row(2)], config)).step == 2

    async def rollout() -> Trajectory:
        async with model.openai_client() as client:
            said = [{"role": "user", "content": "?"}]
            await client.chat.completions.create(model="m", messages=said)  # type: ignore[arg-type]
        return Trajectory(reward=1)

    groups = await gather_trajectory_groups([TrajectoryGroup([rollout(), rollout()])])
    assert (await model.train(groups, TrainConfig(learning_rate=1e-5))).step == 3
    assert (await model.train_sft([row(3)])).step == 4
    shown, sampled = ["answer 0", "answer 1"], ["yes", "yes"]
    assert taught(backend) == [shown, ["answer 2"], sampled, ["answer 3"]]
    told = [batch[0].batch_training.supervised for batch in backend.batches["m"]]
    assert told == [True, True, False, True]
    # Without a rate it is ART's: the job's own is one for reinforcement learning.
    assert rates(backend) == [1e-3, 5e-4, 1e-5, 5e-5]


async def test_a_job_of_rows_keeps_its_own_schedule(backend: InProcessBackend) -> None:
    model = await registered(backend, sft={"batch_size": 3})
    await model.train_sft([row(n) for n in range(4)])
    assert [len(batch) for batch in backend.batches["m"]] == [3, 1]
    assert not any(b[0].batch_training.HasField("learning_rate") for b in backend.batches["m"])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (TrainSFTConfig(batch_size=0), "config.batch_size: got 0; allowed are 'auto'"),
        (TrainSFTConfig(batch_size="two"), "config.batch_size: got 'two'"),  # type: ignore[arg-type]
        (TrainSFTConfig([1e-4], 2), r"got 1 rates; 3 rows make 2 batches, which need one each"),
        (TrainSFTConfig([1e-4, 0], 2), r"config.learning_rate\[1\]: got 0; allowed are numbers"),
        (TrainSFTConfig("1e-4"), "config.learning_rate: got '1e-4'"),  # type: ignore[arg-type]
        (TrainSFTConfig(assistant_turns="first"), "got 'first'; allowed are 'all' and 'last'"),  # type: ignore[arg-type]
    ],
)
async def test_a_wrong_config_is_told_before_anything_trains(
    backend: InProcessBackend, config: TrainSFTConfig, said: str
) -> None:
    model = await registered(backend)
    with pytest.raises(InvalidArgumentError, match=said):
        await model.train_sft([row(n) for n in range(3)], config)
    assert backend.batches["m"] == []


async def test_of_each_row_the_last_answer_alone_may_train(
    backend: InProcessBackend, tmp_path: Path
) -> None:
    model = await registered(backend)
    twice = row(0, {"role": "user", "content": "And?"}, {"role": "assistant", "content": "More."})
    await model.train_sft([twice], TrainSFTConfig(assistant_turns="last"))
    await model.train_sft([twice])
    await train_sft_from_file(model, file(tmp_path, twice), assistant_turns="last")
    assert taught(backend) == [["More."], ["answer 0", "More."], ["More."]]


async def test_a_file_trains_in_epochs_by_one_schedule_and_goes_on_where_it_stopped(
    backend: InProcessBackend, tmp_path: Path
) -> None:
    path = file(tmp_path, *(row(n) for n in range(5)))
    model = await registered(backend)
    await train_sft_from_file(model, path, epochs=2, warmup_ratio=0.4)
    whole, told = taught(backend), rates(backend)
    assert told == pytest.approx(create_lr_schedule(5, 2e-4, warmup_steps=2))
    said = [each for batch in whole for each in batch]
    assert sorted(said[:5]) == sorted(said[5:]) == [f"answer {n}" for n in range(5)]
    assert said[:5] != said[5:]
    cut = TrainableModel("m", project="cut", base_model="none")
    await cut.register(backend)
    await train_sft_from_file(cut, path, epochs=2, warmup_ratio=0.4, final_step=2)
    await train_sft_from_file(cut, path, epochs=2, warmup_ratio=0.4, initial_step=2)
    assert backend.batches["cut-m"] == backend.batches["m"]
    # Names of rows are those of the file, in whatever order they train.
    names = {group.scenario.id for batch in backend.batches["m"] for group in batch}
    assert names == {f"train.jsonl:{n}" for n in range(1, 6)}
    with pytest.raises(InvalidArgumentError, match="initial_step: got 5; of the file's 5 steps"):
        await train_sft_from_file(cut, path, epochs=2, initial_step=5)


async def test_chunks_of_a_data_set_are_calls_with_one_schedule_among_them(
    backend: InProcessBackend,
) -> None:
    model = await registered(backend)
    attempts = [Trajectory(messages_and_choices=row(n)["messages"]) for n in range(5)]
    options: dict[str, Any] = {"chunk_size": 2, "epochs": 2, "schedule_type": "cosine"}
    chunks = list(create_sft_dataset_iterator(attempts, **options))
    assert [(c.step, c.epoch, c.epoch_step) for c in chunks] == [
        (0, 0, 0),
        (2, 0, 2),
        (3, 1, 0),
        (5, 1, 2),
    ]
    for chunk in chunks:
        await model.train_sft(chunk.trajectories, chunk.config)
    assert rates(backend) == pytest.approx(create_lr_schedule(6, 2e-4, "cosine"))
    (middle, last) = create_sft_dataset_iterator(attempts, **options, initial_step=4)
    assert (middle.step, middle.trajectories) == (4, chunks[2].trajectories[2:])
    assert last == chunks[3]
    plain = create_sft_dataset_iterator(attempts, epochs=1, shuffle=False)
    assert [each for chunk in plain for each in chunk.trajectories] == attempts
    assert list(create_sft_dataset_iterator([])) == []
    with pytest.raises(InvalidArgumentError, match="chunk_size: got 0; allowed are whole numbers"):
        create_sft_dataset_iterator(attempts, chunk_size=0)
    with pytest.raises(InvalidArgumentError, match="schedule_type: got 'step'; allowed are cosine"):
        create_sft_dataset_iterator(attempts, schedule_type="step")  # type: ignore[arg-type]


def test_a_schedule_warms_up_falls_and_never_is_nothing() -> None:
    assert create_lr_schedule(4, 1.0, warmup_steps=2) == [0.5, 1.0, 1.0, 0.5]
    assert create_lr_schedule(3, 1.0, "constant") == [1.0] * 3
    assert create_lr_schedule(2, 1.0, "cosine", min_lr=0.5) == pytest.approx([1.0, 0.75])
    assert create_lr_schedule(1, 1.0) == [1.0]
    assert create_lr_schedule(0, 1.0) == []
    for method in ("cosine", "linear"):
        assert min(create_lr_schedule(100, 1e-4, method)) > 0  # type: ignore[arg-type]


def test_rows_of_a_file_are_attempts_of_which_the_same_trains(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "Wait.", "weight": 0},
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "c1", "content": "a lamp"},
        {"role": "assistant", "content": "A lamp."},
    ]
    path = file(tmp_path, {"messages": messages, "tools": [tool]}, row(1), row(2))
    first, second, _ = iterate_file(path, shuffle=False)
    weights = [message.get("weight") for message in first.messages_and_choices]
    assert weights == [None, 0, None, None, None]
    assert first.messages_and_choices[2]["tool_calls"][0]["function"] == call["function"]
    assert first.messages_and_choices[2]["reasoning_content"] == "Hm."
    assert first.tools is not None
    assert first.tools[0]["function"]["name"] == "look"
    assert second.messages() == row(1)["messages"]
    rest = [each.metadata["scenario_id"] for each in iterate_file(path, 2, initial_skip=3)]
    assert sorted(map(str, rest)) == ["train.jsonl:1", "train.jsonl:2", "train.jsonl:3"]
    path.write_text('{"messages": []}\n')
    with pytest.raises(InvalidArgumentError, match=r"train\.jsonl:1: messages: got an empty list"):
        iterate_file(path)
