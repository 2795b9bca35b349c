"""Where the pods send their spans, and by which protocol."""

from __future__ import annotations

from typing import Any

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


def variables(tracing: dict[str, Any], **values: Any) -> dict[str, dict[str, dict[str, Any]]]:
    """Of each service's container, by name."""
    found = {}
    for pod in pods(render({"tracing": {"otlpEndpoint": ENDPOINT, **tracing}, **values})):
        for container in pod.spec["containers"]:
            names = [each["name"] for each in container.get("env", [])]
            assert len(names) == len(set(names)), container["name"]
            if "OTEL_EXPORTER_OTLP_ENDPOINT" in names:
                found[container["name"]] = {each["name"]: each for each in container["env"]}
    return found


def test_a_span_says_which_pod_it_is_of() -> None:
    for name, env in variables(
        {"resourceAttributes": {"deployment.environment.name": "x"}}
    ).items():
        told = dict(pair.split("=") for pair in env["OTEL_RESOURCE_ATTRIBUTES"]["value"].split(","))
        paths = {"pod": "metadata.name", "namespace": "metadata.namespace", "node": "spec.nodeName"}
        for what, path in paths.items():
            variable = told[f"k8s.{what}.name"].removeprefix("$(").removesuffix(")")
            assert env[variable]["valueFrom"]["fieldRef"]["fieldPath"] == path
            # Kubernetes replaces what was named before alone.
            assert list(env).index(variable) < list(env).index("OTEL_RESOURCE_ATTRIBUTES")
        assert told["k8s.container.name"] == name
        assert told["service.namespace"] == "podium"
        assert told["deployment.environment.name"] == "x"


def test_what_is_said_is_told_by_the_rollout_service_alone_and_only_when_wanted() -> None:
    capture = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    assert not [name for name, env in variables({}).items() if capture in env]
    asked = variables({"captureContent": True})
    assert [name for name, env in asked.items() if capture in env] == ["rollout"]
    assert asked["rollout"][capture]["value"] == "true"


def test_every_service_keeps_the_same_share_and_shows_the_collectors_key() -> None:
    for env in variables({"sampleRatio": 0.25, "existingSecret": "langfuse"}).values():
        assert env["OTEL_TRACES_SAMPLER"]["value"] == "parentbased_traceidratio"
        assert env["OTEL_TRACES_SAMPLER_ARG"]["value"] == "0.25"
        secret = env["OTEL_EXPORTER_OTLP_HEADERS"]["valueFrom"]["secretKeyRef"]
        assert secret == {"name": "langfuse", "key": "headers"}
    assert not [env for env in variables({}).values() if "OTEL_TRACES_SAMPLER" in env]


def test_an_installations_own_variables_win() -> None:
    own = [
        {"name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "x=y"},
        {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "a=b"},
        {"name": "OTEL_TRACES_SAMPLER_ARG", "value": "0.5"},
    ]
    found = variables(
        {"sampleRatio": 0.25, "existingSecret": "langfuse"}, rollout={"extraEnv": own}
    )
    for each in own:
        assert found["rollout"][each["name"]]["value"] == each["value"]


@pytest.mark.parametrize(
    "tracing", [{"sampleRatio": 1.5}, {"resourceAttributes": {"a": "b,c=d"}}], ids=str
)
def test_what_cannot_be_is_refused_by_the_schema(tracing: dict[str, Any]) -> None:
    with pytest.raises(HelmError, match=next(iter(tracing))):
        render({"tracing": {"otlpEndpoint": ENDPOINT, **tracing}})
