"""Users without a home: containers run as any number, and `~nobody-like-this` is a path too."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest
from podium.core.homes import expanded, home
from podium.local.models import locate
from podium.sdk.connection import contexts


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "PODIUM_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("PODIUM_MODELS_DIR", raising=False)
    nobodys = next(
        uid for uid in range(50_000, 60_000) if uid not in {each.pw_uid for each in pwd.getpwall()}
    )
    monkeypatch.setattr(os, "getuid", lambda: nobodys)


@pytest.mark.usefixtures("homeless")
def test_a_user_without_a_home_has_no_contexts_and_no_models_and_may_ask() -> None:
    assert home() == Path("/")
    assert contexts.folder() == Path("/.config/podium")
    assert locate.models_dir() == Path("/.cache/podium/models")


def test_the_home_of_a_user_that_there_is_not_is_a_path_like_any_other() -> None:
    assert expanded("~nobody-like-this/model") == Path("~nobody-like-this/model")
    assert locate.own_folder("~nobody-like-this/model") is None
    assert expanded("~/x") == home() / "x"
