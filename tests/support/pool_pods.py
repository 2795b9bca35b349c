"""A pool of several pods on 127.0.0.x: everything of them is real but the engine, a double.

The double's "weights" are the text of the adapter's file, and it answers with that text.
"""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
from podium.inference.v1 import inference_service_pb2 as pb
from podium.inference.v1 import inference_service_pb2_grpc as pb_grpc
from podium.kit.registry_client import RegistryClient
from podium.kit.rpc import Server, ServerSettings, connect, rpc_errors
from podium.kit.rpc.members import Members
from podium.kit.rpc.tls import Tls
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium.sdk.policies import Policies
from podium.types.v1 import policy_pb2, trajectory_pb2
from podium_controller.grpc_peers.inference import GrpcInference
from podium_inference.adapters.fetcher import RegistryFetcher
from podium_inference.adapters.http.capture import CapturedRequest, How, capture
from podium_inference.adapters.pool_peers import PoolPeers, join
from podium_inference.domain.captures import Captures
from podium_inference.domain.holders import Holders
from podium_inference.domain.pool import PolicyPool
from podium_inference.domain.ports import Piece
from support.processes import free_port
from support.sampling_params import Params

NAME = "pool.test"
KEY = "podium-rollout-some"
_DIGEST = "sha256:" + "0" * 64


def weights(job: str, version: int) -> str:
    """What a version answers with."""
    return f"{job} at {version}"


class EngineDouble:
    """Holds adapters' texts in place of weights."""

    max_model_len = 1000
    vocab_size = 1000
    gpus = 0

    def __init__(self) -> None:
        self.merged = "base"
        self.merges = 0
        self.adapters: dict[str, str] = {}
        self.hold: asyncio.Event | None = None
        """While it is set and not yet released, generations go on."""

    async def generate(
        self,
        prompt: Sequence[int],
        sampling: policy_pb2.SamplingParams,
        request_id: str,
        adapter: object | None,
    ) -> AsyncGenerator[Piece, None]:
        text = self.merged if adapter is None else self.adapters[str(adapter)]
        if self.hold is not None:
            await self.hold.wait()
        finish = trajectory_pb2.FINISH_REASON_STOP
        yield Piece(token_ids=[1], logprobs=[-1.0], text=text, finish_reason=finish)

    async def check(self, weights: Path) -> None:
        pass

    def spread(self, weights: Path) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def merge(self, weights: Path | None, version: int) -> None:
        self.merges += 1
        self.merged = _text(weights) if weights is not None else "base"

    def frozen(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def add_adapter(self, name: str, folder: Path) -> object:
        assert name not in self.adapters
        self.adapters[name] = _text(folder)
        return name

    async def remove_adapter(self, handle: object) -> None:
        del self.adapters[str(handle)]


class PodDouble:
    """One pod; its process may die and another come in its place."""

    def __init__(self, pods: PoolPods, host: str) -> None:
        self._pods = pods
        self.host = host
        self.engine = EngineDouble()
        self.says: pb.EngineLoad | None = None
        """Of its queue, from its next start on; None for a process that does not say."""
        self._running = AsyncExitStack()

    async def start(self, *, joining: bool = False) -> None:
        """A new process; `joining` as the service does before it is ready."""
        from podium_inference.servicer import InferenceServicer

        pods, self.engine = self._pods, EngineDouble()
        registry = RegistryClient(pods.registry_address)
        self._running.push_async_callback(registry.close)
        self.captures = Captures(1000, 10**6, 3600.0)
        fetcher = RegistryFetcher(
            registry,
            lambda job, version: registry.lease(job, version, f"pod/{self.host}"),
            self.engine.check,
            self.engine.spread,
            merged=pods.merged,
            base_digest=_DIGEST,
            folder=Path(tempfile.mkdtemp(dir=pods.folder)) / "policies",
        )
        self.pool = PolicyPool(
            self.engine,
            registry,
            fetcher,
            merged=pods.merged,
            max_requests=100,
            load_timeout_s=60.0,
        )
        self._running.push_async_callback(self.pool.close)
        members = pods.members()
        self._running.push_async_callback(members.close)
        self.holders = holders = Holders()
        self.pool_peers = pool_peers = PoolPeers(members, self.host, holders)
        description = pb.GetEngineResponse(base_model="double")
        renderer: Any = None
        says = self.says
        servicer = InferenceServicer(
            self.engine,
            self.pool,
            renderer,
            self.captures,
            pool_peers,
            holders,
            description,
            None if says is None else lambda: says,
        )
        if joining:
            await join(self.pool, pool_peers, 60.0)
        files = {f"tls_{name}_file": path for name, path in pods.certificate.items()}
        server = Server("inference", ServerSettings(host=self.host, port=pods.port, **files))
        server.add(
            pb_grpc.add_InferenceServiceServicer_to_server,
            servicer,
            "podium.inference.v1.InferenceService",
        )
        await server.start()
        self._running.push_async_callback(server.stop, 0)

    async def kill(self) -> None:
        """It answers no more and forgets everything."""
        await self._running.aclose()

    async def generate(self, job: str = "", version: int | None = None) -> pb.Generation:
        """From this pod, whichever others there are."""
        channel = self._pods.dial(f"{self.host}:{self._pods.port}", NAME)
        request = pb.GenerateRequest(
            policy=policy_pb2.PolicyRef(job=job, version=version), prompt_token_ids=[1, 2]
        )
        try:
            with rpc_errors("inference"):
                stub = pb_grpc.InferenceServiceStub(channel)
                return (await stub.Generate(request, timeout=60)).generation
        finally:
            await channel.close()

    async def captured(self, call: pb.CapturedCall, key: str = KEY) -> None:
        """As when this pod has answered a call of the OpenAI API: through the real capture."""
        output = SimpleNamespace(
            request_id="r",
            prompt_token_ids=list(call.prompt_token_ids),
            outputs=[
                SimpleNamespace(
                    index=0,
                    token_ids=list(call.generation.token_ids),
                    logprobs=None,
                    text="",
                    finish_reason="stop",
                    weight_versions=None,
                )
            ],
        )

        async def outputs() -> AsyncGenerator[Any, None]:
            yield output

        how = How(Params(), ("", 0), "hermes")
        captured = capture(
            outputs(), CapturedRequest(key), how, self.captures, self.pool_peers.announce
        )
        assert [each async for each in captured] == [output]

    @asynccontextmanager
    async def policies(self) -> AsyncIterator[Policies]:
        """The SDK of a client that reaches this pod alone."""
        channel = self._pods.dial(f"{self.host}:{self._pods.port}", NAME)
        try:
            yield Policies(lambda: channel)
        finally:
            await channel.close()

    async def take(self, key: str = KEY) -> list[pb.CapturedCall]:
        """What this pod hands over."""
        channel = self._pods.dial(f"{self.host}:{self._pods.port}", NAME)
        try:
            with rpc_errors("inference"):
                stub = pb_grpc.InferenceServiceStub(channel)
                stream = stub.TakeCapture(pb.TakeCaptureRequest(key=key), timeout=60)
                return [response.call async for response in stream]
        finally:
            await channel.close()


class PoolPods:
    """The pods, what their name stands for, and a controller's side of it."""

    def __init__(
        self,
        registry_address: str,
        folder: Path,
        *,
        merged: bool = True,
        certificate: dict[str, Path] | None = None,
    ) -> None:
        self.registry_address = registry_address
        self.folder = folder
        self.merged = merged
        self.certificate = certificate or {}
        self.port = free_port()
        self.pods = [PodDouble(self, f"127.0.0.{number}") for number in (1, 2, 3)]
        self.named: list[PodDouble] = []
        """Those that DNS knows."""
        self.dialled: list[tuple[str, str]] = []
        self._members = self.members()
        self.inference = GrpcInference(self._members, 60.0, 60.0)
        self._registry = RegistryClient(registry_address)

    async def start(self, count: int) -> list[PodDouble]:
        """That many, all named."""
        for pod in self.pods[:count]:
            await pod.start()
        self.named = self.pods[:count]
        return self.named

    async def close(self) -> None:
        for pod in self.pods:
            await pod.kill()
        await self._members.close()
        await self._registry.close()

    async def published(self, *versions: int) -> str:
        """A new job with these versions."""
        job = f"job-{uuid.uuid4().hex[:12]}"
        for version in versions:
            await self.publish(job, version)
        return job

    async def publish(self, job: str, version: int) -> None:
        await self._registry.push(
            {"adapter/adapter.txt": weights(job, version).encode()},
            registry_pb.Manifest(
                model=job,
                version=version,
                kind=registry_pb.VERSION_KIND_ADAPTER,
                base_model="double",
                base_model_digest=_DIGEST,
            ),
        )

    def members(self) -> Members:
        return Members(f"{NAME}:{self.port}", self.dial, self._resolve)

    def dial(self, address: str, server_name: str) -> grpc.aio.Channel:
        self.dialled.append((address, server_name))
        if address.startswith(NAME):
            address = "ipv4:" + ",".join(f"{pod.host}:{self.port}" for pod in self.pods)
        tls = Tls.load(*self.certificate.values()) if self.certificate else None
        return connect(address, tls=tls, server_name=server_name)

    async def _resolve(self, host: str, port: int) -> list[str]:
        assert (host, port) == (NAME, self.port)
        return [f"{pod.host}:{port}" for pod in self.named]


def _text(folder: Path) -> str:
    return (folder / "adapter.txt").read_text()
