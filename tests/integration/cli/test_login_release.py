"""`podium login` through kubectl, at a terminal, and with certificates."""

from __future__ import annotations

import asyncio
import json
import os
import pty

import pytest
from podium.sdk.connection import contexts, forward
from podium.sdk.connection.addresses import TLS
from support.certificates import Authority
from support.cli import COMMAND
from support.cli_login import TOKEN, User
from support.fake_podium import fake_podium


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double of kubectl is there at once: what is not there then never comes."""
    monkeypatch.setattr(forward, "_PATIENCE_SECONDS", 0.2)


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
    assert await asyncio.wait_for(process.wait(), 200) == 0, shown
    shown += await asyncio.to_thread(os.read, ours, 10000)
    os.close(ours)
    assert TOKEN.encode() not in shown
    assert (user.config / "tokens" / "lab").read_text().strip() == TOKEN


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
