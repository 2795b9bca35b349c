"""Where spans go, as OpenTelemetry's OTEL_* variables say.

`OTEL_EXPORTER_OTLP_TRACES_…` wins over `OTEL_EXPORTER_OTLP_…`, and an empty
variable is as one that is not set. Nothing is guessed: spans that would go
nowhere because of a wrong variable are an error at the start.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from podium.core.errors import InvalidArgumentError, Violation

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

GRPC: Final = "grpc"
HTTP: Final = "http/protobuf"
PROTOCOLS: Final = (GRPC, HTTP)
"""OTLP's protocols that services speak; gRPC unless a variable says otherwise."""

_EXPORTERS = "OTEL_TRACES_EXPORTER"
_SAMPLER = "OTEL_TRACES_SAMPLER"
_SAMPLERS = (
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
    "always_on",
    "always_off",
    "traceidratio",
)


def span_exporter() -> SpanExporter | None:
    """What sends this process's spans; None when no endpoint is named, or `none` exporter.

    Raises:
        InvalidArgumentError: a variable is wrong, by its name.
    """
    if not _wanted():
        return None
    name, endpoint = _variable("ENDPOINT")
    if not endpoint:
        return None
    protocol = _protocol()
    _check_endpoint(name, endpoint, protocol)
    try:
        return _make(protocol)
    # Each exporter reads more variables (timeout, compression, files) and raises what it likes.
    except Exception as error:
        raise InvalidArgumentError(
            violations=[Violation("OTEL_EXPORTER_OTLP_…", f"no exporter for {protocol}: {error}")]
        ) from error


def sampler_is_named() -> bool:
    """Whether OTEL_TRACES_SAMPLER says which traces are kept."""
    return bool(os.environ.get(_SAMPLER, "").strip())


def check_sampler() -> None:
    """Refuses a sampler that the SDK would take for another one, with no more than a warning.

    Raises:
        InvalidArgumentError: naming the variable.
    """
    name = os.environ.get(_SAMPLER, "").strip() or _SAMPLERS[0]
    if name not in _SAMPLERS:
        allowed = ", ".join(_SAMPLERS)
        raise InvalidArgumentError(
            violations=[Violation(_SAMPLER, f"got {name!r}; allowed are {allowed}")]
        )
    text = os.environ.get(f"{_SAMPLER}_ARG", "").strip()
    if not name.endswith("traceidratio") or not text:
        return
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise InvalidArgumentError(
            violations=[Violation(f"{_SAMPLER}_ARG", f"got {text!r}; allowed are 0 to 1")]
        )


def _make(protocol: str) -> SpanExporter:
    # Imported here: most processes export nothing, and each costs time.
    if protocol == HTTP:
        from podium.kit.telemetry.http_exporter import HttpSpanExporter

        return HttpSpanExporter()
    from podium.kit.telemetry.grpc_exporter import GrpcSpanExporter

    return GrpcSpanExporter()


def _variable(what: str) -> tuple[str, str]:
    """The variable that counts and its value; empty when neither is set."""
    for name in (f"OTEL_EXPORTER_OTLP_TRACES_{what}", f"OTEL_EXPORTER_OTLP_{what}"):
        if value := os.environ.get(name, "").strip():
            return name, value
    return "", ""


def _wanted() -> bool:
    text = os.environ.get(_EXPORTERS, "").strip() or "otlp"
    names = [name.strip() for name in text.split(",")]
    if names not in (["otlp"], ["none"]):
        raise InvalidArgumentError(
            violations=[Violation(_EXPORTERS, f"got {text!r}; allowed are otlp, none")]
        )
    return names == ["otlp"]


def _protocol() -> str:
    name, value = _variable("PROTOCOL")
    if value and value not in PROTOCOLS:
        allowed = ", ".join(PROTOCOLS)
        raise InvalidArgumentError(
            violations=[Violation(name, f"got {value!r}; allowed are {allowed}")]
        )
    return value or GRPC


def _check_endpoint(name: str, endpoint: str, protocol: str) -> None:
    try:
        url = urlsplit(endpoint)
    except ValueError as error:
        raise InvalidArgumentError(
            violations=[Violation(name, f"got {endpoint!r}; it is no URL: {error}")]
        ) from None
    wrong = ""
    if protocol == HTTP and not _is_web(url):
        wrong = "must be a URL such as http://collector:4318 with the protocol http/protobuf"
    elif protocol == GRPC and _is_web(url) and url.path.strip("/"):
        wrong = (
            "gRPC has no path; take it away, or set OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf"
        )
    if wrong:
        raise InvalidArgumentError(violations=[Violation(name, f"got {endpoint!r}; {wrong}")])


def _is_web(url: SplitResult) -> bool:
    return url.scheme in ("http", "https") and bool(url.netloc)
