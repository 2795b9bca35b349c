"""What is captured is kept within bounds, whole or not at all, and said when it is gone."""

from __future__ import annotations

import pytest
from podium.core.errors import DataLossError, NotFoundError
from podium.inference.v1 import inference_service_pb2 as pb
from podium_inference.domain.captures import Captures


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def call(number: int, tokens: int = 3) -> pb.CapturedCall:
    return pb.CapturedCall(
        prompt_token_ids=range(tokens - 1), generation=pb.Generation(token_ids=[number])
    )


def kept(captures: Captures, key: str) -> list[int]:
    calls = [pb.CapturedCall.FromString(each) for each in captures.take(key)]
    return [call.generation.token_ids[0] for call in calls]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def captures(clock: Clock) -> Captures:
    return Captures(max_calls=4, max_tokens=100, max_seconds=600, clock=clock)


def test_t21_calls_of_a_key_come_in_order_and_again_when_asked_again(captures: Captures) -> None:
    for key, number in (("a", 1), ("b", 2), ("a", 3)):
        captures.add(key, call(number))
    assert kept(captures, "a") == [1, 3]
    assert kept(captures, "a") == [1, 3]
    assert kept(captures, "b") == [2]


def test_an_unknown_key_is_said(captures: Captures) -> None:
    with pytest.raises(NotFoundError) as caught:
        captures.take("a")
    assert caught.value.reason == "NOTHING_CAPTURED"


def test_too_many_calls_drop_the_key_longest_unused_whole(captures: Captures) -> None:
    for key, number in (("old", 1), ("new", 2), ("old", 3), ("new", 4), ("third", 5)):
        captures.add(key, call(number))
    with pytest.raises(DataLossError, match="2 calls") as caught:
        captures.take("old")
    assert caught.value.reason == "CAPTURE_DROPPED"
    assert kept(captures, "new") == [2, 4]
    # What comes later under the key is only the rest of a rollout.
    captures.add("old", call(6))
    with pytest.raises(DataLossError, match="3 calls"):
        captures.take("old")
    assert kept(captures, "third") == [5]


def test_too_many_tokens_drop_too(captures: Captures) -> None:
    captures.add("a", call(1, tokens=60))
    captures.add("b", call(2, tokens=60))
    with pytest.raises(DataLossError):
        captures.take("a")
    assert kept(captures, "b") == [2]


def test_what_was_taken_makes_room_first(captures: Captures) -> None:
    for number, key in enumerate(("a", "b", "b", "b")):
        captures.add(key, call(number))
    assert kept(captures, "b") == [1, 2, 3]
    captures.add("c", call(4))
    assert kept(captures, "a") == [0]
    with pytest.raises(NotFoundError):
        captures.take("b")


def test_what_is_not_taken_in_time_is_dropped(captures: Captures, clock: Clock) -> None:
    captures.add("a", call(1))
    clock.now += 599
    captures.add("b", call(2))
    clock.now += 2
    with pytest.raises(DataLossError):
        captures.take("a")
    assert kept(captures, "b") == [2]


def test_what_was_taken_goes_soon_after(captures: Captures, clock: Clock) -> None:
    captures.add("a", call(1))
    assert kept(captures, "a") == [1]
    clock.now += 61
    with pytest.raises(NotFoundError):
        captures.take("a")
