"""A real Prometheus scrapes all six; a trace a rollout, and one that joins what makes a step."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import suppress
from pathlib import Path

import grpc
import httpx
import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from podium.jobs.v1 import job_service_pb2 as jobs
from podium.jobs.v1 import job_service_pb2_grpc as jobs_grpc
from podium.local.launcher import Launcher
from podium.types.v1 import trajectory_pb2
from support.jobs import create, small_spec, steps_of, wait_until
from support.otlp import OtlpReceiver
from support.processes import free_port
from support.programs import program

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.engine,
    pytest.mark.long,
    pytest.mark.timeout(1200),
]

SERVICES = ("controller", "registry", "inference", "rollout", "judge", "trainer")


async def test_prometheus_and_one_trace(
    real_stack: Launcher, otlp: OtlpReceiver, tmp_path: Path
) -> None:
    prometheus = program("prometheus", "prometheus")
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": name,
                "static_configs": [{"targets": [real_stack.metrics_address(name)]}],
            }
            for name in SERVICES
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))
    port = free_port()
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                prometheus,
                f"--config.file={tmp_path / 'prometheus.yml'}",
                f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        async with grpc.aio.insecure_channel(real_stack.address("controller")) as channel:
            stub = jobs_grpc.JobServiceStub(channel)
            job_id = await create(stub, small_spec(100), "telemetry")
            # Job series go when the job ends, so it has more steps than anybody waits for.
            await wait_until(stub, job_id, lambda job: job.completed_steps >= 1, within=300)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/api/v1") as api:
                await _assert_series(api, job_id)
            await stub.CancelJob(jobs.CancelJobRequest(job_id=job_id), timeout=30)
            step = (await steps_of(stub, job_id))[-1]
            asked = jobs.ListTrajectoriesRequest(job_id=job_id, step=step.number, page_size=100)
            trajectories = (await stub.ListTrajectories(asked, timeout=30)).trajectories
    finally:
        process.terminate()
        process.wait(10)

    assert step.trace_id
    spans = await _whole(otlp, step.trace_id, {*SERVICES})
    (root,) = [span for _, span in spans if not span.parent_span_id]
    assert root.name == "train_step"
    linked = {link.trace_id.hex() for link in root.links}
    assert {each.trace_id for each in trajectories} <= linked
    # Four for each group, and the phases: nothing that grows with attempts or turns.
    assert len(spans) < 4 * 2 + 60
    assert len({each.trace_id for each in trajectories}) == len(trajectories) == 8
    for each in trajectories:
        await _assert_rollout(otlp, each, step.trace_id)
    judgements = [
        {link.trace_id.hex() for link in span.links}
        for spans in otlp.by_trace().values()
        for _, span in spans
        if span.name == "score_group" and any(link.trace_id.hex() in linked for link in span.links)
    ]
    assert {each.trace_id for each in trajectories} <= set().union(*judgements)
    assert all(step.trace_id in each for each in judgements)


async def _assert_series(api: httpx.AsyncClient, job_id: str) -> None:
    queries = {
        "every service is up": "count(up == 1) == 6",
        "reward": f'podium_controller_reward_mean{{job_id="{job_id}"}}',
        "step": f'podium_controller_steps_total{{job_id="{job_id}"}} >= 1',
        "sampled tokens": 'podium_inference_tokens_total{kind="sampled"} > 0',
        "trained tokens": "sum(podium_trainer_tokens_total) > 0",
        "gRPC of every service": "count(count by (job) (podium_grpc_server_handled_total)) >= 5",
        "vLLM's own": "vllm:generation_tokens_total > 0",
    }
    missing = dict(queries)
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while missing:
                for what, query in list(missing.items()):
                    reply = await api.get("/query", params={"query": query})
                    if reply.status_code == 200 and reply.json()["data"]["result"]:
                        del missing[what]
                await asyncio.sleep(0.5)
    assert not missing


async def _whole(
    otlp: OtlpReceiver, trace_id: str, services: set[str]
) -> list[tuple[str, trace_pb2.Span]]:
    """The spans of a trace, when all services have sent theirs and none lacks its parent."""
    found: set[str] = set()
    orphans: list[tuple[str, str]] = []
    spans: list[tuple[str, trace_pb2.Span]] = []
    # Each process exports on its own clock, so a parent may come after its child.
    with suppress(TimeoutError):
        async with asyncio.timeout(30):
            while not services <= found or orphans:
                spans = otlp.by_trace().get(trace_id, [])
                found = {name.removeprefix("podium-") for name, _ in spans}
                ids = {span.span_id for _, span in spans}
                orphans = [
                    (name, s.name)
                    for name, s in spans
                    if s.parent_span_id and s.parent_span_id not in ids
                ]
                await asyncio.sleep(0.5)
    assert services <= found
    assert not orphans
    return spans


async def _assert_rollout(
    otlp: OtlpReceiver, trajectory: trajectory_pb2.Trajectory, step_trace: str
) -> None:
    """Its own trace is whole, linked to the step, counts each token once, and says nothing."""
    spans = await _whole(otlp, trajectory.trace_id, {"rollout", "inference"})
    (root,) = [span for _, span in spans if not span.parent_span_id]
    assert root.name == "invoke_agent email_search"
    assert root.span_id.hex() == trajectory.root_span_id
    assert [link.trace_id.hex() for link in root.links] == [step_trace]
    records = [history.tokens for history in trajectory.histories]
    assert _sum(spans, "gen_ai.usage.output_tokens") == sum(len(r.logprobs) for r in records)
    # Each turn reads what was said before it again.
    (record,) = records
    prompts = sum(span.start for span in record.spans)
    assert _sum(spans, "gen_ai.usage.input_tokens") == prompts
    sent = b"".join(span.SerializeToString() for _, span in spans)
    for history in trajectory.histories:
        for message in history.messages:
            words = message.content.strip()[:20].encode()
            assert len(words) < 8 or words not in sent


def _sum(spans: list[tuple[str, trace_pb2.Span]], name: str) -> int:
    found = [each.value for _, span in spans for each in span.attributes if each.key == name]
    return sum(value.int_value for value in found)
