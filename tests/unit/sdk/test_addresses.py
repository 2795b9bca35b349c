"""Where the SDK looks for the services."""

from __future__ import annotations

from pathlib import Path

import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from podium.local.launcher.upfile import Claim, ServiceEntry, UpFile
from podium.sdk import AsyncClient
from podium.sdk.connection import contexts
from podium.sdk.connection.addresses import DATA_DIR, THIS_MACHINE, Addresses, locate
from podium.sdk.connection.contexts import Context, Contexts, Kubernetes, ServiceAddresses


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
    assert locate() == THIS_MACHINE


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
    assert found.inference == "", "another stack's may be at the default port"
    assert found.token == "secret"
    assert found.source.endswith("up.json")
    assert "secret" not in repr(found)
    claim.release()
    assert locate() == THIS_MACHINE


def test_stale_up_json_is_not_used(tmp_path: Path) -> None:
    claim = running(tmp_path / ".podium")
    text = (tmp_path / ".podium" / "up.json").read_text()
    claim.release()
    (tmp_path / ".podium" / "up.json").write_text(text)
    assert locate() == THIS_MACHINE


def test_a_given_controller_is_not_mixed_with_a_local_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running(tmp_path / ".podium", token="secret")
    found = locate("there:1")
    assert (found.controller, found.registry) == ("there:1", "")
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
    claim.release()


async def test_a_data_directory_without_a_stack_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running(tmp_path / ".podium")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "does-not-exist"):
        with pytest.raises(NotFoundError, match=f"nothing runs in the data directory .*{name}"):
            locate(data_dir=tmp_path / name)
        monkeypatch.setenv(DATA_DIR, name)
        with pytest.raises(NotFoundError, match=name):
            AsyncClient()
        assert not (tmp_path / "does-not-exist").exists()
    claim.release()


def test_the_sdk_follows_the_data_directory_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running(tmp_path / "stack", token="secret")
    monkeypatch.setenv(DATA_DIR, str(tmp_path / "stack"))
    assert AsyncClient().addresses.controller == "127.0.0.1:7000"
    assert locate("there:1").controller == "there:1"
    claim.release()


def test_a_data_directory_by_name_is_that_stack_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running(tmp_path / "stack", token="secret")
    for name in ("ADDRESS", "REGISTRY_ADDRESS", "TOKEN"):
        monkeypatch.setenv(f"PODIUM_{name}", "other:1")
    found = locate(data_dir=tmp_path / "stack")
    assert (found.controller, found.registry) == ("127.0.0.1:7000", "127.0.0.1:7001")
    assert found.token == "secret"
    claim.release()


async def test_services_that_were_not_named_are_unknown_and_say_their_variable() -> None:
    async with AsyncClient(locate("there:1")) as client:
        with pytest.raises(FailedPreconditionError) as raised:
            await client.environments.list()
    assert "--address names no address of the rollout service" in raised.value.message
    assert "PODIUM_ROLLOUT_ADDRESS" in raised.value.message
    async with AsyncClient(Addresses(controller="there:1")) as client:
        with pytest.raises(FailedPreconditionError, match="PODIUM_REGISTRY_ADDRESS"):
            await client.checkpoints.get("w")


@pytest.mark.parametrize("wrong", ["http://there:1", "https://there", "there", "there:x"])
def test_what_is_no_address_is_refused(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgumentError, match=r"--address: got .*allowed is host:port"):
        locate(wrong)
    monkeypatch.setenv("PODIUM_JUDGE_ADDRESS", wrong)
    with pytest.raises(InvalidArgumentError, match="PODIUM_JUDGE_ADDRESS: got"):
        locate("there:1")


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
def test_only_one_of_address_context_and_data_directory_is_given(tmp_path: Path) -> None:
    for given in (("there:1", None, "lab"), ("there:1", tmp_path, ""), ("", tmp_path, "lab")):
        with pytest.raises(InvalidArgumentError, match="name one of"):
            locate(*given)


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
