"""Ports, probes, drain, and the process around them."""

from __future__ import annotations

import asyncio
import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from podium.core import errors
from podium.kit.rpc import Server, ServerSettings, load_settings, rpc_errors
from podium.registry.v1 import registry_service_pb2 as reg
from pydantic_settings import SettingsConfigDict
from support.rpc_doubles import ENVIRONMENT, REGISTRY, add_doubles


async def health(port: int, service: str) -> str:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


async def test_probes_answer_before_the_service_does_and_tell_both_apart() -> None:
    server = Server("registry", ServerSettings())
    add_doubles(server)
    await server.start_probes()
    assert await health(server.health_port, "") == "NOT_SERVING"
    server.set_serving(False)
    await server.start()
    assert await health(server.health_port, "") == "SERVING"
    assert await health(server.health_port, REGISTRY) == "NOT_SERVING"
    await server.set_serving(True)
    assert await health(server.health_port, REGISTRY) == "SERVING"
    assert await health(server.health_port, ENVIRONMENT) == "SERVING"
    await server.set_serving(False)
    assert await health(server.health_port, "") == "SERVING", "a liveness probe would kill it"
    assert await health(server.health_port, "who") == "NOT_FOUND"
    await server.stop(0)
    assert await health(server.health_port, "") == "UNAVAILABLE"


@pytest.mark.parametrize("which", ["port", "health_port", "metrics_port"])
async def test_a_taken_port_is_said_by_its_address(serve, which: str) -> None:
    served = await serve()
    taken = getattr(served.server, which)
    other = Server("other", ServerSettings(**{which: taken}))
    add_doubles(other)
    with pytest.raises(errors.UnavailableError) as caught:
        await other.start()
    assert caught.value.reason == "PORT_UNAVAILABLE"
    assert f"127.0.0.1:{taken}" in caught.value.message
    await other.stop(0)


@pytest.mark.parametrize("flag", [True, False])
async def test_reflection_is_there_when_asked_for(serve, flag: bool) -> None:
    served = await serve(reflection=flag)
    stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    call = stub.ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=20
    )
    if not flag:
        assert await call.code() is grpc.StatusCode.UNIMPLEMENTED
        return
    answer = await call.read()
    names = {service.name for service in answer.list_services_response.service}
    assert {REGISTRY, ENVIRONMENT} <= names


async def test_a_drain_ends_watches_at_once_and_lets_calls_finish(serve) -> None:
    served = await serve()
    running = served.registry.GetVersion(reg.GetVersionRequest(model="until-drain"))
    watch = served.registry.WatchVersions(reg.WatchVersionsRequest())
    assert (await watch.read()).sequence == 1
    # On the same connection, so the call above is in the server's hands by then.
    await served.registry.GetVersion(reg.GetVersionRequest(model="m"))
    stopping = asyncio.create_task(served.server.stop(60))
    assert (await running).version.manifest_digest
    with pytest.raises(errors.UnavailableError) as caught, rpc_errors("registry"):
        await watch.read()
    assert caught.value.reason == "DRAINING"
    await asyncio.wait_for(stopping, 30)
    with pytest.raises(errors.UnavailableError, match="cannot be reached"), rpc_errors("registry"):
        await served.registry.GetVersion(reg.GetVersionRequest(model="m"))


async def test_a_call_that_outlives_the_grace_is_ended(serve) -> None:
    served = await serve()
    running = served.registry.GetVersion(reg.GetVersionRequest(model="hang"))
    await served.double.entered.wait()
    await served.server.stop(0.1)
    with pytest.raises(errors.PodiumError), rpc_errors("registry"):
        await running
    assert served.double.closed.is_set()


async def test_metrics_are_scraped_over_http_with_the_process_own(serve) -> None:
    served = await serve()
    await served.registry.GetVersion(reg.GetVersionRequest(model="m"))
    url = f"http://127.0.0.1:{served.server.metrics_port}/metrics"
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=20).read().decode())
    assert (
        'podium_grpc_server_handled_total{code="OK",method="GetVersion",'
        'service="podium.registry.v1.RegistryService"}' in text
    )
    assert "podium_grpc_server_handling_seconds_bucket{" in text
    assert "podium_grpc_client_handled_total{" in text
    assert "process_resident_memory_bytes " in text


def test_wrong_settings_are_said_one_a_line(monkeypatch, capsys) -> None:
    class Settings(ServerSettings):
        """A service's own."""

        model_config = SettingsConfigDict(env_prefix="PODIUM_JUDGE_")

    monkeypatch.setenv("PODIUM_JUDGE_PORT", "99999")
    monkeypatch.setenv("PODIUM_JUDGE_LOG_LEVEL", "LOUD")
    with pytest.raises(SystemExit) as caught:
        load_settings(Settings)
    assert caught.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "PODIUM_JUDGE_PORT",
        "PODIUM_JUDGE_LOG_LEVEL",
    ]
    monkeypatch.setenv("PODIUM_JUDGE_PORT", "1")
    monkeypatch.delenv("PODIUM_JUDGE_LOG_LEVEL")
    assert load_settings(Settings).port == 1
