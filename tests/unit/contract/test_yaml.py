"""Job files: what they may say, and how every mistake is named."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from podium.core.contract import apply_defaults, parse_yaml, to_yaml
from podium.core.contract.nodes import MAX_BYTES
from podium.core.contract.text import enum_names
from podium.jobs.v1 import job_service_pb2
from podium.registry.v1 import registry_service_pb2
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.descriptors import messages, texts

RIGHT = """\
base_model: smollm2-135m-instruct
environment:
  name: email_search
  config: {inbox_size: 24, weights: [1, 2.5, null, yes]}
training:
  steps: 20
"""


def complaints(text: str, kind=spec_pb2.JobSpec) -> list[str]:
    return [str(violation) for violation in parse_yaml(text, kind).violations]


def test_a_right_file() -> None:
    message, violations = parse_yaml(RIGHT, spec_pb2.JobSpec)
    assert violations == []
    assert message.training.steps == 20
    assert message.environment.config["inbox_size"] == 24
    assert list(message.environment.config["weights"]) == [1, 2.5, None, "yes"]


def test_everything_that_is_wrong_is_said_at_once_with_line_path_and_nearest_name() -> None:
    text = """\
base_model: m
environment:
  nmae: email_search
rollout:
  group_size: 1
  sampling: {temperature: hot, top_p: 2}
reward:
  scorers:
    - {kind: environmnt}
    - kind: ruler
      ruler: model
training:
  steps: 10.5
  loss:
    epsilom: 0.1
  warmup_steps: 3000000000
  weight_decay: true
  weight_decay: 0
  lora: [1]
evaluaton: {}
retention:
  keep_last: "3"
"""
    assert complaints(text) == [
        "line 2: environment.name: is required; got an empty value",
        "line 3: environment.nmae: unknown field; did you mean 'name'?",
        "line 5: rollout.group_size: got 1; allowed are numbers from 2 to 1024",
        'line 6: rollout.sampling.temperature: got "hot"; allowed are numbers',
        "line 6: rollout.sampling.top_p: got 2; allowed are numbers above 0, up to 1",
        'line 9: reward.scorers[0].kind: got "environmnt"; allowed are environment, weighted,'
        " ruler, rubric, http; did you mean 'environment'?",
        'line 11: reward.scorers[1].ruler: got "model"; allowed is a mapping of the fields'
        " base_url, model, rubric, api_key_env, judges, fallbacks, quorum, combination,"
        " max_prompt_tokens, max_job_tokens, max_job_cost, both_orders",
        "line 13: training.steps: got the number 10.5; allowed are whole numbers",
        "line 15: training.loss.epsilom: unknown field; did you mean 'epsilon'?",
        "line 16: training.warmup_steps: got the number 3000000000; allowed are whole numbers"
        " from -2147483648 to 2147483647",
        "line 17: training.weight_decay: got true; allowed are numbers",
        "line 18: training.weight_decay: is there twice; it was on line 17 first",
        "line 19: training.lora: got a list; allowed is a mapping of the fields rank, alpha,"
        " target_modules",
        "line 20: evaluaton: unknown field; did you mean 'evaluation'?",
        'line 22: retention.keep_last: got "3"; allowed are whole numbers',
    ]


def test_an_unknown_key_with_no_near_name_lists_the_names() -> None:
    (complaint,) = complaints(RIGHT + "retention: {zzz: 1}\n")
    assert complaint == (
        "line 7: retention.zzz: unknown field; allowed are keep_last, keep_best, state_interval"
    )


@pytest.mark.parametrize(
    ("text", "value"), [("1e-5", 1e-5), ("1", 1.0), (".5", 0.5), ("0x1", 1.0), ("1.", 1.0)]
)
def test_numbers_of_a_float_field(text: str, value: float) -> None:
    message, violations = parse_yaml(f"learning_rate: {text}\nsteps: 1", spec_pb2.TrainingSpec)
    assert violations == []
    assert message.learning_rate == value


@pytest.mark.parametrize(
    ("text", "steps"), [("100", 100), ("1e3", 1000), ("0o17", 15), ("0x10", 16), ("010", 10)]
)
def test_numbers_of_an_integer_field(text: str, steps: int) -> None:
    assert parse_yaml(f"steps: {text}", spec_pb2.TrainingSpec) == (
        spec_pb2.TrainingSpec(steps=steps),
        [],
    )


@pytest.mark.parametrize("text", ["true", "1.5", '"1"', "[1]", "{a: 1}", "1_000", "1:30", ".inf"])
def test_what_is_no_integer(text: str) -> None:
    (complaint,) = complaints(f"steps: {text}", spec_pb2.TrainingSpec)
    assert complaint.startswith("line 1: steps: got ")
    assert complaint.endswith("; allowed are whole numbers")


@pytest.mark.parametrize("text", ["yes", "no", "on", "1", '"true"'])
def test_only_true_and_false_are_booleans(text: str) -> None:
    (complaint,) = complaints(f"greedy: {text}", spec_pb2.EvaluationSpec)
    assert complaint.endswith("; allowed are true and false")


@pytest.mark.parametrize("text", ["no", "null-ish", "1:30", "2026-01-01", "'1'", '"true"', "off"])
def test_words_of_yaml_1_1_are_text(text: str) -> None:
    message, violations = parse_yaml(f"split: {text}", spec_pb2.EvaluationSpec)
    assert violations == []
    assert message.split == text.strip("'\"")


def test_a_number_is_no_text_and_the_text_says_how_to_write_it() -> None:
    (complaint,) = complaints("split: 007", spec_pb2.EvaluationSpec)
    assert complaint.endswith('allowed is text; in quotes it would be: "7"')


@pytest.mark.parametrize("text", ["std", "STD", "ADVANTAGE_KIND_STD"])
def test_enum_values_short_and_in_full(text: str) -> None:
    message, violations = parse_yaml(f"advantage: {text}", spec_pb2.LossSpec)
    assert violations == []
    assert message.advantage == spec_pb2.ADVANTAGE_KIND_STD


@pytest.mark.parametrize("text", ["1", "true", "[std]", "sdt"])
def test_what_is_no_enum_value(text: str) -> None:
    (complaint,) = complaints(f"advantage: {text}", spec_pb2.LossSpec)
    assert "allowed are std, none" in complaint


def test_a_float32_field_refuses_what_it_cannot_hold() -> None:
    (complaint,) = complaints("{temperature: 1e39}", trajectory_pb2.SampledSpan)
    assert "allowed are numbers of single precision" in complaint


def test_a_key_without_a_value_is_absent() -> None:
    message, violations = parse_yaml(RIGHT + "seed:\nretention: ~\n", spec_pb2.JobSpec)
    assert violations == []
    assert not message.HasField("seed")
    assert not message.HasField("retention")


def test_anchors_are_fine() -> None:
    text = "- &a {role: user, content: hi}\n- *a\n"
    message, violations = parse_yaml(
        "messages:\n" + "".join(f"  {line}\n" for line in text.splitlines()),
        trajectory_pb2.History,
    )
    assert violations == []
    assert message.messages[0] == message.messages[1]


def test_maps_and_times() -> None:
    text = "metrics: {a/b: 1, c: -.5}\nstart_time: 2026-01-31T12:00:00Z\nnumber: 3\n"
    message, violations = parse_yaml(text, job_service_pb2.Step)
    assert violations == []
    assert dict(message.metrics) == {"a/b": 1.0, "c": -0.5}
    assert message.start_time.ToJsonString() == "2026-01-31T12:00:00Z"
    assert complaints("metrics: {a: x}\nstart_time: noon", job_service_pb2.Step) == [
        'line 1: metrics["a"]: got "x"; allowed are numbers',
        'line 2: start_time: got "noon"; allowed is a time such as 2026-01-31T12:00:00Z',
    ]


def test_only_one_of_a_oneof() -> None:
    (complaint,) = complaints(
        "model: m\nversion: 1\nalias: best", registry_service_pb2.GetVersionRequest
    )
    assert complaint == "line 3: alias: only one of selector may be set; version is"


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("[1]", "got a list; allowed is a mapping"),
        ("{a: .nan}", "got the number nan; allowed are finite numbers"),
        ("{1: a}", "got the number 1 as a key on line 1; allowed is text"),
        ("{a: 1, a: 2}", 'the key "a" is there twice, on line 1 again'),
        (
            "{a: 9007199254740993}",
            "got the number 9007199254740993; allowed are whole",
        ),
        ("{a: !!python/name:os.system x}", "got the tag"),
        ("{a: !x {}}", "got the tag"),
    ],
)
def test_free_form_mappings_hold_json_values(config: str, complaint: str) -> None:
    (found,) = complaints(f"{{name: e, config: {config}}}", spec_pb2.EnvironmentSpec)
    assert found.startswith(f"line 1: config: {complaint}")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- a", "line 1: got a list; allowed is a mapping of the fields base_model,"),
        ("hello", 'line 1: got "hello"; allowed is a mapping'),
        ("a: b\n---\nc: d\n", "line 2: got a second document (`---`); allowed is one"),
        ("a: [1", "line 1: no valid YAML: while parsing a flow sequence"),
        ("\n\na: *x", "line 3: no valid YAML: found undefined alias"),
        ("a: \x01", "line 1: no valid YAML: "),
        ("[" * 100_000, "line 1: nested deeper than 64 levels"),
        ("a: x" * 400_000, f"got 1600000 bytes; allowed are at most {MAX_BYTES}"),
        ("a: [" + "1," * 150_000 + "]", "line 1: got more than 100000 values"),
        ("!!python/object:os.system {a: 1}", "line 1: got the tag"),
        ("\ud800", "line 1: no valid YAML"),
        ("{[a]: b}", "line 1: got a list as a key; allowed is a name"),
    ],
)
def test_what_is_no_file_at_all(text: str, complaint: str) -> None:
    assert complaints(text)[0].startswith(complaint)


def _bomb(indent: str) -> str:
    lines = [f"{indent}a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{indent}a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines)


def test_a_billion_laughs_are_refused_before_they_are_expanded() -> None:
    text = "environment:\n  config:\n" + _bomb("    ")
    assert complaints(text) == ["aliases make it more than 100000 values"]


def test_a_value_inside_itself_is_refused() -> None:
    text = "environment:\n  config: &a {x: *a}\n"
    assert complaints(text) == ["aliases make it nest deeper than 64 levels"]
    assert complaints("messages: &a [{tool_calls: *a}]", trajectory_pb2.History)


def test_written_out_it_looks_as_people_write_it() -> None:
    spec = parse_yaml(RIGHT, spec_pb2.JobSpec).message
    spec.environment.config.Clear()
    spec.training.learning_rate = 2e-4
    spec.training.loss.advantage = spec_pb2.ADVANTAGE_KIND_NONE
    spec.training.adam_beta1 = 1e-9
    spec.rollout.sampling.temperature = 0.7
    spec.reward.scorers.add(kind="SCORER_KIND_RULER").ruler.rubric = "Be kind.\nBe brief.\n"
    assert (
        to_yaml(spec)
        == """\
base_model: smollm2-135m-instruct
environment:
  name: email_search
  config: {}
rollout:
  sampling:
    temperature: 0.7
reward:
  scorers:
    - kind: ruler
      ruler:
        rubric: |
          Be kind.
          Be brief.
training:
  steps: 20
  learning_rate: 0.0002
  adam_beta1: 1e-9
  loss:
    advantage: none
"""
    )


def test_a_plain_yaml_reader_reads_what_we_write() -> None:
    spec = apply_defaults(parse_yaml(RIGHT, spec_pb2.JobSpec).message)
    plain = yaml.safe_load(to_yaml(spec))
    assert plain["training"]["loss"]["kl_estimator"] == "k3"
    assert plain["environment"]["config"]["weights"] == [1, 2.5, None, "yes"]


@pytest.mark.parametrize("kind", [spec_pb2.JobSpec, job_service_pb2.Job, trajectory_pb2.Trajectory])
@given(data=st.data())
def test_what_is_written_is_read_back(kind, data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    text = to_yaml(message)
    back, violations = parse_yaml(text, kind)
    assert back == message, text
    # Random values break rules, but none is of a wrong type or unknown.
    assert not [v for v in violations if "unknown field" in v.description]


@given(text=st.one_of(st.text(max_size=200), st.lists(texts(), max_size=12).map("\n".join)))
def test_no_text_raises(text: str) -> None:
    for violation in parse_yaml(text, spec_pb2.JobSpec).violations:
        assert violation.description


@given(data=st.data())
def test_a_damaged_file_never_raises_and_says_where(data: st.DataObject) -> None:
    spec = apply_defaults(parse_yaml(RIGHT, spec_pb2.JobSpec).message)
    lines = to_yaml(spec).splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = data.draw(st.sampled_from(["  bogus: 1", "x", "- y", "\t", "", lines[at] + " z"]))
    for violation in parse_yaml("\n".join(lines), spec_pb2.JobSpec).violations:
        assert 0 <= violation.line <= len(lines) + 1


def test_short_enum_names_are_unique_and_not_yaml_words() -> None:
    for enum in spec_pb2.DESCRIPTOR.enum_types_by_name.values():
        names = enum_names(enum)
        assert len(set(names)) == len(enum.values) - 1
        assert all(yaml.safe_load(name) == name for name in names)
