"""Which installation a command talks to, and what it says where there is none."""

from __future__ import annotations

import json
from pathlib import Path

from podium.jobs.v1 import job_service_pb2 as jobs
from support.cli import invoke
from support.cli_user import Cli, add_job, write_up_file
from support.fake_podium import fake_podium


async def test_unreachable_is_exit_code_3(tmp_path: Path) -> None:
    done = await invoke("job", "list", "--address", "127.0.0.1:9", cwd=tmp_path)
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
