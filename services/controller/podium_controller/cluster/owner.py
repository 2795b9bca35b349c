"""The object that everything goes with which the controller makes."""

from __future__ import annotations

from podium.core.errors import InvalidArgumentError, Violation
from podium.kit.kubernetes.api import ClusterApi, Resource
from podium.kit.kubernetes.object_template import Manifest


class Owner:
    """Known by name; the cluster is asked once for its uid."""

    def __init__(self, api: ClusterApi, name: str) -> None:
        """`name` is `apiVersion/Kind/name`; empty for no owner.

        Raises:
            InvalidArgumentError: the name cannot be read.
        """
        self._api = api
        self._name = _parsed(name) if name else None
        self._found: Manifest | None = None

    async def reference(self) -> Manifest | None:
        """apiVersion, kind and metadata with name and uid; None when there is no owner."""
        if self._name is not None and self._found is None:
            resource, kind, name = self._name
            found = await self._api.get(resource, name)
            self._found = {
                "apiVersion": resource.api_version,
                "kind": kind,
                "metadata": {"name": name, "uid": found["metadata"]["uid"]},
            }
        return self._found


def _parsed(owner: str) -> tuple[Resource, str, str]:
    api_version, _, name = owner.rpartition("/")
    api_version, _, kind = api_version.rpartition("/")
    if not (api_version and kind and name):
        raise InvalidArgumentError(
            violations=[
                Violation(
                    "trainer_owner",
                    f"got {owner!r}; allowed is apiVersion/Kind/name, such as"
                    " apps/v1/Deployment/podium-controller",
                )
            ]
        )
    return Resource(api_version, f"{kind.lower()}s"), kind, name
