"""What a manifest, its numbers and its aliases must be."""

from __future__ import annotations

import math
from collections.abc import Mapping

from podium.core.errors import InvalidArgumentError, NotFoundError, Violation
from podium.registry.v1 import registry_service_pb2 as pb

LATEST = "latest"
"""The alias that the registry itself moves."""


def check_manifest(manifest: pb.Manifest) -> None:
    """The files can lie in one folder, and every metric is finite.

    Raises:
        InvalidArgumentError: naming each that is not so.
    """
    paths = [file.path for file in manifest.files]
    folders = {
        "/".join(parts[:depth])
        for parts in (path.split("/") for path in paths)
        for depth in range(1, len(parts))
    }
    seen: set[str] = set()
    violations = []
    for index, path in enumerate(paths):
        field = f"manifest.files[{index}].path"
        if path in seen:
            violations.append(Violation(field, f"{path!r} stands twice"))
        elif path in folders:
            violations.append(Violation(field, f"{path!r} is a folder of another file"))
        seen.add(path)
    if violations:
        raise InvalidArgumentError(violations=violations)
    check_finite(manifest.metrics, "manifest.metrics")


def check_sizes(manifest: pb.Manifest, stored: Mapping[str, int]) -> None:
    """Each file has the size of its blob, in bytes; `stored` has them by digest.

    Raises:
        InvalidArgumentError: naming each that has another.
    """
    violations = [
        Violation(
            f"manifest.files[{index}].size",
            f"got {file.size}; the stored blob has {stored[file.digest]} bytes",
        )
        for index, file in enumerate(manifest.files)
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
