"""Scenarios of files and data sets: checked, without duplicates, no split in another."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from podium.core.errors import FailedPreconditionError, InvalidArgumentError, Violation
from podium.environments.scenarios.mapping import Mapped, mapped
from podium.environments.scenarios.rows import RowError, rows
from podium.environments.scenarios.source import ScenarioSource
from podium.environments.scenarios.splits import HELDOUT, TRAIN
from podium.environments.types import Scenario

log = logging.getLogger(__name__)

ROOT_VARIABLE = "PODIUM_SCENARIOS_DIR"
SPLITS = (TRAIN, HELDOUT)
_MOST_COMPLAINTS = 20
_SHOWN = 300


@dataclass
class Counts:
    """What became of the rows of a source."""

    rows: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    """Scenarios by split."""
    duplicates: int = 0
    """Rows that say what an earlier one of the same split says."""
    leaked: int = 0
    """Rows of train left out because another split has them too."""


def stream_scenarios(
    source: ScenarioSource | str,
    split: str,
    *,
    splits: Sequence[str] = SPLITS,
    root: Path | None = None,
    counts: Counts | None = None,
) -> Iterator[Scenario]:
    """The scenarios of one split, in the order of the source, while it is read.

    Of rows with the same content the first counts, and train has none of another split: for it
    the source is read twice. Memory grows by the ids and digests of the rows alone.

    Args:
        source: where to read and how; a text is a path.
        split: which one.
        splits: all that there may be.
        root: paths must lie below it, and are relative to it; any path without it.
        counts: counts along.

    Raises:
        InvalidArgumentError: there is no such source, or a row is wrong; names up to 20 of its
            faults with file, line and field.
        FailedPreconditionError: a package that reads it is not installed.
    """
    source = ScenarioSource.model_validate(source) if isinstance(source, str) else source
    counts = Counts() if counts is None else counts
    path = _path(source, root)
    elsewhere = _elsewhere(source, path, splits) if split == TRAIN else frozenset()
    seen: set[bytes] = set()
    for found in _checked(source, path, splits, lambda name: source.split_named(name) == split):
        counts.rows += 1
        if found.scenario.split != split:
            continue
        if found.group in elsewhere:
            counts.leaked += 1
        elif found.content in seen:
            counts.duplicates += 1
        else:
            seen.add(found.content)
            counts.kept[split] += 1
            yield found.scenario
            if counts.kept[split] == source.limit:
                return


def load_scenarios(
    source: ScenarioSource | str,
    split: str,
    *,
    splits: Sequence[str] = SPLITS,
    root: Path | None = None,
) -> list[Scenario]:
    """See `stream_scenarios`; the log tells of rows that were left out."""
    counts = Counts()
    found = list(stream_scenarios(source, split, splits=splits, root=root, counts=counts))
    if counts.duplicates or counts.leaked:
        log.warning(
            "scenarios left out",
            extra={"split": split, "duplicates": counts.duplicates, "leaked": counts.leaked},
        )
    return found


def listed_scenarios(
    source: ScenarioSource, split: str, splits: Sequence[str]
) -> Sequence[Scenario]:
    """The scenarios that a job names, below the folder in PODIUM_SCENARIOS_DIR.

    What was read stays in memory until the file changes.

    Raises:
        InvalidArgumentError: as `stream_scenarios`, with the field `environment.config.scenarios`;
            or the split has none.
        FailedPreconditionError: no folder is set, or a package is missing.
    """
    folder = os.environ.get(ROOT_VARIABLE, "")
    # Whoever writes a job must not read the files of whoever runs the service.
    if source.path and not folder:
        raise FailedPreconditionError(
            f"environment.config.scenarios names a file, and {ROOT_VARIABLE} does not say where "
            "such files are; set it where the environment runs",
            reason="NO_SCENARIOS_DIR",
        )
    root = Path(folder).resolve() if source.path else None
    try:
        return _listed(
            source.model_dump_json(exclude_unset=True),
            split,
            tuple(splits),
            root,
            _stamp(source, root),
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            violations=[
                Violation(f"environment.config.scenarios: {one.field}", one.description)
                for one in error.violations
            ]
        ) from error


@lru_cache(maxsize=8)
def _listed(
    source: str, split: str, splits: tuple[str, ...], root: Path | None, stamp: object
) -> Sequence[Scenario]:
    read = ScenarioSource.model_validate_json(source)
    found = load_scenarios(read, split, splits=splits, root=root)
    if not found:
        raise InvalidArgumentError(
            violations=[
                Violation(read.path or read.dataset, f"has no scenario of the split {split!r}")
            ]
        )
    return found


def _path(source: ScenarioSource, root: Path | None) -> Path | None:
    if not source.path:
        return None
    try:
        path = (root / source.path if root else Path(source.path)).resolve()
        there, is_file, is_folder = path.exists(), path.is_file(), path.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        # A RuntimeError is a link to itself.
        why = getattr(error, "strerror", None) or error
        raise _no_source(source, f"it cannot be read: {why}") from None
    if root is not None and not path.is_relative_to(root.resolve()):
        raise _no_source(source, "allowed are paths below the folder of scenarios")
    if not there:
        raise _no_source(source, "there is no such file or folder")
    if not is_file and not is_folder:
        # It may be read twice, and a pipe without a writer never ends.
        raise _no_source(source, "it is neither a file nor a folder")
    if (source.kind == "dataset") != is_folder:
        raise _no_source(
            source,
            "allowed are .jsonl and .parquet files, and folders of Hugging Face data sets; "
            "`format` tells what a file without such an ending is",
        )
    return path


def _no_source(source: ScenarioSource, why: str) -> InvalidArgumentError:
    path = source.path if len(source.path) <= _SHOWN else f"{source.path[:_SHOWN]}…"
    return InvalidArgumentError(violations=[Violation("path", f"got {path!r}; {why}")])


def _stamp(source: ScenarioSource, root: Path | None) -> object:
    path = _path(source, root)
    if path is None:
        return None
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return tuple((str(file), (stat := file.stat()).st_mtime_ns, stat.st_size) for file in files)


def _elsewhere(
    source: ScenarioSource, path: Path | None, splits: Sequence[str]
) -> frozenset[bytes]:
    """Keys of what splits other than train hold, as far as the source itself says so."""
    found = _checked(source, path, splits, lambda name: source.split_named(name) != TRAIN)
    return frozenset(one.group for one in found if one.scenario.split != TRAIN)


def _checked(
    source: ScenarioSource,
    path: Path | None,
    splits: Sequence[str],
    wanted: Callable[[str], bool],
) -> Iterator[Mapped]:
    """Every row's scenario; ids are unique, but for rows of the same content."""
    ids: dict[str, tuple[bytes, str]] = {}
    complaints: list[Violation] = []
    for row in rows(source, path, wanted):
        found = [row.violation] if isinstance(row, RowError) else mapped(row, source, splits)
        if isinstance(found, Mapped):
            id_ = found.scenario.id
            content, where = ids.setdefault(id_, (found.content, found.where))
            if content == found.content:
                if not complaints:
                    yield found
                continue
            found = [
                Violation(
                    f"{found.where}: {source.columns.id}",
                    f"got {id_!r}, which {where} has for other data; ids must be unique, "
                    "`columns: {id: null}` makes them from the data",
                )
            ]
        complaints += found
        if len(complaints) >= _MOST_COMPLAINTS:
            break
    if complaints:
        raise InvalidArgumentError(violations=complaints[:_MOST_COMPLAINTS])
