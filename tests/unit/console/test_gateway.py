"""The API as JSON over HTTP: what a call answers, and what it refuses, as gRPC would."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from google.rpc import error_details_pb2
from podium.core import errors
from podium.jobs.v1 import evaluation_service_pb2, job_service_pb2
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.kit.rpc.status import CODES
from podium.registry.v1 import registry_service_pb2
from podium_console.adapters.methods import METHODS
from podium_console.web import replies
from podium_console.web.gateway import calls, refusals
from support.console import JOBS, Console, console, post
from support.fake_podium import FakePodium, fake_podium

pytestmark = pytest.mark.asyncio(loop_scope="session")

SPEC = {
    "baseModel": "smollm2-135m-instruct",
    "environment": {"name": "email_search", "config": {"actions": ["search"]}},
    "training": {"steps": "2"},
}


def violations(answer: httpx.Response) -> dict[str, str]:
    """The fields that are wrong, of the details that a client of Connect reads."""
    (detail,) = [d for d in answer.json()["details"] if d["type"] == "google.rpc.BadRequest"]
    packed = base64.b64decode(detail["value"] + "=" * (-len(detail["value"]) % 4))
    told = error_details_pb2.BadRequest.FromString(packed)
    by_field = {v.field: v.description for v in told.field_violations}
    shown = detail["debug"]["fieldViolations"]
    assert by_field == {v.get("field", ""): v["description"] for v in shown}
    return by_field


async def test_a_job_is_made_read_listed_and_cancelled(here: Console) -> None:
    made = await post(here, "CreateJob", {"job": {"id": "new", "spec": SPEC}, "requestId": "r"})
    assert made.status_code == 200, made.text
    assert made.headers["content-type"] == "application/json"
    assert made.json()["job"]["spec"]["training"]["steps"] == "2"
    # Names of the contract are names too, as protobuf's mapping says.
    got = await post(here, "GetJob", {"job_id": "new"})
    assert got.json()["job"]["state"] == "JOB_STATE_QUEUED"
    listed = await post(here, "ListJobs")
    assert [job["id"] for job in listed.json()["jobs"]] == ["a", "new"]
    assert (await post(here, "CancelJob", {"jobId": "new"})).status_code == 200
    again = await post(here, "GetJob", {"jobId": "new"})
    assert again.json()["job"]["state"] == "JOB_STATE_CANCELLING"


async def test_an_error_is_the_one_that_grpc_gives(fake: FakePodium, here: Console) -> None:
    missing = await post(here, "GetJob", {"jobId": "none"})
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert missing.json()["details"][0]["debug"] == {"reason": "NOT_FOUND", "domain": "podium.dev"}
    wrong = await post(here, "WatchJob", {"jobId": "a", "afterSequence": "-1"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_argument")
    assert violations(wrong) == {"after_sequence": "got -1; allowed are numbers from 0 up"}
    fake.jobs.fail_creates = 1
    away = await post(here, "CreateJob", {"job": {"spec": SPEC}})
    assert (away.status_code, away.json()["code"]) == (503, "unavailable")


async def test_every_code_has_its_status() -> None:
    told = {}
    for kind in CODES:
        answer = refusals.answer(kind("no"))
        told[json.loads(bytes(answer.body))["code"]] = answer.status_code
    assert told == {
        "canceled": 499,
        "invalid_argument": 400,
        "deadline_exceeded": 504,
        "not_found": 404,
        "already_exists": 409,
        "permission_denied": 403,
        "resource_exhausted": 429,
        "failed_precondition": 400,
        "aborted": 409,
        "out_of_range": 400,
        "unimplemented": 501,
        "internal": 500,
        "unavailable": 503,
        "data_loss": 500,
        "unauthenticated": 401,
    }


async def test_fields_that_are_no_fields_are_named(here: Console) -> None:
    spec = {**SPEC, "trainig": {}, "training": {"lr": 1, "steps": "two"}}
    answer = await post(here, "CreateJob", {"job": {"spec": spec}, "dryRun": True})
    assert answer.status_code == 400
    assert violations(answer) == {
        "job.spec.trainig": "unknown field; did you mean 'training'?",
        "job.spec.training.lr": "unknown field; did you mean 'learning_rate'?",
        "job.spec.training.steps": 'got "two"; allowed is a whole number of 64 bits, quoted or not',
        "dryRun": "unknown field; allowed are job, request_id, validate_only",
    }


@pytest.mark.parametrize("kind", ["", "text/plain", "application/jsonp", "application/proto"])
async def test_what_is_no_json_is_not_read(here: Console, kind: str) -> None:
    answer = await post(here, "CreateJob", b"{}", content_type=kind)
    assert (answer.status_code, answer.headers["accept-post"]) == (415, "application/json")
    assert "application/json" in answer.json()["message"]


@pytest.mark.parametrize("path", ["JobService/CreateJobs", "JobService", "JobService/", "", "../x"])
async def test_a_method_that_is_none_is_told_so(here: Console, path: str) -> None:
    url = f"/podium.jobs.v1.{path}" if path else "/podium."
    answer = await here.http.post(url, json={})
    assert answer.status_code == 404
    if path == "JobService/CreateJobs":
        assert answer.json()["code"] == "unimplemented"
        assert "did you mean 'podium.jobs.v1.JobService/CreateJob'?" in answer.json()["message"]


async def test_only_post_calls_a_method(here: Console) -> None:
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer = await here.http.request(method, f"{JOBS}/ListJobs")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST"), method


@pytest.mark.parametrize(
    ("headers", "status", "field"),
    [
        ({"connect_protocol_version": "2"}, 400, "connect-protocol-version"),
        ({"connect_timeout_ms": "1s"}, 400, "connect-timeout-ms"),
        ({"connect_timeout_ms": "-5"}, 400, "connect-timeout-ms"),
        ({"connect_timeout_ms": "12345678901"}, 400, "connect-timeout-ms"),
        ({"connect_timeout_ms": "0"}, 504, ""),
        ({"content_encoding": "gzip"}, 501, ""),
        ({"connect_protocol_version": "1", "connect_timeout_ms": "9999999999"}, 200, ""),
    ],
)
async def test_the_protocols_headers_are_held_to_it(
    here: Console, headers: dict[str, str], status: int, field: str
) -> None:
    answer = await post(here, "ListJobs", **headers)
    assert answer.status_code == status, answer.text
    if field:
        assert set(violations(answer)) == {field}


async def test_a_deadline_goes_on_to_the_service(fake: FakePodium, here: Console) -> None:
    fake.jobs.silent = True
    answer = await post(here, "ListJobs", connect_timeout_ms="50")
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline_exceeded")


async def test_the_methods_are_those_that_take_one_request() -> None:
    """Of the registry's what is read alone: whoever gets in by HTTP deletes no checkpoint."""
    named = (
        (job_service_pb2, "JobService"),
        (evaluation_service_pb2, "EvaluationService"),
        (registry_service_pb2, "RegistryService"),
    )
    known = {
        f"{name}/{method.name}"
        for module, name in named
        for method in module.DESCRIPTOR.services_by_name[name].methods
    }
    offered = {path.partition(".v1.")[2] for path in METHODS}
    assert known - offered == {"EvaluationService/StoreEvaluation"} | {
        f"RegistryService/{name}"
        for name in (
            "AcquireLease",
            "AddState",
            "ApplyRetention",
            "CollectGarbage",
            "CreateVersion",
            "DeleteAlias",
            "DeleteVersion",
            "DownloadBlob",
            "FindBlobs",
            "GetUpload",
            "RecordEvaluation",
            "ReleaseLease",
            "SetAlias",
            "StartUpload",
            "UploadBlob",
        )
    }


async def test_the_registry_is_read(fake: FakePodium, here: Console) -> None:
    fake.registry.publish("m", 3, {"adapter.bin": b"x"})
    registry = "/podium.registry.v1.RegistryService"
    found = await here.http.post(f"{registry}/GetVersion", json={"model": "m", "alias": "latest"})
    assert found.json()["version"]["manifest"]["version"] == "3"
    refused = await here.http.post(f"{registry}/DeleteVersion", json={"model": "m", "version": 3})
    assert (refused.status_code, len(fake.registry.versions)) == (404, 1)


async def test_stored_evaluations_are_listed(tmp_path: Path) -> None:
    async with fake_podium(stored=tmp_path) as fake, console(fake) as here:
        path = "/podium.jobs.v1.EvaluationService/ListStoredEvaluations"
        answer = await here.http.post(path, json={})
        assert (answer.status_code, answer.json()) == (200, {})


async def test_an_answer_that_json_cannot_say_is_refused(fake: FakePodium, here: Console) -> None:
    config = fake.jobs.known["a"].spec.environment.config
    config.fields["bound"].number_value = float("inf")
    answer = await post(here, "GetJob", {"jobId": "a"})
    assert (answer.status_code, answer.json()["code"]) == (400, "failed_precondition")
    fake.jobs.known["a"].latest_metrics["loss"] = float("nan")
    config.Clear()
    told = (await post(here, "GetJob", {"jobId": "a"})).json()
    assert told["job"]["latestMetrics"]["loss"] == "NaN"


async def test_a_large_answer_is_bounded(
    fake: FakePodium, here: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "_THREAD_BYTES", 10)
    fake.jobs.known["a"].failure_message = "x" * 5000
    assert len((await post(here, "GetJob", {"jobId": "a"})).json()["job"]["failureMessage"]) == 5000
    monkeypatch.setattr(calls, "_MOST_BYTES", 4000)
    answer = await post(here, "GetJob", {"jobId": "a"})
    assert (answer.status_code, answer.json()["code"]) == (429, "resource_exhausted")
    assert "smaller page_size" in answer.json()["message"]


async def test_a_controller_that_is_away_is_named_without_its_address() -> None:
    away = FakePodium(*[None] * 4, "127.0.0.1:9")  # type: ignore[arg-type]
    async with console(away, call_seconds=30) as here:
        answer = await post(here, "GetJob", {"jobId": "a"})
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "controller" in answer.json()["message"]
    assert "127.0.0.1" not in answer.text


async def test_what_nobody_foresaw_is_masked(
    here: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: object) -> object:
        raise KeyError("secret")

    monkeypatch.setattr(calls, "_seconds", broken)
    answer = await post(here, "GetJob", {"jobId": "a"})
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert answer.json()["details"][0]["debug"]["metadata"]["error_id"]


async def test_a_body_that_never_comes_is_not_waited_for(fake: FakePodium) -> None:
    async with console(fake, first_message_seconds=0.05) as here:
        port = int(here.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {JOBS}/CreateJob HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
        # To its end: the connection is closed too.
        told = (await reader.read()).decode()
        writer.close()
    assert told.startswith("HTTP/1.1 408")
    assert '"deadline_exceeded"' in told


async def test_a_body_is_bounded_with_and_without_a_length(here: Console) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    headers = {"content-type": "application/json"}
    for content in (b"x" * (1 << 20 | 1), endless()):
        answer = await here.http.post(f"{JOBS}/CreateJob", content=content, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (413, "resource_exhausted")


async def test_who_goes_before_the_body_is_whole_leaves_nothing(fake: FakePodium) -> None:
    async with console(fake) as here:
        port = int(here.url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {JOBS}/CreateJob HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
        writer.write(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
        await writer.drain()
        writer.close()
        assert (await post(here, "ListJobs")).status_code == 200
    assert issubclass(replies.LateError, errors.PodiumError)
    assert list(fake.jobs.known) == ["a"]


async def test_a_jobs_state_is_its_contracts(here: Console) -> None:
    only = {"states": ["JOB_STATE_RUNNING", "JOB_STATE_PAUSED"]}
    listed = await post(here, "ListJobs", only)
    assert [job["state"] for job in listed.json()["jobs"]] == ["JOB_STATE_RUNNING"]
    wrong = await post(here, "ListJobs", {"states": ["running"]})
    names = ", ".join(name for name, number in jobs.JobState.items() if number)
    assert violations(wrong) == {"states[0]": f'got "running"; allowed are {names}'}
