"""What a disk or a folder refuses is told as such, and not as a defect."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from podium.cli.exits import Exit, show
from podium.cli.main import run
from support.cli import run_here


def test_a_full_disk_behind_stdout_is_no_defect(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_here(["job", "schema"], tmp_path, None, {"stdout": full})
        with pytest.raises(OSError, match="No space left"):
            full.close()
    assert done.code == 1
    assert done.err == (
        "error: No space left on device\nMake room there, or name another folder.\n"
    )


def test_a_folder_that_may_not_be_used_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "/srv/.podium")
    assert show(error) == Exit.FAILED
    told = capsys.readouterr().err
    assert told.startswith("error: /srv/.podium: Permission denied\nName another folder")
    assert "defect" not in told


def test_a_folder_that_was_deleted_under_the_shell_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setenv("PODIUM_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert run(["job", "list"]) == Exit.FAILED
    assert "the folder that this was started in is no longer there" in capsys.readouterr().err


def test_what_no_machine_refuses_is_still_one(capsys: pytest.CaptureFixture[str]) -> None:
    show(FileNotFoundError(errno.ENOENT, "No such file or directory", "assets/x"))
    assert "defect of podium" in capsys.readouterr().err
