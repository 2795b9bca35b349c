"""Job files: the template, the schema, and --set."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from podium.cli.contract_docs import comments, json_schema, template
from podium.cli.exits import CliError
from podium.cli.job.overrides import apply
from podium.cli.job.schema import _START
from podium.cli.job.submit import describe, load
from podium.core.contract import apply_defaults, describe_fields, parse_yaml
from podium.types.v1 import spec_pb2

EXAMPLE = Path(__file__).parents[3] / "examples" / "email_search.yaml"
FILE = """\
base_model: smollm2-135m-instruct
environment:
  name: email_search
training:
  steps: 20
rollout:
  sampling: {temperature: 0.7}
"""


def read(text: str, *settings: str) -> tuple[spec_pb2.JobSpec, list[str]]:
    spec, violations = parse_yaml(text, spec_pb2.JobSpec)
    problems = apply(spec, violations, settings)
    return spec, [describe("job.yaml", problem) for problem in problems]


def test_template_is_a_valid_job() -> None:
    spec, problems = read(template(spec_pb2.JobSpec, _START))
    assert problems == []
    assert spec.environment.name == "email_search"
    assert spec.training.learning_rate == 2e-4


def test_template_with_every_comment_taken_away_is_valid_and_says_the_defaults() -> None:
    text = template(spec_pb2.JobSpec, _START)
    assert "\n#rollout:\n" in text
    active = "\n".join(
        line if re.match(r" *# [^ ]", line) else line.replace("#", "", 1)
        for line in text.splitlines()
    )
    spec, problems = read(active)
    assert problems == []
    minimal, _ = read(template(spec_pb2.JobSpec, _START))
    apply_defaults(minimal)
    assert spec.rollout.group_size == minimal.rollout.group_size
    assert spec.training.loss.kl_estimator == spec_pb2.KL_ESTIMATOR_K3
    assert spec.retention.keep_last == 3


def test_template_has_every_key() -> None:
    text = template(spec_pb2.JobSpec, _START)
    for row in describe_fields(spec_pb2.JobSpec):
        if "[]" not in row.path and "{}" not in row.path:
            assert re.search(rf"^[ #]*{row.path.rsplit('.', 1)[-1]}:", text, re.MULTILINE), row.path


def test_every_key_is_explained() -> None:
    words = comments("podium/types/v1/spec.proto")
    for message in spec_pb2.DESCRIPTOR.message_types_by_name.values():
        for field in message.fields:
            assert words[message.name][field.name], f"{message.name}.{field.name}"


def test_json_schema_is_json_and_knows_the_rules() -> None:
    schema = json.loads(json.dumps(json_schema(spec_pb2.JobSpec)))
    assert schema["required"] == ["base_model", "training"]
    training = schema["properties"]["training"]["properties"]
    assert training["learning_rate"]["exclusiveMinimum"] == 0
    assert training["dtype"]["enum"] == ["bfloat16", "float32"]
    assert schema["properties"]["reward"]["properties"]["scorers"]["type"] == "array"
    episode = schema["properties"]["rollout"]["properties"]["episode"]["properties"]
    assert episode["players"]["additionalProperties"] == {"type": "string"}
    player = episode["model_players"]["additionalProperties"]
    assert player["required"] == ["base_url", "model"]


def test_every_mistake_is_told_at_once_with_its_line() -> None:
    text = FILE.replace("steps: 20", "stepz: 20\n  learning_rat: 1e-4\n  warmup_steps: many")
    _, problems = read(text)
    assert any(re.match(r"job\.yaml:5: training\.stepz: unknown.*steps", p) for p in problems)
    assert any(
        re.match(r"job\.yaml:6: training\.learning_rat: .*learning_rate", p) for p in problems
    )
    assert any(p.startswith("job.yaml:7: training.warmup_steps: ") for p in problems)
    assert [p for p in problems if ": training.steps: " in p], "what is missing is told too"


def test_set_overrides_every_kind_of_value() -> None:
    spec, problems = read(
        FILE,
        "training.steps=3",
        "training.learning_rate=2e-4",
        "training.loss.kl_estimator=k2",
        "evaluation.greedy=true",
        "rollout.sampling.stop=[a, b]",
        "environment.config.emails=24",
        "training.lora.rank = 4",
    )
    assert problems == []
    assert spec.training.steps == 3
    assert spec.training.learning_rate == 2e-4
    assert spec.training.loss.kl_estimator == spec_pb2.KL_ESTIMATOR_K2
    assert spec.evaluation.greedy
    assert list(spec.rollout.sampling.stop) == ["a", "b"]
    assert spec.environment.config["emails"] == 24
    assert spec.training.lora.rank == 4
    assert spec.rollout.sampling.temperature == pytest.approx(0.7), "what was not set stays"


def test_set_supplies_what_the_file_leaves_open() -> None:
    _, problems = read(FILE.replace("steps: 20", "learning_rate: 1e-4"), "training.steps=3")
    assert problems == []


def test_set_puts_right_what_the_file_has_wrong() -> None:
    bad = FILE.replace("steps: 20", "steps: many")
    assert read(bad)[1] != []
    assert read(bad, "training.steps=3")[1] == []


def test_set_is_held_to_the_contract() -> None:
    _, problems = read(FILE, "training.steps=0", "training.lerning_rate=1", "seed=x")
    assert len(problems) == 3
    assert any("training.steps" in p and "--set" in p for p in problems)
    assert any("learning_rate" in p for p in problems)


@pytest.mark.parametrize("setting", ["training.steps", "=3", ""])
def test_malformed_set(setting: str) -> None:
    with pytest.raises(CliError, match="KEY=VALUE"):
        read(FILE, setting)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("training.loss.objective=grpo", "did you mean 'clipped'?"),
        ("training.lr=1e-5", "did you mean 'learning_rate'?"),
    ],
)
def test_names_of_other_trainers_lead_to_ours(setting: str, told: str) -> None:
    with pytest.raises(CliError) as raised:
        load(str(EXAMPLE), [setting])
    assert told in raised.value.message


def test_steps_that_are_not_given_are_required() -> None:
    _, problems = read(FILE.replace("  steps: 20\n", "  seed: 1\n"))
    assert any("training.steps: is required" in problem for problem in problems), problems


def test_what_is_no_yaml_is_told_alone(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("base_model: x\ntraining: [1\n")
    with pytest.raises(CliError) as raised:
        load(str(file), ["training.steps=3"])
    head, *problems = raised.value.message.splitlines()
    assert "(1 problem)" in head
    assert len(problems) == 1
    assert "no valid YAML" in problems[0]
