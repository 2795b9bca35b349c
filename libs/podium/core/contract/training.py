"""How a model learns: defaults that depend on other fields, and what contradicts what."""

from __future__ import annotations

from collections.abc import Iterator

from podium.core.contract.defaults import apply_defaults
from podium.core.errors import Violation
from podium.options.v1 import rules_pb2
from podium.types.v1 import spec_pb2

_CLIPS = {
    number: value.GetOptions().Extensions[rules_pb2.clip]
    for number, value in spec_pb2.Objective.DESCRIPTOR.values_by_number.items()
    if value.GetOptions().HasExtension(rules_pb2.clip)
}
"""Of the objectives that clip."""

MAX_UPDATES = 64
"""Of one step: each is told with numbers of its own."""


def complete_training(training: spec_pb2.TrainingSpec) -> spec_pb2.TrainingSpec:
    """Writes every default into `training`, in place, and returns it."""
    apply_defaults(training)
    if training.trainable == spec_pb2.TRAINABLE_KIND_LORA:
        training.lora.SetInParent()
        apply_defaults(training.lora)
    loss = training.loss
    if loss.objective in _CLIPS:
        clip = _CLIPS[loss.objective]
        if not loss.HasField("epsilon"):
            loss.epsilon = clip.epsilon
        if not loss.HasField("epsilon_high"):
            loss.epsilon_high = clip.epsilon_high
    if loss.turn_advantage == spec_pb2.TURN_ADVANTAGE_ADDED and not loss.HasField("turn_weight"):
        loss.turn_weight = 1
    if not loss.HasField("reward_coefficient"):
        loss.reward_coefficient = 0 if loss.teacher_coefficient else 1
    return training


def training_violations(training: spec_pb2.TrainingSpec, path: str) -> list[Violation]:
    """Every contradiction in a completed specification; `path` is where it stands."""
    found = [
        Violation(f"{path}.loss.{field}", description)
        for field, description in _loss(training.loss)
    ]
    if training.trainable == spec_pb2.TRAINABLE_KIND_FULL and training.HasField("lora"):
        found.append(
            Violation(
                f"{path}.lora",
                "got an adapter with TRAINABLE_KIND_FULL; allowed is none, or TRAINABLE_KIND_LORA",
            )
        )
    updates = training.mini_batches * training.epochs
    if updates > MAX_UPDATES:
        found.append(
            Violation(
                f"{path}.epochs",
                f"got {training.epochs} with mini_batches {training.mini_batches}, which are "
                f"{updates} updates a step; allowed are {MAX_UPDATES}",
            )
        )
    return found


def _loss(loss: spec_pb2.LossSpec) -> Iterator[tuple[str, str]]:
    objective = spec_pb2.Objective.Name(loss.objective)
    supervised = loss.objective == spec_pb2.OBJECTIVE_SUPERVISED
    if loss.objective not in _CLIPS:
        nothing = f"with {objective}, which clips nothing; allowed is none"
        if loss.HasField("epsilon"):
            yield "epsilon", f"got {loss.epsilon:g} {nothing}"
        if loss.HasField("epsilon_high"):
            yield "epsilon_high", f"got {loss.epsilon_high:g} {nothing}"
        if loss.old_policy == spec_pb2.OLD_POLICY_TRAINER:
            yield (
                "old_policy",
                f"got OLD_POLICY_TRAINER with {objective}, which has no ratio; allowed is "
                "OLD_POLICY_SAMPLER",
            )
    per_token = loss.ratio_level == spec_pb2.RATIO_LEVEL_TOKEN
    if not per_token and loss.objective != spec_pb2.OBJECTIVE_CISPO:
        yield (
            "ratio_level",
            f"got {spec_pb2.RatioLevel.Name(loss.ratio_level)} with {objective}; allowed with it "
            "is RATIO_LEVEL_TOKEN (for one clipped ratio a trajectory take OBJECTIVE_GSPO)",
        )
    if loss.HasField("importance_cap"):
        if supervised:
            yield "importance_cap", _not_supervised(f"{loss.importance_cap:g}")
        elif loss.objective in _CLIPS and loss.old_policy != spec_pb2.OLD_POLICY_TRAINER:
            yield (
                "importance_cap",
                f"got {loss.importance_cap:g} with a ratio to the sampler, which would count the "
                "sampler's mismatch twice; allowed with old_policy OLD_POLICY_TRAINER, or with "
                "OBJECTIVE_REINFORCE",
            )
    if supervised and loss.HasField("sequence_ratio_min"):
        yield "sequence_ratio_min", _not_supervised(f"{loss.sequence_ratio_min:g}")
    if supervised and loss.HasField("sequence_ratio_max"):
        yield "sequence_ratio_max", _not_supervised(f"{loss.sequence_ratio_max:g}")
    yield from _kl(loss)
    yield from _advantages(loss)
    yield from _turns(loss)
    yield from _teacher(loss)
    yield from _pair(
        "aggregation_tokens",
        loss.HasField("aggregation_tokens"),
        "aggregation AGGREGATION_KIND_CONSTANT",
        loss.aggregation == spec_pb2.AGGREGATION_KIND_CONSTANT,
    )
    yield from _pair(
        "overlong_penalty",
        loss.HasField("overlong_penalty"),
        "overlong OVERLONG_PENALIZE",
        loss.overlong == spec_pb2.OVERLONG_PENALIZE,
    )


def _kl(loss: spec_pb2.LossSpec) -> Iterator[tuple[str, str]]:
    in_advantage = loss.kl_placement == spec_pb2.KL_PLACEMENT_ADVANTAGE
    if in_advantage and loss.objective == spec_pb2.OBJECTIVE_SUPERVISED:
        yield "kl_placement", _not_supervised("KL_PLACEMENT_ADVANTAGE")
    if in_advantage and loss.kl_estimator == spec_pb2.KL_ESTIMATOR_K3_PLUS:
        yield (
            "kl_estimator",
            "got KL_ESTIMATOR_K3_PLUS, which is about the gradient, with KL_PLACEMENT_ADVANTAGE, "
            "which has none; allowed are k1, k2, k3",
        )
    if loss.kl_importance_weighted:
        if in_advantage:
            yield (
                "kl_importance_weighted",
                "got true with KL_PLACEMENT_ADVANTAGE; allowed with KL_PLACEMENT_LOSS",
            )
        if not loss.kl_coefficient:
            yield "kl_importance_weighted", "got true with kl_coefficient 0; allowed is above 0"
        if loss.objective == spec_pb2.OBJECTIVE_SUPERVISED:
            yield "kl_importance_weighted", _not_supervised("true")


def _advantages(loss: spec_pb2.LossSpec) -> Iterator[tuple[str, str]]:
    by_sample = loss.deviation == spec_pb2.DEVIATION_SAMPLE
    if by_sample and loss.advantage == spec_pb2.ADVANTAGE_KIND_NONE:
        yield (
            "deviation",
            "got DEVIATION_SAMPLE with ADVANTAGE_KIND_NONE, which divides by nothing; allowed is "
            "DEVIATION_POPULATION",
        )
    supervised = loss.objective == spec_pb2.OBJECTIVE_SUPERVISED
    if supervised and loss.overlong == spec_pb2.OVERLONG_PENALIZE:
        yield "overlong", _not_supervised("OVERLONG_PENALIZE")


def _teacher(loss: spec_pb2.LossSpec) -> Iterator[tuple[str, str]]:
    if not loss.teacher_coefficient:
        if loss.HasField("reward_coefficient") and loss.reward_coefficient != 1:
            yield (
                "reward_coefficient",
                f"got {loss.reward_coefficient:g} without a teacher, beside which it would count; "
                "allowed is 1 (learning_rate says how far a step goes)",
            )
        return
    if loss.objective == spec_pb2.OBJECTIVE_SUPERVISED:
        yield "teacher_coefficient", _not_supervised(f"{loss.teacher_coefficient:g}")
    if loss.reward_coefficient:
        return
    no_rewards = "with reward_coefficient 0, which reads no rewards; allowed is"
    if loss.turn_advantage != spec_pb2.TURN_ADVANTAGE_NONE:
        name = spec_pb2.TurnAdvantage.Name(loss.turn_advantage)
        yield "turn_advantage", f"got {name} {no_rewards} TURN_ADVANTAGE_NONE"
    if loss.overlong == spec_pb2.OVERLONG_PENALIZE:
        yield "overlong", f"got OVERLONG_PENALIZE {no_rewards} OVERLONG_TRAIN, OVERLONG_MASK"


def _turns(loss: spec_pb2.LossSpec) -> Iterator[tuple[str, str]]:
    name = spec_pb2.TurnAdvantage.Name(loss.turn_advantage)
    if loss.turn_advantage == spec_pb2.TURN_ADVANTAGE_NONE and loss.turn_discount != 1:
        yield (
            "turn_discount",
            f"got {loss.turn_discount:g} with {name}, which has no turns to discount; allowed is 1",
        )
    if loss.HasField("turn_weight") and loss.turn_advantage != spec_pb2.TURN_ADVANTAGE_ADDED:
        yield (
            "turn_weight",
            f"got {loss.turn_weight:g} with {name}; allowed only with TURN_ADVANTAGE_ADDED",
        )
    supervised = loss.objective == spec_pb2.OBJECTIVE_SUPERVISED
    if supervised and loss.turn_advantage != spec_pb2.TURN_ADVANTAGE_NONE:
        yield "turn_advantage", _not_supervised(name)


def _pair(field: str, given: bool, other: str, needed: bool) -> Iterator[tuple[str, str]]:
    if given and not needed:
        yield field, f"got a value; allowed only with {other}"
    if needed and not given:
        yield field, f"got none; needed with {other}"


def _not_supervised(got: str) -> str:
    return f"got {got} with OBJECTIVE_SUPERVISED, which reads no rewards and no ratios"
