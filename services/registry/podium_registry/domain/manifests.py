"""What a manifest, its numbers and its aliases must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from podium.core.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    Violation,
)
from podium.core.version_state import FOLDER
from podium.registry.v1 import registry_service_pb2 as pb

LATEST = "latest"
"""The alias that the registry itself moves."""


def check_manifest(manifest: pb.Manifest) -> None:
    """The files can lie in one folder, and every metric is finite.

    Raises:
        InvalidArgumentError: naming each that is not so.
    """
    _check_paths([file.path for file in manifest.files], [], "manifest.files")
    check_finite(manifest.metrics, "manifest.metrics")


def _check_paths(paths: Sequence[str], others: Sequence[str], field: str) -> None:
    """The files of a list can lie in one folder with each other, and with those of another."""
    folders = {
        "/".join(parts[:depth])
        for parts in (path.split("/") for path in [*paths, *others])
        for depth in range(1, len(parts))
    }
    seen = set(others)
    violations = []
    for index, path in enumerate(paths):
        if path in seen:
            violations.append(Violation(f"{field}[{index}].path", f"{path!r} stands twice"))
        elif path in folders:
            text = f"{path!r} is a folder of another file"
            violations.append(Violation(f"{field}[{index}].path", text))
        seen.add(path)
    if violations:
        raise InvalidArgumentError(violations=violations)


def check_state(files: Sequence[pb.File], manifest: pb.Manifest) -> None:
    """The files of a state lie under `state/`, and beside the version's others.

    Raises:
        InvalidArgumentError: naming each that is not so.
    """
    violations = [
        Violation(f"files[{index}].path", f"got {file.path!r}; allowed are paths under {FOLDER}")
        for index, file in enumerate(files)
        if not file.path.startswith(FOLDER)
    ]
    if violations:
        raise InvalidArgumentError(violations=violations)
    _check_paths([file.path for file in files], [file.path for file in manifest.files], "files")


def check_stored(
    files: Sequence[pb.File], stored: Mapping[str, int], field: str = "manifest.files"
) -> None:
    """Each file has a blob, and its size, in bytes; `stored` has them by digest.

    Raises:
        FailedPreconditionError: MISSING_BLOB.
        InvalidArgumentError: naming each file that has another size.
    """
    missing = sorted({file.digest for file in files} - stored.keys())
    if missing:
        raise FailedPreconditionError(
            f"{len(missing)} blobs are not stored, first {missing[0]}",
            reason="MISSING_BLOB",
            metadata={"digest": missing[0], "count": str(len(missing))},
        )
    violations = [
        Violation(
            f"{field}[{index}].size",
            f"got {file.size}; the stored blob has {stored[file.digest]} bytes",
        )
        for index, file in enumerate(files)
        if file.size != stored[file.digest]
    ]
    if violations:
        raise InvalidArgumentError(violations=violations)


def check_finite(numbers: Mapping[str, float], field: str) -> None:
    """Raises InvalidArgumentError, naming each number of `field` that is not finite."""
    violations = [
        Violation(f"{field}[{name!r}]", f"got {value}; allowed are finite numbers")
        for name, value in numbers.items()
        if not math.isfinite(value)
    ]
    if violations:
        raise InvalidArgumentError(violations=violations)


def check_alias(alias: str) -> None:
    """Raises InvalidArgumentError for the alias that nobody but the registry may move."""
    if alias == LATEST:
        raise InvalidArgumentError(
            violations=[Violation("alias", "'latest' is moved by the registry itself")]
        )


def no_version(model: str, version: int) -> NotFoundError:
    """VERSION_NOT_FOUND."""
    return NotFoundError(
        f"no version {model}@{version}",
        reason="VERSION_NOT_FOUND",
        metadata={"model": model, "version": str(version)},
    )
