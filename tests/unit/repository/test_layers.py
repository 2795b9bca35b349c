"""A package and a folder that are new are under the contracts of layers, or they fail."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONTRACTS = configparser.ConfigParser()
CONTRACTS.read(ROOT / ".importlinter")
PACKAGES = {"podium", *(folder.name for folder in (ROOT / "services").glob("*/podium_*"))}
LAYERS = {
    section["containers"].strip(): section
    for section in map(CONTRACTS.__getitem__, CONTRACTS.sections())
    if section.get("type") == "layers"
}


def test_every_package_is_looked_at_and_has_layers() -> None:
    assert set(CONTRACTS["importlinter"]["root_packages"].split()) == PACKAGES
    assert LAYERS.keys() == PACKAGES


@pytest.mark.parametrize("package", LAYERS)
def test_a_folder_that_no_layer_names_fails(package: str) -> None:
    assert LAYERS[package]["exhaustive"] == "True"
    assert "exhaustive_ignores" not in LAYERS[package]
    if package != "podium":
        domain = CONTRACTS["importlinter:contract:domain"]["source_modules"].split()
        assert f"{package}.domain" in domain


def test_what_is_no_package_holds_generated_modules_and_migrations_alone() -> None:
    """The contracts see no module below a folder without `__init__.py`."""
    homes = [ROOT / "libs/podium", *(ROOT / "services").glob("*/podium_*")]
    unseen = [
        path.relative_to(ROOT).as_posix()
        for home in homes
        for path in home.rglob("*.py")
        if not all(
            (folder / "__init__.py").is_file()
            for folder in path.parents
            if folder.is_relative_to(home)
        )
    ]
    assert unseen
    known = re.compile(r"_pb2(_grpc)?\.py$|/migrations/|/init/templates/")
    assert [path for path in unseen if not known.search(path)] == []
