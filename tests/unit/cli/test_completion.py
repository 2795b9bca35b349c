"""`podium completion`: what a shell completes, and that it never says a word."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import click
import pytest
from podium.cli import completers
from podium.cli.main import cli as root
from support.cli import COMMAND, invoke
from support.cli_user import Cli, add_job
from support.programs import missing


async def completed(cli: Cli, line: str, **extra: str) -> list[str]:
    """What the shell is told for a line; its last word is what is being typed."""
    words = line.split(" ")
    asked = {
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_PODIUM_COMPLETE": "bash_complete",
    }
    done = await invoke(cwd=cli.folder, environment={**cli.fake.environment, **asked, **extra})
    assert done.err == ""
    return [text.partition(",")[2] for text in done.out.split()]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("podium traj", ["trajectory"]),
        ("podium job me", ["metrics"]),
        ("podium job metrics --pl", ["--plot"]),
        ("podium job list --state can", ["cancelling", "cancelled"]),
        ("podium job get alp", ["alpha", "alpine"]),
        ("podium job metrics alpha al", ["alpine"]),
        ("podium trajectory export be", ["beta"]),
        ("podium chat -m be", ["beta"]),
        ("podium checkpoint list alpi", ["alpine"]),
        ("podium job metrics alpha --metric train/l", ["train/loss"]),
        ("podium job get --context nope al", []),
    ],
)
async def test_commands_options_and_jobs_are_completed(
    cli: Cli, line: str, found: list[str]
) -> None:
    for name in ("alpha", "beta", "alpine"):
        add_job(cli.fake, name).latest_metrics["train/loss"] = 1.0
    assert await completed(cli, line) == found


async def test_saved_installations_are_completed(cli: Cli) -> None:
    assert (await cli("login", "lab", "--address", cli.fake.address)).code == 0
    assert await completed(cli, "podium job list --context l") == ["lab"]
    assert await completed(cli, "podium context use ") == ["lab"]


async def test_where_nothing_answers_nothing_is_said(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_job(cli.fake, "alpha")
    assert await completed(cli, "podium job get al", PODIUM_ADDRESS="127.0.0.1:9") == []
    assert await completed(cli, "podium job get al", PODIUM_ADDRESS="no address") == []
    monkeypatch.setattr(completers, "SECONDS", 0.05)
    cli.fake.jobs.silent = True
    assert await completed(cli, "podium job get al") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_the_script_is_one_that_its_shell_reads(tmp_path: Path, shell: str) -> None:
    done = await invoke("completion", shell, cwd=tmp_path)
    assert done.code == 0
    assert f"_PODIUM_COMPLETE={shell}_complete" in done.out
    if shutil.which(shell) is None:
        pytest.skip(missing(shell, shell))
    (tmp_path / "script").write_text(done.out)
    process = await asyncio.create_subprocess_exec(shell, "-n", "script", cwd=tmp_path)
    assert await process.wait() == 0


async def test_an_unknown_shell_is_exit_code_2(tmp_path: Path) -> None:
    done = await invoke("completion", "tcsh", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "'bash', 'zsh', 'fish'" in done.err


async def test_bash_completes_a_job_with_the_script(cli: Cli) -> None:
    add_job(cli.fake, "alpha")
    program = cli.folder / "podium"
    program.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(podium completion bash)"; COMP_WORDS=(podium job get al); COMP_CWORD=3; '
        '_podium_completion podium; echo "${COMPREPLY[@]}"'
    )
    variables = {"PATH": f"{cli.folder}{os.pathsep}{os.environ['PATH']}"}
    process = await asyncio.create_subprocess_exec(
        *("bash", "--norc", "-c", script),
        env={**os.environ, **cli.fake.environment, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (out.decode().strip(), err.decode()) == ("alpha", "")


def test_completing_a_command_imports_none(monkeypatch: pytest.MonkeyPatch) -> None:
    # Put back afterwards: tests that have the module patch this one, and a command takes it anew.
    monkeypatch.delitem(sys.modules, "podium.cli.stack", raising=False)
    found = root.shell_complete(click.Context(root), "u")
    assert [item.value for item in found] == ["up", "usage"]
    assert "podium.cli.stack" not in sys.modules
