"""The file of saved installations."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from podium.core.errors import InvalidArgumentError, NotFoundError
from podium.sdk.connection import contexts
from podium.sdk.connection.contexts import Context, Contexts, Kubernetes, ServiceAddresses


def write(text: str) -> None:
    contexts.folder().mkdir(parents=True, exist_ok=True)
    contexts.path().write_text(text)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_without_a_file_there_are_none() -> None:
    assert contexts.load() == Contexts()


def test_what_is_saved_is_read_back() -> None:
    saved = Contexts(
        current="lab",
        contexts={
            "lab": Context(addresses=ServiceAddresses(controller="lab:1"), token_env="LAB_TOKEN"),
            "cluster": Context(kubernetes=Kubernetes(context="c", namespace="ml", pool="small")),
        },
    )
    contexts.save(saved)
    assert contexts.load() == saved
    assert list(contexts.folder().iterdir()) == [contexts.path()], "no draft is left"


def test_an_empty_file_has_none() -> None:
    write("")
    assert contexts.load() == Contexts()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("contexts: {lab: {adresses: {}}}", "contexts.lab.adresses: unknown key"),
        ("contexts: {lab: {addresses: {controller: lab}}}", "contexts.lab.addresses.controller"),
        ("contexts: {lab: {addresses: {controller: 'lab:0'}}}", "allowed is host:port"),
        ("contexts: {lab: {kubernetes: {release: ''}}}", "contexts.lab.kubernetes.release"),
        ("contexts: {lab: {token: hidden-words}}", "contexts.lab.token: unknown key"),
        ("- lab", "got ['lab']"),
        ("contexts: {lab: {\ncurrent: x", "line 2"),
        ("a: \x07", "is not YAML"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(text: str, words: str) -> None:
    write(text)
    with pytest.raises(InvalidArgumentError) as refused:
        contexts.load()
    assert str(contexts.path()) in refused.value.message
    assert words in refused.value.message
    assert "hidden-words" not in refused.value.message, "a token put there by mistake is not shown"


def test_a_file_that_is_none_is_named() -> None:
    contexts.path().mkdir(parents=True)
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        contexts.load()


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    saved = Contexts(contexts={"lab": Context(), "home": Context()})
    with pytest.raises(NotFoundError, match="no context 'work'; there are: lab, home"):
        saved.named("work")


def test_a_kept_token_is_its_owner_s_alone() -> None:
    relative = contexts.keep_token("lab", "secret")
    file = contexts.folder() / relative
    assert mode(file) == 0o600
    assert mode(file.parent) == 0o700
    assert Context(token_file=relative).token("lab") == "secret"
    contexts.keep_token("lab", "newer")
    assert (mode(file), Context(token_file=relative).token("lab")) == (0o600, "newer")
    contexts.forget_token("lab")
    contexts.forget_token("lab")
    assert not file.exists()


def test_a_kept_token_that_others_may_read_is_refused() -> None:
    relative = contexts.keep_token("lab", "secret")
    (contexts.folder() / relative).chmod(0o640)
    with pytest.raises(InvalidArgumentError, match=r"contexts\.lab\.token_file: .*mode 0640"):
        Context(token_file=relative).token("lab")


def test_a_token_file_elsewhere_is_somebody_else_s_to_guard(tmp_path: Path) -> None:
    file = tmp_path / "mounted"
    file.write_text("  secret\n")
    file.chmod(0o644)
    assert Context(token_file=str(file)).token("lab") == "secret"
    file.write_text("\n")
    with pytest.raises(InvalidArgumentError, match="is empty"):
        Context(token_file=str(file)).token("lab")
    file.unlink()
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        Context(token_file=str(file)).token("lab")


def test_a_token_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(token_env="LAB_TOKEN")
    with pytest.raises(InvalidArgumentError, match=r"contexts\.lab\.token_env: .*LAB_TOKEN"):
        context.token("lab")
    monkeypatch.setenv("LAB_TOKEN", "secret")
    assert context.token("lab") == "secret"


@pytest.mark.parametrize("name", ["", "../lab", "a/b", ".hidden", "a b", "x" * 64])
def test_a_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed are"):
        contexts.keep_token(name, "secret")


def test_the_folder_is_the_user_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert contexts.folder() == tmp_path / "config"
    monkeypatch.delenv(contexts.FOLDER)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    assert contexts.folder() == tmp_path / "xdg" / "podium"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert contexts.folder() == tmp_path / "home" / ".config" / "podium"
