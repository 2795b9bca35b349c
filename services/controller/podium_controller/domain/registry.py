"""What the loop needs from the registry; see `ports`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from podium.registry.v1 import registry_service_pb2 as registry_pb


class Registry(Protocol):
    """Knows the published versions."""

    async def version(self, model: str, version: int) -> registry_pb.Version | None:
        """A version by number; None when there is none."""

    async def alias(self, model: str, alias: str) -> registry_pb.Version | None:
        """The version that an alias points at; None when there is none."""

    async def resumable(self, model: str, version: int) -> registry_pb.Version | None:
        """The newest version up to one that has state; None when none has."""

    async def fork(self, model: str, version: int, name: str) -> None:
        """Makes a version of that number of another model, from the same files; once."""

    async def set_alias(self, model: str, alias: str, version: int, expected: int) -> None:
        """Moves an alias from `expected` (-1 for nowhere) to `version`."""

    async def record_evaluation(
        self, model: str, version: int, metrics: Mapping[str, float]
    ) -> None:
        """Adds numbers to a version."""

    async def apply_retention(
        self,
        model: str,
        keep_last: int,
        keep_best: int,
        metric: str,
        lower_is_better: bool,
        keep_versions: Sequence[int],
    ) -> None:
        """Deletes the versions that the rule does not keep, nor `keep_versions` names."""
