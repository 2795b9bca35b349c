"""The command as people run it: its streams and its exit code.

In a process of its own where a signal, a terminal or the start is what is tested.
"""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import podium as podium_package
import pytest
import yaml
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.local.launcher import logs, upfile
from support import job_records
from support.cli import COMMAND, Result, invoke, podium, start
from support.fake_podium import FakePodium, fake_podium, watched_job

JOB = """\
base_model: smollm2-135m-instruct
environment: {name: email_search}
training:
  steps: 3
"""


@pytest.fixture
async def fake() -> AsyncIterator[FakePodium]:
    async with fake_podium() as running:
        yield running


class Cli:
    """Runs commands against the doubles, in a folder of their own."""

    def __init__(self, fake: FakePodium, folder: Path) -> None:
        self.fake = fake
        self.folder = folder
        (folder / "job.yaml").write_text(JOB)

    async def __call__(self, *arguments: str, stdin: str = "", **extra: str) -> Result:
        environment = {**self.fake.environment, **extra}
        return await invoke(*arguments, cwd=self.folder, environment=environment, stdin=stdin)


@pytest.fixture
def cli(fake: FakePodium, tmp_path: Path) -> Cli:
    return Cli(fake, tmp_path)


def add_job(fake: FakePodium, job_id: str = "w", state: str = "SUCCEEDED") -> jobs.Job:
    job = job_records.job(job_id, 3, 3)
    job.state = jobs.JobState.Value(f"JOB_STATE_{state}")
    fake.jobs.known[job_id] = job
    fake.jobs.updates = watched_job(job)
    fake.jobs.steps = job_records.steps(3)
    fake.jobs.evaluations = job_records.evaluations()
    fake.jobs.trajectories = job_records.episodes(0, 3, 2, 1)[:3]
    return job


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


async def test_unreachable_is_exit_code_3(tmp_path: Path) -> None:
    done = await podium("job", "list", "--address", "127.0.0.1:9", cwd=tmp_path)
    assert (done.code, done.out) == (3, "")
    assert "podium up" in done.err
    assert "Traceback" not in done.err


async def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = await invoke(
        "job",
        "list",
        "--address",
        "127.0.0.1:9",
        cwd=tmp_path,
        environment={"PODIUM_DEBUG": "1"},
    )
    assert done.code == 3
    assert "Traceback" in done.err


async def test_missing_token_is_exit_code_4(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("let-me-in\n")
    async with fake_podium(auth_tokens_file=tokens) as fake:
        refused = await invoke("job", "list", cwd=tmp_path, environment=fake.environment)
        assert (refused.code, refused.out) == (4, "")
        assert "PODIUM_TOKEN" in refused.err
        environment = {**fake.environment, "PODIUM_TOKEN": "let-me-in"}
        assert (await invoke("job", "list", cwd=tmp_path, environment=environment)).code == 0


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
    done = await cli("job", "submit", "-f", "job.yaml", "--id", "w", "--wait", "--timeout", "0.5")
    assert (done.code, done.out) == (124, "")
    assert "it keeps running" in done.err
    assert "podium job cancel w" in done.err


async def test_ctrl_c_leaves_the_job_running_and_says_how_to_go_on(cli: Cli) -> None:
    add_job(cli.fake, state="RUNNING")
    cli.fake.jobs.hold_watch = True
    process = await start("job", "watch", "w", cwd=cli.folder, environment=cli.fake.environment)
    assert process.stderr is not None
    seen = b""
    while b"step 3/3" not in seen:
        seen += await asyncio.wait_for(process.stderr.readline(), 30)
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 130
    assert out == b""
    assert b"job w keeps running" in err
    assert b"podium job watch w" in err
    assert b"podium job cancel w" in err
    assert b"Traceback" not in err
    assert cli.fake.jobs.known["w"].state == jobs.JOB_STATE_RUNNING


async def test_chat_once_and_from_a_pipe(cli: Cli) -> None:
    assert (await cli("chat", "--once", "a b")).out == "b a \n"
    piped = await cli("chat", "-m", "w@2", "--system", "be brief", stdin="c d\n")
    assert (piped.code, piped.out) == (0, "d c \n")
    assert cli.fake.inference.loaded == [("w", 2)], "a version that the pool lacks is loaded"
    assert [m.content for m in cli.fake.inference.chats[1].messages] == ["be brief", "c d"]


async def test_chat_with_the_best_version_is_with_one_version(cli: Cli) -> None:
    cli.fake.registry.publish("w", 3, {"adapter/a": b"x"}).aliases.append("best")
    cli.fake.registry.publish("w", 4, {"adapter/a": b"y"})
    done = await cli("chat", "-m", "w@best", "--once", "a b")
    assert (done.code, done.out) == (0, "b a \n")
    assert cli.fake.inference.loaded == [("w", 3)]
    assert cli.fake.inference.chats[0].policy.version == 3
    missing = await cli("chat", "-m", "w@worst", "--once", "a b")
    assert missing.code == 5


async def test_an_evaluation_of_the_best_version_is_of_one_version(cli: Cli) -> None:
    cli.fake.registry.publish("w", 3, {"adapter/a": b"x"}).aliases.append("best")
    done = await cli("eval", "email_search", "-a", "w@best")
    assert done.code == 0
    assert "w@best is w@3" in done.err
    assert cli.fake.inference.loaded == [("w", 3)]


@pytest.mark.parametrize("model", ["base", "w@2", "v@9"])
async def test_a_merged_pool_serves_what_is_named_and_then_what_it_served(
    cli: Cli, model: str
) -> None:
    add_job(cli.fake, "w")
    cli.fake.inference.merged, cli.fake.inference.loaded = True, [("w", 18)]
    done = await cli("chat", "-m", model, "--once", "a b")
    assert (done.code, done.out) == (0, "b a \n"), done.err
    assert "loading w@18 again" in done.err
    assert cli.fake.inference.loaded == [("w", 18)]


async def test_agents_are_measured_in_turn_in_a_merged_pool(cli: Cli) -> None:
    add_job(cli.fake, "w")
    cli.fake.inference.merged, cli.fake.inference.loaded = True, [("w", 18)]
    done = await cli("eval", "email_search", "-a", "base", "-a", "w@12", "-a", "w@18")
    assert done.code == 0, done.err
    assert cli.fake.inference.loaded == [("w", 18)]
    asked = {(r.policy.job, r.policy.version) for r in cli.fake.rollout.requests}
    assert asked == {("", 0), ("w", 12), ("w", 18)}


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING", "PAUSING"])
async def test_a_merged_pool_is_not_taken_from_a_job_that_trains(cli: Cli, state: str) -> None:
    add_job(cli.fake, "w", state)
    cli.fake.inference.merged, cli.fake.inference.loaded = True, [("w", 18)]
    for model in ("base", "v@9", "w@2"):
        done = await cli("chat", "-m", model, "--once", "a b")
        assert (done.code, done.out) == (5, ""), done.err
        assert "serves w@18, which its job needs" in done.err
        assert cli.fake.inference.loaded == [("w", 18)]
    assert (await cli("chat", "-m", "w@18", "--once", "a b")).code == 0


async def test_chat_goes_on_from_a_history(cli: Cli) -> None:
    history = cli.folder / "history.json"
    history.write_text('[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]')
    assert (await cli("chat", "--history", "history.json", "--once", "b")).code == 0
    asked = cli.fake.inference.chats[0].messages
    assert [(m.role, m.content) for m in asked] == [(2, "q"), (3, "a"), (2, "b")]
    for wrong in ("{", '{"role": 1}', '[{"role": "robot", "content": "x"}]'):
        history.write_text(wrong)
        refused = await cli("chat", "--history", "history.json", "--once", "b")
        assert refused.code == 2
        assert "--history" in refused.err


async def test_checkpoint_export(cli: Cli) -> None:
    files = {"adapter/adapter_config.json": b"{}", "state/optimizer.safetensors": b"x" * 5000}
    cli.fake.registry.publish("w", 2, files)
    done = await cli("checkpoint", "export", "w@2", "out")
    assert (done.code, done.out) == (0, "out\n")
    assert [path.name for path in (cli.folder / "out").iterdir()] == ["adapter_config.json"]
    again = await cli("checkpoint", "export", "w@latest", "out")
    assert again.code == 5
    assert "not empty" in again.err
    assert (await cli("checkpoint", "list", "w", "-o", "name")).out == "w@2\n"


async def test_report(cli: Cli) -> None:
    add_job(cli.fake)
    done = await cli("job", "report", "w", "-o", "r.html")
    assert (done.code, done.out) == (0, "r.html\n")
    assert "Learning curve" in (cli.folder / "r.html").read_text()


async def test_environments(cli: Cli) -> None:
    assert (await cli("env", "list", "-o", "name")).out == "email_search\n"


async def test_doctor_says_what_to_do(tmp_path: Path) -> None:
    done = await invoke(
        "doctor", "--model", "not-there", "-o", "json", "--data-dir", ".", cwd=tmp_path
    )
    findings = {finding["name"]: finding for finding in json.loads(done.out)}
    assert done.code == 1
    assert findings["model"]["status"] == "fail"
    assert "podium.local.models.prepare not-there" in findings["model"]["advice"]
    assert {"packages", "address", "disk", "memory", "cpu"} <= set(findings)
    text = await invoke("doctor", "--model", "not-there", "--data-dir", ".", cwd=tmp_path)
    assert "FAIL  model" in text.out


async def test_the_version_is_an_option_too(tmp_path: Path) -> None:
    done = await invoke("--version", cwd=tmp_path)
    assert (done.code, done.out) == (0, f"podium, version {podium_package.__version__}\n")


async def test_the_shell_completes_commands(tmp_path: Path) -> None:
    words = {"COMP_WORDS": "podium job su", "COMP_CWORD": "2", "_PODIUM_COMPLETE": "bash_complete"}
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("podium")),
        env={**os.environ, **words},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert out.decode().split() == ["plain,submit"]


async def test_what_is_exported_has_the_modes_of_new_files_and_the_hub_s_name(cli: Cli) -> None:
    config = json.dumps({"base_model_name_or_path": "smollm2-135m-instruct", "r": 8})
    files = {"adapter/adapter_config.json": config.encode(), "adapter/a/b": b"x"}
    cli.fake.registry.publish("w", 3, files)
    (cli.folder / "beside").touch()
    assert (await cli("checkpoint", "export", "w@3", "out")).code == 0
    out = cli.folder / "out"
    fresh = (cli.folder / "beside").stat().st_mode
    assert (out / "a" / "b").stat().st_mode == fresh
    named = json.loads((out / "adapter_config.json").read_text())
    assert named == {"base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct", "r": 8}


async def test_version(tmp_path: Path) -> None:
    found = json.loads((await invoke("version", "-o", "json", cwd=tmp_path)).out)
    assert list(found)[:2] == ["podium", "python"]


async def test_a_mistyped_data_directory_hits_no_other_stack(cli: Cli, tmp_path: Path) -> None:
    add_job(cli.fake, "w", "RUNNING")
    claim = write_up_file(tmp_path / ".podium", cli.fake.address)
    for command in (("list",), ("cancel", "w"), ("get", "w")):
        typo = await cli("job", *command, "--data-dir", "stakc", PODIUM_ADDRESS="")
        assert (typo.code, typo.out) == (3, ""), typo.err
        assert "nothing runs in the data directory stakc" in typo.err
        assert not (tmp_path / "stakc").exists()
    assert cli.fake.jobs.known["w"].state == jobs.JOB_STATE_RUNNING
    assert (await invoke("job", "get", "w", cwd=tmp_path)).code == 0
    claim.release()


async def test_with_a_controller_named_no_other_service_is_this_machine_s(cli: Cli) -> None:
    unset = {f"PODIUM_{name}_ADDRESS": "" for name in ("REGISTRY", "INFERENCE", "ROLLOUT", "JUDGE")}
    for command, variable in (
        (("checkpoint", "list"), "PODIUM_REGISTRY_ADDRESS"),
        (("env", "list"), "PODIUM_ROLLOUT_ADDRESS"),
        (("chat", "--once", "hi"), "PODIUM_INFERENCE_ADDRESS"),
    ):
        done = await cli(*command, "--address", "127.0.0.1:1", **unset)
        assert (done.code, done.out) == (5, ""), done.err
        assert variable in done.err


async def test_an_url_is_no_address_and_says_what_is(cli: Cli) -> None:
    done = await cli("job", "list", "--address", "http://there:50051")
    assert done.code == 2
    assert "without http://: there:50051" in done.err


async def test_down_and_status_without_a_stack(tmp_path: Path) -> None:
    for command in ("down", "status"):
        done = await invoke(command, "--data-dir", ".", cwd=tmp_path)
        assert (done.code, done.out) == (3, "")
        assert "podium up" in done.err


async def test_the_plain_grpc_example_submits_and_prints_events(cli: Cli) -> None:
    example = Path(__file__).parents[3] / "examples" / "submit_grpc.py"
    lines = [line for line in example.read_text().splitlines() if line.strip()]
    assert len(lines) <= 20
    assert not [line for line in lines if "podium.sdk" in line or "podium.kit.rpc" in line]
    job = job_records.job("job-1", 3, 3)
    cli.fake.jobs.updates = watched_job(job)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(example), cli.fake.address, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert out.decode().splitlines()[-1] == "job-1 6 succeeded"
    assert list(cli.fake.jobs.known) == ["job-1"]


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_colours_only_on_a_terminal_that_wants_them(
    cli: Cli, variables: dict[str, str], coloured: bool
) -> None:
    add_job(cli.fake)
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "job",
        "list",
        stdout=theirs,
        cwd=cli.folder,
        env={**os.environ, "TERM": "xterm", **cli.fake.environment, **variables},
    )
    assert await asyncio.wait_for(process.wait(), 30) == 0
    os.close(theirs)
    shown = os.read(ours, 10000)
    os.close(ours)
    assert b"succeeded" in shown
    assert (b"\x1b[" in shown) == coloured


def write_up_file(folder: Path, controller: str) -> upfile.Claim:
    claim = upfile.Claim(folder)
    entries = {
        name: upfile.ServiceEntry(controller, "h", "m", 1, str(logs.log_path(folder, name)))
        for name in ("controller", "trainer")
    }
    upfile.UpFile(os.getpid(), "0", "m", entries).write(folder)
    return claim


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


async def test_chat_in_a_terminal_keeps_the_conversation(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "chat",
        stdin=theirs,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cli.folder,
        env={**os.environ, **cli.fake.environment},
    )
    os.close(theirs)
    os.write(ours, b"a b\nc d\n/reset\ne f\n/exit\n")
    out, err = await asyncio.wait_for(process.communicate(), 30)
    os.close(ours)
    assert process.returncode == 0
    for answer in (b"b a", b"d c", b"f e"):
        assert answer in out
    assert b"talking to the base model" in err
    said = [[m.content for m in chat.messages] for chat in cli.fake.inference.chats]
    assert said == [["a b"], ["a b", "b a", "c d"], ["e f"]]


async def test_a_live_terminal_shows_one_status_line(cli: Cli) -> None:
    add_job(cli.fake)
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "job",
        "watch",
        "w",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=theirs,
        cwd=cli.folder,
        env={**os.environ, **cli.fake.environment},
    )
    assert await asyncio.wait_for(process.wait(), 30) == 0
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "\r\x1b[2K" in shown, "the status line is redrawn"
    assert "▁" in shown, "with a sparkline"
    assert "step 3/3" in shown
