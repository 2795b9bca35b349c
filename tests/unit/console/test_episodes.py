"""An episode, as its page is told of it."""

from __future__ import annotations

import pytest
from podium.kit.rpc import load_settings
from podium.types.v1 import trajectory_pb2 as pb
from podium_console.domain.episodes import SLICE, TEXT, text_slice, whole
from podium_console.settings import Settings
from support.wild_episode import wild_episode


@pytest.mark.parametrize("root", ["", "b" * 16])
def test_the_page_is_told_whether_anybody_keeps_the_trace(root: str) -> None:
    # Logs have the id of one that nobody keeps.
    told = whole(pb.Trajectory(id="j/s1/g0/t0", trace_id="a" * 32, root_span_id=root))
    assert (told["trace_id"], told["traced"]) == ("a" * 32, bool(root))


TEMPLATE = "https://x/traces/{trace_id}?a&b"


@pytest.mark.parametrize(
    ("template", "trace", "root", "address"),
    [
        (TEMPLATE, "a" * 32, "b" * 16, f"https://x/traces/{'a' * 32}?a&b"),
        (TEMPLATE, "a" * 32, "", ""),
        (TEMPLATE, '../"><script>', "b" * 16, ""),
        ("", "a" * 32, "b" * 16, ""),
    ],
)
def test_a_trace_that_is_kept_is_linked(template: str, trace: str, root: str, address: str) -> None:
    found = pb.Trajectory(id="j/s1/g0/t0", trace_id=trace, root_span_id=root)
    assert whole(found, trace_url=template)["trace_url"] == address


@pytest.mark.parametrize(
    "template",
    ["javascript:alert('{trace_id}')", "https://x/traces", "http://[{trace_id}", "x/{trace_id}"],
)
def test_a_template_that_is_no_page_of_a_trace_stops_the_console_at_its_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], template: str
) -> None:
    monkeypatch.setenv("PODIUM_CONSOLE_TRACE_URL", template)
    with pytest.raises(SystemExit):
        load_settings(Settings)
    told = capsys.readouterr().err
    assert told.startswith(f"PODIUM_CONSOLE_TRACE_URL: got {template!r}: ")
    assert "http or https that hold {trace_id}" in told


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


def test_each_turn_is_told_with_its_reward_and_once() -> None:
    told = whole(wild_episode())
    assert told["turns"] == 2
    assert [(each["index"], each["history"], each.get("turn")) for each in told["messages"]] == [
        (0, 0, None),
        (1, 0, None),
        (2, 0, {"number": 1, "reward": 0.25, "ends": ""}),
        (3, 0, None),
        (8, 1, {"number": 2, "reward": 1.0, "ends": "terminated"}),
    ]
    assert told["messages"][-1]["repeated"] == 4
    # The page asks for the rest of a text by the message's number.
    assert text_slice(wild_episode(), 8, "content", 0)["text"] == "It is the second."
    assert [each["index"] for each in whole(wild_episode(), start=3)["messages"]] == [3, 8]
