"""Rows of files, one after the other: nothing is held but the row at hand."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.core.hub_address import VARIABLE, wrong_hub_address
from podium.core.packages import needed
from podium.environments.scenarios.source import ScenarioSource

MAX_LINE_BYTES = 16 * 1024 * 1024
_PARQUET_ROWS = 256
_OTHER_BYTES = {
    codecs.BOM_UTF16_LE: "is UTF-16; write the file as UTF-8",
    codecs.BOM_UTF16_BE: "is UTF-16; write the file as UTF-8",
    b"\x1f\x8b": "is packed by gzip; unpack the file first",
    b"\x28\xb5\x2f\xfd": "is packed by zstd; unpack the file first",
    b"BZh": "is packed by bzip2; unpack the file first",
    b"\xfd7zXZ": "is packed by xz; unpack the file first",
    b"PK\x03\x04": "is a ZIP archive; unpack the file first",
    b"{\0": "is UTF-16; write the file as UTF-8",
    b"\0{": "is UTF-16; write the file as UTF-8",
    b"PAR1": "is Parquet; let the file's name end in .parquet",
}
"""What files begin with that are no text, and what is said of them."""


@dataclass(frozen=True)
class Row:
    """One row of a source."""

    where: str
    """`tasks.jsonl:3`: the file's name and the line, or row, from 1."""
    values: dict[str, Any]
    split: str | None = None
    """Of a data set that is made of splits: its own name of this one."""


class RowError(Exception):
    """A row cannot be read; the next one perhaps can."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


def rows(
    source: ScenarioSource, path: Path | None, wanted: Callable[[str], bool] = lambda name: True
) -> Iterator[Row | RowError]:
    """Every row of the source, in its order.

    Args:
        path: where the source's path is on this machine.
        wanted: whether a split of a data set is to be read, by the data set's name of it.

    Raises:
        InvalidArgumentError: the source is not what it is said to be, or cannot be read.
        FailedPreconditionError: a package that reads it is not installed.
    """
    match source.kind:
        case "jsonl":
            assert path is not None
            return _json_lines(path)
        case "parquet":
            assert path is not None
            return _parquet(path)
        case _:
            return _dataset(source, path, wanted)


def _json_lines(path: Path) -> Iterator[Row | RowError]:
    with _readable(path.name), path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            where = f"{path.name}:{number}"
            if number == 1:
                _check_begin(line, where)
            if len(line) > MAX_LINE_BYTES:
                # Where the next line begins is not known.
                raise InvalidArgumentError(
                    violations=[
                        Violation(
                            where, f"is longer than {MAX_LINE_BYTES} bytes, the most of a line"
                        )
                    ]
                )
            if line.strip():
                yield _parsed(line, where)


def _check_begin(line: bytes, where: str) -> None:
    """Of what is no text every line would be wrong, and none of them would say why.

    Raises:
        InvalidArgumentError: the file begins as something else does.
    """
    if said := next((text for start, text in _OTHER_BYTES.items() if line.startswith(start)), ""):
        raise InvalidArgumentError(violations=[Violation(where, said)])


def _parsed(line: bytes, where: str) -> Row | RowError:
    try:
        values = json.loads(line.decode("utf-8-sig").strip(), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        return RowError(Violation(where, f"is not UTF-8 from byte {error.start + 1} on"))
    except json.JSONDecodeError as error:
        return RowError(Violation(where, f"is no JSON at column {error.colno}: {error.msg}"))
    except (ValueError, RecursionError) as error:
        return RowError(Violation(where, f"is no JSON: {error}"))
    if not isinstance(values, dict):
        return RowError(Violation(where, f"got {kind_of(values)}; allowed are JSON objects"))
    return Row(where, values)


def _no_number(text: str) -> Any:
    raise ValueError(f"got {text}; allowed are finite numbers")


def _parquet(path: Path) -> Iterator[Row]:
    parquet = needed("pyarrow.parquet", "pyarrow", "a Parquet file")
    arrow = needed("pyarrow", "pyarrow", "a Parquet file")
    with _readable(path.name, arrow.ArrowException, said="is no Parquet file"):
        file = parquet.ParquetFile(path)
    number = 0
    with file, _readable(path.name, arrow.ArrowException):
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS):
            for values in batch.to_pylist():
                number += 1
                yield Row(f"{path.name}:{number}", values)


def _dataset(
    source: ScenarioSource, path: Path | None, wanted: Callable[[str], bool]
) -> Iterator[Row]:
    name = path.name if path else source.dataset
    splits = _splits(source, path)
    single = len(splits) == 1
    for split, found in splits.items():
        if not single and not wanted(split):
            continue
        yield from _of_split(source, f"{name}/{split}", found, None if single else split)


def _of_split(
    source: ScenarioSource, name: str, found: Iterable[Any], split: str | None
) -> Iterator[Row]:
    arrow = needed("pyarrow", "pyarrow", "a Hugging Face data set")
    datasets = needed("datasets", "datasets", "a Hugging Face data set")
    # Columns of other types in a later file are a TypeError.
    others: Sequence[type[Exception]] = (arrow.ArrowException, datasets.exceptions.DatasetsError)
    with _readable(name, *others, TypeError, source=source):
        for number, values in enumerate(found, start=1):
            yield Row(f"{name}:{number}", dict(values), split)


def _splits(source: ScenarioSource, path: Path | None) -> dict[str, Any]:
    if path is None and (wrong := wrong_hub_address()):
        raise FailedPreconditionError(
            f"the data set {source.dataset!r} cannot be fetched: {VARIABLE}: {wrong}",
            reason="DATASET_UNREACHABLE",
        )
    datasets = needed("datasets", "datasets", "a Hugging Face data set")
    saved = path is not None and any(
        (path / marker).is_file() for marker in ("dataset_dict.json", "state.json")
    )
    field, got = ("path", source.path) if path else ("dataset", source.dataset)
    said = f"got {got!r}, no data set that can be read"
    with _readable(field, datasets.exceptions.DatasetsError, said=said, source=source, folder=path):
        if saved:
            found = datasets.load_from_disk(str(path))
        else:
            found = datasets.load_dataset(
                str(path or source.dataset), source.subset or None, streaming=True
            )
    return dict(found) if isinstance(found, dict) else {"all": found}


@contextmanager
def _readable(
    field: str,
    *others: type[Exception],
    said: str = "cannot be read",
    source: ScenarioSource | None = None,
    folder: Path | None = None,
) -> Iterator[None]:
    """What files and their readers raise, as an error that names `field`.

    Args:
        others: what the reader raises besides.
        source: of a data set, which may be the hub's.
        folder: whose own place is nobody's business.

    Raises:
        InvalidArgumentError: it cannot be read.
        FailedPreconditionError: DATASET_UNREACHABLE, the hub is not reached.
    """
    # pyarrow calls damage a ValueError or an OSError, and days beyond Python's an overflow.
    wrong: tuple[type[Exception], ...] = (OSError, ValueError, OverflowError, *others)
    try:
        yield
    except wrong as error:
        if source is not None and source.dataset and isinstance(error, ConnectionError):
            raise FailedPreconditionError(
                f"the data set {source.dataset!r} cannot be fetched: the hub is not reached",
                reason="DATASET_UNREACHABLE",
            ) from error
        why = " ".join(str(getattr(error, "strerror", None) or error).split())
        why = why.replace(str(folder.parent), "…") if folder else why
        raise InvalidArgumentError(violations=[Violation(field, f"{said}: {why}")]) from error


def kind_of(value: Any) -> str:
    """What a value is, in JSON's words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "a boolean"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "an array"
        case dict():
            return "an object"
        case _:
            return f"a {type(value).__name__}"
