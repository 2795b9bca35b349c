"""`podium login` and `podium context`; through kubectl they are in tests/integration/cli."""

from __future__ import annotations

import io
import shutil
import stat
import sys
from pathlib import Path

import pytest
from podium.cli.main import run
from podium.cli.stack import note_context_in_use
from podium.sdk.connection import contexts
from podium.sdk.connection.addresses import CONTEXT, ENVIRONMENT
from podium.sdk.connection.addresses import TOKEN as TOKEN_VARIABLE
from support.cli_login import TOKEN, User


@pytest.fixture
def own_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For commands that are run in this process."""
    for name in (*ENVIRONMENT.values(), CONTEXT, TOKEN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(contexts.FOLDER, str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


async def test_login_saves_the_installation_and_uses_it(user: User) -> None:
    done = await user.login()
    assert (done.code, done.out) == (0, "")
    assert "saved lab" in done.err
    file = user.config / "tokens" / "lab"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().strip() == TOKEN
    assert user.saved() == {
        "current": "lab",
        "contexts": {
            "lab": {"addresses": {"controller": user.fake.address}, "token_file": "tokens/lab"}
        },
    }
    assert TOKEN not in done.err
    assert (await user("job", "list")).code == 0


async def test_login_refuses_a_wrong_token_and_saves_nothing(user: User) -> None:
    done = await user.login(stdin="wrong")
    assert done.code == 4
    assert not user.config.exists()
    done = await user.login("lab", "--address", user.fake.address)
    assert done.code == 4, "no token at all is refused too"
    assert "podium login" in done.err
    assert not user.config.exists()


async def test_a_login_that_is_refused_leaves_the_saved_one(user: User) -> None:
    assert (await user.login()).code == 0
    before = user.saved()
    assert (await user.login(stdin="wrong")).code == 4
    assert user.saved() == before
    assert (await user("job", "list")).code == 0


async def test_login_says_that_nothing_answers(user: User) -> None:
    done = await user("login", "lab", "--address", "127.0.0.1:9")
    assert done.code == 3
    assert not user.config.exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("lab", "--address", "nowhere"), "addresses.controller: got 'nowhere'"),
        (("a/b", "--address", "h:1"), "got 'a/b'; allowed are"),
        (("lab", "--address", "h:1", "--token-env", "A", "--token-stdin"), "name one of"),
        (("lab", "--address", "h:1", "--token-env", "NOT_SET"), "NOT_SET is not set"),
        (("lab", "--address", "h:1", "--token-file", "nope"), "cannot be read"),
        (("lab", "--address", "h:1", "--token-stdin"), "no token on stdin"),
        (("--address", "h:1"), "Missing argument"),
    ],
)
@pytest.mark.usefixtures("own_config")
def test_login_refuses_what_means_nothing(
    arguments: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert run(["login", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err


async def test_a_token_by_reference_is_not_copied(user: User) -> None:
    file = user.folder / "mounted"
    file.write_text(TOKEN)
    done = await user.login("file", "--address", user.fake.address, "--token-file", "mounted")
    assert done.code == 0, done.err
    environment = {"LAB_TOKEN": TOKEN}
    options = ("--address", user.fake.address, "--token-env", "LAB_TOKEN")
    assert (await user("login", "variable", *options, **environment)).code == 0
    assert TOKEN not in (user.config / "contexts.yaml").read_text()
    assert not (user.config / "tokens").exists()
    assert (await user("job", "list", "--context", "file")).code == 0
    assert (await user("job", "list", **environment)).code == 0
    without = await user("job", "list")
    assert (without.code, "LAB_TOKEN is not set" in without.err) == (2, True)


async def test_login_without_kubectl(user: User) -> None:
    (user.folder / "empty").mkdir()
    (user.folder / "empty" / "env").symlink_to(shutil.which("env") or "")
    done = await user("login", "cluster", PATH=str(user.folder / "empty"))
    assert done.code == 3
    assert "no kubectl on PATH" in done.err
    assert "podium login" in done.err


async def test_using_none_finds_this_machine_again(user: User) -> None:
    await user.login()
    assert (await user("context", "use", "--none")).code == 0
    done = await user("job", "list", "--context", "lab")
    assert done.code == 0, "it is still saved"
    for arguments in ((), ("lab", "--none")):
        assert (await user("context", "use", *arguments)).code == 2


@pytest.mark.usefixtures("own_config")
def test_an_unknown_context_is_exit_code_5(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contexts.save(contexts.Contexts(contexts={"lab": contexts.Context()}))
    named = ["job", "list", "--context", "nope"]
    for arguments in (["context", "use", "nope"], ["context", "delete", "nope"], named):
        assert run(arguments) == 5
        printed = capsys.readouterr().err
        assert "there are: lab" in printed
        assert "podium context list" in printed
    monkeypatch.setenv("PODIUM_CONTEXT", "nope")
    assert run(["job", "list"]) == 5


async def test_an_address_goes_before_the_context_in_use(user: User) -> None:
    await user.login()
    assert (await user("job", "list", "--address", "127.0.0.1:9")).code == 3
    assert (await user("job", "list", PODIUM_ADDRESS="127.0.0.1:9")).code == 3
    assert (await user("job", "list", "--context", "lab", PODIUM_ADDRESS="127.0.0.1:9")).code == 0
    both = await user("job", "list", "--context", "lab", "--address", user.fake.address)
    assert (both.code, "name one of" in both.err) == (2, True)
    assert (
        "PODIUM_ADDRESS=h:1 goes before"
        in (await user("context", "list", PODIUM_ADDRESS="h:1")).err
    )


@pytest.mark.usefixtures("own_config")
def test_a_broken_file_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    contexts.folder().mkdir()
    contexts.path().write_text("contexts: {lab: {adress: x}}")
    for arguments in (["job", "list"], ["context", "list"], ["login", "lab"]):
        assert run(arguments) == 2
        printed = capsys.readouterr().err
        assert f"{contexts.path()}: contexts.lab.adress: unknown key" in printed


@pytest.mark.usefixtures("own_config")
def test_up_says_that_commands_go_elsewhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    note_context_in_use(tmp_path / "stack")
    assert capsys.readouterr().err == ""
    contexts.save(contexts.Contexts(current="lab", contexts={"lab": contexts.Context()}))
    note_context_in_use(tmp_path / "stack")
    printed = capsys.readouterr().err
    assert "the context lab is in use" in printed
    assert f"--data-dir {tmp_path / 'stack'}" in printed
