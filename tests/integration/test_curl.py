"""The page for curl, command by command, through the console to a real controller."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from podium.jobs.v1 import job_service_pb2 as pb
from podium.sdk import Addresses
from support.console import console
from support.controlled import Client
from support.controlled_fixtures import client, fleet, registry
from support.document_commands import ROOT, commands
from support.fleet import Fleet
from support.fleet_doubles import BASE_MODEL
from support.programs import program

__all__ = ["client", "fleet", "registry"]

PAGE = (ROOT / "docs/how-to/http.md").read_text()
THERE = "http://127.0.0.1:50058"


async def curl(command: str, folder: Path) -> list[Any]:
    """What a command prints, line by line."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, cwd=folder, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, command
    return [json.loads(line) for line in said.decode().splitlines() if line]


async def test_each_command_of_the_page_runs_as_it_is_printed(
    client: Client, fleet: Fleet, tmp_path: Path
) -> None:
    program("curl", "curl")
    job, refused = (
        json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    )
    # What the doubles of the pool and the rollout service have.
    job["job"]["spec"] |= {"baseModel": BASE_MODEL, "environment": {"name": "double"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    printed = list(commands(PAGE))
    assert all(command.startswith("curl ") and THERE in command for command in printed)
    here = Addresses(client.address, fleet.registry.address, *[client.address] * 3, source="test")
    async with console(here, call_seconds=60) as served:
        told = {
            command.rpartition("/")[2] + ("!" if "trainig" in command else ""): await curl(
                command.replace(THERE, served.url), tmp_path
            )
            for command in printed
        }
    assert told["CreateJob"][0]["job"]["state"] == "JOB_STATE_QUEUED"
    assert told["GetJob"][0]["job"]["id"] == "by-curl"
    last = told["WatchJob"][-1]
    assert (last["job"]["state"], last["job"]["completedSteps"]) == ("JOB_STATE_SUCCEEDED", "2")
    assert [step["number"] for step in told["ListSteps"][0]["steps"]] == ["1", "2"]
    assert told["ListVersions"][0]["versions"][0]["manifest"]["version"] == "2"
    assert [each["id"] for each in told["ListJobs"][0]["jobs"]] == ["by-curl"]
    assert told["CreateJob!"] == [refused]
    assert (await client.get("by-curl")).state == pb.JOB_STATE_SUCCEEDED
