"""One digest for everything about a base model that changes what it computes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

from podium.core.errors import NotFoundError

_PATTERNS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "chat_template.*",
    "additional_chat_templates/*",
    "tekken.json",
    "*.tiktoken",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
)
_CACHE = ".podium-digest.json"


def _files(folder: Path) -> list[Path]:
    return sorted({file for pattern in _PATTERNS for file in folder.glob(pattern)})


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _stamps(files: list[Path]) -> dict[str, list[int]]:
    return {file.name: [file.stat().st_size, file.stat().st_mtime_ns] for file in files}


def _cached(folder: Path, stamps: dict[str, list[int]]) -> str:
    try:
        cache = json.loads((folder / _CACHE).read_text(encoding="utf-8"))
        if cache["files"] == stamps:
            return str(cache["digest"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return ""


def _remember(folder: Path, stamps: dict[str, list[int]], value: str) -> None:
    # A read-only model folder is normal; the digest is then computed each time.
    with contextlib.suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=_CACHE)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump({"digest": value, "files": stamps}, stream)
            os.fchmod(stream.fileno(), 0o644)
        os.replace(temporary, folder / _CACHE)


def digest(path: str | Path) -> str:
    """`sha256:…` over the weights, tokenizer and config files of a model folder.

    The sum runs over the lines `<name> <size> <sha256>` of the files in name
    order, so it depends neither on where the folder is nor on when it was made.
    Remembered in the folder, beside each file's size and mtime.

    Raises:
        NotFoundError: `path` is not a model folder.
    """
    folder = Path(path)
    files = _files(folder)
    if not any(file.name == "config.json" for file in files):
        raise NotFoundError(
            f"{folder} is no model folder: it has no config.json", reason="MODEL_NOT_FOUND"
        )
    stamps = _stamps(files)
    if value := _cached(folder, stamps):
        return value
    lines = [f"{file.name} {stamps[file.name][0]} {_sha256(file)}\n" for file in files]
    value = "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()
    _remember(folder, stamps, value)
    return value
