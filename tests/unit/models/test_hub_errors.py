"""What the hub's client raises: the hub is away, the name is none, or something else is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from podium.cli.exits import CliError, Exit
from podium.cli.hub import push
from podium.core.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from podium.core.hub_address import wrong_hub_address
from podium.environments.scenarios import ScenarioSource, load_scenarios
from podium.local.models.prepare import _fetch_from_hub, prepare
from support.hub_here import hub_at
from support.hub_uploads import TOKEN, upload_hub


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No hub, and no proxy."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("PODIUM_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with hub_at("http://127.0.0.1:1", tmp_path):
        yield


@pytest.mark.parametrize("name", ["org/a..b", "org/model-", f"org/{'m' * 100}"])
def test_a_name_that_the_hub_cannot_have_is_named_as_wrong(name: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        prepare(name)
    (violation,) = caught.value.violations
    assert violation.field == "base_model"
    assert violation.description.startswith(f"got {name!r}, no name of a Hugging Face model: ")


@pytest.mark.parametrize(
    "given",
    [
        "http://hub.example:99999",
        "http://hub:abc",
        "hub.example",
        "http://[::1",
        "ftp://hub.example",
        "http://",
        "http:// hub/",
        "https://hub/?a=b",
        "",
    ],
)
def test_an_address_that_is_no_hubs_is_named_with_its_variable(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", given)
    with pytest.raises(InvalidArgumentError) as caught:
        prepare("org/model")
    (violation,) = caught.value.violations
    assert violation.field == "HF_ENDPOINT"
    assert violation.description.startswith(f"got {given!r}; allowed are http:// or https://, ")
    with pytest.raises(CliError, match=r"^HF_ENDPOINT: got ") as refused:
        push(tmp_path, "me/agent", None, False, "x")
    assert refused.value.code == Exit.USAGE
    with pytest.raises(FailedPreconditionError, match="HF_ENDPOINT: got ") as unread:
        load_scenarios(ScenarioSource(dataset="org/tasks"), "train")
    assert unread.value.reason == "DATASET_UNREACHABLE"


def test_of_an_address_that_is_no_hubs_no_password_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for given in ("http://me:s3cret@hub:99999", "me:s3/cret@hub"):
        monkeypatch.setenv("HF_ENDPOINT", given)
        told = wrong_hub_address()
        assert "…@hub" in told
        assert "cret" not in told


@pytest.mark.parametrize("given", [None, "https://hub.example", "HTTP://[::1]:8080/hf/"])
def test_an_address_of_a_hub_is_none_to_complain_of(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is None:
        monkeypatch.delenv("HF_ENDPOINT", raising=False)
    else:
        monkeypatch.setenv("HF_ENDPOINT", given)
    assert wrong_hub_address() == ""


@pytest.mark.parametrize("scheme", ["socks", "socks5"])
def test_with_a_proxy_that_its_client_cannot_use_the_hub_is_away(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It reads all of them when it is made, though this hub needs none.
    monkeypatch.setenv("ALL_PROXY", f"{scheme}://user:s3cret@127.0.0.1:9")
    with pytest.raises(UnavailableError, match="could not be fetched") as caught:
        prepare("org/model")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(CliError, match="cannot be reached") as refused:
        push(tmp_path, "me/agent", None, False, "x")
    assert refused.value.code == Exit.UNREACHABLE
    assert "s3cret" not in str(refused.value)


def test_without_a_proxy_what_is_wrong_here_is_no_hub_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="null byte"):
        _fetch_from_hub("org/model", "", Path("a\0b"))
    with (
        upload_hub() as hub,
        hub_at(hub.endpoint, tmp_path),
        pytest.raises(ValueError, match="is not a directory"),
    ):
        push(tmp_path / "missing", "me/agent", None, False, "x")
