"""Typed specs: the contract's fields, held to it by the reader of job files."""

from __future__ import annotations

import copy
import enum
import importlib.util
import inspect
import pickle
from pathlib import Path, PurePosixPath
from typing import Any

import podium
import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.core.contract import parse_yaml, to_plain
from podium.core.contract.describe import describe_fields
from podium.core.errors import InvalidArgumentError
from podium.core.specs import generated
from podium.core.specs.base import Spec
from podium.core.specs.reading import read_values
from podium.types.v1 import spec_pb2

ROOT = Path(__file__).parents[3]

SPEC = podium.JobSpec(
    base_model="tiny",
    environment=podium.EnvironmentSpec(name="email_search", config={"inbox": [1, None, "no"]}),
    training=podium.TrainingSpec(
        steps=20,
        learning_rate=2e-4,
        lora=podium.LoraSpec(rank=16, target_modules=["q_proj"]),
        loss=podium.LossSpec(objective="cispo"),
    ),
    rollout=podium.RolloutSpec(episode=podium.EpisodeSpec(players={"opponent": "base"})),
    environments=[podium.WeightedEnvironment(environment=podium.EnvironmentSpec(name="x"))],
    seed=0,
)
TEXT = """
base_model: tiny
environment: {name: email_search, config: {inbox: [1, null, "no"]}}
training:
  steps: 20
  learning_rate: 2e-4
  lora: {rank: 16, target_modules: [q_proj]}
  loss: {objective: cispo}
rollout: {episode: {players: {opponent: base}}}
environments: [{environment: {name: x}}]
seed: 0
"""


class Word(enum.StrEnum):
    CISPO = "cispo"


def refused(call: Any) -> InvalidArgumentError:
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    return caught.value


def paths(error: InvalidArgumentError) -> list[str]:
    return [violation.field for violation in error.violations]


def test_what_is_generated_is_what_proto_gives() -> None:
    found = importlib.util.spec_from_file_location("specs", ROOT / "tools/specs.py")
    assert found is not None
    assert found.loader is not None
    tool = importlib.util.module_from_spec(found)
    found.loader.exec_module(tool)
    assert tool.source() == tool.TARGET.read_text(), "run: make proto"


def test_all_of_them_are_podiums_own() -> None:
    assert set(generated.__all__) <= set(podium.__all__)
    for name in podium.__all__:
        assert getattr(podium, name).__name__ == name
    assert set(podium.__all__) <= set(dir(podium))


def test_each_field_is_typed_and_told_to_completion() -> None:
    assert len(generated.__all__) > 20
    for name in generated.__all__:
        kind = getattr(generated, name)
        wanted = [field.name for field in kind.message_class.DESCRIPTOR.fields]
        assert list(kind.__annotations__) == wanted, name
        assert list(inspect.signature(kind).parameters) == wanted, name
        assert not set(wanted) & set(dir(Spec)), name
        words = inspect.getdoc(kind)
        assert [field for field in wanted if f"\n    {field}: " not in words] == [], name


def test_typed_spec_dict_file_and_message_are_one(tmp_path: Path) -> None:
    message, violations = parse_yaml(TEXT, spec_pb2.JobSpec)
    assert not violations
    assert SPEC.to_proto() == message
    file = tmp_path / "job.yaml"
    file.write_text(TEXT)
    for made in (
        podium.JobSpec.from_yaml(file),
        podium.JobSpec.from_yaml(str(file)),
        podium.JobSpec.from_dict(SPEC.to_dict()),
        podium.JobSpec.from_proto(message),
        podium.JobSpec(**SPEC.to_dict()),
        pickle.loads(pickle.dumps(SPEC)),
        copy.deepcopy(SPEC),
    ):
        assert made == SPEC
        assert made.to_proto() == message
        assert isinstance(made.training, podium.TrainingSpec)
        assert isinstance(made.environments[0], podium.WeightedEnvironment)
    assert podium.JobSpec(training=message.training).training == SPEC.training


def test_what_is_shown_makes_it_again() -> None:
    assert eval(repr(SPEC), vars(podium) | vars(generated)) == SPEC
    assert repr(podium.LoraSpec(rank=4)) == "LoraSpec(rank=4)"


def test_a_field_that_is_none_is_not_set() -> None:
    spec = podium.TrainingSpec(steps=3, learning_rate=None)
    assert spec.learning_rate is None
    assert spec.to_dict() == {"steps": 3}
    spec.steps = None
    assert spec == podium.TrainingSpec()
    assert podium.JobSpec(client=podium.ClientSpec()).to_dict() == {"client": {}}


@pytest.mark.parametrize(
    ("call", "path", "text"),
    [
        (lambda: podium.TrainingSpec(lr=1e-4), "lr", "did you mean 'learning_rate'?"),
        (lambda: podium.LossSpec(objective="grpo"), "objective", "did you mean 'clipped'?"),
        (lambda: podium.LossSpec(objective=1), "objective", "got the number 1; allowed are"),
        (lambda: podium.TrainingSpec(steps=0), "steps", "from 1 to 1000000"),
        (lambda: podium.TrainingSpec(steps=True), "steps", "got true; allowed are whole numbers"),
        (lambda: podium.TrainingSpec(steps="20"), "steps", 'got "20"; allowed are whole numbers'),
        (lambda: podium.TrainingSpec(steps=10**5000), "steps", "int of 16610 bits"),
        (lambda: podium.TrainingSpec(learning_rate=float("nan")), "learning_rate", "nan"),
        (lambda: podium.TrainingSpec(learning_rate=float("inf")), "learning_rate", "inf"),
        (lambda: podium.JobSpec(base_model=PurePosixPath("x")), "base_model", "PurePosixPath"),
        (lambda: podium.JobSpec(base_model=b"x"), "base_model", "a value of type bytes"),
        (lambda: podium.JobSpec(base_model="a\0"), "base_model", "U+0000"),
        (lambda: podium.JobSpec(base_model="\ud800"), "base_model", "half a surrogate pair"),
        (lambda: podium.JobSpec(environments="x"), "environments", 'got "x"; allowed is a list'),
        (
            lambda: podium.JobSpec(environments=[{"environment": {"nam": "x"}}]),
            "environments[0].environment.nam",
            "did you mean 'name'?",
        ),
        (
            lambda: podium.JobSpec(training=podium.LoraSpec()),
            "training",
            "got LoraSpec; allowed",
        ),
        (lambda: podium.JobSpec(reward=spec_pb2.LoraSpec()), "reward", "allowed is RewardSpec"),
        (
            lambda: podium.JobSpec(environments=[podium.WeightedEnvironment(), SPEC.environment]),
            "environments[1]",
            "got EnvironmentSpec; allowed is WeightedEnvironment",
        ),
        (lambda: podium.EnvironmentSpec(config={"a": {1: 2}}), "config", "as a key"),
        (lambda: podium.EnvironmentSpec(config={"a": object()}), "config", "of type object"),
        (lambda: podium.JobSpec.from_dict([1]), "", "got a list; allowed is a mapping"),
        (lambda: podium.JobSpec.from_dict({1: 2}), "", "type int as a key; allowed is a name"),
    ],
)
def test_a_wrong_value_is_refused_where_it_is_given(call: Any, path: str, text: str) -> None:
    error = refused(call)
    assert paths(error) == [path]
    assert text in str(error)


def test_an_assignment_is_held_to_the_contract() -> None:
    spec = copy.deepcopy(SPEC)
    assert spec.training is not None
    error = refused(lambda: setattr(spec.training, "learning_rate", 2))
    assert str(error) == "TrainingSpec: learning_rate: got 2; allowed are numbers above 0, up to 1"
    refused(lambda: setattr(spec, "trainings", {}))
    assert spec == SPEC


def test_what_is_missing_is_said_with_the_whole() -> None:
    spec = podium.JobSpec(training=podium.TrainingSpec(learning_rate=1e-5))
    assert paths(refused(spec.to_proto)) == ["base_model", "training.steps"]


def test_what_holds_itself_ends() -> None:
    values: dict[str, Any] = {}
    values["training"] = values
    assert "deeper than" in str(refused(lambda: podium.JobSpec.from_dict(values)))
    many = {"environments": [{}] * 200_000}
    assert "more than 100000 values" in str(refused(lambda: podium.JobSpec.from_dict(many)))


def test_a_file_is_refused_with_every_line(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("base_model: x\ntraining:\n  lr: 3\n  steps: no\n")
    error = refused(lambda: podium.JobSpec.from_yaml(file))
    assert str(error).splitlines() == [
        f"{file} has 2 problems",
        f"  {file}:3: training.lr: unknown field; did you mean 'learning_rate'?",
        f'  {file}:4: training.steps: got "no"; allowed are whole numbers',
    ]
    file.write_text("a: [")
    assert f"{file}:1: no valid YAML" in str(refused(lambda: podium.JobSpec.from_yaml(file)))
    file.write_bytes(b"\xff")
    assert "is no UTF-8" in str(refused(lambda: podium.JobSpec.from_yaml(file)))
    for text in ("a: 1\nb: 2", "a\0"):
        assert "path of a file" in str(refused(lambda text=text: podium.JobSpec.from_yaml(text)))
    with pytest.raises(FileNotFoundError):
        podium.JobSpec.from_yaml(tmp_path / "nothing.yaml")


def test_a_fork_may_be_by_alias(tmp_path: Path) -> None:
    spec = podium.JobSpec(base_model="m", training=podium.TrainingSpec(steps=1))
    spec.fork = podium.ForkSpec(model="other", version="best")
    file = tmp_path / "job.yaml"
    file.write_text("base_model: m\ntraining: {steps: 1}\nfork: {model: other, version: best}\n")
    assert podium.JobSpec.from_yaml(file) == spec
    found = read_values(spec, spec_pb2.JobSpec)
    assert (found.alias, found.violations) == ("best", [])
    assert paths(refused(spec.to_proto)) == ["fork.version"]
    assert paths(refused(lambda: podium.ForkSpec(version="Best!"))) == ["version"]


def test_an_enumeration_of_words_is_its_words() -> None:
    kind: Any = podium.LossSpec
    assert kind(objective=Word.CISPO).to_proto() == podium.LossSpec(objective="cispo").to_proto()


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)
_KEYS = [row.path for row in describe_fields(spec_pb2.TrainingSpec) if "." not in row.path]


@given(values=st.dictionaries(st.sampled_from(_KEYS) | st.text(), _ANY))
def test_no_value_raises_anything_else(values: dict[str, Any]) -> None:
    try:
        spec = podium.TrainingSpec.from_dict(values)
    except InvalidArgumentError:
        return
    message = read_values(spec, spec_pb2.TrainingSpec, partial=True).message
    assert podium.TrainingSpec.from_dict(to_plain(message)).to_dict().keys() <= values.keys()
