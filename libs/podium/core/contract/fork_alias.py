"""`fork: {model: JOB, version: best}`: a job file may name a checkpoint by its alias.

The contract knows versions by number. The alias is taken out of what was
written and looked up when the job is submitted, as `podium eval -a JOB@best`
does, so a job says for ever from which checkpoint it started.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from podium.core.contract.nodes import STR, compose
from podium.core.errors import Violation

if TYPE_CHECKING:
    from podium.core.policy_names import VersionOf
    from podium.types.v1 import spec_pb2

KEY = "fork.version"
"""The key that takes an alias."""
ALIAS = r"[a-z]([-a-z0-9]*[a-z0-9])?"
"""What an alias looks like; it never looks like a version."""


class TakenAlias(NamedTuple):
    """An alias, empty where none was written, and the rest of a job file."""

    alias: str
    violations: list[Violation]
    settings: list[str]


def take_alias(text: str, violations: Sequence[Violation], settings: Sequence[str]) -> TakenAlias:
    """Takes the alias out of a job file's problems and of its `--set`; the last one counts."""
    root, _ = compose(text)
    alias = alias_in(root)
    left = without(violations, alias)
    kept = []
    for setting in settings:
        key, _, value = (part.strip() for part in setting.partition("="))
        named = key == KEY and re.fullmatch(ALIAS, value)
        if key == KEY:
            alias = value if named else ""
            left = [each for each in left if each.field != KEY]
        if not named:
            kept.append(setting)
    return TakenAlias(alias, left, kept)


def alias_in(root: yaml.Node | None) -> str:
    """The alias that a job's root node names; empty for none."""
    return alias_of(_value(root, "fork"))


def alias_of(fork: yaml.Node | None) -> str:
    """The alias that a fork's node names; empty for none."""
    node = _value(fork, "version")
    if isinstance(node, yaml.ScalarNode) and node.tag == STR and re.fullmatch(ALIAS, node.value):
        return str(node.value)
    return ""


def without(violations: Sequence[Violation], alias: str, key: str = KEY) -> list[Violation]:
    """The violations but that of an alias, which the contract knows nothing of."""
    return [each for each in violations if not (alias and each.field == key)]


async def resolve(spec: spec_pb2.JobSpec, alias: str, version_of: VersionOf) -> None:
    """Sets the fork's version to the one that the alias stands for now.

    A spec without a fork's model has no fork, whatever its version says.

    Raises:
        NotFoundError: the model has no such alias.
    """
    from podium.core.policy_names import resolve_policy

    if alias and spec.fork.model:
        found = await resolve_policy(f"{spec.fork.model}@{alias}", version_of)
        spec.fork.version = found.version


def widen(schema: dict[str, Any]) -> None:
    """Lets a job's JSON Schema take what `take_alias` does."""
    version = schema["properties"]["fork"]["properties"]["version"]
    version["type"] = [version["type"], "string"]
    version["pattern"] = f"^(?:{ALIAS})$"


def _value(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    found = [value for name, value in node.value if name.value == key]
    # Of a key that is there twice the reader keeps the first, and says so.
    return found[0] if found else None
