"""`ports.Registry` in memory, by the rules of `podium_registry.adapters.versions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from podium.core.errors import (
    AbortedError,
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
)
from podium.registry.v1 import registry_service_pb2 as pb
from support.fakes.wire import Wire

LATEST = "latest"
Weights = tuple[object, ...]
"""All that they were trained on, in order: what two versions differ in can be read."""


@dataclass
class Stored:
    """A version."""

    manifest: pb.Manifest
    weights: Weights
    state: Weights | None = None
    """What resumes it, which is of the same weights unless a step came out otherwise."""
    damaged: bool = False
    evaluation: dict[str, float] = field(default_factory=dict)

    def message(self) -> pb.Version:
        files = [pb.File(path="state/state.json")] if self.state is not None else []
        return pb.Version(
            manifest=self.manifest, evaluation_metrics=self.evaluation, state_files=files
        )


class FakeRegistry:
    """The versions of every model. What trainers and pools do with it is done at once."""

    def __init__(self, wire: Wire | None = None) -> None:
        self._wire = wire or Wire()
        self.models: dict[str, dict[int, Stored]] = {}
        self.aliases: dict[tuple[str, str], int] = {}
        self._requests: dict[tuple[str, int], Weights] = {}
        """What was published, deleted since or not: a request has one effect."""
        self.published: list[tuple[str, int]] = []
        """Every version that was ever made, in order."""
        self.resumed: list[tuple[str, int]] = []
        """Every version to which state was added, in order."""

    async def version(self, model: str, version: int) -> pb.Version | None:
        def handle() -> pb.Version | None:
            found = self.models.get(model, {}).get(version)
            return found.message() if found else None

        return await self._wire.call("registry", "version", handle)

    async def alias(self, model: str, alias: str) -> pb.Version | None:
        def handle() -> pb.Version | None:
            version = self.aliases.get((model, alias))
            return None if version is None else self.models[model][version].message()

        return await self._wire.call("registry", "version", handle)

    async def resumable(self, model: str, version: int) -> pb.Version | None:
        def handle() -> pb.Version | None:
            found = [
                stored.message()
                for number, stored in sorted(self.models.get(model, {}).items())
                if number <= version and stored.state is not None
            ]
            return found[-1] if found else None

        return await self._wire.call("registry", "version", handle)

    async def fork(self, model: str, version: int, name: str) -> None:
        def handle() -> None:
            if version in self.models.get(name, {}):
                return
            source = self.find(model, version)
            manifest = pb.Manifest()
            manifest.CopyFrom(source.manifest)
            manifest.model = name
            del manifest.group_ids[:]
            self.create(manifest, source.weights)
            if source.state is not None:
                self.add_state(name, version, source.state)

        await self._wire.call("registry", "fork", handle)

    async def set_alias(self, model: str, alias: str, version: int, expected: int) -> None:
        def handle() -> None:
            self.find(model, version)
            if self.aliases.get((model, alias), -1) != expected:
                raise AbortedError(f"alias {alias!r} was moved", reason="ALIAS_MOVED")
            self.aliases[model, alias] = version

        await self._wire.call("registry", "set_alias", handle)

    async def record_evaluation(
        self, model: str, version: int, metrics: Mapping[str, float]
    ) -> None:
        numbers = dict(metrics)
        await self._wire.call(
            "registry",
            "record_evaluation",
            lambda: self.find(model, version).evaluation.update(numbers),
        )

    async def apply_retention(
        self,
        model: str,
        keep_last: int,
        keep_best: int,
        metric: str,
        lower_is_better: bool,
        keep_versions: Sequence[int],
    ) -> None:
        def handle() -> None:
            versions = self.models.get(model, {})
            kept = set(sorted(versions)[-keep_last:])
            resumable = [n for n in sorted(versions) if versions[n].state is not None]
            kept |= {*resumable[-min(keep_last, 2) :], *keep_versions}
            ranked = []
            for number, stored in versions.items():
                own, made = stored.evaluation, stored.manifest.metrics
                if metric in own or metric in made:
                    value = own[metric] if metric in own else made[metric]
                    ranked.append((value if lower_is_better else -value, -number))
            kept |= {-number for _, number in sorted(ranked)[:keep_best]}
            kept |= {number for (name, _), number in self.aliases.items() if name == model}
            for number in versions.keys() - kept:
                del versions[number]

        await self._wire.call("registry", "apply_retention", handle)

    def find(self, model: str, version: int) -> Stored:
        """A version.

        Raises:
            NotFoundError: there is none.
        """
        found = self.models.get(model, {}).get(version)
        if found is None:
            raise _no_version(model, version)
        return found

    def pull(self, model: str, version: int) -> Weights:
        """The weights of a version.

        Raises:
            NotFoundError: there is none.
            DataLossError: BLOB_DAMAGED.
        """
        found = self.find(model, version)
        if found.damaged:
            raise DataLossError(f"{model}@{version} is damaged", reason="BLOB_DAMAGED")
        return found.weights

    def resume(self, model: str, version: int) -> Weights:
        """What a trainer goes on from.

        Raises:
            NotFoundError: there is none.
            FailedPreconditionError: STATE_NOT_STORED.
            DataLossError: BLOB_DAMAGED.
        """
        self.pull(model, version)
        state = self.models[model][version].state
        if state is None:
            raise FailedPreconditionError(
                f"{model}@{version} has weights alone", reason="STATE_NOT_STORED"
            )
        return state

    def add_state(self, model: str, version: int, state: Weights) -> None:
        """Adds what resumes a version; the first that comes stays.

        Raises:
            NotFoundError: there is no such version.
        """
        found = self.find(model, version)
        if found.state is None:
            found.state = state
            self.resumed.append((model, version))

    def create(self, manifest: pb.Manifest, weights: Weights) -> None:
        """Publishes a version, once; the same weights again mend its files, as a push does.

        Raises:
            AlreadyExistsError: VERSION_EXISTS, with other weights.
            NotFoundError: a parent, or what was published so and deleted since.
        """
        key = (manifest.model, manifest.version)
        versions = self.models.setdefault(manifest.model, {})
        known = versions.get(manifest.version)
        if self._requests.setdefault(key, weights) != weights:
            raise AlreadyExistsError(f"version {key[0]}@{key[1]} exists", reason="VERSION_EXISTS")
        if known is not None:
            known.damaged = False
            return
        if key in self.published:
            raise _no_version(*key)
        for parent in manifest.parents:
            self.find(parent.model, parent.version)
        versions[manifest.version] = Stored(manifest, weights)
        self.published.append(key)
        if manifest.version == max(versions):
            self.aliases[manifest.model, LATEST] = manifest.version


def _no_version(model: str, version: int) -> NotFoundError:
    return NotFoundError(f"no version {model}@{version}", reason="VERSION_NOT_FOUND")
