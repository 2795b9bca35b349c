"""A laptop's services have the defaults of their settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.local.launcher import LauncherConfig, variables
from podium.local.launcher.layout import DEFAULT_PORT_BASE, SERVICES, choose_ports
from support.defaults import others_than_its_own

ON_PURPOSE = {
    "drain_seconds": "Ctrl-C should not wait for the longest call",
    "log_format": "the launcher reads its children's lines",
    "tell_failures": "whose machine it is may know what listens on it",
    "data_dir": "the launcher's own, wherever that is",
    "auth_tokens_file": "asked for by auth",
    "token_file": "asked for by auth",
    "api_keys_file": "asked for by auth",
    "key_file": "asked for by auth",
    "tracking": "whether the stack has that service, which a controller alone does not know",
}


def test_no_default_differs_but_on_purpose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PODIUM_JUDGE_BASE_URL", "PODIUM_SCENARIOS_DIR", "PODIUM_TRACE_URL"):
        monkeypatch.delenv(name, raising=False)
    # A machine's GPU is no choice of anybody's.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ports = choose_ports(DEFAULT_PORT_BASE)
    config = LauncherConfig(tmp_path, auth=True)
    found = {
        (service, name): value
        for service in (*SERVICES, "console")
        for name, value in others_than_its_own(
            service, variables.of_service(service, config, ports, tmp_path), monkeypatch
        ).items()
    }
    assert {key: value for key, value in found.items() if key[1] not in ON_PURPOSE} == {}
    assert set(ON_PURPOSE) - {name for _, name in found} == set(), "differ no more"
