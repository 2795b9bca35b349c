"""Policies by name: `base`, `job`, `job@version` and `job@alias`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from podium.core.errors import InvalidArgumentError, Violation
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.types.v1 import policy_pb2

_JOB = r"(?P<job>[a-z0-9]([-a-z0-9]*[a-z0-9])?)"
_NAME = re.compile(_JOB + r"(@(?P<version>[0-9]+))?")
_ALIASED = re.compile(_JOB + r"@(?P<alias>[a-z]([-a-z0-9]*[a-z0-9])?)")

VersionOf = Callable[[str, str], Awaitable[registry_pb.Version]]
"""Reads a model's version by alias, such as `AsyncClient.checkpoints.get`."""


def parse_policy(name: str) -> policy_pb2.PolicyRef:
    """Reads `base`, `job` or `job@version`; empty is `base`.

    Raises:
        InvalidArgumentError: it is none of them.
    """
    return _parsed(name, "`base`, `job` and `job@version`")


async def resolve_policy(name: str, version_of: VersionOf) -> policy_pb2.PolicyRef:
    """As `parse_policy`, and `job@alias`: `best`, `latest` or one's own.

    The alias is looked up here, once: wherever it points later, this is one version.

    Raises:
        InvalidArgumentError: it is none of them.
        NotFoundError: the model has no such alias.
    """
    match = _ALIASED.fullmatch(name)
    if match is None:
        return _parsed(name, "`base`, `job`, `job@version` and `job@alias`")
    found = await version_of(match["job"], match["alias"])
    return policy_pb2.PolicyRef(job=match["job"], version=found.manifest.version)


def _parsed(name: str, allowed: str) -> policy_pb2.PolicyRef:
    if name in ("", "base"):
        return policy_pb2.PolicyRef()
    match = _NAME.fullmatch(name)
    if match is None:
        raise InvalidArgumentError(
            violations=[Violation("policy", f"got {name!r}; allowed are {allowed}")]
        )
    version = match["version"]
    return policy_pb2.PolicyRef(job=match["job"], version=int(version) if version else None)
