"""A tokenizer of a few words, as a model's folder has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def small_tokenizer(folder: Path, words: Sequence[str], first: int = 0) -> Path:
    """Writes a folder that counts as a model's, whose ids from `first` on are the words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    folder.mkdir()
    (folder / "config.json").write_text("{}")
    Tokenizer(WordLevel({word: first + n for n, word in enumerate(words)})).save(
        str(folder / "tokenizer.json")
    )
    return folder
