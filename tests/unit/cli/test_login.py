"""`podium login` and `podium context`, as people run them."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import shutil
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from podium.cli.main import run
from podium.cli.stack import note_context_in_use
from podium.sdk.connection import contexts
from podium.sdk.connection.addresses import CONTEXT, ENVIRONMENT, TLS
from podium.sdk.connection.addresses import TOKEN as TOKEN_VARIABLE
from support.certificates import Authority
from support.cli import COMMAND, Result, invoke
from support.fake_kubectl import FakeKubectl
from support.fake_podium import FakePodium, fake_podium

TOKEN = "let-me-in"


class User:
    """Somebody with a folder of their own, an installation and a cluster."""

    def __init__(self, fake: FakePodium, kubectl: FakeKubectl, folder: Path) -> None:
        self.fake = fake
        self.kubectl = kubectl
        self.folder = folder
        self.config = folder / "config"

    async def __call__(self, *arguments: str, stdin: str = "", **extra: str) -> Result:
        environment = {**self.kubectl.environment, **extra}
        return await invoke(*arguments, cwd=self.folder, environment=environment, stdin=stdin)

    async def login(self, name: str = "lab", *arguments: str, stdin: str = TOKEN) -> Result:
        address = ("--address", self.fake.address, "--token-stdin")
        return await self("login", name, *(arguments or address), stdin=stdin)

    def saved(self) -> dict[str, object]:
        file = self.config / "contexts.yaml"
        read: dict[str, object] = yaml.safe_load(file.read_text()) if file.exists() else {}
        return read


@pytest.fixture
async def user(tmp_path: Path) -> AsyncIterator[User]:
    tokens = tmp_path / "accepted"
    tokens.write_text(TOKEN)
    kubectl = FakeKubectl(tmp_path / "bin")
    async with fake_podium(auth_tokens_file=tokens) as fake:
        kubectl.play_release(fake.address, TOKEN)
        yield User(fake, kubectl, tmp_path)


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


async def test_at_a_terminal_login_asks_for_a_token_and_does_not_show_it(user: User) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        # A terminal of its own: a password is not read from stdin, but from there.
        *("setsid", "--ctty", "--wait", *COMMAND),
        *("login", "lab", "--address", user.fake.address),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=user.folder,
        env={**os.environ, contexts.FOLDER: str(user.config)},
    )
    os.close(theirs)
    shown = b""
    while b"token" not in shown:
        shown += await asyncio.to_thread(os.read, ours, 1000)
    os.write(ours, f"{TOKEN}\n".encode())
    assert await asyncio.wait_for(process.wait(), 60) == 0, shown
    shown += await asyncio.to_thread(os.read, ours, 10000)
    os.close(ours)
    assert TOKEN.encode() not in shown
    assert (user.config / "tokens" / "lab").read_text().strip() == TOKEN


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


async def test_login_to_a_release_needs_neither_address_nor_token(user: User) -> None:
    done = await user("login", "cluster")
    assert done.code == 0, done.err
    assert "release podium in namespace podium of the Kubernetes context a-cluster" in done.err
    assert user.saved() == {
        "current": "cluster",
        "contexts": {"cluster": {"kubernetes": {"context": "a-cluster"}}},
    }
    assert (await user("job", "list")).code == 0
    assert (await user("env", "list", "-o", "name")).code == 0
    doctor = await user("doctor")
    assert "jobs are taken at release podium in namespace podium" in doctor.out, doctor.err


async def test_the_cluster_is_pinned_by_name(user: User) -> None:
    assert (await user("login", "cluster")).code == 0
    user.kubectl.context = "another"
    user.kubectl.write()
    done = await user("job", "list")
    assert (done.code, '"a-cluster" does not exist' in done.err) == (5, True)


@pytest.mark.parametrize(
    ("arguments", "refusal", "code", "words"),
    [
        (("--release", "other"), None, 5, "there is no release other in namespace podium"),
        (("-n", "elsewhere"), None, 5, "there is no release podium in namespace elsewhere"),
        (("--kube-context", "nope"), None, 5, 'context "nope" does not exist'),
        (("--pool", "nope"), None, 5, "has no pool nope; it has default"),
        (
            (),
            ("get services", 'Error from server (Forbidden): services is forbidden: User "u"'),
            4,
            'services is forbidden: User "u"',
        ),
        (
            (),
            ("get services", "Unable to connect to the server: dial tcp: i/o timeout"),
            3,
            "dial tcp: i/o timeout",
        ),
        (
            (),
            (
                "port-forward",
                "error: unable to forward port because pod is not running. Current status=Pending",
            ),
            3,
            "Current status=Pending",
        ),
    ],
)
async def test_login_says_why_a_release_cannot_be_reached(
    user: User,
    arguments: tuple[str, ...],
    refusal: tuple[str, str] | None,
    code: int,
    words: str,
) -> None:
    if refusal:
        user.kubectl.refusals[refusal[0]] = refusal[1]
        user.kubectl.write()
    done = await user("login", "cluster", *arguments)
    assert done.code == code, done.err
    assert words in done.err
    assert bool(user.saved()) == (code == 0)


async def test_login_without_kubectl(user: User) -> None:
    (user.folder / "empty").mkdir()
    (user.folder / "empty" / "env").symlink_to(shutil.which("env") or "")
    done = await user("login", "cluster", PATH=str(user.folder / "empty"))
    assert done.code == 3
    assert "no kubectl on PATH" in done.err
    assert "podium login" in done.err


async def test_contexts_are_listed_chosen_and_deleted(user: User) -> None:
    assert (await user("context", "list")).out == ""
    await user.login()
    await user("login", "cluster", "--no-use")
    listed = await user("context", "list")
    assert listed.out.splitlines()[1].split()[:2] == ["*", "lab"]
    assert (await user("context", "list", "-o", "name")).out.split() == ["lab", "cluster"]
    assert (await user("context", "use", "cluster")).code == 0
    plain = json.loads((await user("context", "list", "-o", "json")).out)
    assert [(item["name"], item["current"]) for item in plain] == [
        ("lab", False),
        ("cluster", True),
    ]
    assert TOKEN not in json.dumps(plain)
    assert (await user("context", "delete", "lab")).code == 0
    assert not (user.config / "tokens" / "lab").exists()
    assert "no context is in use now" in (await user("context", "delete", "cluster")).err
    assert user.saved() == {}


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


async def test_login_saves_what_tls_takes(user: User) -> None:
    authority = Authority("the installation's")
    served = authority.issue(user.folder / "server", "localhost")
    mine = authority.issue(user.folder / "mine", "me")
    settings = {f"tls_{name}_file": path for name, path in served.items()}
    variables = dict(zip(TLS, map(str, mine.values()), strict=True))
    options = [part for name in mine for part in (f"--tls-{name}", f"mine/{name}.pem")]
    async with fake_podium(auth_tokens_file=user.folder / "accepted", **settings) as fake:
        user.kubectl.play_release(fake.address, TOKEN)
        without = await user("login", "work")
        assert (without.code, "its port asks for TLS" in without.err) == (3, True), without.err
        assert "--tls-" in without.err
        assert not user.config.exists()
        assert (await user("login", "work", **variables)).code == 0
        assert (await user("job", "list")).code == 0, "without the variables"
        named = ("--address", fake.address, "--tls-server-name", "localhost", "--token-stdin")
        done = await user("login", "direct", *options, *named, stdin=TOKEN)
        assert done.code == 0, done.err
        assert (await user("job", "list")).code == 0
    saved = user.saved()["contexts"]
    assert isinstance(saved, dict)
    paths = {f"{name}_file": str(path) for name, path in mine.items()}
    assert saved["work"]["tls"] == paths
    assert saved["direct"]["tls"] == {**paths, "server_name": "localhost"}
    half = await user("login", "half", "--tls-key", "mine/key.pem", "--address", "h:1")
    assert (half.code, "--tls-certificate, --tls-authorities" in half.err) == (2, True)
