"""What variables say of a service beside its own defaults."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import pytest
from podium.kit.rpc import ServerSettings

SERVICES = ("console", "controller", "inference", "judge", "registry", "rollout", "trainer")
GITOPS = "gitops"
TRACKING = "tracking"
CLIENTS = (GITOPS, TRACKING)
"""Services that are clients of the others, and off by default."""


def settings_class(service: str) -> type[ServerSettings]:
    """The home of a service's defaults."""
    found: type[ServerSettings] = importlib.import_module(f"podium_{service}.settings").Settings
    return found


def others_than_its_own(
    service: str, variables: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> dict[str, object]:
    """The settings to which the variables give another value than the service's default."""
    kind = settings_class(service)
    prefix = f"PODIUM_{service.upper()}_"
    own = {name: value for name, value in variables.items() if name.startswith(prefix)}
    with monkeypatch.context() as patched:
        for name, value in own.items():
            patched.setenv(name, value)
        settings = kind()
    given = {name: getattr(settings, name.removeprefix(prefix).lower()) for name in own}
    fields = {name: kind.model_fields[name.removeprefix(prefix).lower()] for name in own}
    return {
        name.removeprefix(prefix).lower(): value
        for name, value in given.items()
        if value != fields[name].get_default(call_default_factory=True)
    }
