"""Defaults of the contract."""

from __future__ import annotations

import re

from podium.cli.contract_docs import comments
from podium.core.contract import apply_defaults, validate
from podium.core.contract.rules import rules_of
from podium.core.contract.scalars import from_text
from podium.core.contract.training import complete_training
from podium.jobs.v1 import job_service_pb2
from podium.options.v1 import rules_pb2
from podium.registry.v1 import registry_service_pb2
from podium.types.v1 import spec_pb2
from support.descriptors import class_of, methods


def test_absent_fields_and_the_messages_around_them_are_made() -> None:
    spec = spec_pb2.JobSpec(training=spec_pb2.TrainingSpec(steps=3))
    assert apply_defaults(spec) is spec
    assert spec.rollout.sampling.max_tokens == 128
    assert spec.training.loss.kl_estimator == spec_pb2.KL_ESTIMATOR_K3
    assert spec.training.learning_rate == 1e-5
    assert spec.retention.keep_last == 3
    assert spec.HasField("seed")
    assert spec.seed == 0


def test_what_is_set_stays() -> None:
    spec = spec_pb2.JobSpec(rollout=spec_pb2.RolloutSpec(group_size=4, max_staleness=0))
    spec.rollout.sampling.temperature = 0
    apply_defaults(spec)
    assert spec.rollout.group_size == 4
    assert spec.rollout.sampling.temperature == 0


def test_unspecified_means_the_default() -> None:
    loss = spec_pb2.LossSpec(advantage=spec_pb2.ADVANTAGE_KIND_UNSPECIFIED)
    assert apply_defaults(loss).advantage == spec_pb2.ADVANTAGE_KIND_STD


def test_a_message_whose_absence_says_something_is_not_made() -> None:
    spec = apply_defaults(spec_pb2.JobSpec())
    assert not spec.HasField("evaluation")
    assert not spec.HasField("environment"), "made, it would hide that it is missing"
    assert not spec.HasField("training")
    assert not apply_defaults(job_service_pb2.CreateJobRequest()).HasField("job")


def test_a_message_that_is_there_is_filled_in_whatever_its_name() -> None:
    spec = spec_pb2.JobSpec(evaluation=spec_pb2.EvaluationSpec())
    weighted = spec.reward.scorers.add(kind="SCORER_KIND_WEIGHTED").weighted
    weighted.SetInParent()
    apply_defaults(spec)
    assert spec.evaluation.split == "heldout"
    assert spec.reward.scorers[0].weight == 1
    assert weighted.accuracy == 0.4
    assert not spec.reward.scorers[0].HasField("ruler")


def test_skip_is_the_callers_choice() -> None:
    assert apply_defaults(spec_pb2.JobSpec(), skip=frozenset()).HasField("evaluation")


def test_a_choice_of_a_oneof_is_never_made() -> None:
    request = apply_defaults(registry_service_pb2.GetVersionRequest())
    assert request.WhichOneof("selector") is None


def test_every_default_of_the_contract_is_right_by_its_own_rules() -> None:
    seen = set()
    for descriptor in _reachable():
        message = class_of(descriptor)()
        for field in descriptor.fields:
            rules = rules_of(field)
            if rules is not None and rules.default_value:
                setattr(message, field.name, from_text(field, rules.default_value))
                seen.add(field.name)
                wrong = [v for v in validate(message) if v.field == field.name]
                assert wrong == [], field.full_name
                assert field.has_presence, f"{field.full_name} could never be absent"
    assert {"alpha", "group_size", "best_metric", "greedy"} <= seen


def test_a_fields_comment_tells_its_default() -> None:
    told = 0
    for descriptor in _reachable():
        words = comments(descriptor.file.name).get(descriptor.name, {})
        for field in descriptor.fields:
            rules = rules_of(field)
            if rules is not None and rules.default_value:
                text = " ".join(words[field.name].split()).replace("`", "")
                assert re.search(rf"Default {re.escape(rules.default_value)}(?![\w])", text), (
                    field.full_name
                )
                told += 1
    assert told > 50


def test_the_clips_are_told_where_they_are_left_out() -> None:
    words = comments("podium/types/v1/spec.proto")["LossSpec"]
    for number, value in spec_pb2.Objective.DESCRIPTOR.values_by_number.items():
        loss = complete_training(spec_pb2.TrainingSpec(loss={"objective": number})).loss
        if value.GetOptions().HasExtension(rules_pb2.clip):
            assert f"{loss.epsilon:.4f}".rstrip("0").rstrip(".") in words["epsilon"]
            assert f"{loss.epsilon_high:.4f}".rstrip("0").rstrip(".") in words["epsilon_high"]
        elif number:
            assert not loss.HasField("epsilon")


def test_filling_in_twice_changes_nothing() -> None:
    once = apply_defaults(spec_pb2.JobSpec())
    twice = spec_pb2.JobSpec()
    twice.CopyFrom(once)
    assert apply_defaults(twice) == once


def _reachable():
    todo = [method.input_type for method in methods()]
    found = {}
    while todo:
        descriptor = todo.pop()
        if descriptor.full_name in found or descriptor.GetOptions().map_entry:
            continue
        found[descriptor.full_name] = descriptor
        todo.extend(f.message_type for f in descriptor.fields if f.message_type is not None)
    return [found[name] for name in sorted(found)]
