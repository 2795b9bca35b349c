"""Where the SDK looks for the services."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.core.errors import InvalidArgumentError, NotFoundError
from podium.launcher.upfile import Claim, ServiceEntry, UpFile
from podium.sdk import contexts
from podium.sdk.addresses import Addresses, locate
from podium.sdk.contexts import Context, Contexts, Kubernetes, ServiceAddresses


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


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two contexts, `lab` in use."""
    addresses = ServiceAddresses(controller="lab:1", registry="lab:2")
    monkeypatch.setenv("LAB_TOKEN", "lab's")
    saved = {
        "lab": Context(addresses=addresses, token_env="LAB_TOKEN"),
        "cluster": Context(kubernetes=Kubernetes(context="c")),
    }
    contexts.save(Contexts(current="lab", contexts=saved))


@pytest.mark.usefixtures("lab")
def test_the_context_in_use_goes_before_what_runs_here(tmp_path: Path) -> None:
    claim = running(tmp_path / ".podium", token="secret")
    found = locate()
    assert (found.controller, found.registry, found.token) == ("lab:1", "lab:2", "lab's")
    assert (found.source, found.elsewhere) == ("the context lab", True)
    assert found.inference == "", "a laptop's pool is not the lab's"
    claim.release()


@pytest.mark.usefixtures("lab")
def test_a_data_directory_that_is_named_goes_before_the_context_in_use(tmp_path: Path) -> None:
    claim = running(tmp_path / "stack", token="secret")
    found = locate(data_dir=tmp_path / "stack")
    assert (found.controller, found.token) == ("127.0.0.1:7000", "secret")
    assert locate("", tmp_path / "stack", "lab").controller == "lab:1"
    claim.release()
    assert locate(data_dir=tmp_path / "stack") == Addresses()


@pytest.mark.usefixtures("lab")
def test_the_environment_goes_before_the_context_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_REGISTRY_ADDRESS", "env:2")
    monkeypatch.setenv("PODIUM_TOKEN", "mine")
    found = locate()
    assert (found.controller, found.registry, found.token) == ("lab:1", "env:2", "mine")
    monkeypatch.delenv("PODIUM_TOKEN")
    monkeypatch.setenv("PODIUM_ADDRESS", "env:1")
    found = locate()
    assert (found.controller, found.registry) == ("env:1", "env:2")
    assert (found.token, found.kubernetes) == ("", None), "nothing of the context is mixed in"


@pytest.mark.usefixtures("lab")
def test_a_context_by_name_is_that_context_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ADDRESS", "env:1"), ("REGISTRY_ADDRESS", "env:2"), ("TOKEN", "mine")):
        monkeypatch.setenv(f"PODIUM_{name}", value)
    monkeypatch.setenv("PODIUM_CONTEXT", "lab")
    found = locate(context="lab")
    assert (found.controller, found.registry, found.token) == ("lab:1", "lab:2", "lab's")
    found = locate(context="cluster")
    assert (found.controller, found.token) == ("", "")
    assert found.kubernetes == Kubernetes(context="c")


@pytest.mark.usefixtures("lab")
def test_the_variable_chooses_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODIUM_CONTEXT", "cluster")
    assert locate().source == "the context cluster"
    assert locate("there:1").controller == "there:1"
    monkeypatch.setenv("PODIUM_CONTEXT", "nope")
    with pytest.raises(NotFoundError, match="no context 'nope'; there are: lab, cluster"):
        locate()


@pytest.mark.usefixtures("lab")
def test_an_address_and_a_context_are_not_both_given() -> None:
    with pytest.raises(InvalidArgumentError, match="not both"):
        locate("there:1", None, "lab")


def test_a_current_context_that_is_gone_is_not_passed_over() -> None:
    contexts.save(Contexts(current="lab"))
    with pytest.raises(NotFoundError, match="no context 'lab'; there are: none"):
        locate()


def test_a_broken_file_harms_nobody_who_gives_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts.folder().mkdir()
    contexts.path().write_text("contexts: 3")
    with pytest.raises(InvalidArgumentError):
        locate()
    assert locate("there:1").controller == "there:1"
    monkeypatch.setenv("PODIUM_ADDRESS", "env:1")
    assert locate().controller == "env:1"
