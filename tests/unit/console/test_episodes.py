"""An episode, as its page is told of it."""

from __future__ import annotations

import pytest
from podium.types.v1 import trajectory_pb2 as pb
from podium_console.domain.episodes import SLICE, TEXT, text_slice, whole


@pytest.mark.parametrize("root", ["", "b" * 16])
def test_the_page_is_told_whether_anybody_keeps_the_trace(root: str) -> None:
    # Logs have the id of one that nobody keeps.
    told = whole(pb.Trajectory(id="j/s1/g0/t0", trace_id="a" * 32, root_span_id=root))
    assert (told["trace_id"], told["traced"]) == ("a" * 32, bool(root))


def test_thoughts_are_told_apart_from_the_answer_and_come_by_slices() -> None:
    thoughts = "<b>" * SLICE
    found = pb.Trajectory(id="j/s1/g0/t0")
    history = found.histories.add()
    history.messages.add(role=pb.ROLE_USER, content="Well?")
    history.messages.add(role=pb.ROLE_ASSISTANT, content="Yes.", reasoning=thoughts)
    asked, answer = whole(found)["messages"]
    assert asked["reasoning"] == {"text": "", "chars": 0}
    assert answer["reasoning"] == {"text": thoughts[:TEXT], "chars": len(thoughts)}
    assert answer["content"] == {"text": "Yes.", "chars": 4}
    part = text_slice(found, 1, "reasoning", TEXT)
    assert part["text"] == thoughts[TEXT : TEXT + SLICE]
    assert (part["next"], part["chars"]) == (TEXT + SLICE, len(thoughts))
