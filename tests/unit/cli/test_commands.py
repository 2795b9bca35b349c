"""The command as people run it: its streams and its exit code.

What a signal, a terminal or a process of its own does is in tests/integration/cli.
"""

from __future__ import annotations

import json
from pathlib import Path

import podium as podium_package
import pytest
import yaml
from support.cli import invoke
from support.cli_user import JOB, Cli, add_job


async def test_submit_prints_the_job_and_its_request_id(cli: Cli) -> None:
    done = await cli("job", "submit", "-f", "job.yaml", "--id", "mine", "-o", "name")
    assert (done.code, done.out) == (0, "mine\n")
    request_id = next(iter(cli.fake.jobs.requests))
    assert request_id in done.err
    again = await cli(
        "job", "submit", "-f", "job.yaml", "--id", "mine", "-o", "name", "--request-id", request_id
    )
    assert (again.code, again.out) == (0, "mine\n")
    assert len(cli.fake.jobs.known) == 1


async def test_submit_from_stdin_with_set(cli: Cli) -> None:
    done = await cli(
        "job", "submit", "-f", "-", "--set", "training.steps=9", "-o", "json", stdin=JOB
    )
    assert done.code == 0
    assert json.loads(done.out)["spec"]["training"]["steps"] == 9


async def test_dry_run_shows_the_whole_job_and_creates_none(cli: Cli) -> None:
    done = await cli("job", "submit", "-f", "job.yaml", "--dry-run")
    assert done.code == 0
    assert yaml.safe_load(done.out)["rollout"]["group_size"] == 8
    assert cli.fake.jobs.known == {}


async def test_invalid_file_is_exit_code_2_with_every_line(cli: Cli) -> None:
    (cli.folder / "job.yaml").write_text(JOB.replace("steps: 3", "stpes: 3\n  learning_rate: 9"))
    done = await cli("job", "submit", "-f", "job.yaml")
    assert (done.code, done.out) == (2, "")
    assert "job.yaml:4: training.stpes: unknown field; did you mean 'steps'?" in done.err
    assert "job.yaml:5: training.learning_rate: got 9;" in done.err
    assert cli.fake.jobs.known == {}


async def test_missing_file(cli: Cli) -> None:
    done = await cli("job", "submit", "-f", "nope.yaml")
    assert done.code == 2
    assert "there is no file nope.yaml" in done.err
    assert "podium job init" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("job", "sumbit"),
        ("job", "list", "--state", "x"),
        ("job", "submit"),
        ("job", "list", "-o", "x"),
        ("chat", "-m", "Not A Name", "--once", "hi"),
    ],
)
async def test_usage_errors_are_exit_code_2(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = await cli(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert done.err


async def test_nearest_command(cli: Cli) -> None:
    assert "Did you mean 'submit'?" in (await cli("job", "sumbit")).err


@pytest.mark.parametrize(
    "arguments",
    [
        ("job", "get", "nope"),
        ("job", "watch", "nope"),
        ("job", "cancel", "w"),
        ("job", "submit", "-f", "job.yaml", "--id", "w"),
        ("job", "trajectories", "w", "w/v0-sampled/g0/t9"),
        ("checkpoint", "get", "nope@3"),
        ("chat", "-m", "busy@3", "--once", "hi"),
    ],
)
async def test_not_found_and_conflict_are_exit_code_5(cli: Cli, arguments: tuple[str, ...]) -> None:
    add_job(cli.fake)
    done = await cli(*arguments)
    assert (done.code, done.out) == (5, "")
    assert "error:" in done.err


async def test_list_in_every_format(cli: Cli) -> None:
    for name in ("a", "b", "c"):
        add_job(cli.fake, name)
    table = await cli("job", "list")
    assert table.out.splitlines()[0].split()[:3] == ["ID", "STATE", "STEPS"]
    assert len(table.out.splitlines()) == 4
    assert "\x1b" not in table.out, "no colours into a pipe"
    assert (await cli("job", "list", "-o", "name")).out.split() == ["a", "b", "c"]
    listed = json.loads((await cli("job", "list", "-o", "json")).out)
    assert [job["completed_steps"] for job in listed] == [3, 3, 3]
    assert yaml.safe_load((await cli("job", "list", "-o", "yaml")).out) == listed
    assert (await cli("job", "list", "--state", "failed", "-o", "json")).out == "[]\n"


async def test_a_job_is_submitted_for_a_project_and_listed_by_it(cli: Cli) -> None:
    for name, project in (("a", ("--project", "research")), ("b", ())):
        done = await cli("job", "submit", "-f", "job.yaml", "--id", name, *project)
        assert done.code == 0, done.err
    assert (await cli("job", "list", "--project", "research", "-o", "name")).out.split() == ["a"]
    shown = (await cli("job", "get", "a")).out
    assert any(line.split() == ["project", "research"] for line in shown.splitlines())
    wrong = await cli("job", "submit", "-f", "job.yaml", "--project", "No Name")
    assert wrong.code == 2
    assert "project" in wrong.err


@pytest.mark.parametrize("what", ["events", "steps", "evaluations", "trajectories"])
async def test_records(cli: Cli, what: str) -> None:
    add_job(cli.fake)
    extra = ("--evaluation",) if what == "trajectories" else ()
    listed = json.loads((await cli("job", what, "w", *extra, "-o", "json")).out)
    assert len(listed) == {"events": 6, "steps": 3, "evaluations": 4, "trajectories": 3}[what]
    table = await cli("job", what, "w", *extra)
    assert table.code == 0
    assert len(table.out.splitlines()) == len(listed) + 1


async def test_one_episode_is_read_in_full(cli: Cli) -> None:
    add_job(cli.fake)
    done = await cli("job", "trajectories", "w", "email-demo/v0-sampled/g0/t0")
    assert done.code == 0
    assert "assistant\n  SEARCH from:dana budget" in done.out


async def test_steering(cli: Cli) -> None:
    add_job(cli.fake, state="RUNNING")
    assert json.loads((await cli("job", "pause", "w", "-o", "json")).out)["state"] == "pausing"
    assert json.loads((await cli("job", "resume", "w", "-o", "json")).out)["state"] == "queued"
    assert json.loads((await cli("job", "cancel", "w", "-o", "json")).out)["state"] == "cancelling"
    assert (await cli("job", "delete", "w", stdin="n\n")).code == 1
    assert "w" in cli.fake.jobs.known
    assert (await cli("job", "delete", "w", "--yes")).code == 0
    gone = await cli("job", "delete", "nope", "--yes")
    assert (gone.code, "there is no job 'nope'" in gone.err) == (5, True)
    assert "deleted" not in gone.err
    assert "w" not in cli.fake.jobs.known


async def test_follow_tells_progress_on_stderr_and_survives_lost_connections(cli: Cli) -> None:
    add_job(cli.fake)
    cli.fake.jobs.break_watch_after = [2, 3]
    done = await cli("job", "watch", "w", "-o", "json", "--plot")
    assert done.code == 0
    assert json.loads(done.out)["id"] == "w"
    steps = [line for line in done.err.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == ["1/3", "2/3", "3/3"]
    for words in ("reward", "success", "tokens/s", "staleness"):
        assert words in steps[0]
    assert "connection lost" in done.err
    assert "95 % 0.902 to 0.984" in done.err
    assert "reward and success by step" in done.err


@pytest.mark.parametrize(("state", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELLED", 1)])
async def test_a_job_s_end_is_the_exit_code(cli: Cli, state: str, code: int) -> None:
    add_job(cli.fake, state=state)
    done = await cli("job", "watch", "w", "-o", "name")
    assert (done.code, done.out) == (code, "w\n")


async def test_wait_times_out_with_124(cli: Cli) -> None:
    cli.fake.jobs.hold_watch = True
    done = await cli("job", "submit", "-f", "job.yaml", "--id", "w", "--wait", "--timeout", "0.2")
    assert (done.code, done.out) == (124, "")
    assert "it keeps running" in done.err
    assert "podium job cancel w" in done.err


async def test_report(cli: Cli) -> None:
    add_job(cli.fake)
    done = await cli("job", "report", "w", "-o", "r.html")
    assert (done.code, done.out) == (0, "r.html\n")
    assert "Learning curve" in (cli.folder / "r.html").read_text()
    add_job(cli.fake, "x")
    assert (await cli("job", "report", "w", "-o", "r.html", "--with", "x")).code == 0
    assert "<h2>w and x</h2>" in (cli.folder / "r.html").read_text()
    nowhere = await cli("job", "report", "w", "-o", "none/r.html")
    assert "there is no folder none" in nowhere.err
    missing = await cli("job", "report", "w", "--with", "none")
    assert (missing.code, "there is no job 'none'" in missing.err) == (5, True)


async def test_environments(cli: Cli) -> None:
    assert (await cli("env", "list", "-o", "name")).out == "email_search\n"


async def test_the_version_is_an_option_too(tmp_path: Path) -> None:
    done = await invoke("--version", cwd=tmp_path)
    assert (done.code, done.out) == (0, f"podium, version {podium_package.__version__}\n")


async def test_version(tmp_path: Path) -> None:
    found = json.loads((await invoke("version", "-o", "json", cwd=tmp_path)).out)
    assert list(found)[:2] == ["podium", "python"]
