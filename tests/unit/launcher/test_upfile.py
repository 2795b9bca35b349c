"""A stack that another user runs."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from podium.cli.exits import CliError, Exit
from podium.cli.running import ask_to_end
from podium.local.launcher import upfile

SOMEBODY = 65534


def look(folder: Path, told: Connection) -> None:
    """As somebody who owns nothing here; without root, as whoever may write none of it."""
    if os.geteuid() == 0:
        os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
    shown = upfile.read(folder / "shown")
    told.send((shown.pid if shown else None, upfile.find(folder / "private" / "below")))
    try:
        ask_to_end(1, folder)
    except CliError as error:
        told.send(error.code)


def test_it_is_found_where_it_may_be_read_and_left_alone_where_it_may_not() -> None:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        private = folder / "private"
        claims = [upfile.Claim(each) for each in (folder / "shown", private / ".podium")]
        for each in (folder / "shown", private / ".podium"):
            upfile.UpFile(os.getpid(), "0", "model").write(each)
        for each in (folder / "shown").iterdir():
            each.chmod(0o444)
        (private / ".podium").chmod(0)
        child = context.Process(target=look, args=(folder, there))
        child.start()
        child.join()
        (private / ".podium").chmod(0o700)
        for claim in claims:
            claim.release()
    assert child.exitcode == 0
    assert here.recv() == (os.getpid(), None)
    assert here.recv() == Exit.AUTH
