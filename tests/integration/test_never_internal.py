"""Forged page tokens, U+0000 in any text and random messages, to the services that keep SQL.

The registry and the controller are the real ones, on SQLite and on PostgreSQL, whose texts hold
no U+0000: none of it may be their defect (INTERNAL), and what is refused is told by its field.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, Phase, given, settings
from podium.core.errors import InvalidArgumentError
from podium.jobs.v1 import evaluation_service_pb2 as evaluations_pb
from podium.jobs.v1 import job_service_pb2 as jobs_pb
from podium.kit.rpc import connect
from podium.kit.rpc.errors import from_rpc
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium_controller.api import paging
from support.controlled import running_controller, small_job
from support.controlled_fixtures import fleet, registry
from support.descriptors import class_of, finish, messages, methods, path_of
from support.empty_database import CONTROLLER, REGISTRY, Migrated
from support.fleet import Fleet
from support.full import full
from support.postgres import Postgres
from support.registry_service import RegistryService

__all__ = ["fleet", "registry"]

MakeDatabase = Callable[[Migrated], Awaitable[str]]
"""The URL of a database of a service."""

NUL = "a\0b"
EXAMPLES = 25
FREE = {"google.protobuf.Struct", "podium.types.v1.Trajectory", "podium.types.v1.Judgement"}
"""What was said in an episode is any text; see `podium.core.contract.nul`."""


@pytest.fixture(params=[full("sqlite"), "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> MakeDatabase:
    """Makes one of each kind, of a service."""
    if request.param == "sqlite":
        return lambda service: service.sqlite(tmp_path)
    server: Postgres = request.getfixturevalue("postgres")
    return lambda service: service.postgresql(server)


@pytest.fixture
async def registry_channel(
    database: MakeDatabase, tmp_path: Path
) -> AsyncIterator[grpc.aio.Channel]:
    """To a registry process with one model of two versions."""
    service = RegistryService(tmp_path / "registry", database_url=await database(REGISTRY))
    await service.start()
    try:
        async with connect(service.address) as channel:
            async with service.calls() as calls:
                await calls.publish("m", 1)
                await calls.publish("m", 2)
            yield channel
    finally:
        service.kill()


@pytest.fixture
async def controller_channel(
    fleet: Fleet, database: MakeDatabase
) -> AsyncIterator[tuple[grpc.aio.Channel, str]]:
    """To a controller with one job that has ended; the job's id."""
    url = await database(CONTROLLER)
    async with running_controller(fleet, database_url=url) as client:
        job = await client.create(small_job(1))
        await client.succeeded(job.id)
        yield client.channel, job.id


def of_service(*names: str) -> list[MethodDescriptor]:
    return [method for method in methods() if method.containing_service.name in names]


async def refusal(
    channel: grpc.aio.Channel, method: MethodDescriptor, data: bytes
) -> tuple[grpc.StatusCode, list[str]]:
    """The code of a call with these bytes, and the fields that the answer names."""
    call = await finish(channel, method, data)
    code = await call.code()
    if code is grpc.StatusCode.OK:
        return code, []
    error = from_rpc(
        grpc.aio.AioRpcError(
            code, await call.initial_metadata(), await call.trailing_metadata(), ""
        ),
        "service",
    )
    named = error.violations if isinstance(error, InvalidArgumentError) else ()
    return code, [violation.field for violation in named]


def filled(descriptor: Descriptor, path: tuple[str, ...]) -> Message:
    """A message whose texts are `x` and whose numbers are 1, and NUL at the path."""
    message = class_of(descriptor)()
    for field in descriptor.fields:
        here = field.name == (path[0] if path else "")
        if field.containing_oneof is not None and not here:
            continue
        if field.message_type is not None:
            if here and field.message_type.GetOptions().map_entry:
                getattr(message, field.name)[NUL] = 1
            elif here:
                inner = filled(field.message_type, path[1:])
                target = getattr(message, field.name)
                (target.append if field.is_repeated else target.CopyFrom)(inner)
            continue
        value: Any = NUL if here and len(path) == 1 else "x"
        if field.type != FieldDescriptor.TYPE_STRING:
            value = b"x" if field.type == FieldDescriptor.TYPE_BYTES else 1
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def text_paths(
    descriptor: Descriptor, seen: frozenset[str] = frozenset()
) -> Iterator[tuple[str, ...]]:
    """Every text of a request, and every map that a text opens."""
    for field in descriptor.fields:
        inner = field.message_type
        if inner is None:
            if field.type == FieldDescriptor.TYPE_STRING:
                yield (field.name,)
        elif inner.GetOptions().map_entry:
            value = inner.fields_by_name["value"]
            if value.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
                yield (field.name,)
        elif inner.full_name not in FREE | seen:
            for rest in text_paths(inner, seen | {inner.full_name}):
                yield (field.name, *rest)


async def refuses_nul(channel: grpc.aio.Channel, *services: str) -> None:
    tried = 0
    for method in of_service(*services):
        for path in text_paths(method.input_type):
            data = filled(method.input_type, path).SerializeToString()
            code, fields = await refusal(channel, method, data)
            where = (path_of(method), path, code, fields)
            assert code is grpc.StatusCode.INVALID_ARGUMENT, where
            named = [name.replace("[0]", "") for name in fields]
            assert any(name.startswith(".".join(path)) for name in named), where
            tried += 1
    assert tried > 20


async def test_the_registry_refuses_nul_in_every_text_by_its_field(
    registry_channel: grpc.aio.Channel,
) -> None:
    await refuses_nul(registry_channel, "RegistryService")


async def test_the_controller_refuses_nul_in_every_text_by_its_field(
    controller_channel: tuple[grpc.aio.Channel, str],
) -> None:
    services = ("JobService", "SessionService", "EvaluationService")
    await refuses_nul(controller_channel[0], *services)


def forged(arguments: list[Any]) -> list[str]:
    """Tokens that have the right digest of the arguments, and a position that no page has."""
    digest = hashlib.sha256(json.dumps(arguments).encode()).hexdigest()[:16]
    positions = [
        "[]",
        "[null]",
        "null",
        "{}",
        "5",
        f"[{2**70}]",
        f"[{-(2**70)}]",
        f"[{2**63}]",
        "[1.5]",
        "[1e999]",
        "[NaN]",
        "[true]",
        "[[1]]",
        '[{"a":1}]',
        '["\\u0000"]',
        '["\\ud800"]',
        f'[{2**70},"sampled"]',
        '[1,"\\u0000"]',
        '[1,"\\ud800"]',
        f'[1,"",{2**70},0]',
        '[1,"\\u0000",1,1]',
        "[1,2,3,4,5,6]",
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        "1" * 5000,
    ]
    texts = [f'["{digest}",{position}]'.encode() for position in positions]
    texts += [b"\xff\xfe\x00", b"null", b"[]", b"{}", b"[1,2,3]", b"[null,null]", b"[" * 200_000]
    return [base64.urlsafe_b64encode(text).decode().rstrip("=") for text in texts] + [
        "é!",
        "%%%",
        "a",
        "=" * 100,
        "at-" + "9" * 5000,
    ]


async def refuses_forged(
    channel: grpc.aio.Channel, request: Any, arguments: list[Any], method: MethodDescriptor
) -> None:
    for token in forged(arguments):
        request.page_token = token
        code, fields = await refusal(channel, method, request.SerializeToString())
        what = (path_of(method), token[:60], code)
        assert code is grpc.StatusCode.INVALID_ARGUMENT, what
        assert fields == ["page_token"], what


def method_named(service: str, name: str) -> MethodDescriptor:
    (found,) = (each for each in of_service(service) if each.name == name)
    return found


async def test_the_registry_refuses_forged_page_tokens(registry_channel: grpc.aio.Channel) -> None:
    for name, request, arguments in (
        ("ListVersions", registry_pb.ListVersionsRequest(model="m"), ["versions", "m"]),
        ("ListModels", registry_pb.ListModelsRequest(), ["models"]),
    ):
        method = method_named("RegistryService", name)
        # Of the other kind: a number for a name, and the other way round.
        other = [["x"]] if name == "ListVersions" else [[3]]
        await refuses_forged(registry_channel, request, arguments, method)
        for position in other:
            digest = hashlib.sha256(json.dumps(arguments).encode()).hexdigest()[:16]
            text = json.dumps([digest, position]).encode()
            request.page_token = base64.urlsafe_b64encode(text).decode()
            code, _ = await refusal(registry_channel, method, request.SerializeToString())
            assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_controller_refuses_forged_page_tokens(
    controller_channel: tuple[grpc.aio.Channel, str],
) -> None:
    channel, job = controller_channel
    for name, request in (
        ("ListJobs", jobs_pb.ListJobsRequest()),
        ("ListEvents", jobs_pb.ListEventsRequest(job_id=job)),
        ("ListSteps", jobs_pb.ListStepsRequest(job_id=job)),
        ("ListEvaluations", jobs_pb.ListEvaluationsRequest(job_id=job)),
        ("ListTrajectories", jobs_pb.ListTrajectoriesRequest(job_id=job)),
        ("ListStoredEvaluations", evaluations_pb.ListStoredEvaluationsRequest()),
        ("ListScenarioResults", evaluations_pb.ListScenarioResultsRequest(evaluation_id="e")),
    ):
        of = "JobService" if type(request).__module__.endswith("job_service_pb2") else ""
        method = method_named(of or "EvaluationService", name)
        await refuses_forged(channel, request, paging._arguments(request), method)


def random_messages(method: MethodDescriptor) -> list[bytes]:
    """Messages with right types and any values."""
    found: list[bytes] = []

    @settings(
        max_examples=EXAMPLES,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(message=messages(class_of(method.input_type), depth=3))
    def collect(message: Message) -> None:
        found.append(message.SerializeToString())

    collect()
    return found


async def survives_random_messages(channel: grpc.aio.Channel, *services: str) -> None:
    for method in of_service(*services):
        found = random_messages(method)
        randomness = random.Random(path_of(method))
        found += [randomness.randbytes(randomness.randint(1, 60)) for _ in range(5)]
        for data in found:
            # A watch that is right goes on until its client leaves.
            seconds = 0.5 if method.server_streaming else 20
            code = await code_of(channel, method, data, seconds)
            assert code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN), (
                path_of(method),
                data,
            )


async def code_of(
    channel: grpc.aio.Channel, method: MethodDescriptor, data: bytes, seconds: float
) -> grpc.StatusCode:
    incoming = "stream" if method.client_streaming else "unary"
    outgoing = "stream" if method.server_streaming else "unary"
    make = getattr(channel, f"{incoming}_{outgoing}")(path_of(method))
    call = make(iter([data]) if method.client_streaming else data, timeout=seconds)
    try:
        if method.server_streaming:
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_the_registry_has_no_internal_error_from_random_messages(
    registry_channel: grpc.aio.Channel,
) -> None:
    await survives_random_messages(registry_channel, "RegistryService")


async def test_the_controller_has_no_internal_error_from_random_messages(
    controller_channel: tuple[grpc.aio.Channel, str],
) -> None:
    services = ("JobService", "SessionService", "EvaluationService")
    await survives_random_messages(controller_channel[0], *services)


async def test_what_an_environment_says_of_its_failure_is_told_whatever_it_holds(
    fleet: Fleet, database: MakeDatabase
) -> None:
    fleet.rollout.failing = True
    fleet.rollout.failure = "the inbox\0is missing"
    url = await database(CONTROLLER)
    async with running_controller(fleet, database_url=url) as client:
        job = await client.create(small_job(1))
        failed = await client.state(job.id, jobs_pb.JOB_STATE_FAILED)
        assert failed.failure_reason == "ENVIRONMENT_FAILING"
        assert "the inbox\ufffdis missing" in failed.failure_message
        assert any("the inbox\ufffdis missing" in e.message for e in await client.events(job.id))
