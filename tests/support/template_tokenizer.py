"""Test double of a tokenizer, for chat templates without their models."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from transformers import AddedToken
from transformers.utils.chat_template_utils import render_jinja_template


def shipped(name: str) -> str:
    """A real template, as TRL ships it."""
    return files("trl").joinpath("chat_templates", f"{name}.jinja").read_text()


class TemplateTokenizer:
    """Transformers' own rendering of a template, bytes for tokens, and how much was rendered."""

    eos_token_id = 0

    def __init__(
        self,
        template: str | None,
        eos_token: str | None = "<eos>",
        ends: Sequence[str] = (),
        bos_token: str = "",
    ) -> None:
        """`ends` are special tokens besides, such as those that end turns."""
        self.eos_token = eos_token
        self.bos_token = bos_token
        self.added_tokens_decoder = {
            n: AddedToken(end, special=True)
            for n, end in enumerate([*([eos_token] if eos_token else []), *ends])
        }
        self.rendered = 0
        """Messages."""
        self.chat_template = template

    def apply_chat_template(self, conversation: Any, **options: Any) -> str:
        del options["tokenize"]
        options.setdefault("chat_template", self.chat_template)
        self.rendered += len(conversation)
        ends = {"eos_token": self.eos_token, "bos_token": self.bos_token}
        ends = {name: token for name, token in ends.items() if token is not None}
        (text,), _ = render_jinja_template([conversation], **ends, **options)
        return str(text)

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [byte + 1 for byte in text.encode()]
