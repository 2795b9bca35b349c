"""JSON that is no message: each thing that is wrong is named, and nothing else is raised."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.types.v1 import spec_pb2
from podium_console.domain import json_messages

DEEP = '{"a":' * 300 + "1" + "}" * 300


def wrong(text: str | bytes) -> dict[str, str]:
    body = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(InvalidArgumentError) as caught:
        json_messages.read(body, pb.CreateJobRequest)
    return {v.field: v.description for v in caught.value.violations}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no JSON: Expecting value at line 1, column 1"),
        ("{", "is no JSON"),
        ("{}{}", "Extra data at line 1, column 3"),
        ("[" * 100_000, "nests too deep"),
        ('{"job": {"id": NaN}}', "NaN is no number"),
        ('{"job": {"completedSteps": -Infinity}}', "-Infinity is no number"),
        ('{"job": {"latestMetrics": {"a": 1e999}}}', "1e999 is too large"),
        ('{"a": ' + "9" * 5000 + "}", "4300 digits"),
        ('{"job": {}, "job": {}}', 'the key "job" is there twice'),
        ('{"job": {"id": "\\ud800"}}', "half of a surrogate pair"),
        ('{"\\udfff": 1}', "half of a surrogate pair"),
        (b"{\xff}", "no UTF-8 from byte 1"),
        ("\ufeff{}", "BOM"),
        ("[]", "got a list; allowed is a JSON object"),
        ("null", "got null; allowed is a JSON object"),
        ('"a"', 'got "a"; allowed is a JSON object'),
    ],
)
def test_what_is_no_json_object_is_told_where(text: str | bytes, said: str) -> None:
    (description,) = wrong(text).values()
    assert said in description


@pytest.mark.parametrize(
    ("job", "field", "said"),
    [
        ({"id": 5}, "job.id", "got 5; allowed is text"),
        ({"id": ["x"]}, "job.id", "got a list; allowed is text"),
        ({"spec": "x"}, "job.spec", 'got "x"; allowed is an object'),
        ({"completedSteps": 1.5}, "job.completed_steps", "got 1.5; allowed is a whole number"),
        ({"completedSteps": True}, "job.completed_steps", "got true; allowed is a whole number"),
        ({"completedSteps": str(2**63)}, "job.completed_steps", "of 64 bits"),
        ({"episodesRunning": 2**31}, "job.episodes_running", "of 32 bits"),
        ({"remainingSeconds": "soon"}, "job.remaining_seconds", "allowed is a number"),
        ({"remainingSeconds": 10**400}, "job.remaining_seconds", "allowed is a number"),
        ({"state": "running"}, "job.state", "allowed are JOB_STATE_QUEUED"),
        ({"createTime": 5}, "job.create_time", 'a time such as "2026-01-31T12:00:00Z"'),
        ({"latestMetrics": []}, "job.latest_metrics", "got a list; allowed is an object"),
        ({"latestMetrics": {"a": "x"}}, 'job.latest_metrics["a"]', "allowed is a number"),
        ({"spec": {"environments": {}}}, "job.spec.environments", "allowed is a list"),
        ({"spec": {"environments": [0]}}, "job.spec.environments[0]", "allowed is an object"),
        (
            {"spec": {"environment": {"config": [1]}}},
            "job.spec.environment.config",
            "allowed is an object",
        ),
        (
            {"spec": {"environment": {"config": json.loads(DEEP)}}},
            "job.spec.environment.config",
            "at most 100 levels",
        ),
        ({"completed_steps": 1, "completedSteps": "x"}, "job.completed_steps", "of 64 bits"),
        ({"[podium.x]": 1}, "job.[podium.x]", "unknown field"),
        ({"x" * 100_000: 1}, "job." + "x" * 78, "unknown field"),
    ],
)
def test_a_field_that_is_wrong_is_named(job: dict[str, Any], field: str, said: str) -> None:
    found = wrong(json.dumps({"job": job}))
    assert [said in description for name, description in found.items() if name == field] == [True]


def test_everything_that_is_wrong_is_told_at_once_up_to_a_bound() -> None:
    environments = [{"nmae": str(n)} for n in range(500)]
    found = wrong(json.dumps({"job": {"spec": {"environments": environments}}}))
    assert list(found)[:2] == [f"job.spec.environments[{n}].nmae" for n in range(2)]
    assert len(found) == 50


def test_a_message_of_a_million_values_is_not_looked_through() -> None:
    metrics = {str(n): n for n in range(30_000)}
    found = wrong(json.dumps({"job": {"latestMetrics": metrics, "nothing": 1}}))
    assert len(found) == 1
    assert "nothing" in found[""]


NAMES = st.text() | st.sampled_from(
    ["job", "id", "spec", "environment", "environments", "config", "training", "steps", "loss"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, VALUES))
def test_no_json_raises_anything_else(found: dict[str, Any]) -> None:
    text = json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")
    with contextlib.suppress(InvalidArgumentError):
        message = json_messages.read(text, pb.CreateJobRequest)
        again = json_messages.read(json_messages.write(message), pb.CreateJobRequest)
        assert again == message


def test_both_ways_of_names_and_numbers_are_taken() -> None:
    spec = {"base_model": "m", "training": {"steps": 3}, "recoveryTimeoutSeconds": 4}
    job = json_messages.read(json.dumps(spec).encode(), spec_pb2.JobSpec)
    assert (job.base_model, job.training.steps, job.recovery_timeout_seconds) == ("m", 3, 4)
    assert json_format.Parse(json_messages.write(job), spec_pb2.JobSpec()) == job
    assert b"\n" not in json_messages.write(job)


def test_what_json_cannot_say_is_refused() -> None:
    job = pb.Job()
    job.create_time.seconds = 2**60
    with pytest.raises(FailedPreconditionError):
        json_messages.write(job)
