"""A double of the Kubernetes API as `ClusterApi` shows it: objects in memory, nobody at work."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncGenerator
from typing import Any

from podium.core.errors import AlreadyExistsError, NotFoundError, PodiumError
from podium.kit.kubernetes.api import Resource, Selection

Manifest = dict[str, Any]


class FakeApi:
    """One namespace."""

    namespace = "here"

    def __init__(self) -> None:
        self.apis: set[str] = set()
        """What it serves beyond Kubernetes' own: `group` and `group/version`."""
        self.calls: list[str] = []
        """As `create jobs`; what is watched left out."""
        self.lingers = False
        """Whether what goes after all that it owns stays there until it is removed."""
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.fault: PodiumError | None = None
        """Raised by every creation."""
        self._uids = itertools.count(1)
        self._watchers: list[tuple[str, asyncio.Queue[Manifest]]] = []

    def of(self, resource: Resource) -> list[Manifest]:
        return [item for (plural, _), item in self.objects.items() if plural == resource.plural]

    def put(self, resource: Resource, item: Manifest) -> None:
        """Adds or changes an object, as the cluster itself does."""
        key = (resource.plural, item["metadata"]["name"])
        kind = "MODIFIED" if key in self.objects else "ADDED"
        item["metadata"].setdefault("uid", f"uid-{next(self._uids)}")
        self.objects[key] = item
        self._tell(resource.plural, kind, item)

    def remove(self, resource: Resource, name: str) -> None:
        """It is gone, and what it owned."""
        self._remove(resource.plural, name)

    def _remove(self, plural: str, name: str) -> None:
        item = self.objects.pop((plural, name))
        self._tell(plural, "DELETED", item)
        uid = item["metadata"]["uid"]
        for (kind, owned), other in list(self.objects.items()):
            if any(o["uid"] == uid for o in other["metadata"].get("ownerReferences", [])):
                self._remove(kind, owned)

    async def serves(self, api: str) -> bool:
        self.calls.append("get groups")
        return api in self.apis

    async def create(self, resource: Resource, body: Manifest) -> Manifest:
        self.calls.append(f"create {resource.plural}")
        if self.fault is not None:
            raise self.fault
        if "." in resource.api_version and resource.api_version not in self.apis:
            raise NotFoundError("the server could not find the requested resource")
        name = body["metadata"]["name"]
        if (resource.plural, name) in self.objects:
            raise AlreadyExistsError(f"{resource.plural} {name!r} already exists")
        made = copy.deepcopy(body)
        self.put(resource, made)
        return copy.deepcopy(made)

    async def get(self, resource: Resource, name: str) -> Manifest:
        self.calls.append(f"get {resource.plural}")
        try:
            return copy.deepcopy(self.objects[resource.plural, name])
        except KeyError:
            raise NotFoundError(f"{resource.plural} {name!r} not found") from None

    async def delete(self, resource: Resource, name: str, uid: str) -> None:
        self.calls.append(f"delete {resource.plural}")
        found = self.objects.get((resource.plural, name))
        if found is None or found["metadata"]["uid"] != uid:
            return
        if resource.removal == "Foreground" and self.lingers:
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self.put(resource, found)
        else:
            self.remove(resource, name)

    async def list_all(self, selection: Selection) -> tuple[list[Manifest], str]:
        found = [each for each in self.of(selection.resource) if _selects(selection.labels, each)]
        return copy.deepcopy(found), "1"

    async def watch(self, selection: Selection, version: str) -> AsyncGenerator[Manifest, None]:
        queue: asyncio.Queue[Manifest] = asyncio.Queue()
        self._watchers.append((selection.resource.plural, queue))
        while True:
            event = await queue.get()
            if _selects(selection.labels, event["object"]):
                yield event

    def _tell(self, plural: str, kind: str, item: Manifest) -> None:
        item["metadata"]["resourceVersion"] = str(next(self._uids))
        for wanted, queue in self._watchers:
            if wanted == plural:
                queue.put_nowait({"type": kind, "object": copy.deepcopy(item)})


def _selects(selector: str, item: Manifest) -> bool:
    """As a label selector of keys, and of keys with values."""
    labels = item["metadata"].get("labels") or {}
    wanted = [term.partition("=") for term in selector.split(",") if term]
    return all(
        labels.get(key) == value if equals else key in labels for key, equals, value in wanted
    )
