"""Versions that come and go in one engine: right weights for each request, or a clear refusal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import openai
import pytest
from podium.core.errors import FailedPreconditionError, NotFoundError
from podium.inference.v1 import inference_service_pb2 as pb
from podium.kit.rpc import rpc_errors
from podium.registry.v1 import registry_service_pb2 as registry_pb
from podium_trainer.adapters.versions import Provenance, RegistryVersions
from podium_trainer.learner.checkpoint import write
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.session import Compute, JobConfig, Session
from support.pool import TinyPool, adapter_files, reference_logprobs, request
from support.tiny_policy import group, training_spec, trajectory

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.timeout(300),
]

PROMPT = list(range(3000, 3100))


async def expect(
    pool: TinyPool, files: dict[str, bytes] | None, job: str, version: int, folder: Path
) -> None:
    """The policy's log-probs are those of Transformers with the same adapter."""
    name = {} if not job else {"job": job, "version": version}
    sampled = await pool.generate(PROMPT, seed=1, **name)
    assert (sampled.policy, sampled.weights_version) == (job, version)
    expected = reference_logprobs(pool.model, files, PROMPT, list(sampled.token_ids), 1.0, folder)
    assert np.abs(np.array(sampled.logprobs) - expected).mean() < 1e-4


async def test_t23_merged_weights_are_base_plus_adapter_whatever_was_cached(
    merged: TinyPool, tmp_path: Path
) -> None:
    """The same prompt under a new version equals a cold engine: T8 of the field's tests."""
    files = [adapter_files(merged.model, seed) for seed in (1, 2)]
    await expect(merged, None, "", 0, tmp_path)
    for version, content in enumerate(files, start=1):
        await merged.publish("walk", version, content)
        loaded = await merged.load("walk", version)
        assert not loaded.already_loaded
        await expect(merged, content, "walk", version, tmp_path / str(version))
        # Once more, from the prefix cache of this version.
        await expect(merged, content, "walk", version, tmp_path / str(version))
    assert (await merged.load("walk", 2)).already_loaded
    await merged.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="walk"))
    await expect(merged, None, "", 0, tmp_path)


def trained(model: Path, folder: Path) -> dict[str, Path]:
    """The files of a version after a step of full fine-tuning."""
    training = training_spec(trainable="TRAINABLE_KIND_FULL", learning_rate=1e-2)
    session = Session(JobConfig("whole", str(model), training, 0), model, "", Compute())
    tokens = [*PROMPT[:8], 11, 12, 13]
    attempts = [trajectory(f"g/t{i}", i, [*tokens, 20 + i], [(8, 4)]) for i in range(2)]
    session.train([group("g", *attempts)], lambda: False)
    return write(session.checkpoint(), model, folder, Ranks())


async def test_whole_weights_are_served_as_transformers_loads_them(
    merged: TinyPool, shared: TinyPool, tmp_path: Path
) -> None:
    files = await asyncio.to_thread(trained, merged.model, tmp_path / "v")
    assert "model/tokenizer.json" in files
    kind = registry_pb.VERSION_KIND_FULL
    await merged.publish("whole", 1, files, kind=kind)
    await merged.load("whole", 1)
    sampled = await merged.generate(PROMPT, job="whole", version=1, seed=1)
    ids = list(sampled.token_ids)
    new, base = (
        np.array(reference_logprobs(model, None, PROMPT, ids, 1.0, tmp_path))
        for model in (tmp_path / "v" / "model", merged.model)
    )
    assert np.abs(np.array(sampled.logprobs) - new).mean() < 1e-4
    assert np.abs(new - base).mean() > 1e-2
    broken = {
        **files,
        "model/model.safetensors": files["model/model.safetensors"].read_bytes()[:99],
    }
    await merged.publish("whole", 2, broken, kind=kind)
    with pytest.raises(FailedPreconditionError) as caught, rpc_errors("inference"):
        await merged.load("whole", 2)
    assert caught.value.reason == "BAD_WEIGHTS"
    await merged.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="whole"))
    await expect(merged, None, "", 0, tmp_path)
    await shared.publish("whole", 1, files, kind=kind)
    with pytest.raises(FailedPreconditionError) as caught, rpc_errors("inference"):
        await shared.load("whole", 1)
    assert caught.value.reason == "WEIGHT_MODE"


async def test_a_delta_is_fetched_where_its_parent_is_served(
    merged: TinyPool, tmp_path: Path
) -> None:
    """Published by the trainer's own code; without what the delta leaves out, nothing loads."""
    versions = RegistryVersions(merged.registry, Ranks())
    training = training_spec(
        trainable="TRAINABLE_KIND_FULL", learning_rate=1e-6, dtype="COMPUTE_DTYPE_FLOAT32"
    )
    model, job = str(merged.model), "small"
    session = Session(JobConfig(job, model, training, 0), merged.model, "", Compute())
    attempts = [trajectory(f"g/t{i}", i, [*PROMPT[:8], 20 + i, 30], [(8, 2)]) for i in range(2)]
    for step in range(3):
        if step:
            await asyncio.to_thread(session.train, [group("g", *attempts)], lambda: False)
        provenance = Provenance(model, step - 1 if step else None, [], {})
        checkpoint = await asyncio.to_thread(session.checkpoint)
        await versions.publish(job, checkpoint, provenance, with_state=True)
        found = await merged.registry.get_version(job, step)
        sizes = {file.path: file.size for file in found.manifest.files}
        if step:
            assert sizes["delta/delta.safetensors"] < sizes["model/model.safetensors"] / 4
        await merged.load(job, step)
        sampled = await merged.generate(PROMPT, job=job, version=step, seed=1)
        target = tmp_path / str(step)
        await merged.registry.pull(job, step, target)
        expected = reference_logprobs(
            target / "model", None, PROMPT, list(sampled.token_ids), 1.0, tmp_path
        )
        assert np.abs(np.array(sampled.logprobs) - expected).mean() < 1e-4
    log = merged.stack.log("inference").read_text()
    assert "fetching all weights instead" not in log
    await merged.stub.UnloadPolicy(pb.UnloadPolicyRequest(job=job))


async def test_a_running_generation_ends_under_the_weights_it_began_with(
    merged: TinyPool,
) -> None:
    for version in (1, 2):
        await merged.publish("run", version, adapter_files(merged.model, 10 + version))
    await merged.load("run", 1)
    asked = request(PROMPT, "run", None, seed=1, max_tokens=100)
    stream = merged.stub.StreamGenerate(
        pb.StreamGenerateRequest(
            policy=asked.policy,
            prompt_token_ids=asked.prompt_token_ids,
            sampling=asked.sampling,
        )
    )
    first = (await anext(aiter(stream))).delta
    load = asyncio.create_task(merged.load("run", 2))
    later = []
    while not load.done():
        later.append(asyncio.create_task(merged.generate(PROMPT, job="run", max_tokens=1)))
        await asyncio.sleep(0.05)
    pieces = [first, *[piece.delta async for piece in stream]]
    assert {piece.weights_version for piece in pieces} == {1}
    assert sum(len(piece.token_ids) for piece in pieces) == 100
    assert (await load).pause_seconds > 0
    versions = [(await each).weights_version for each in later]
    assert versions == sorted(versions)
    assert versions[-1] == 2, "none waited for the exchange"
    with pytest.raises(NotFoundError), rpc_errors("inference"):
        await merged.generate(PROMPT, job="run", version=1)
    await merged.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="run"))


async def test_t24_what_cannot_be_loaded_leaves_the_old_version_served(
    merged: TinyPool, tmp_path: Path
) -> None:
    good = adapter_files(merged.model, 20)
    await merged.publish("old", 1, good)
    await merged.load("old", 1)

    async def refused(version: int, reason: str, files: dict[str, bytes], **more: str) -> None:
        await merged.publish("old", version, files, **more)
        with pytest.raises(FailedPreconditionError) as caught, rpc_errors("inference"):
            await merged.load("old", version)
        assert caught.value.reason == reason

    config, weights = good
    await refused(2, "BASE_MODEL_MISMATCH", good, base_digest="sha256:" + "0" * 64)
    await refused(3, "BAD_ADAPTER", {**good, weights: good[weights][:200]})
    await refused(4, "BAD_ADAPTER", {**good, config: good[config].replace(b'"r": 4', b'"r": 8')})
    await refused(5, "BAD_ADAPTER", {config: good[config]})
    await refused(6, "BAD_ADAPTER", adapter_files(merged.model, 21, scale=float("nan")))
    with pytest.raises(NotFoundError), rpc_errors("inference"):
        await merged.load("old", 99)
    await merged.publish("other", 1, good)
    with pytest.raises(FailedPreconditionError) as caught, rpc_errors("inference"):
        await merged.load("other", 1)
    assert caught.value.reason == "POOL_IN_USE"
    await expect(merged, good, "old", 1, tmp_path)
    await merged.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="old"))


async def test_jobs_share_a_pool_of_adapters(shared: TinyPool, tmp_path: Path) -> None:
    files = {job: adapter_files(shared.model, seed) for seed, job in ((1, "left"), (2, "right"))}
    for job, content in files.items():
        await shared.publish(job, 1, content)
        await shared.load(job, 1)
    for _ in range(2):
        for job, content in files.items():
            await expect(shared, content, job, 1, tmp_path / job)
        await expect(shared, None, "", 0, tmp_path)
    mixed = await asyncio.gather(
        *(shared.generate(PROMPT, job=job, seed=1) for job in ("left", "right", "") * 3)
    )
    first = {g.policy: g.logprobs[0] for g in mixed}
    assert len(set(first.values())) == len(first) == 3

    listed = await shared.stub.ListPolicies(pb.ListPoliciesRequest())
    mine = [p.model_name for p in listed.policies if p.job in (*files, "")]
    assert mine == ["", "left@1", "right@1"]
    await shared.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="left"))
    with pytest.raises(NotFoundError), rpc_errors("inference"):
        await shared.generate(PROMPT, job="left")
    await expect(shared, files["right"], "right", 1, tmp_path / "right")


async def test_an_adapter_that_vllm_has_no_room_for_is_refused_as_such(shared: TinyPool) -> None:
    """And the engine lives on. It would serve more than its bound, which vLLM rounds up."""
    config, weights = good = adapter_files(shared.model, 3)

    async def refused(version: int, files: dict[str, bytes]) -> str:
        await shared.publish("odd", version, files)
        with pytest.raises(FailedPreconditionError) as caught, rpc_errors("inference"):
            await shared.load("odd", version)
        assert caught.value.reason == "BAD_ADAPTER"
        return caught.value.message

    large = adapter_files(shared.model, 3, rank=65)
    assert "rank is 65" in await refused(1, large)
    text = good[config].replace(b'"bias": "none"', b'"bias": "none", "use_dora": true')
    assert "vLLM refused" in await refused(2, {config: text, weights: good[weights]})
    await shared.publish("odd", 3, good)
    await shared.load("odd", 3)
    await shared.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="odd"))


async def test_t23_older_versions_of_a_job_go_when_newer_ones_come(shared: TinyPool) -> None:
    for version in (1, 2, 3):
        await shared.publish("grow", version, adapter_files(shared.model, 30 + version))
        await shared.load("grow", version)
    listed = await shared.stub.ListPolicies(pb.ListPoliciesRequest(job="grow"))
    assert [p.version for p in listed.policies] == [3, 2]
    assert (await shared.generate(PROMPT, job="grow")).weights_version == 3
    assert (await shared.generate(PROMPT, job="grow", version=2)).weights_version == 2


async def test_openai_clients_get_a_policy_that_nobody_loaded(shared: TinyPool) -> None:
    await shared.publish("asked", 1, adapter_files(shared.model, 40))
    url, key = shared.stack.openai_base_url, shared.token
    async with openai.AsyncOpenAI(base_url=url, api_key=key) as client:
        await client.completions.create(model="asked@1", prompt="Once upon", max_tokens=3)
        with pytest.raises(openai.NotFoundError):
            await client.completions.create(model="asked@7", prompt="Once upon", max_tokens=3)
    listed = await shared.stub.ListPolicies(pb.ListPoliciesRequest(job="asked"))
    assert [p.version for p in listed.policies] == [1]


async def test_a_merged_pool_fetches_what_is_asked_for_and_never_goes_back(
    merged: TinyPool, tmp_path: Path
) -> None:
    files = [adapter_files(merged.model, seed) for seed in (41, 42)]
    for version, content in enumerate(files, start=1):
        await merged.publish("asked", version, content)
        await expect(merged, content, "asked", version, tmp_path / str(version))
    with pytest.raises(NotFoundError), rpc_errors("inference"):
        await merged.generate(PROMPT, job="asked", version=1)
    await expect(merged, files[1], "asked", 2, tmp_path / "again")
    await merged.stub.UnloadPolicy(pb.UnloadPolicyRequest(job="asked"))
    await expect(merged, None, "", 0, tmp_path)
