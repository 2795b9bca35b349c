"""The SDK over a real channel to doubles of the services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import (
    AlreadyExistsError,
    DataLossError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from podium.core.policy_names import parse_policy, resolve_policy
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.sdk import Addresses, AsyncClient, Client
from podium.types.v1 import trajectory_pb2
from support import job_records
from support.fake_job_service import watched_job
from support.fake_podium import FakePodium, fake_podium


@pytest.fixture
async def fake() -> AsyncIterator[FakePodium]:
    async with fake_podium() as running:
        yield running


@pytest.fixture
async def client(fake: FakePodium) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(fake.addresses) as made:
        yield made


async def exhaust(items: AsyncIterator[object]) -> None:
    async for _ in items:
        continue


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


async def test_create_survives_a_lost_answer_without_a_second_job(
    fake: FakePodium, client: AsyncClient
) -> None:
    fake.jobs.fail_creates = 2
    job = await client.jobs.create(job_records.job().spec, job_id="a")
    assert job.id == "a"
    assert list(fake.jobs.known) == ["a"]
    assert len(fake.jobs.requests) == 1


async def test_create_of_a_taken_id_is_refused(fake: FakePodium, client: AsyncClient) -> None:
    await client.jobs.create(job_records.job().spec, job_id="a", request_id="one")
    with pytest.raises(AlreadyExistsError):
        await client.jobs.create(job_records.job().spec, job_id="a", request_id="two")


async def test_contract_violations_come_back_by_field(client: AsyncClient) -> None:
    spec = job_records.job().spec
    spec.training.learning_rate = 7
    spec.rollout.group_size = 1
    with pytest.raises(InvalidArgumentError) as caught:
        await client.jobs.create(spec)
    fields = {violation.field for violation in caught.value.violations}
    assert any(field.endswith("training.learning_rate") for field in fields)
    assert any(field.endswith("rollout.group_size") for field in fields)


async def test_list_turns_every_page(fake: FakePodium, client: AsyncClient) -> None:
    for name in "abcde":
        fake.jobs.known[name] = jobs.Job(id=name, state=jobs.JOB_STATE_RUNNING)
    assert [job.id async for job in client.jobs.list()] == list("abcde")
    assert [job.id async for job in client.jobs.list([jobs.JOB_STATE_FAILED])] == []


async def test_watch_goes_on_after_the_last_event_seen(
    fake: FakePodium, client: AsyncClient
) -> None:
    job = job_records.job("w", 3, 3)
    fake.jobs.known["w"] = job
    fake.jobs.updates = watched_job(job)
    fake.jobs.break_watch_after = [2, 4]
    lost: list[float] = []
    seen = [
        update.event.sequence
        async for update in client.jobs.watch("w", on_reconnect=lambda _, pause: lost.append(pause))
    ]
    assert seen == [1, 2, 3, 4, 5, 6]
    assert fake.jobs.watched_after == [0, 2, 4]
    assert len(lost) == 2


async def test_watch_of_an_ended_job_with_nothing_new_ends(
    fake: FakePodium, client: AsyncClient
) -> None:
    job = job_records.job("w", 3, 3)
    fake.jobs.known["w"] = job
    fake.jobs.updates = watched_job(job)
    assert [u async for u in client.jobs.watch("w", after_sequence=6)] == []


async def test_watch_of_a_running_job_is_opened_again_when_the_server_closes_it(
    fake: FakePodium, client: AsyncClient
) -> None:
    job = job_records.job("w", 3, 1)
    fake.jobs.known["w"] = job
    fake.jobs.updates = watched_job(job, 1)
    with pytest.raises(UnavailableError, match="closed the stream"):
        await exhaust(client.jobs.watch("w", reconnect_seconds=0.3))
    assert fake.jobs.watched_after[:2] == [0, 4]


async def test_watch_of_an_unknown_job(client: AsyncClient) -> None:
    with pytest.raises(NotFoundError):
        await exhaust(client.jobs.watch("nope"))


async def test_watch_gives_up_on_a_controller_that_stays_away() -> None:
    gone = Addresses(controller="127.0.0.1:9")
    async with AsyncClient(gone, timeout=2) as client:
        with pytest.raises(UnavailableError):
            await exhaust(client.jobs.watch("w", reconnect_seconds=0.1))


async def test_wait_is_bounded(fake: FakePodium, client: AsyncClient) -> None:
    fake.jobs.known["w"] = job_records.job("w", 3, 1)
    fake.jobs.hold_watch = True
    with pytest.raises(DeadlineExceededError) as caught:
        await client.jobs.wait("w", within=0.2)
    assert caught.value.reason == "WAIT_TIMEOUT"


async def test_download_goes_on_where_it_broke_and_verifies(
    fake: FakePodium, client: AsyncClient, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 40
    files = {"adapter/adapter_model.safetensors": content, "adapter/empty": b"", "state/x": b"1"}
    fake.registry.publish("job", 3, files)
    fake.registry.break_downloads = 3
    version = await client.checkpoints.get("job")
    await client.checkpoints.download(version, tmp_path / "out", "adapter/")
    assert (tmp_path / "out" / "adapter_model.safetensors").read_bytes() == content
    assert files_in(tmp_path) == ["adapter_model.safetensors", "empty"]


async def test_damaged_download_is_refused_and_leaves_nothing(
    fake: FakePodium, client: AsyncClient, tmp_path: Path
) -> None:
    version = fake.registry.publish("job", 3, {"adapter/a": b"right"})
    fake.registry.blobs[version.manifest.files[0].digest] = b"wrong"
    with pytest.raises(DataLossError):
        await client.checkpoints.download(await client.checkpoints.get("job", 3), tmp_path / "out")
    assert files_in(tmp_path) == []


async def test_stream_chat(fake: FakePodium, client: AsyncClient) -> None:
    message = trajectory_pb2.Message(role=trajectory_pb2.ROLE_USER, content="a b")
    policy = parse_policy("job@3")
    pieces = [p async for p in client.policies.stream_chat([message], policy=policy)]
    assert "".join(piece.delta.text for piece in pieces) == "b a "
    assert pieces[-1].message.content == "b a"
    assert fake.inference.chats[0].policy.version == 3


@pytest.mark.parametrize("name", ["Job", "job@x", "a b", "job@", "@3", "-a"])
def test_malformed_policy_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="allowed"):
        parse_policy(name)


def test_policy_names() -> None:
    assert not parse_policy("").job
    assert not parse_policy("base").job
    assert not parse_policy("a-job").HasField("version")
    assert parse_policy("a-job@0").version == 0


async def test_an_alias_is_one_version_from_then_on(fake: FakePodium, client: AsyncClient) -> None:
    fake.registry.publish("a-job", 3, {"adapter/a": b"x"}).aliases.append("best")
    fake.registry.publish("a-job", 4, {"adapter/a": b"y"})
    policy = await resolve_policy("a-job@best", client.checkpoints.get)
    assert (policy.job, policy.version) == ("a-job", 3)
    assert (await resolve_policy("a-job@latest", client.checkpoints.get)).version == 4
    assert (await client.backend.version("a-job", "best")).manifest.version == 3
    with pytest.raises(NotFoundError):
        await resolve_policy("a-job@worst", client.checkpoints.get)


async def test_names_without_an_alias_ask_nobody() -> None:
    async def nobody(model: str, alias: str) -> Any:
        raise AssertionError(f"{model}@{alias} was asked for")

    assert (await resolve_policy("a-job@12", nobody)).version == 12
    assert not (await resolve_policy("a-job", nobody)).HasField("version")
    assert not (await resolve_policy("base", nobody)).job
    with pytest.raises(InvalidArgumentError, match="`job@alias`"):
        await resolve_policy("a-job@Best", nobody)


def test_synchronous_client(served: FakePodium, tmp_path: Path) -> None:
    job = job_records.job("w", 3, 3)
    served.jobs.known["w"] = job
    served.jobs.updates = watched_job(job)
    served.registry.publish("w", 1, {"adapter/a": b"x"})
    with Client(served.addresses) as client:
        assert client.jobs.get("w").spec == job.spec
        assert [update.event.sequence for update in client.jobs.watch("w")] == [1, 2, 3, 4, 5, 6]
        first = next(iter(client.jobs.watch("w")))
        assert first.event.message == "running"
        assert client.jobs.wait("w").state == jobs.JOB_STATE_SUCCEEDED
        assert [model.name for model in client.checkpoints.models()] == ["w"]
        client.checkpoints.download(client.checkpoints.get("w"), tmp_path / "out", "adapter/")
        assert (tmp_path / "out" / "a").read_bytes() == b"x"
        assert client.environments.list()[0].name == "email_search"
        with pytest.raises(NotFoundError):
            client.jobs.get("nope")
