"""What `podium up` does before it starts anything."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from podium.cli import stack
from podium.cli.demo.__main__ import demo
from podium.cli.exits import CliError, Exit, show
from podium.cli.main import run
from podium.core.errors import FailedPreconditionError, UnavailableError
from podium.local.launcher import LauncherConfig
from podium.local.models import prepare, resolve
from podium_inference.settings import Settings
from support.document_options import faults


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PODIUM_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("PODIUM_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models"


@pytest.mark.usefixtures("cache")
def test_a_model_of_the_hub_is_fetched_by_up_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, revision: str, target: Path) -> None:
        (target / "config.json").write_text(f'{{"from": "{name}"}}')

    monkeypatch.setattr(prepare, "_fetch_from_hub", fetch)
    stack.get_model("org/model")
    assert (resolve("org/model") / "config.json").read_text() == '{"from": "org/model"}'
    monkeypatch.setattr(prepare, "_fetch_from_hub", None)
    stack.get_model("org/model")


@pytest.mark.usefixtures("cache")
def test_without_a_hub_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, revision: str, target: Path) -> None:
        raise UnavailableError(f"model {name!r} could not be fetched from the Hugging Face hub")

    monkeypatch.setattr(prepare, "_fetch_from_hub", fetch)
    with pytest.raises(CliError, match="could not be fetched") as raised:
        stack.get_model("org/model")
    assert raised.value.code == Exit.UNREACHABLE
    assert "name a folder" in raised.value.hint
    for name in ("nothing", "./no/folder"):
        with pytest.raises(Exception, match=r"nothing|no/folder"):
            stack.get_model(name)


def test_a_home_that_cannot_be_written_is_told_as_such(cache: Path) -> None:
    cache.write_text("no folder, as nothing below HOME=/dev/null is")
    with pytest.raises(CliError, match=f"the model cache {cache} cannot be written: ") as raised:
        stack.get_model("org/model")
    assert (raised.value.code, "PODIUM_MODELS_DIR" in raised.value.hint) == (Exit.FAILED, True)


def test_what_is_not_installed_is_said_at_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("vllm", "torch"):
        monkeypatch.setitem(sys.modules, module, None)
    assert run(["up"]) == 2
    said = capsys.readouterr().err
    assert "inference, trainer cannot run here; not installed: torch, vllm" in said
    assert "podium[inference,trainer]" in said
    assert not (cache.parent / ".podium").exists()
    stack.check_packages(("rollout", "judge"))


@pytest.mark.parametrize(("words", "window"), [((), 2048), (("--max-model-len", "4096"), 4096)])
def test_the_context_window_is_told_to_the_engine(
    cache: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], window: int
) -> None:
    seen: list[LauncherConfig] = []

    async def end_at_once(config: LauncherConfig) -> int:
        seen.append(config)
        return Exit.OK

    monkeypatch.setattr(stack, "run_until_signal", end_at_once)
    assert run(["up", "--only", "rollout", *words]) == 0
    for name, value in seen[0].environment.items():
        monkeypatch.setenv(name, value)
    assert Settings().max_model_len == window


def test_a_window_for_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "--max-model-len", "8"]) == 2
    assert "8 is not in the range x>=16" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("up",), ("train", "task.py")])
def test_whoever_starts_services_takes_the_option_that_the_error_names(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    show(FailedPreconditionError("not serving", reason="SERVICE_NOT_READY"))
    (option,) = re.findall(r"--[a-z-]+", capsys.readouterr().err)
    assert list(faults([*words, option, "900"])) == []
    assert option in {name for each in demo.params for name in each.opts}
