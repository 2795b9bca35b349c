"""Texts to ids without Transformers' ways around, id for id."""

from __future__ import annotations

from typing import Any

import pytest
from podium.local import models
from podium_inference.adapters.quick_tokenizer import quick
from transformers import AutoTokenizer, PreTrainedTokenizerBase

TEXTS = [
    "",
    " ",
    "Where is it?",
    "\n<|im_start|>tool\n Result 3.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|><|im_end|>x<|im_start|",
    "é e\u0301 \u200d👩‍👩‍👧 \ufffd \0 \r\n\t",
    "<tool_call>\n{" * 200,
]


@pytest.fixture
def whole() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(models.resolve("smollm2-135m-instruct"))


def ids(tokenizer: Any, special: bool = False) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=special) for text in TEXTS]


@pytest.mark.parametrize("special", [False, True])
def test_the_ids_are_those_of_transformers(whole: Any, special: bool) -> None:
    made = quick(whole)
    assert made is not whole
    assert ids(made, special) == ids(whole, special)
    messages = [{"role": "user", "content": "Where?"}]
    options = {"add_generation_prompt": True, "tokenize": False}
    assert made.apply_chat_template(messages, **options) == whole.apply_chat_template(
        messages, **options
    )
    assert (made.eos_token, made.eos_token_id) == (whole.eos_token, whole.eos_token_id)
    assert made.added_tokens_decoder == whole.added_tokens_decoder


def test_what_another_user_of_the_tokenizer_leaves_behind_cuts_nothing(whole: Any) -> None:
    made, expected = quick(whole), ids(whole)
    for left in ("truncation", "padding", "special", "split"):
        if left == "truncation":
            whole("a b c d", truncation=True, max_length=2)
        if left == "padding":
            whole.pad_token = whole.eos_token
            whole("a", padding="max_length", max_length=9)
        if left == "special":
            whole.backend_tokenizer.encode_special_tokens = True
        if left == "split":
            whole.split_special_tokens = True
            expected = ids(
                AutoTokenizer.from_pretrained(whole.name_or_path, split_special_tokens=True)
            )
        assert ids(made) == expected, left


def test_a_tokenizer_with_an_encoding_of_its_own_is_left_as_it_is(whole: Any) -> None:
    class Own(type(whole)):  # type: ignore[misc]
        def encode(self, text: str, **options: Any) -> list[int]:
            return [7]

    whole.__class__ = Own
    assert ids(quick(whole)) == [[7]] * len(TEXTS)
