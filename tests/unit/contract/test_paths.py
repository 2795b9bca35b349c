"""`--set a.b=c`, and the list of what can be set."""

from __future__ import annotations

import pytest
from podium.core.contract import describe_fields, parse_yaml, set_path
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import job_service_pb2
from podium.types.v1 import spec_pb2


def changed(path: str, text: str, spec: spec_pb2.JobSpec | None = None) -> spec_pb2.JobSpec:
    spec = spec or spec_pb2.JobSpec()
    set_path(spec, path, text)
    return spec


def test_scalars_and_the_messages_on_the_way() -> None:
    assert changed("training.loss.epsilon", "1e-1").training.loss.epsilon == 0.1
    assert changed("training.dtype", "float32").training.dtype == spec_pb2.COMPUTE_DTYPE_FLOAT32
    assert changed("environment.name", "007").environment.name == "007"
    assert changed("base_model", "null").base_model == "null"
    assert changed("evaluation.greedy", "true").evaluation.greedy is True


def test_items_of_a_list() -> None:
    spec = changed("reward.scorers[0].kind", "ruler")
    changed("reward.scorers[1].kind", "environment", spec)
    changed("reward.scorers[0].weight", "2", spec)
    assert [scorer.kind for scorer in spec.reward.scorers] == [3, 1]
    assert spec.reward.scorers[0].weight == 2
    changed("rollout.sampling.stop[0]", "END", spec)
    assert list(spec.rollout.sampling.stop) == ["END"]


def test_whole_lists_and_messages_are_replaced() -> None:
    spec = changed("rollout.sampling.stop", "[a, b]")
    changed("rollout.sampling.stop", "[c]", spec)
    assert list(spec.rollout.sampling.stop) == ["c"]
    changed("training.lora", "{rank: 4}", spec)
    changed("training.lora", "{alpha: 8}", spec)
    assert not spec.training.lora.HasField("rank")


def test_free_form_mappings_and_maps() -> None:
    spec = changed("environment.config.inbox.size", "24")
    changed("environment.config.names", "[a, 1]", spec)
    changed("environment.config.blank", "", spec)
    assert spec.environment.config["inbox"]["size"] == 24
    assert list(spec.environment.config["names"]) == ["a", 1]
    assert spec.environment.config["blank"] == ""
    step = job_service_pb2.Step()
    set_path(step, "metrics.loss", "0.5")
    assert step.metrics["loss"] == 0.5


@pytest.mark.parametrize(
    ("path", "text", "complaint"),
    [
        ("training.los.epsilon", "1", "there is no field 'los'; did you mean 'loss'?"),
        ("zzz", "1", "there is no field 'zzz'; allowed are base_model, environment,"),
        ("training.steps", "x", 'got "x"; allowed are whole numbers'),
        ("training.steps", "0", "got 0; allowed are numbers from 1 to 1000000"),
        ("training.steps.x", "1", "steps has no fields"),
        ("training", "3", "got the number 3; allowed is a mapping of the fields steps,"),
        ("training", "{steps: x}", 'got "x"; allowed are whole numbers'),
        ("training..steps", "1", "allowed are paths such as"),
        ("training[0].steps", "1", "there is no field '0'"),
        ("reward.scorers[3].kind", "ruler", "scorers is a list of 0; allowed is [0] to [0]"),
        ("reward.scorers.kind", "ruler", "scorers is a list of 0"),
        ("reward.scorers[0]", "ruler", "an item of scorers has fields; name one of them"),
        ("reward.scorers[0].kind", "rular", "did you mean 'ruler'?"),
        ("rollout.sampling.stop", "[a", "no valid YAML"),
        ("environment.config.a", "[", "no valid YAML"),
    ],
)
def test_what_is_wrong_is_said_and_changes_nothing(path: str, text: str, complaint: str) -> None:
    spec = spec_pb2.JobSpec(training=spec_pb2.TrainingSpec(steps=7))
    before = spec.SerializeToString(deterministic=True)
    with pytest.raises(InvalidArgumentError) as caught:
        set_path(spec, path, text)
    assert complaint in caught.value.message
    assert caught.value.violations[0].field.startswith("training" if "{" in text else path)
    assert spec.SerializeToString(deterministic=True) == before


def test_every_field_is_described_once_and_can_be_written() -> None:
    rows = describe_fields(spec_pb2.JobSpec)
    by_path = {row.path: row for row in rows}
    assert len(by_path) == len(rows)
    assert by_path["training.loss.epsilon"] == (
        "training.loss.epsilon",
        "number",
        False,
        "",
        "above 0, up to 1",
    )
    assert by_path["training.steps"].required
    assert by_path["reward.scorers[].kind"].allowed == "environment, weighted, ruler, rubric, http"
    assert by_path["training.dtype"].default == "bfloat16"
    for row in rows:
        if row.default and "[]" not in row.path:
            set_path(spec_pb2.JobSpec(), row.path, row.default)


def test_a_message_that_holds_itself_is_described_to_an_end() -> None:
    assert describe_fields(job_service_pb2.ListTrajectoriesResponse)
    assert parse_yaml("{}", job_service_pb2.ListTrajectoriesResponse).violations == []
