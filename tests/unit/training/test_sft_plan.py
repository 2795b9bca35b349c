"""Which rows are in which step, and what of them is sent."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.core.sft import HELDOUT
from podium.inference.v1 import inference_service_pb2 as inference_pb
from podium.training.sft import plan as plan_module
from podium.training.sft import render as render_module
from podium.training.sft.files import read_rows
from podium.training.sft.plan import Plan, plan
from podium.training.sft.render import Demonstration, duplicates, rendered
from podium.types.v1 import spec_pb2
from support.demonstrated import WINDOW, demonstrated


async def demonstrate(
    request: inference_pb.RenderDemonstrationRequest,
) -> inference_pb.RenderDemonstrationResponse:
    # The first one is ready last.
    for _ in range(20 if request.messages[0].content == "ask 0" else 0):
        await asyncio.sleep(0)
    return demonstrated(request)


def talk(number: int, answer: str = "") -> dict[str, Any]:
    said = {"role": "assistant", "content": answer or f"answer {number}"}
    return {"messages": [{"role": "user", "content": f"ask {number}"}, said]}


async def demonstrations(
    rows: Sequence[dict[str, Any]], max_tokens: int = 0, **options: Any
) -> list[Demonstration]:
    found = read_rows(rows).rows
    return await rendered(found, demonstrate, spec_pb2.EpisodeSpec(), max_tokens, **options)


async def planned(rows: int, heldout: int = 0, steps: int = 0, **sft: Any) -> Plan:
    spec = spec_pb2.JobSpec(sft=spec_pb2.SftSpec(**sft), seed=7)
    spec.training.steps = steps
    train = await demonstrations([talk(n) for n in range(rows)])
    held = await demonstrations([talk(100 + n) for n in range(heldout)]) if heldout else []
    return plan(spec, train, held)


def names(made: Plan, step: int, split: str = "") -> list[str]:
    return [group.scenario.id for group in made.batch(step) if group.scenario.split == split]


async def test_every_epoch_has_every_row_once_in_an_order_of_its_own() -> None:
    made = await planned(10, epochs=3, batch_size=4)
    assert made.steps == 9
    epochs = [[name for s in range(3) for name in names(made, e * 3 + s + 1)] for e in range(3)]
    assert all(Counter(epoch) == Counter(epochs[0]) for epoch in epochs)
    assert len(set(epochs[0])) == 10
    assert len({tuple(epoch) for epoch in epochs}) == 3
    again = await planned(10, epochs=3, batch_size=4)
    assert [again.batch(step) for step in range(1, 10)] == [made.batch(s) for s in range(1, 10)]


async def test_without_shuffling_rows_come_as_they_stand() -> None:
    made = await planned(5, epochs=2, batch_size=2, shuffle=False)
    assert [names(made, step) for step in (1, 3, 4)] == [
        ["data[0]", "data[1]"],
        ["data[4]"],
        ["data[0]", "data[1]"],
    ]


@pytest.mark.parametrize(("every", "steps"), [(0, [1, 6]), (2, [1, 2, 4, 6]), (4, [1, 4, 6])])
async def test_held_out_rows_are_in_the_first_step_the_last_and_some_between(
    every: int, steps: list[int]
) -> None:
    made = await planned(6, heldout=2, batch_size=1, validate_every_steps=every)
    assert [s for s in range(1, 7) if names(made, s, HELDOUT)] == steps
    assert names(made, 1, HELDOUT) == ["data[0]", "data[1]"]


async def test_the_spec_says_what_is_trained_on() -> None:
    spec = spec_pb2.JobSpec(base_model="m")
    rows = await demonstrations([talk(n) for n in range(9)])
    made = plan(spec, rows, rows[:2])
    assert spec.HasField("client")
    assert (spec.training.steps, spec.sft.rows, spec.sft.heldout_rows) == (2, 9, 2)
    assert spec.sft.data_digest == made.digest
    other = plan(spec_pb2.JobSpec(), [*rows[1:], rows[0]], rows[:2])
    assert other.digest != made.digest
    assert other.request_id(1) != made.request_id(1) != made.request_id(2)


async def test_a_fork_counts_on_and_a_job_may_take_fewer_steps() -> None:
    spec = spec_pb2.JobSpec(fork=spec_pb2.ForkSpec(model="job", version=5))
    rows = await demonstrations([talk(n) for n in range(24)])
    made = plan(spec, rows, rows[:1])
    assert (made.first_step, made.steps, spec.training.steps) == (6, 3, 8)
    assert [names(made, step, HELDOUT) for step in (6, 7, 8)] == [["data[0]"], [], ["data[0]"]]
    fewer = await planned(24, steps=2)
    assert (fewer.steps, fewer.measures(2)) == (2, True)
    with pytest.raises(InvalidArgumentError, match=r"training\.steps: got 4; 24 rows in 1 epochs"):
        await planned(24, steps=4)


async def test_rows_that_the_template_refuses_or_that_are_too_long_are_told_together() -> None:
    rows = [talk(0), talk(1, "refused"), talk(2, "x" * 100), talk(3)]
    with pytest.raises(InvalidArgumentError) as caught:
        await demonstrations(rows, 64)
    assert [str(each) for each in caught.value.violations] == [
        "data[1]: messages[1]: the chat template refuses them: a word",
        "data[2]: has 108 tokens; allowed are 64, the job's training.max_row_tokens",
    ]
    # Unless the job says otherwise, as long as the window of its pool, or 4096.
    assert await demonstrations([talk(0, "x" * 4000)])
    with pytest.raises(InvalidArgumentError, match="allowed are 4096"):
        await demonstrations([talk(0, "x" * (2 * WINDOW + 100))])


async def test_rows_are_left_out_when_asked_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    rows = [talk(0), talk(1, "refused"), talk(2)]
    with caplog.at_level(logging.WARNING):
        found = await demonstrations(rows, skip_bad=True)
    assert [row.where for row in found] == ["data[0]", "data[2]"]
    assert "1 rows are left out: data[1]: messages[1]: the chat template refuses" in caplog.text
    with pytest.raises(InvalidArgumentError, match="refuses"):
        await demonstrations([talk(1, "refused")], skip_bad=True)


async def test_rows_are_let_go_of_as_they_become_tokens() -> None:
    """A million of them, as messages and as tokens, filled a machine."""
    rows = read_rows([talk(n) for n in range(40)]).rows
    left = []

    async def watched(
        request: inference_pb.RenderDemonstrationRequest,
    ) -> inference_pb.RenderDemonstrationResponse:
        left.append(len(rows))
        return demonstrated(request)

    found = await rendered(rows, watched, spec_pb2.EpisodeSpec())
    assert [row.where for row in found] == [f"data[{n}]" for n in range(40)]
    assert all(there < 40 - asked for asked, there in enumerate(left))
    assert len(rows) == 0


async def test_what_is_there_twice_is_counted() -> None:
    assert duplicates(await demonstrations([talk(1), talk(2), talk(1), talk(1)])) == 2


async def test_a_step_that_no_call_takes_is_refused_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan_module, "MAX_BATCH_BYTES", 100)
    with pytest.raises(
        InvalidArgumentError, match=r"sft\.batch_size: the 8 largest rows and the 1"
    ):
        await planned(9, heldout=1)


async def test_of_many_rows_it_is_told_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_module, "_MANY", 20)
    told: list[str] = []
    await demonstrations([talk(n) for n in range(50)], say=told.append)
    assert told == [f"{done} of 50 rows are in tokens" for done in (20, 40)]
