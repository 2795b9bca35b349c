"""Files of episodes, row by row: JSON lines and Parquet. A file appears when it is whole."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from podium.cli.exits import CliError, Exit

if TYPE_CHECKING:
    from podium.types.v1 import trajectory_pb2 as pb

Write = Callable[["pb.Trajectory", str], None]
"""Takes an episode and the name of its split."""

# Of episodes as Python's objects, which take ten times as much, and of a row group of Parquet.
_BYTES, _GROUP_BYTES = 2**20, 16 * 2**20

JSON_COLUMNS = (
    "messages",
    "tools",
    "reward_parts",
    "metrics",
    "transitions",
    "judgements",
    "failure",
    "info",
)
"""In Parquet these are JSON text."""


def writer(output: Path, kind: str | None) -> AbstractContextManager[Write]:
    """Opens a file for episodes, `-` for stdout; its name says the format where `kind` does not.

    Raises:
        CliError: it cannot be written, or its format is not known.
    """
    stdout = str(output) == "-"
    kind = kind or ("jsonl" if stdout else output.suffix.removeprefix(".").lower())
    if kind not in ("jsonl", "parquet"):
        raise refused(
            f"the name of {output} says no format; allowed are .jsonl and .parquet, and a folder "
            "with --format datasets"
        )
    if stdout:
        if kind == "parquet":
            raise refused("Parquet needs a file, and - is none")
        return _lines(sys.stdout.write)
    check_place(output)
    if output.is_dir():
        raise refused(f"{output} is a folder, which only --format datasets writes")
    if output.exists() and not output.is_file():
        if kind == "parquet":
            raise refused(f"Parquet needs a file, and {output} is none")
        return _special(output)
    if kind == "parquet":
        arrow("pyarrow.parquet")
        return _whole(output, parquet_file)
    return _whole(output, _text)


@contextmanager
def _whole(
    output: Path, opened: Callable[[Path], AbstractContextManager[Write]]
) -> Iterator[Write]:
    """Writes beside the file, and takes its place at the end."""
    target = output.resolve()
    with write_errors(output):
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        draft = Path(name)
        try:
            os.fchmod(handle, mode_of(target, 0o666))
            with opened(draft) as write:
                yield write
            os.fsync(handle)
            draft.replace(target)
        finally:
            os.close(handle)
            with suppress(FileNotFoundError):
                draft.unlink()


@contextmanager
def _special(output: Path) -> Iterator[Write]:
    """A pipe or a device keeps its place."""
    with write_errors(output), _text(output) as write:
        yield write


def check_place(output: Path) -> None:
    """Holds that the folder is there in which the output shall be.

    Raises:
        CliError: it is not.
    """
    if not output.parent.is_dir():
        raise refused(f"there is no folder {output.parent}")


@contextmanager
def write_errors(output: Path) -> Iterator[None]:
    """Says in people's words what the operating system refuses."""
    try:
        yield
    except OSError as error:
        raise CliError(f"{output} cannot be written: {error.strerror or error}") from None


@contextmanager
def _text(path: Path) -> Iterator[Write]:
    with path.open("w", encoding="utf-8") as file, _lines(file.write) as write:
        yield write


@contextmanager
def _lines(put: Callable[[str], Any]) -> Iterator[Write]:
    from podium.core.trajectory_rows import rows_of

    def write(item: pb.Trajectory, split: str) -> None:
        for row in rows_of(item, split):
            put(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")

    yield write


@contextmanager
def parquet_file(path: Path, json_type: bool = False) -> Iterator[Write]:
    """Writes a file of Parquet; with `json_type` it says which columns are JSON."""
    from podium.core.trajectory_rows import rows_of

    pyarrow, parquet = arrow(), arrow("pyarrow.parquet")
    schema = parquet_schema(json_type)
    rows: list[dict[str, Any]] = []
    tables: list[Any] = []
    size = 0
    with parquet.ParquetWriter(path, schema, compression="zstd") as file:

        def pack() -> None:
            nonlocal size
            tables.append(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()
            size = 0

        def flush() -> None:
            whole = pyarrow.concat_tables(tables)
            file.write_table(whole, row_group_size=max(whole.num_rows, 1))
            tables.clear()

        def write(item: pb.Trajectory, split: str) -> None:
            nonlocal size
            size += item.ByteSize()
            rows.extend(_columns(row) for row in rows_of(item, split))
            if size >= _BYTES:
                pack()
                if sum(table.nbytes for table in tables) >= _GROUP_BYTES:
                    flush()

        yield write
        pack()
        flush()


def parquet_schema(json_type: bool = False) -> Any:
    """The types of Parquet's columns."""
    pa = arrow()
    text, whole, number = pa.string(), pa.int32(), pa.float64()
    json_text = pa.json_() if json_type else text
    span = pa.struct(
        [
            ("start", pa.int64()),
            ("length", pa.int64()),
            ("policy", text),
            ("weights_version", pa.int64()),
            ("temperature", pa.float32()),
            ("finish_reason", text),
            ("request_id", text),
        ]
    )
    types = {
        **dict.fromkeys(("history", "histories", "attempt"), whole),
        **dict.fromkeys(
            ("reward", "environment_reward", "environment_weight", "score_reward"), number
        ),
        **dict.fromkeys(("start_time", "end_time"), pa.timestamp("us", tz="UTC")),
        **dict.fromkeys(JSON_COLUMNS, json_text),
        "step": pa.int64(),
        "token_ids": pa.list_(whole),
        "logprobs": pa.list_(pa.float32()),
        "spans": pa.list_(span),
    }
    return pa.schema([(name, types.get(name, text)) for name in COLUMNS])


COLUMNS = (
    "trajectory_id",
    "history",
    "histories",
    "conversation",
    "messages",
    "tools",
    "token_ids",
    "logprobs",
    "spans",
    "group_id",
    "job",
    "split",
    "phase",
    "step",
    "mode",
    "environment",
    "scenario_id",
    "attempt",
    "side",
    "reward",
    "environment_reward",
    "environment_weight",
    "score_reward",
    "reward_parts",
    "metrics",
    "transitions",
    "explanation",
    "judgements",
    "stop_reason",
    "failure",
    "info",
    "start_time",
    "end_time",
    "trace_id",
)
"""Of both formats, in order."""


def arrow(module: str = "pyarrow") -> Any:
    """A module of pyarrow.

    Raises:
        FailedPreconditionError: it is not installed.
    """
    from podium.core.packages import needed

    return needed(module, "pyarrow", "a Parquet file")


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    from datetime import datetime

    made = {**row}
    for name in JSON_COLUMNS:
        if made[name] is not None:
            made[name] = json.dumps(made[name], ensure_ascii=False, allow_nan=False)
    for name in ("start_time", "end_time"):
        if made[name] is not None:
            made[name] = datetime.fromisoformat(made[name])
    return made


def mode_of(target: Path, new: int) -> int:
    """That of what is there, or of new ones as the umask leaves it."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return new & ~mask


def refused(words: str) -> CliError:
    """Of an output that was asked for wrongly."""
    return CliError(words, code=Exit.USAGE)
