"""Conversations of JSONL and Parquet files, and of values in memory."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from podium.core.errors import InvalidArgumentError, Violation
from podium.environments.scenarios.rows import Row, RowError, kind_of
from podium.environments.scenarios.rows import rows as rows_of
from podium.environments.scenarios.source import ScenarioSource
from podium.training.sft.other_forms import by_jq, how_to_convert
from podium.training.sft.packed import PackedConversations
from podium.training.sft.rows import Conversation, conversation_of

logger = logging.getLogger(__name__)

File = str | os.PathLike[str]
"""A path that ends in `.jsonl`, `.ndjson` or `.parquet`."""

Source = File | Iterable[Mapping[str, Any] | Row]
"""A file, or rows as dicts, or such with names of their own."""

_MOST_VIOLATIONS = 20
_SHOWN = 300
_MOST_WHOLE = 64 * 1024 * 1024
_SUFFIXES = (".jsonl", ".ndjson", ".parquet")


@dataclass
class ReadRows:
    """What a source holds."""

    rows: PackedConversations = field(default_factory=PackedConversations)
    bad: list[Violation] = field(default_factory=list)
    """What is wrong with the rows that were left out."""
    skipped: int = 0
    """How many rows that are."""
    advice: str = ""
    """How such rows become conversations, where their form is a known one."""


def read_rows(source: Source, *, skip_bad: bool = False, name: str = "data") -> ReadRows:
    """All rows of a source, in its order.

    Args:
        skip_bad: rows that are wrong are left out, counted and logged.
        name: what errors call a source that is no file.

    Raises:
        InvalidArgumentError: every wrong row by file, number and field, or there is none.
        FailedPreconditionError: a package that reads the file is not installed.
    """
    found = ReadRows()
    for row in _rows(source, name):
        if isinstance(row, RowError):
            if not found.rows and not found.skipped:
                _check_lines(source)
            wrong = [row.violation]
        else:
            is_table = row.where.rpartition(":")[0].lower().endswith(".parquet")
            read = conversation_of(row.values, row.where, columns=is_table)
            if isinstance(read, Conversation):
                found.rows.add(read)
                continue
            wrong = read
            # jq reads no tables, and no values of a program.
            if not is_table and isinstance(source, str | os.PathLike):
                found.advice = found.advice or how_to_convert(row.values, Path(source).name)
        found.skipped += 1
        # However many there are: the first ones say what is wrong.
        found.bad += wrong[: max(0, _MOST_VIOLATIONS - len(found.bad))]
    label = _label(source, name)
    if found.skipped and not skip_bad:
        raise InvalidArgumentError(violations=first_violations(found), reason="INVALID_ROWS")
    if not found.rows:
        violations = [*first_violations(found), Violation(label, "holds no row to train on")]
        raise InvalidArgumentError(violations=violations, reason="INVALID_ROWS")
    if found.skipped:
        shown = "; ".join(map(str, first_violations(found)))
        logger.warning("%s: %d rows are left out: %s", label, found.skipped, shown)
    return found


def first_violations(found: ReadRows) -> list[Violation]:
    """What is wrong, as far as people read it, and how many rows that is about."""
    said = [*found.bad]
    if found.skipped > 1 and len(found.bad) >= _MOST_VIOLATIONS:
        text = f"these are the first of what is wrong with {found.skipped} rows"
        said.append(Violation("", text))
    if found.advice:
        said.append(Violation("", found.advice))
    return said


def _rows(source: Source, name: str) -> Iterator[Row | RowError]:
    if not isinstance(source, str | os.PathLike):
        return _values(source, name)
    path = Path(source)
    if wrong := _wrong_path(path, os.fspath(source)):
        raise InvalidArgumentError(violations=[Violation(name, wrong)])
    # The suffix in lower case says the format.
    return rows_of(ScenarioSource(path=f"rows{path.suffix}"), path)


def _wrong_path(path: Path, given: str) -> str:
    """Why no rows are read from there; empty if they are."""
    if "://" in given:
        return f"got {given!r}; allowed are files of this machine: fetch it first"
    try:
        if path.is_dir():
            return f"{path} is a folder; name its files"
        if path.suffix.lower() not in _SUFFIXES:
            lines = f"; `{by_jq('.[]', path.name)}` writes a list's rows as lines"
            how = lines if path.suffix.lower() == ".json" else ""
            return f"got {path.name!r}; allowed are files that end in {', '.join(_SUFFIXES)}{how}"
        return "" if path.is_file() else f"{path} is no file"
    except OSError as error:
        return f"{given[:_SHOWN]} cannot be read: {error.strerror}"


def _check_lines(source: Source) -> None:
    """Of a file whose first line is no row: whether it is JSON as a whole, as in `.json` files.

    Raises:
        InvalidArgumentError: it is, in one sentence in place of one for each line.
    """
    path = Path(source) if isinstance(source, str | os.PathLike) else None
    if path is None or path.stat().st_size > _MOST_WHOLE:
        return
    try:
        content = path.read_text("utf-8-sig").strip()
        whole = json.loads(content)
    except (OSError, ValueError, RecursionError):
        return
    # One line that is an object has something else wrong with it.
    is_spread = isinstance(whole, dict) and "\n" in content
    if not (is_spread or (isinstance(whole, list) and any(isinstance(x, dict) for x in whole))):
        return
    how = by_jq(".[]" if isinstance(whole, list) else ".", path.name)
    text = (
        f"is one JSON value ({kind_of(whole)}); each line must be an object of its own, as"
        f" `{how}` writes it"
    )
    raise InvalidArgumentError(violations=[Violation(path.name, text)], reason="INVALID_ROWS")


def _values(source: Iterable[Mapping[str, Any] | Row], name: str) -> Iterator[Row | RowError]:
    if isinstance(source, Mapping) or not isinstance(source, Iterable):
        text = f"got {kind_of(source)}; allowed are a file, and a list of rows"
        raise InvalidArgumentError(violations=[Violation(name, text)])
    for index, values in enumerate(source):
        where = f"{name}[{index}]"
        if isinstance(values, Row):
            yield values
        elif isinstance(values, Mapping):
            yield Row(where, dict(values))
        else:
            yield RowError(Violation(where, f"got {kind_of(values)}; allowed is an object"))


def _label(source: Source, name: str) -> str:
    return Path(source).name if isinstance(source, str | os.PathLike) else name
