"""What a job tells the chat template, with the real templates that TRL ships."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from podium.core.chat_templates import MAX_BYTES, RESERVED, template_arguments
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.types.v1 import trajectory_pb2 as pb
from podium_inference.domain.render import Renderer
from podium_inference.settings import Settings
from support.template_tokenizer import TemplateTokenizer, shipped
from transformers import PreTrainedTokenizerBase

TURNS = 4


def renderer(template: str) -> Renderer:
    return Renderer(TemplateTokenizer(shipped(template)))


def given(**values: Any) -> Struct:
    made = Struct()
    made.update(values)
    return made


def asked(text: str) -> pb.Message:
    return pb.Message(role=pb.ROLE_USER, content=text)


def splits(template: str, arguments: dict[str, Any]) -> int:
    """How often a conversation of plain turns begins a new history."""
    renders = renderer(template)
    messages = [asked("one?")]
    ids = renders.first(messages, (), "", arguments)
    found = 0
    for turn in range(TURNS):
        said = f"answer {turn}"
        record = [*ids, *(byte + 1 for byte in said.encode()), 0]
        messages += [pb.Message(role=pb.ROLE_ASSISTANT, content=said), asked("and?")]
        try:
            ids = renders.following(messages, (), record, len(messages) - 1, "", arguments)
        except FailedPreconditionError:
            found += 1
            ids = renders.first(messages, (), "", arguments)
    return found


def test_qwen3_is_told_not_to_think() -> None:
    renders = renderer("qwen3")
    plain = bytes(i - 1 for i in renders.first([asked("?")], (), "")).decode()
    quiet = renders.first([asked("?")], (), "", {"enable_thinking": False})
    assert plain.endswith("<|im_start|>assistant\n")
    assert bytes(i - 1 for i in quiet).decode() == plain + "<think>\n\n</think>\n\n"


@pytest.mark.parametrize(
    ("template", "thinking", "quiet"),
    [
        ("qwen3_8", TURNS, 0),
        ("nemotron_3_nano", TURNS, 0),
        # Their own templates drop the empty thoughts of earlier turns, TRL's for training do not.
        ("qwen3", 0, TURNS),
        ("qwen3_training", TURNS, 0),
        ("qwen3_6", TURNS, TURNS),
        ("qwen3_6_training", TURNS, 0),
        ("llama3_1", 0, 0),
    ],
)
def test_one_history_depends_on_what_the_template_is_told(
    template: str, thinking: int, quiet: int
) -> None:
    assert splits(template, {}) == thinking
    assert splits(template, {"enable_thinking": False}) == quiet


def test_whole_numbers_are_whole_at_every_depth() -> None:
    found = template_arguments(given(budget=512, deep={"a": [1, 2.5]}, on=True), "field")
    assert repr(sorted(found.items())) == repr(
        [("budget", 512), ("deep", {"a": [1, 2.5]}), ("on", True)]
    )
    assert template_arguments(Struct(), "field") == {}


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_what_podium_says_itself_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        template_arguments(given(**{name: "{{ 1 }}"}), "episode.chat_template_kwargs")
    (violation,) = caught.value.violations
    assert violation.field == f"episode.chat_template_kwargs.{name}"


def test_every_option_of_transformers_is_reserved() -> None:
    import inspect

    options = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    assert options.keys() - {"self", "kwargs", "documents"} <= RESERVED


def test_too_much_and_no_names_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="at most 16384"):
        template_arguments(given(text="x" * MAX_BYTES), "field")
    with pytest.raises(InvalidArgumentError, match="no name"):
        template_arguments(given(**{"not a name": 1}), "field")


def test_what_breaks_the_template_is_the_requests_fault() -> None:
    renders = renderer("gptoss")
    with pytest.raises(InvalidArgumentError, match="the chat template refuses"):
        renders.first([asked("?")], (), "", {"builtin_tools": 7})


def test_a_template_of_the_operators_own(tmp_path: Any) -> None:
    path = tmp_path / "own.jinja"
    path.write_text("{{ messages[0].content }}|é", encoding="utf-8")
    assert Settings(chat_template=str(path)).chat_template == "{{ messages[0].content }}|é"
    assert Settings(chat_template="{{ 1 }}").chat_template == "{{ 1 }}"
    own = Renderer(TemplateTokenizer("never"), chat_template="{{ messages[0].content }}|é")
    assert bytes(i - 1 for i in own.first([asked("?")], (), "")).decode() == "?|é"
    with pytest.raises(ValueError, match=r"chat_template\n.*is no template and no file"):
        Settings(chat_template=str(tmp_path / "none.jinja"))
