"""Defaults of the training specification that hang together, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from podium.core.contract import complete_training, training_violations
from podium.types.v1 import spec_pb2


def completed(loss: dict[str, Any] | None = None, **training: Any) -> spec_pb2.TrainingSpec:
    return complete_training(spec_pb2.TrainingSpec(steps=3, loss=loss or {}, **training))


@pytest.mark.parametrize(
    ("objective", "clip"),
    [("CLIPPED", (0.2, 0.28)), ("CISPO", (1.0, 4.0)), ("GSPO", (3e-4, 4e-4))],
)
def test_each_objective_has_its_own_clip(objective: str, clip: tuple[float, float]) -> None:
    loss = completed({"objective": f"OBJECTIVE_{objective}"}).loss
    assert (loss.epsilon, loss.epsilon_high) == clip
    kept = completed({"objective": f"OBJECTIVE_{objective}", "epsilon": 0.125}).loss
    assert kept.epsilon == 0.125


def test_turns_have_a_weight_only_where_they_are_added() -> None:
    assert not completed().loss.HasField("turn_weight")
    assert completed({"turn_advantage": "TURN_ADVANTAGE_ADDED"}).loss.turn_weight == 1


def test_rewards_count_only_where_no_teacher_does_unless_they_are_asked_for() -> None:
    assert completed().loss.reward_coefficient == 1
    taught = completed({"teacher_coefficient": 0.5}).loss
    assert taught.HasField("reward_coefficient")
    assert taught.reward_coefficient == 0
    both = completed({"teacher_coefficient": 1, "reward_coefficient": 0.25})
    assert both.loss.reward_coefficient == 0.25
    assert training_violations(both, "training") == []


def test_completing_twice_changes_nothing() -> None:
    once = completed({"objective": "OBJECTIVE_CISPO"})
    twice = spec_pb2.TrainingSpec()
    twice.CopyFrom(once)
    assert complete_training(twice) == once
    assert training_violations(twice, "training") == []


def test_full_fine_tuning_has_no_adapter() -> None:
    full = completed(trainable="TRAINABLE_KIND_FULL")
    assert not full.HasField("lora")
    assert completed().lora.rank == 16


SUPERVISED = {"objective": "OBJECTIVE_SUPERVISED"}
REINFORCE = {"objective": "OBJECTIVE_REINFORCE"}
TAUGHT = {"teacher_coefficient": 0.5}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({**SUPERVISED, **TAUGHT}, "teacher_coefficient"),
    ({"reward_coefficient": 0.5}, "reward_coefficient"),
    ({"reward_coefficient": 0}, "reward_coefficient"),
    ({**TAUGHT, "turn_advantage": "TURN_ADVANTAGE_ADDED"}, "turn_advantage"),
    ({**TAUGHT, "overlong": "OVERLONG_PENALIZE", "overlong_penalty": 1}, "overlong"),
    ({**REINFORCE, "epsilon": 0.2}, "epsilon"),
    ({**SUPERVISED, "epsilon_high": 0.2}, "epsilon_high"),
    ({**REINFORCE, "old_policy": "OLD_POLICY_TRAINER"}, "old_policy"),
    ({"ratio_level": "RATIO_LEVEL_SEQUENCE"}, "ratio_level"),
    ({"objective": "OBJECTIVE_GSPO", "ratio_level": "RATIO_LEVEL_AVERAGE"}, "ratio_level"),
    ({"importance_cap": 2.0}, "importance_cap"),
    ({"objective": "OBJECTIVE_CISPO", "importance_cap": 2.0}, "importance_cap"),
    ({**SUPERVISED, "importance_cap": 2.0}, "importance_cap"),
    ({**SUPERVISED, "sequence_ratio_max": 2.0}, "sequence_ratio_max"),
    ({**SUPERVISED, "sequence_ratio_min": 0.5}, "sequence_ratio_min"),
    ({**SUPERVISED, "kl_placement": "KL_PLACEMENT_ADVANTAGE"}, "kl_placement"),
    (
        {"kl_placement": "KL_PLACEMENT_ADVANTAGE", "kl_estimator": "KL_ESTIMATOR_K3_PLUS"},
        "kl_estimator",
    ),
    (
        {
            "kl_placement": "KL_PLACEMENT_ADVANTAGE",
            "kl_importance_weighted": True,
            "kl_coefficient": 1,
        },
        "kl_importance_weighted",
    ),
    ({"kl_importance_weighted": True}, "kl_importance_weighted"),
    (
        {**SUPERVISED, "kl_importance_weighted": True, "kl_coefficient": 1},
        "kl_importance_weighted",
    ),
    ({"advantage": "ADVANTAGE_KIND_NONE", "deviation": "DEVIATION_SAMPLE"}, "deviation"),
    ({"aggregation": "AGGREGATION_KIND_CONSTANT"}, "aggregation_tokens"),
    ({"aggregation_tokens": 100}, "aggregation_tokens"),
    ({"overlong": "OVERLONG_PENALIZE"}, "overlong_penalty"),
    ({"overlong_penalty": 1.0}, "overlong_penalty"),
    ({**SUPERVISED, "overlong": "OVERLONG_PENALIZE", "overlong_penalty": 1.0}, "overlong"),
    ({"turn_discount": 0.9}, "turn_discount"),
    ({"turn_weight": 1.0}, "turn_weight"),
    ({"turn_advantage": "TURN_ADVANTAGE_RETURN_TO_GO", "turn_weight": 1.0}, "turn_weight"),
    ({**SUPERVISED, "turn_advantage": "TURN_ADVANTAGE_RETURN_TO_GO"}, "turn_advantage"),
]


@pytest.mark.parametrize(("loss", "field"), REFUSED)
def test_a_contradiction_is_refused_by_name(loss: dict[str, Any], field: str) -> None:
    (violation,) = training_violations(completed(loss), "job.spec.training")
    assert violation.field == f"job.spec.training.loss.{field}"
    assert (
        "allowed" in violation.description
        or "needed" in violation.description
        or ("reads no rewards" in violation.description)
    )


def test_an_adapter_of_full_fine_tuning_is_refused() -> None:
    training = completed(trainable="TRAINABLE_KIND_FULL", lora={"rank": 4})
    (violation,) = training_violations(training, "training")
    assert violation.field == "training.lora"


def test_a_step_is_one_update_unless_it_is_asked_for_more() -> None:
    assert (completed().mini_batches, completed().epochs) == (1, 1)
    assert training_violations(completed(mini_batches=16, epochs=4), "training") == []


def test_more_updates_than_a_step_can_tell_of_are_refused() -> None:
    (violation,) = training_violations(completed(mini_batches=16, epochs=5), "training")
    assert violation.field == "training.epochs"
    assert violation.description == (
        "got 5 with mini_batches 16, which are 80 updates a step; allowed are 64"
    )


ALLOWED: list[dict[str, Any]] = [
    {},
    {"old_policy": "OLD_POLICY_TRAINER", "importance_cap": 2.0},
    {**REINFORCE, "importance_cap": 2.0},
    {"objective": "OBJECTIVE_CISPO", "ratio_level": "RATIO_LEVEL_GEOMETRIC_AVERAGE"},
    {"kl_coefficient": 0.1, "kl_importance_weighted": True},
    {"aggregation": "AGGREGATION_KIND_CONSTANT", "aggregation_tokens": 100},
    {"sequence_ratio_min": 0.5, "sequence_ratio_max": 2.0},
    {**SUPERVISED, "kl_coefficient": 0.1},
]


@pytest.mark.parametrize("loss", ALLOWED)
def test_what_fits_together_is_allowed(loss: dict[str, Any]) -> None:
    assert training_violations(completed(loss), "training") == []
