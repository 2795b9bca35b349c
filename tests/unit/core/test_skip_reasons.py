"""Reasons why nothing trains are the contract's enum, and are written in one place."""

from __future__ import annotations

import ast

import pytest
from podium.core import skip_reasons
from podium.core.skip_reasons import NO_JUDGE_ANSWERS, WORDS, bounded, reason_of, word_of
from podium.types.v1 import trajectory_pb2
from podium_controller.domain import metrics as controller
from prometheus_client import REGISTRY
from support.sources import written

HOME = "libs/podium/core/skip_reasons.py"
# Whose words these are too: of attempts, of ways to sample, of fields.
MEANS_MORE = {"failed", "greedy", "overlong"}
SPEAKERS = ("services/judge", "services/trainer/podium_trainer/domain")


def test_both_ways() -> None:
    assert word_of(trajectory_pb2.SKIP_REASON_ZERO_VARIANCE) == "zero_variance"
    assert reason_of("zero_variance") == trajectory_pb2.SKIP_REASON_ZERO_VARIANCE
    assert {word_of(found) for word in WORDS if (found := reason_of(word))} == WORDS


@pytest.mark.parametrize("word", ["", "Zero_Variance", "ZERO_VARIANCE", "bad_weather"])
def test_what_is_no_reason(word: str) -> None:
    assert reason_of(word) is None


def test_every_reason_of_the_contract_has_a_constant() -> None:
    named = {name.lower(): value for name, value in vars(skip_reasons).items() if name.isupper()}
    assert {word: named.get(word) for word in WORDS} == {word: word for word in WORDS}
    assert len(WORDS) == len(trajectory_pb2.SkipReason.values()) - 1


def written_out(file: str, text: str) -> list[str]:
    """The literals of a module that are one of the words."""
    found = []
    speaks = file.startswith(SPEAKERS)
    words = WORDS if speaks else WORDS - MEANS_MORE
    words = words | {NO_JUDGE_ANSWERS}
    if not any(word in text for word in words):
        return []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and node.value in words:
            found.append(f"{file}:{node.lineno}: {node.value}")
    return found


def test_no_reason_is_written_out_elsewhere() -> None:
    modules = {file: text for file, text in written("services", "libs").items() if file != HOME}
    assert len(modules) > 300
    assert [found for module in modules.items() for found in written_out(*module)] == []


def test_a_metric_has_the_words_and_no_others() -> None:
    assert {bounded(word) for word in WORDS} == WORDS
    assert bounded("bad weather") == "other"

    def counted(outcome: str) -> float:
        name = "podium_controller_groups_total"
        return REGISTRY.get_sample_value(name, {"outcome": outcome}) or 0.0

    outcomes = ("trained", "stale", "judge_error", "other")
    before = [counted(outcome) for outcome in outcomes]
    for outcome in (controller.TRAINED, controller.STALE, skip_reasons.JUDGE_ERROR, "bad weather"):
        controller.count_group("skips", outcome)
    assert [counted(outcome) for outcome in outcomes] == [value + 1 for value in before]
