"""`podium scorer serve` as a process, with a module of a test's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PODIUM = str(Path(sys.executable).parent / "podium")


@contextmanager
def served_scorer(folder: Path, code: str, *options: str) -> Iterator[str]:
    """The address of `score` in a module of `code`; it must end with exit code 0."""
    (folder / "strangers.py").write_text(code)
    log = (folder / "scorer.log").open("wb")
    process = subprocess.Popen(
        [_PODIUM, "scorer", "serve", "strangers:score", "--port", "0", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=log,
    )
    try:
        assert process.stdout
        line = process.stdout.readline().decode()
        assert " scores at http://" in line, (folder / "scorer.log").read_text()
        yield line.rpartition(" ")[2].strip()
    finally:
        process.terminate()
        try:
            code_of = process.wait(60)
        finally:
            process.kill()
            log.close()
    assert code_of == 0, (folder / "scorer.log").read_text()
