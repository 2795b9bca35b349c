"""Every setting of a service stands in its README."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from podium.kit.rpc import ServerSettings

ROOT = Path(__file__).parents[3]
SERVICES = ("controller", "inference", "judge", "registry", "rollout", "trainer")


@pytest.mark.parametrize("service", SERVICES)
def test_settings_of_a_service_stand_in_its_readme(service: str) -> None:
    settings = importlib.import_module(f"podium_{service}.settings").Settings
    text = (ROOT / "services" / service / "README.md").read_text()
    quoted = " ".join(re.findall(r"`([^`\n]+)`", text))
    told = set(re.findall(r"[A-Z][A-Z0-9_]+", quoted.replace(f"PODIUM_{service.upper()}_", " ")))
    own = {name.upper() for name in set(settings.model_fields) - set(ServerSettings.model_fields)}
    missing = {name for name in own if name not in told}
    assert missing == set()
