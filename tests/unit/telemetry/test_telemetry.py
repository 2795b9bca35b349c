"""Logs that machines read, spans that leave the process, and metrics over HTTP."""

from __future__ import annotations

import io
import json
import logging
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from podium.core.errors import UnavailableError
from podium.kit.telemetry import (
    current_trace_id,
    setup_logging,
    start_metrics_server,
    timed,
)
from prometheus_client import CollectorRegistry, Gauge, Histogram


@pytest.fixture
def logged():
    """Sets logging up and gives it back as it was."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    stream = io.StringIO()

    def start(**options: Any) -> io.StringIO:
        setup_logging("judge", stream=stream, **options)
        return stream

    yield start
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)


def test_a_json_line_has_the_trace_the_service_and_the_extras(logged) -> None:
    stream = logged(log_format="json")
    with TracerProvider().get_tracer("x").start_as_current_span("s") as span:
        logging.getLogger("podium.x").warning("took %s", "long", extra={"seconds": 3, "é": "ü"})
        trace_id = current_trace_id()
    line = json.loads(stream.getvalue())
    assert line["time"].endswith("+00:00")
    del line["time"]
    assert line == {
        "level": "WARNING",
        "logger": "podium.x",
        "message": "took long",
        "service": "judge",
        "trace_id": trace_id,
        "span_id": f"{span.get_span_context().span_id:016x}",
        "seconds": 3,
        "é": "ü",
    }


def test_a_message_of_several_lines_is_one_json_line_with_its_exception(logged) -> None:
    stream = logged(log_format="json")
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("x").exception("it\nfailed", extra={"object": object()})
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert record["message"] == "it\nfailed"
    assert "ValueError: a\nb" in record["exception"]
    assert "trace_id" not in record


def test_text_for_people(logged) -> None:
    stream = logged(log_format="text", level="DEBUG")
    logging.getLogger("podium.x").debug("hello", extra={"step": 3})
    assert stream.getvalue().endswith(" DEBUG podium.x: hello step=3\n")


def test_the_level_holds_and_libraries_are_quiet(logged) -> None:
    stream = logged(level="INFO")
    logging.getLogger("podium.x").debug("no")
    for chatty in ("httpx", "httpx2", "mcp.client.streamable_http"):
        logging.getLogger(chatty).info("no")
    logging.getLogger("podium.x").info("yes")
    assert [line.partition(": ")[2] for line in stream.getvalue().splitlines()] == ["yes"]


def test_setting_up_twice_does_not_log_twice(logged) -> None:
    logged()
    stream = logged()
    logging.getLogger("x").warning("once")
    assert len(stream.getvalue().splitlines()) == 1


def test_outside_a_span_there_is_no_trace_id() -> None:
    assert current_trace_id() == ""


def test_metrics_over_http_and_a_port_that_is_taken() -> None:
    registry = CollectorRegistry()
    Gauge("podium_test_weight_version", "A test's.", registry=registry).set(7)
    server = start_metrics_server("127.0.0.1", 0, registry)
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{server.port}"):
        start_metrics_server("127.0.0.1", server.port, registry)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=20) as answer:
        assert "podium_test_weight_version 7.0" in answer.read().decode()
    server.stop()
    start_metrics_server("127.0.0.1", server.port, registry).stop()


@pytest.fixture(scope="module")
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture(scope="module")
def scraped(registry: CollectorRegistry) -> Iterator[Callable[[str], str]]:
    """What a scraper gets that accepts so and so."""
    server = start_metrics_server("127.0.0.1", 0, registry)

    def scrape(accept: str) -> str:
        url = f"http://127.0.0.1:{server.port}/metrics"
        asked = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(asked, timeout=20) as answer:
            return answer.read().decode()

    yield scrape
    server.stop()


@pytest.fixture
def latency(registry: CollectorRegistry) -> Iterator[Histogram]:
    made = Histogram("podium_test_seconds", "A test's.", registry=registry)
    yield made
    registry.unregister(made)


@pytest.fixture(scope="module")
def colon(registry: CollectorRegistry) -> None:
    Gauge("vllm:running", "A name as vLLM's.", registry=registry).set(1)


# What Prometheus 3 asks with.
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    "accept", [PROMETHEUS, "application/openmetrics-text;version=1.0.0", "text/plain", "*/*"]
)
@pytest.mark.usefixtures("colon")
def test_names_with_colons_reach_a_prometheus_in_any_format(scraped, accept: str) -> None:
    text = scraped(accept)
    assert "\nvllm:running 1.0" in text
    assert text.endswith("# EOF\n") == accept.startswith("application")


def test_a_latency_has_its_trace_as_exemplar_where_somebody_keeps_it(
    scraped, latency: Histogram
) -> None:
    with TracerProvider().get_tracer("x").start_as_current_span("s"), timed(latency):
        trace_id = current_trace_id()
    kept = [line for line in scraped(PROMETHEUS).splitlines() if " # {" in line]
    (line,) = kept
    assert line.startswith("podium_test_seconds_bucket{le=")
    assert f'# {{trace_id="{trace_id}"}}' in line
    # Plain text has no exemplars.
    assert "trace_id" not in scraped("text/plain")


def test_without_a_trace_there_is_no_exemplar(scraped, registry, latency: Histogram) -> None:
    with pytest.raises(ValueError, match="so"), timed(latency):
        raise ValueError("so")
    assert registry.get_sample_value("podium_test_seconds_count") == 1
    assert " # {" not in scraped(PROMETHEUS)
