"""Every setting of a service stands in its README, with the default that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from podium.kit.rpc import ServerSettings
from pydantic import SecretStr
from support.defaults import CLIENTS, SERVICES, settings_class

ROOT = Path(__file__).parents[3]
WRITTEN_FOR_PEOPLE = {"1 TiB": str(1 << 40)}
ADDRESSES = "127.0.0.1:50052 … 50056"
"""Of the peers, in the order of their ports."""


@pytest.mark.parametrize("service", SERVICES)
def test_settings_of_a_service_stand_in_its_readme(service: str) -> None:
    settings = settings_class(service)
    text = (ROOT / "services" / service / "README.md").read_text()
    quoted = " ".join(re.findall(r"`([^`\n]+)`", text))
    told = set(re.findall(r"[A-Z][A-Z0-9_]+", quoted.replace(f"PODIUM_{service.upper()}_", " ")))
    own = {name.upper() for name in set(settings.model_fields) - set(ServerSettings.model_fields)}
    missing = {name for name in own if name not in told}
    assert missing == set()


def rows(service: str) -> Iterator[tuple[list[str], list[str]]]:
    """The variables of each row of the table of settings, and what is said of their defaults."""
    settings = False
    for line in (ROOT / "services" / service / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) < 2:
            settings = False
        elif cells[1] == "default":
            settings = True
        elif settings and not cells[0].startswith("-"):
            prefix = f"PODIUM_{service.upper()}_"
            named = re.findall(r"`([A-Z_]+)`", cells[0])
            names = [name.removeprefix(prefix).strip("_").lower() for name in named]
            said = cells[1].replace("`", "")
            several = len(names) > 1 and ", " in said
            yield names, said.split(", ") if several else [said] * len(names)


@pytest.mark.parametrize("service", [*SERVICES, *CLIENTS])
def test_a_readme_tells_the_defaults_that_the_settings_have(service: str) -> None:
    fields = settings_class(service).model_fields
    found = [
        (name, told)
        for names, said in rows(service)
        for name, told in zip(names, said, strict=True)
        if name in fields
    ]
    assert len(found) >= 4
    for name, told in found:
        default = fields[name].get_default(call_default_factory=True)
        if default == SecretStr("") or default in ("", None, (), {}):
            continue
        text = f"{default:g}" if isinstance(default, float) else str(default)
        if told == ADDRESSES:
            assert text in [f"127.0.0.1:{port}" for port in range(50052, 50057)], name
        else:
            assert WRITTEN_FOR_PEOPLE.get(told, told).lower() == text.lower(), name
