"""Packages that are installed and do not fit together are told before anything starts."""

from __future__ import annotations

from importlib import metadata

import pytest
from podium.cli import stack
from podium.cli.exits import CliError
from podium.local.packages import misfits


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)


@pytest.mark.parametrize(
    ("versions", "found"),
    [
        ({"torch": "2.13.0+cpu", "torchvision": "0.28.0"}, ["torchvision 0.28.0"]),
        (
            {"torch": "2.13.0+cpu", "torchaudio": "2.11.0", "torchcodec": "0.17.0"},
            ["torchaudio 2.11.0", "torchcodec 0.17.0"],
        ),
        ({"torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu"}, []),
        ({"torch": "2.13.0", "torchvision": "0.28.0"}, []),
        ({"torch": "2.13.0+cpu"}, []),
        ({"torchvision": "0.28.0"}, []),
    ],
)
def test_those_of_another_build_than_torch(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], found: list[str]
) -> None:
    install(monkeypatch, **versions)
    assert misfits() == found


def test_what_to_do_is_said_before_a_service_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, torch="2.13.0+cpu", torchvision="0.28.0", torchcodec="0.17.0")
    with pytest.raises(CliError, match=r"torchvision 0.28.0, torchcodec 0.17.0") as raised:
        stack.check_packages(("trainer",))
    assert "pip uninstall -y torchvision torchcodec" in raised.value.hint
    # Services that need no torch start all the same.
    stack.check_packages(("rollout", "judge"))
