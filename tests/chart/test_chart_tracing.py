"""Where the pods send their spans, and by which protocol."""

from __future__ import annotations

import pytest
from chart_golden import render
from helm_python import HelmError
from support.chart_pods import pods

ENDPOINT = "http://collector.monitoring:4318"


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_every_service_exports_by_the_protocol_of_the_values(protocol: str) -> None:
    objects = render({"tracing": {"otlpEndpoint": ENDPOINT, "otlpProtocol": protocol}})
    seen = set()
    for pod in pods(objects):
        for container in pod.spec["containers"]:
            env = {each["name"]: each.get("value") for each in container.get("env", [])}
            if "OTEL_EXPORTER_OTLP_ENDPOINT" in env:
                seen.add(container["name"])
                assert env["OTEL_EXPORTER_OTLP_ENDPOINT"] == ENDPOINT
                # gRPC is what a service takes without the variable.
                assert env.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc") == protocol
    assert seen >= {"controller", "inference", "judge", "registry", "rollout", "trainer"}


def test_a_protocol_that_no_service_speaks_is_refused_by_the_schema() -> None:
    with pytest.raises(HelmError, match="otlpProtocol"):
        render({"tracing": {"otlpEndpoint": ENDPOINT, "otlpProtocol": "http/json"}})
