"""`podium job logs` where `podium up` runs: events, and the lines of the services' files."""

from __future__ import annotations

import json
import time

from podium.local.launcher import logs
from support.cli_user import Cli, add_job, write_up_file


async def test_logs_joins_events_and_the_services_lines_about_the_job(cli: Cli) -> None:
    add_job(cli.fake)
    folder = cli.folder / ".podium"
    claim = write_up_file(folder, cli.fake.address)
    path = logs.log_path(folder, "trainer")
    path.parent.mkdir()
    path.write_text("loading w\nloading w2\n" + json.dumps({"message": "step", "job_id": "w"}))
    shown = await cli("job", "logs", "w")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert len([line for line in lines if line.startswith("event")]) == 6
    assert [line for line in lines if line.startswith("trainer")] == ["trainer     loading w"]
    path.write_text(path.read_text() + "\n")
    tail = await cli("job", "logs", "w", "--tail", "1", "--service", "trainer")
    assert tail.out.splitlines()[-1] == "trainer     step job_id=w"
    assert "loading" not in tail.out
    claim.release()
    elsewhere = await cli("job", "logs", "w")
    assert elsewhere.code == 0
    assert "run elsewhere" in elsewhere.err


async def test_logs_follow_the_job_to_its_end(cli: Cli) -> None:
    add_job(cli.fake)
    cli.fake.jobs.updates[1:-1] = []
    cli.fake.jobs.listed = 1
    followed = await cli("job", "logs", "w", "-f")
    assert followed.code == 0
    assert [line for line in followed.out.splitlines() if "state:" in line][-1].endswith(
        "succeeded"
    )
    assert followed.out.count("state: running") == 1


async def test_since_and_previous_choose_among_files_too(cli: Cli) -> None:
    add_job(cli.fake)
    folder = cli.folder / ".podium"
    claim = write_up_file(folder, cli.fake.address)
    path = logs.log_path(folder, "trainer")
    path.parent.mkdir()
    now = time.time()
    lines = [
        {"time": "2020-01-01T00:00:00+00:00", "message": "old", "job_id": "w"},
        {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)), "message": "new w \x1b[2J"},
    ]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    path.with_name("trainer.log.1").write_text("crashed with w\n")
    since = await cli("job", "logs", "w", "--since", "1h", "--service", "trainer")
    assert [line[-13:] for line in since.out.splitlines()[-1:]] == ["new w \\x1b[2J"]
    assert "old" not in since.out
    before = await cli("job", "logs", "w", "--previous", "--service", "trainer")
    assert before.out.splitlines()[-1] == "trainer     crashed with w"
    pods = await cli("job", "logs", "w", "--pod", "x")
    assert pods.code == 2
    assert "without pods" in pods.err
    claim.release()
