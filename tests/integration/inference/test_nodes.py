"""An engine over two nodes: one policy, one answer, one life."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio
from podium.inference.v1 import inference_service_pb2 as pb
from support.nodes import REFUSAL, TwoNodes, two_nodes
from support.pool import TinyPool, adapter_files, reference_logprobs
from support.process_tree import descendants, gone

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(600),
]

PROMPTS = [list(range(start, start + 40)) for start in (1000, 2000, 4000)]
WEIGHTS = "adapter/adapter_model.safetensors"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def halved(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TwoNodes]:
    """Half of each layer on each node, in merged mode."""
    folder = tmp_path_factory.mktemp("halved")
    async with two_nodes(folder, tiny_model, "merged", tensor=2, pipeline=1) as nodes:
        yield nodes


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def staged(
    tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[TwoNodes]:
    """Half of the layers on each node, in adapter mode."""
    folder = tmp_path_factory.mktemp("staged")
    async with two_nodes(folder, tiny_model, "adapter", tensor=1, pipeline=2) as nodes:
        yield nodes


async def expect(
    pool: TinyPool, files: dict[str, bytes] | None, job: str, version: int, folder: Path
) -> None:
    """The policy's log-probs are those of Transformers with the same adapter."""
    name = {} if not job else {"job": job, "version": version}
    sampled = await pool.generate(PROMPTS[0], seed=1, **name)
    assert (sampled.policy, sampled.weights_version) == (job, version)
    ids = list(sampled.token_ids)
    expected = reference_logprobs(pool.model, files, PROMPTS[0], ids, 1.0, folder)
    assert np.abs(np.array(sampled.logprobs) - expected).mean() < 1e-4


async def greedy(pool: TinyPool) -> list[tuple[list[int], list[float]]]:
    replies = [await pool.generate(prompt, temperature=0.0) for prompt in PROMPTS]
    return [(list(reply.token_ids), list(reply.logprobs)) for reply in replies]


def stored(folder: Path) -> list[bytes]:
    """The adapters that a node has."""
    return [path.read_bytes() for path in sorted(folder.glob(f"policies/*/{WEIGHTS}"))]


# Two processes of vLLM on each node; tests/unit/inference has the nodes' own protocol.
@pytest.mark.long
async def test_two_nodes_generate_what_one_does(halved: TwoNodes, merged: TinyPool) -> None:
    for (ids, logprobs), (one_ids, one_logprobs) in zip(
        await greedy(halved.pool), await greedy(merged), strict=True
    ):
        assert ids == one_ids
        np.testing.assert_allclose(logprobs, one_logprobs, atol=1e-3)


@pytest.mark.full
async def test_versions_are_merged_into_the_weights_of_both_nodes(
    halved: TwoNodes, tmp_path: Path
) -> None:
    pool = halved.pool
    files = [adapter_files(pool.model, seed) for seed in (51, 52)]
    for version, content in enumerate(files, start=1):
        await pool.publish("walk", version, content)
        await pool.load("walk", version)
        await expect(pool, content, "walk", version, tmp_path / str(version))
        if not REFUSAL:
            assert stored(halved.folder) == [content[WEIGHTS]]
    await pool.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="walk"))
    await expect(pool, None, "", 0, tmp_path)
    assert stored(halved.folder) == []


@pytest.mark.skipif(bool(REFUSAL), reason=f"no folder of its own for a node: {REFUSAL}")
@pytest.mark.full
async def test_a_node_that_cannot_store_a_version_leaves_the_old_one_served(
    halved: TwoNodes, tmp_path: Path
) -> None:
    pool = halved.pool
    good = adapter_files(pool.model, 53)
    await pool.publish("full", 1, good)
    await pool.load("full", 1)
    policies = halved.folder / "policies"
    kept = policies.rename(halved.folder / "kept")
    policies.write_text("a file, in whose place no folder can be made")
    await pool.publish("full", 2, adapter_files(pool.model, 54))
    try:
        with pytest.raises(Exception, match="cannot be kept on every node: node 1"):
            await pool.load("full", 2)
    finally:
        policies.unlink()
        kept.rename(policies)
    await expect(pool, good, "full", 1, tmp_path)
    await pool.load("full", 2)
    assert (await pool.generate(PROMPTS[0], job="full")).weights_version == 2
    await pool.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="full"))


@pytest.mark.full
async def test_jobs_share_two_nodes_through_adapters(staged: TwoNodes, tmp_path: Path) -> None:
    pool = staged.pool
    files = {job: adapter_files(pool.model, seed) for seed, job in ((61, "left"), (62, "right"))}
    for job, content in files.items():
        await pool.publish(job, 1, content)
        await pool.load(job, 1)
    for job, content in files.items():
        await expect(pool, content, job, 1, tmp_path / job)
    await expect(pool, None, "", 0, tmp_path)
    if not REFUSAL:
        assert sorted(stored(staged.folder)) == sorted(each[WEIGHTS] for each in files.values())
    await pool.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="left"))
    assert len(stored(staged.folder)) == (0 if REFUSAL else 1)


@pytest.mark.long
async def test_a_dead_worker_of_a_node_ends_the_leader(halved: TwoNodes) -> None:
    leader = halved.pool.stack.pid("inference")
    family = [leader, *descendants(leader), *descendants(halved.worker.pid)]
    (doomed,) = [pid for pid in descendants(halved.worker.pid) if "VLLM" in name_of(pid)]
    os.kill(doomed, signal.SIGKILL)
    assert await asyncio.to_thread(halved.worker.wait, 120) == 1
    async with asyncio.timeout(120):
        assert await halved.pool.stack.wait() == "inference"
    assert "node 1 has gone; ending" in halved.pool.stack.log("inference").read_text()
    await gone(family, within=120)


@pytest.mark.full
async def test_a_dead_leader_ends_the_other_node(staged: TwoNodes) -> None:
    leader = staged.pool.stack.pid("inference")
    family = [*descendants(leader), *descendants(staged.worker.pid)]
    os.kill(leader, signal.SIGKILL)
    assert await asyncio.to_thread(staged.worker.wait, 120) == 1
    assert "the leader has gone; ending" in staged.log()
    await gone(family, within=120)


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()
