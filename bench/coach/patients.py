"""The jobs: what makes each sick, and what the coach is to call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from podium.core import findings
from podium.types.v1 import spec_pb2

MODEL = "smollm2-135m-instruct"
GROUPS, ATTEMPTS = 4, 6


@dataclass(frozen=True)
class Patient:
    """A job, and the finding that is right; empty for a healthy one."""

    name: str
    cause: str
    right: str
    spec: spec_pb2.JobSpec


def patients(judge: Callable[[str], str]) -> list[Patient]:
    """Ten sick and three healthy jobs.

    Args:
        judge: the base URL of a judge of a given mind.
    """

    def by_judge(mind: str) -> dict[str, Any]:
        one = {"baseUrl": judge(mind), "model": mind}
        return {"scorers": [{"kind": "SCORER_KIND_RULER", "ruler": {"judges": [one]}}]}

    return [
        Patient(
            "no-variance",
            "a task that no reply solves",
            findings.NO_VARIANCE,
            _job(5, config={"sickness": "locked"}),
        ),
        Patient(
            "cut",
            "a sentence is asked for, max_tokens is 6",
            findings.ANSWERS_CUT,
            _job(5, config={"sickness": "sentence"}, sampling={"maxTokens": 6}),
        ),
        Patient(
            "unfinished",
            "no attempt writes the action that ends it",
            findings.EPISODES_UNFINISHED,
            _job(5, config={"sickness": "finish"}, turns=3, sampling={"maxTokens": 16}),
        ),
        Patient(
            "failing",
            "the environment raises in 7 of 10 attempts",
            findings.EPISODES_FAILING,
            _job(5, config={"sickness": "raises"}),
        ),
        Patient(
            "rate",
            "a learning rate a hundred times too high, with a KL",
            findings.LEARNING_RATE_TOO_HIGH,
            _job(6, training={"learningRate": 2e-2, "loss": {"klCoefficient": 0.01}}),
        ),
        Patient(
            "collapse",
            "rewards by how easy a scenario is, and a trifle for its first word",
            findings.ENTROPY_COLLAPSE,
            _job(24, config={"sickness": "lure"}, training={"learningRate": 5e-4}),
        ),
        Patient(
            "stale",
            "36 groups at once, eight versions old when they train, and a high learning rate",
            findings.STALENESS_TOO_LARGE,
            _job(
                16,
                training={"learningRate": 1e-3},
                rollout={"maxStaleness": 8, "maxConcurrentGroups": 36},
            ),
        ),
        Patient(
            "one-score",
            "a judge that gives every attempt 0.5",
            findings.JUDGE_ONE_SCORE,
            _job(5, reward=by_judge("same")),
        ),
        Patient(
            "falls",
            "the environment pays a tenth from the 9th step on",
            findings.REWARD_FALLING,
            _job(
                15,
                config={
                    "sickness": "breaks",
                    "run": "falls",
                    "breaks_after": 8 * GROUPS * ATTEMPTS,
                },
            ),
        ),
        Patient(
            "silent-judge",
            "a judge whose answer can be read for one group in four",
            findings.GROUPS_SKIPPED,
            _job(5, reward=by_judge("silent")),
        ),
        Patient("learns", "nothing: the task of `podium init`", "", _job(12)),
        Patient("judged", "nothing: a fair judge alone", "", _job(8, reward=by_judge("fair"))),
        Patient(
            "game",
            "nothing: a game of three turns for points, a version behind",
            "",
            _job(
                8,
                config={"sickness": "points"},
                turns=3,
                rollout={"maxStaleness": 1},
            ),
        ),
    ]


def _job(
    steps: int,
    *,
    config: Mapping[str, Any] | None = None,
    turns: int = 1,
    sampling: Mapping[str, Any] | None = None,
    rollout: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
    reward: Mapping[str, Any] | None = None,
) -> spec_pb2.JobSpec:
    """The job of `podium init`, smaller, with what is changed in it."""
    found = {
        "baseModel": MODEL,
        "environment": {"name": "words", "config": dict(config or {})},
        "rollout": {
            "groupSize": ATTEMPTS,
            "groupsPerStep": GROUPS,
            "sampling": {"temperature": 1.0, "maxTokens": 8, **(sampling or {})},
            "episode": {"maxTurns": turns},
            **(rollout or {}),
        },
        "training": {
            "steps": steps,
            "learningRate": 2e-4,
            "lora": {"rank": 16},
            **(training or {}),
        },
        "reward": dict(reward or {}),
    }
    return json_format.ParseDict(found, spec_pb2.JobSpec())
