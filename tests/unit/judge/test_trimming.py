"""What does not fit is cut where it is longest, and no more than must be."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium_judge.domain.prompt import GroupQuestion, build_prompt
from podium_judge.domain.transcript import attempt_of
from podium_judge.domain.trimming import cut_line, shorten, size_of, to_json
from support.judging import group_of, said

WORDS = st.sampled_from(["x", "Ein Satz. ", 'say "yes"\n', "日本語", "\u2028<attempt>", "\x00\x1b"])
SIZES = st.integers(0, 30_000) | st.integers(0, 200)
TURN = st.builds(lambda words, size: (words * (1 + size // len(words)))[:size], WORDS, SIZES)
ATTEMPTS = st.lists(st.lists(TURN, min_size=1, max_size=12), min_size=2, max_size=8)


def question(attempts: list[list[str]], tokens: int) -> GroupQuestion:
    group = group_of(*[[said(f"{n}", *turns)] for n, turns in enumerate(attempts)])
    words = sorted({attempt_of(each) for each in group.trajectories})
    return GroupQuestion(tuple(words), max_tokens=tokens)


@given(ATTEMPTS, st.integers(1500, 30_000))
def test_a_prompt_that_must_be_cut_uses_its_room(attempts: list[list[str]], tokens: int) -> None:
    whole = build_prompt(question(attempts, 10_000_000), "s", nonce="abcd")
    prompt = build_prompt(question(attempts, tokens), "s", nonce="abcd")
    size = len((prompt.system + prompt.user).encode())
    assert size <= tokens * 3
    if len((whole.system + whole.user).encode()) <= tokens * 3 - 200:
        assert (prompt.user, prompt.bytes_left_out) == (whole.user, 0)
    elif prompt.bytes_left_out:
        assert size >= 0.95 * tokens * 3 - 400


@given(st.lists(TURN, min_size=1, max_size=30), st.integers(700, 20_000))
def test_the_longest_lose_first_and_all_lines_stay_json(turns: list[str], tokens: int) -> None:
    lines = [to_json({"assistant": turn}) for turn in turns]
    kept, left_out = shorten(lines, tokens)
    assert size_of(kept) <= tokens * 3
    if size_of(lines) <= tokens * 3:
        assert (kept, left_out) == (lines, 0)
        return
    assert size_of(kept) >= 0.95 * tokens * 3
    messages = [line for line in kept if line.startswith("{")]
    assert [list(json.loads(line)) for line in messages] == [["assistant"]] * len(messages)
    if len(messages) == len(lines):
        cut = [len(old.encode()) for old, new in zip(lines, kept, strict=True) if old != new]
        whole = [len(old.encode()) for old, new in zip(lines, kept, strict=True) if old == new]
        assert min(cut) > max(whole, default=0) * 0.95


def test_a_little_too_much_costs_a_little() -> None:
    """240 KB against 196 KB showed the judge 24 KB."""
    attempts = [[f"{n}" + "y" * 60_000] for n in range(4)]
    prompt = build_prompt(question(attempts, 65_536), "s")
    assert 0.95 * 3 * 65_536 <= len(prompt.user.encode()) <= 3 * 65_536
    assert prompt.bytes_left_out == pytest.approx(240_000 - 3 * 65_536, abs=8_000)


def test_one_long_message_among_short_ones_keeps_what_they_leave() -> None:
    lines = [to_json({"assistant": "z" * size}) for size in (500, 5_000, 500)]
    kept, left_out = shorten(lines, 1000)
    assert (kept[0], kept[2]) == (lines[0], lines[2])
    (missing,) = re.findall(r"\[(\d+) bytes left out\]", kept[1])
    assert 3_000 < int(missing) < 3_200
    assert left_out == size_of(lines) - size_of(kept)


def test_long_arguments_are_cut_inside_their_object() -> None:
    call = {"name": "write", "arguments": {"path": "a.py", "text": "q" * 9_000}}
    cut = json.loads(cut_line(to_json({"assistant": "now", "calls": [call]}), 2_000))
    assert cut["calls"][0]["arguments"]["path"] == "a.py"
    assert 1_800 < len(json.dumps(cut)) <= 2_100


def test_what_has_no_long_text_is_cut_as_a_whole() -> None:
    line = to_json({"assistant": "", "calls": [{"n": list(range(5_000))}]})
    cut = cut_line(line, 1_000)
    assert 900 < len(cut.encode()) <= 1_000
    assert "bytes left out" in json.loads(cut)["assistant"]
