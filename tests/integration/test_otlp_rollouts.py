"""Rollouts' traces, as they leave a real rollout service by either protocol."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.trace import TracerProvider
from podium.kit.rpc import connect
from podium.rollout.v1 import rollout_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2_grpc as pb_grpc
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.otlp import OtlpHttpReceiver, OtlpReceiver
from support.processes import free_port, start_process, wait_for_port
from support.programs import program
from support.rollout import PolicyDouble, group_request, serve_inference
from support.waiting import eventually

SAYS = "I look for zeppelins"
CALL = f'{SAYS} <tool_call>{{"name": "search", "arguments": {{"query": "tuna"}}}}</tool_call>'
OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5"
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
SHAPE = sorted(
    [
        "invoke_agent search_qa",
        "environment_reset",
        *["chat guesser", "environment_step", "execute_tool search"] * 2,
        "environment_score",
    ]
)


def search_request(attempts: int) -> pb.CollectGroupRequest:
    request = group_request(attempts, max_turns=2)
    request.environment.CopyFrom(spec_pb2.EnvironmentSpec(name="search_qa"))
    return request


async def collected(
    folder: Path, attempts: int, variables: Mapping[str, str]
) -> list[trajectory_pb2.Trajectory]:
    """The group of a real rollout service, which has ended, and so has sent its spans.

    What it showed to Prometheus before is in the folder: `metrics.txt` and `openmetrics.txt`.
    """
    port, metrics_port = free_port(), free_port()
    async with serve_inference(PolicyDouble(otherwise=CALL)) as inference:
        environment = {
            "PODIUM_ROLLOUT_PORT": str(port),
            "PODIUM_ROLLOUT_HEALTH_PORT": "0",
            "PODIUM_ROLLOUT_METRICS_PORT": str(metrics_port),
            "PODIUM_ROLLOUT_DRAIN_SECONDS": "1",
            "PODIUM_ROLLOUT_INFERENCE_ADDRESS": inference,
            **variables,
        }
        process = start_process("podium_rollout", environment, folder)
        try:
            await wait_for_port(port, process)
            async with connect(f"127.0.0.1:{port}") as channel:
                stub = pb_grpc.RolloutServiceStub(channel)
                listed = await stub.ListScenarios(
                    pb.ListScenariosRequest(
                        environment=spec_pb2.EnvironmentSpec(name="search_qa"),
                        split="train",
                        page_size=1,
                    )
                )
                request = search_request(attempts)
                request.scenario.CopyFrom(listed.scenarios[0])
                # The step that asks, of a service that exports to somewhere else.
                with TracerProvider().get_tracer("t").start_as_current_span("collect"):
                    call = stub.CollectGroup(request, timeout=60)
                    found = [response.trajectory async for response in call]
            async with httpx.AsyncClient() as client:
                for name, accept in (("metrics", "text/plain"), ("openmetrics", OPEN_METRICS)):
                    url = f"http://127.0.0.1:{metrics_port}/metrics"
                    shown = await client.get(url, headers={"Accept": accept})
                    (folder / f"{name}.txt").write_bytes(shown.content)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, (folder / "podium_rollout.log").read_text()
        finally:
            process.kill()
            process.wait()
    return found


def exporting(receiver: OtlpReceiver | OtlpHttpReceiver) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_PROTOCOL": receiver.protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint,
    }


def attributes(span: trace_pb2.Span) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


@pytest.mark.parametrize("protocol", [OtlpReceiver, OtlpHttpReceiver])
async def test_a_rollout_is_one_whole_trace_linked_to_the_step_and_silent(
    protocol: type[OtlpReceiver], tmp_path: Path
) -> None:
    receiver = protocol()
    try:
        # Langfuse and others take HTTP; what is said is told there, to see that it would show.
        told = receiver.protocol == "http/protobuf"
        variables = {CAPTURE: "true"} if told else {}
        found = await collected(tmp_path, 2, exporting(receiver) | variables)
        traces = receiver.by_trace()
        (asking,) = [s for spans in traces.values() for _, s in spans if s.name.endswith("Group")]
        assert len({each.trace_id for each in found}) == 2
        for trajectory in found:
            spans = [span for _, span in traces[trajectory.trace_id]]
            assert sorted(span.name for span in spans) == SHAPE
            ids = {span.span_id for span in spans}
            (root,) = [span for span in spans if not span.parent_span_id]
            assert root.span_id.hex() == trajectory.root_span_id
            assert not [span.name for span in spans if span.parent_span_id not in ids | {b""}]
            (link,) = root.links
            assert (link.trace_id, link.span_id) == (asking.trace_id, asking.span_id)
            assert attributes(root)["gen_ai.conversation.id"] == trajectory.id
            assert attributes(root)["session.id"] == trajectory.group_id
            shown = b"".join(span.SerializeToString() for span in spans)
            question = trajectory.histories[0].messages[-1].content or SAYS
            for text in (SAYS, "tuna", question[:40]):
                assert (json.dumps(text)[1:-1].encode() in shown) == told, text
        _assert_shown(tmp_path, {each.trace_id for each in found})
        resource = receiver.resources()[0]
        assert resource["service.name"] == "podium-rollout"
        assert resource["service.version"]
    finally:
        receiver.stop()


def _assert_shown(folder: Path, traces: set[str]) -> None:
    """Latencies lead to the traces in OpenMetrics, and plain text is as Prometheus wants it."""
    checked = subprocess.run(
        [program("promtool", "prometheus"), "check", "metrics"],
        input=(folder / "metrics.txt").read_bytes(),
        capture_output=True,
        check=False,
    )
    told = (checked.stdout + checked.stderr).decode()
    assert "error" not in told, told
    assert not [line for line in told.splitlines() if line.startswith("podium_")], told
    shown = (folder / "openmetrics.txt").read_text()
    assert shown.endswith("# EOF\n")
    exemplars = re.findall(r'^(\w+)\{.*\} \S+ # \{trace_id="([0-9a-f]{32})"\}', shown, re.MULTILINE)
    assert {name for name, _ in exemplars} >= {"podium_rollout_episode_seconds_bucket"}
    assert {trace for name, trace in exemplars if name.startswith("podium_rollout")} <= traces


async def test_sampling_keeps_a_rollout_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    receiver = OtlpReceiver()
    try:
        sampler = {
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0.5",
        }
        found = await collected(tmp_path, 16, exporting(receiver) | sampler)
        traces = receiver.by_trace()
        kept = {each.trace_id for each in found if each.root_span_id}
        assert kept == {each.trace_id for each in found} & set(traces)
        for trace_id in kept:
            assert sorted(span.name for _, span in traces[trace_id]) == SHAPE
        # One of 2**16 runs keeps all or none.
        assert 0 < len(kept) < 16
    finally:
        receiver.stop()


async def test_a_collector_that_never_answers_costs_an_episode_nothing(tmp_path: Path) -> None:
    receiver = OtlpHttpReceiver(hangs=True)
    try:
        found = await collected(
            tmp_path, 4, exporting(receiver) | {"OTEL_BSP_SCHEDULE_DELAY": "10"}
        )
        # It was asked while they ran, and has answered nothing until now.
        await eventually(lambda: receiver.asked > 0)
        assert [each.stop_reason for each in found] == [trajectory_pb2.STOP_REASON_MAX_TURNS] * 4
        assert not receiver.by_trace()
    finally:
        receiver.stop()
