"""The README's commands for a policy, as printed, after training in a pool of merged weights."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from podium.local.launcher import Launcher
from support.cli import invoke
from support.jobs import ENDED, client_of, small_spec

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.long,
    pytest.mark.timeout(900),
]
README = (Path(__file__).parents[3] / "README.md").read_text().splitlines()


def printed(beginning: str, job_id: str) -> list[str]:
    """The README's command, with a job's id and newest version for what stands there."""
    (line,) = [line for line in README if line.startswith(f"podium {beginning}")]
    command = line.partition("#")[0].replace("ID@best", f"{job_id}@latest")
    return shlex.split(command)[1:]


async def test_chat_and_eval_serve_what_they_name_and_give_it_back(
    real_stack: Launcher, tmp_path: Path
) -> None:
    where = ("--data-dir", str(real_stack.data_dir))
    async with client_of(real_stack) as client:
        job = await client.jobs.create(small_spec(1), job_id="readme")
        assert (await client.jobs.wait(job.id, within=400)).state in ENDED
        trained = [(job.id, 1)]
        assert [(p.job, p.version) async for p in client.policies.list()] == trained
        short = ("--limit", "3", "--max-turns", "2", "--max-tokens", "16")
        measured = await invoke(*printed("eval", job.id), *short, *where, cwd=tmp_path)
        assert measured.code == 0, measured.err
        agents = [line.split()[0] for line in measured.out.splitlines()[1:4]]
        assert agents == ["base", f"{job.id}@latest", "baseline:scripted"]
        assert [(p.job, p.version) async for p in client.policies.list()] == trained
        for command in (printed("chat", job.id), ["chat"]):
            said = await invoke(*command, *where, "--max-tokens", "8", cwd=tmp_path, stdin="Hello")
            assert said.code == 0, said.err
            assert said.out.strip()
            assert [(p.job, p.version) async for p in client.policies.list()] == trained
