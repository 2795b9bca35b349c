"""Where the SDK looks for the services."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.launcher.upfile import Claim, ServiceEntry, UpFile
from podium.sdk.addresses import ENVIRONMENT, Addresses, locate


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*ENVIRONMENT.values(), "PODIUM_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def running(folder: Path, token: str = "") -> Claim:
    claim = Claim(folder)
    token_file = ""
    if token:
        token_file = str(folder / "token")
        Path(token_file).write_text(token + "\n")
    entries = {
        name: ServiceEntry(f"127.0.0.1:{port}", "h", "m", 1, "log")
        for port, name in enumerate(("controller", "registry", "trainer"), start=7000)
    }
    UpFile(1, "0", "model", entries, token_file=token_file).write(folder)
    return claim


def test_defaults_without_anything() -> None:
    assert locate() == Addresses()


def test_up_json_of_a_folder_above_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running(tmp_path / ".podium", token="secret")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    found = locate()
    assert found.controller == "127.0.0.1:7000"
    assert found.registry == "127.0.0.1:7001"
    assert found.inference == Addresses().inference
    assert found.token == "secret"
    assert found.source.endswith("up.json")
    assert "secret" not in repr(found)
    claim.release()
    assert locate() == Addresses()


def test_stale_up_json_is_not_used(tmp_path: Path) -> None:
    claim = running(tmp_path / ".podium")
    text = (tmp_path / ".podium" / "up.json").read_text()
    claim.release()
    (tmp_path / ".podium" / "up.json").write_text(text)
    assert locate() == Addresses()


def test_a_given_controller_is_not_mixed_with_a_local_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running(tmp_path / ".podium", token="secret")
    found = locate("there:1")
    assert (found.controller, found.registry) == ("there:1", Addresses().registry)
    assert found.token == "", "a local token must not go to another installation"
    monkeypatch.setenv("PODIUM_ADDRESS", "env:2")
    monkeypatch.setenv("PODIUM_TOKEN", "mine")
    assert (locate().controller, locate().source) == ("env:2", "PODIUM_ADDRESS")
    assert locate("there:1").controller == "there:1"
    assert locate().token == "mine"
    claim.release()
