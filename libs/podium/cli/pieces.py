"""The text of tokens, where the model's tokenizer is on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podium.cli.exits import CliError, Exit
from podium.cli.output import note


class Pieces:
    """Says what tokens read as; nothing where no tokenizer is known."""

    def __init__(self, tokenizer: Any = None) -> None:
        """`tokenizer` is one of the package tokenizers."""
        self._tokenizer = tokenizer

    @classmethod
    def of_model(cls, model: str, *, asked: bool) -> Pieces:
        """Those of a prepared model; says so on stderr where there are none.

        Raises:
            CliError: it was `asked` for, and is not here.
        """
        from podium.core.errors import PodiumError

        try:
            return cls(_load(model))
        # The package raises bare Exceptions for files that it cannot read.
        except Exception as error:
            words = error.message if isinstance(error, PodiumError) else str(error)
            if asked:
                raise CliError(f"--tokenizer: {words}", code=Exit.USAGE) from None
            note(f"tokens without their pieces: {words}; --tokenizer names a model that is here")
            return cls()

    def piece(self, token: int) -> str:
        """One token's text in quotes."""
        text = self.text([token])
        if self._tokenizer is not None and (not text or "\ufffd" in text):
            # A part of a character: the vocabulary's own name of its bytes says more.
            text = self._tokenizer.id_to_token(token) or text
        return json.dumps(text, ensure_ascii=False) if text else ""

    def text(self, tokens: Sequence[int]) -> str:
        """What many tokens read as."""
        if self._tokenizer is None:
            return ""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text


def _load(model: str) -> Any:
    from podium.core.packages import needed
    from podium.local.models.locate import resolve

    file: Path = resolve(model) / "tokenizer.json"
    if not file.is_file():
        raise ValueError(f"{model} has no tokenizer.json")
    tokenizers = needed("tokenizers", "tokenizers", "the text of tokens")
    return tokenizers.Tokenizer.from_file(str(file))
