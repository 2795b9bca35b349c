"""One digest for everything about a base model that changes what it computes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

from podium.core.errors import NotFoundError
from podium.local.models.weights import INDEX, weight_files

_PATTERNS = (
    INDEX,
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


def _files(folder: Path) -> dict[str, Path]:
    """What counts, by its path in the folder, in order.

    Weights are those that are loaded: whether a copy of them for other programs lies beside
    depends on who fetched the model.
    """
    try:
        weights = weight_files(folder)
    except ValueError as error:
        raise NotFoundError(f"{folder} is no model: {error}", reason="MODEL_NOT_FOUND") from error
    found = {file for pattern in _PATTERNS for file in folder.glob(pattern)}
    return {
        file.relative_to(folder).as_posix(): file
        for file in sorted(found.union(weights))
        if file.is_file()
    }


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _stamps(files: dict[str, Path]) -> dict[str, list[int]]:
    return {name: [file.stat().st_size, file.stat().st_mtime_ns] for name, file in files.items()}


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

    The sum runs over the lines `<path in the folder> <size> <sha256>` of the files in
    order, so it depends neither on where the folder is nor on when it was made.
    Remembered in the folder, beside each file's size and mtime.

    Raises:
        NotFoundError: `path` is not a model folder, or its index names no files.
    """
    folder = Path(path)
    files = _files(folder)
    if "config.json" not in files:
        raise NotFoundError(
            f"{folder} is no model folder: it has no config.json", reason="MODEL_NOT_FOUND"
        )
    stamps = _stamps(files)
    if value := _cached(folder, stamps):
        return value
    lines = [f"{name} {stamps[name][0]} {_sha256(file)}\n" for name, file in files.items()]
    value = "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()
    _remember(folder, stamps, value)
    return value
