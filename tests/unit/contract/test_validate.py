"""Every rule of podium.options.v1, on the contract's own messages."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core.contract import validate
from podium.core.contract.rules import checked_fields
from podium.environment.v1 import environment_service_pb2
from podium.jobs.v1 import job_service_pb2
from podium.registry.v1 import registry_service_pb2
from podium.types.v1 import policy_pb2, spec_pb2, trajectory_pb2
from support.descriptors import class_of, messages, methods


def right_spec() -> spec_pb2.JobSpec:
    """The least that a job needs."""
    return spec_pb2.JobSpec(
        base_model="smollm2",
        environment=spec_pb2.EnvironmentSpec(name="email_search"),
        training=spec_pb2.TrainingSpec(steps=1),
    )


def found(message) -> dict[str, str]:
    return {violation.field: violation.description for violation in validate(message)}


def test_a_right_message_has_no_violation() -> None:
    assert validate(right_spec()) == []


def test_all_violations_come_at_once_with_their_paths() -> None:
    spec = right_spec()
    spec.rollout.sampling.top_p = 1.5
    spec.training.learning_rate = 0
    spec.reward.scorers.add()
    spec.ClearField("base_model")
    request = job_service_pb2.CreateJobRequest(job=job_service_pb2.Job(id="Not A Label", spec=spec))
    assert found(request) == {
        "job.id": 'got "Not A Label"; allowed is what matches [a-z0-9]([-a-z0-9]*[a-z0-9])?',
        "job.spec.base_model": "is required; got an empty value",
        "job.spec.rollout.sampling.top_p": "got 1.5; allowed are numbers above 0, up to 1",
        "job.spec.training.learning_rate": "got 0; allowed are numbers above 0, up to 1",
        "job.spec.reward.scorers[0].kind": "is required; allowed are environment, weighted, ruler,"
        " rubric, http",
    }


@pytest.mark.parametrize(
    ("value", "right"),
    [(0.0, True), (0.5, True), (0.999, True), (1.0, False), (-0.001, False), (math.nan, False)],
)
def test_min_is_inclusive_and_below_is_not(value: float, right: bool) -> None:
    message = spec_pb2.TrainingSpec(steps=1, adam_beta1=value)
    assert (validate(message) == []) is right


@pytest.mark.parametrize(
    ("value", "right"), [(1e-9, True), (1.0, True), (0.0, False), (1.1, False), (math.inf, False)]
)
def test_max_is_inclusive_and_above_is_not(value: float, right: bool) -> None:
    message = spec_pb2.TrainingSpec(steps=1, learning_rate=value)
    assert (validate(message) == []) is right


def test_an_absent_optional_number_is_not_held_to_its_range() -> None:
    assert validate(spec_pb2.RolloutSpec()) == []
    assert found(spec_pb2.RolloutSpec(group_size=0)) == {
        "group_size": "got 0; allowed are numbers from 2 to 1024"
    }


def test_a_number_that_cannot_be_absent_is() -> None:
    assert found(spec_pb2.TrainingSpec()) == {
        "steps": "is required; got 0 or nothing; allowed are numbers from 1 to 1000000"
    }


def test_an_enum_number_nobody_knows_is_refused() -> None:
    loss = spec_pb2.LossSpec()
    loss.MergeFromString(b"\x28\x63")  # advantage = 99, as a newer client could send
    assert found(loss) == {"advantage": "got 99; allowed are std, none, batch"}


def test_lists_have_at_most_so_many_items_and_a_required_one_has_some() -> None:
    assert found(policy_pb2.SamplingParams(stop=["x"] * 17)) == {
        "stop": "got 17 items; allowed are at most 16"
    }
    manifest = registry_service_pb2.Manifest(model="m", kind="VERSION_KIND_ADAPTER")
    assert found(manifest) == {"files": "is required; got none"}


def test_bytes_are_counted_in_bytes_and_text_in_characters() -> None:
    upload = registry_service_pb2.UploadBlobRequest(data=b"x" * (2**20 + 1))
    assert found(upload) == {"data": "got 1048577 bytes; allowed are at most 1048576"}
    assert validate(spec_pb2.EnvironmentSpec(name="é" * 128)) == []
    assert "name" in found(spec_pb2.EnvironmentSpec(name="é" * 129))


@pytest.mark.parametrize("path", ["../etc", "/a", "a//b", "a/../b", "a\n", "a/\x00", ".hidden", ""])
def test_a_pattern_must_match_the_whole_text(path: str) -> None:
    file = registry_service_pb2.File(path=path, digest="sha256:" + "0" * 64)
    assert list(found(file)) == ["path"]


def test_a_oneof_is_checked_where_it_is_set() -> None:
    step = environment_service_pb2.SessionRequest(step=environment_service_pb2.StepRequest())
    assert found(step) == {"step.action": "is required"}
    version = registry_service_pb2.GetVersionRequest(model="m", version=-1)
    assert list(found(version)) == ["version"]
    assert validate(registry_service_pb2.GetVersionRequest(model="m")) == []


def test_long_values_are_cut_in_the_text() -> None:
    (violation,) = validate(policy_pb2.PolicyRef(job="A" * 120))
    assert len(violation.description) < 200


def test_token_ids_are_never_looked_at() -> None:
    assert checked_fields(trajectory_pb2.TokenRecord.DESCRIPTOR) == ()


@given(data=st.data())
def test_any_message_of_any_method_is_validated_without_an_exception(data: st.DataObject) -> None:
    method = data.draw(st.sampled_from(methods()))
    message = data.draw(messages(class_of(method.input_type)))
    for violation in validate(message):
        assert violation.field
        assert violation.description
