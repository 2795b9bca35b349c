"""Default deny, on every method that any contract has; and a health port that serves health."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from podium.core import errors
from podium.kit.rpc import BearerTokens, Server, ServerSettings, connect, rpc_errors
from podium.registry.v1 import registry_service_pb2 as reg
from support.descriptors import EchoHandlers, add_echo, finish, methods, path_of, silence

TOKEN = "correct-horse"
PUBLIC = "/podium.registry.v1.RegistryService/ListModels"


async def code_of_call(
    channel: grpc.aio.Channel, method, authorization: str | None = None, data: bytes | None = None
):
    """The status of a call; without `data`, of one that is refused before it is read."""
    metadata = () if authorization is None else (("authorization", authorization),)
    return await (await finish(channel, method, data, metadata=metadata)).code()


@pytest.fixture
async def guarded(tmp_path: Path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"# people\n\nother\n{TOKEN}\n")
    server = Server(
        "all",
        ServerSettings(auth_tokens_file=tokens, reflection=True),
        public_methods=frozenset({PUBLIC}),
    )
    server.add(add_echo, EchoHandlers(), "podium.registry.v1.RegistryService")
    await server.start()
    yield server
    await server.stop(0)


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer x"]
)
async def test_every_method_denies_who_has_no_token(guarded: Server, authorization) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.port}") as channel:
        codes = {path_of(m): await code_of_call(channel, m, authorization) for m in methods()}
    let_in = {path for path, code in codes.items() if code is not grpc.StatusCode.UNAUTHENTICATED}
    assert let_in == {PUBLIC}
    assert len(codes) > 40


@pytest.mark.parametrize("token", [TOKEN, "other"])
async def test_every_method_lets_in_who_has_one(guarded: Server, token: str) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.port}") as channel:
        codes = {await code_of_call(channel, m, f"Bearer {token}", b"") for m in methods()}
    assert codes == {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}


async def test_reflection_denies_too(guarded: Server) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.port}") as channel:
        call = channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        )
        assert await call(silence()).code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_client_presents_the_token_that_it_was_given(guarded: Server) -> None:
    request = reg.GetVersionRequest(model="m")
    for token, right in ((TOKEN, True), ("", False)):
        async with connect(f"127.0.0.1:{guarded.port}", token=token) as channel:
            call = channel.unary_unary(
                "/podium.registry.v1.RegistryService/GetVersion",
                request_serializer=lambda message: message.SerializeToString(),
            )
            if right:
                await call(request)
                continue
            with pytest.raises(errors.UnauthenticatedError) as caught, rpc_errors("registry"):
                await call(request)
            assert caught.value.reason == "TOKEN_MISSING"


async def test_the_health_port_serves_nothing_else(guarded: Server) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.health_port}") as channel:
        codes = {await code_of_call(channel, m, f"Bearer {TOKEN}") for m in methods()}
    assert codes == {grpc.StatusCode.UNIMPLEMENTED}


async def test_the_health_port_asks_for_no_token(guarded: Server) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{guarded.health_port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("content", ["", "# only a comment\n\n", None])
def test_a_tokens_file_that_would_let_nobody_in_is_refused(tmp_path: Path, content) -> None:
    path = tmp_path / "tokens"
    if content is not None:
        path.write_text(content)
    with pytest.raises(errors.FailedPreconditionError):
        BearerTokens.from_file(path)
