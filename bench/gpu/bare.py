"""Makes the trainer importable where its services' packages are not installed.

The parts need torch, Transformers, PEFT, safetensors, numpy, PyYAML and protobuf. Traces need
OpenTelemetry and metrics prometheus_client, which a bare machine lacks: nothing listens there, so
spans do nothing. Generated code asks for a protobuf at least as new as its compiler; an older one
reads the same descriptors, so the question is set aside, and said.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def prepare() -> list[str]:
    """Stands in for what is missing, before the trainer is imported; says for what.

    Raises:
        ImportError: protobuf is not there at all, or too old to read generated code.
    """
    done = []
    if not all(_is_there(name) for name in ("opentelemetry.sdk.trace", "prometheus_client")):
        sys.modules["podium.kit.telemetry"] = _silent_telemetry()
        done.append("podium.kit.telemetry: nothing is traced")
    if (version := _accept_older_protobuf()) is not None:
        done.append(f"protobuf {version} is older than the generated code: its check is set aside")
    return done


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def _untraced(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _silent_telemetry() -> ModuleType:
    """What the trainer's session takes of it."""
    module = ModuleType("podium.kit.telemetry")
    module.tracer = lambda name: None  # type: ignore[attr-defined]
    module.traced = _untraced  # type: ignore[attr-defined]
    return module


def _accept_older_protobuf() -> str | None:
    """The version that was accepted; None when it is new enough."""
    import google.protobuf
    from google.protobuf import runtime_version

    try:
        from podium.options.v1 import rules_pb2
    except runtime_version.VersionError:
        runtime_version.ValidateProtobufRuntimeVersion = lambda *_: None
        from podium.options.v1 import rules_pb2

        assert rules_pb2.DESCRIPTOR.name
        return str(google.protobuf.__version__)
    assert rules_pb2.DESCRIPTOR.name
    return None
