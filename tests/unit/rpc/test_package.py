"""The package's front door."""

from __future__ import annotations

import subprocess
import sys

import podium.kit.rpc
import pytest


@pytest.mark.parametrize("name", podium.kit.rpc.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(podium.kit.rpc, name).__module__.startswith("podium.kit.rpc.")


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        podium.kit.rpc.nothing  # noqa: B018


def test_a_client_does_not_load_what_serves() -> None:
    code = (
        "import sys\nfrom podium.kit.rpc import connect, rpc_errors\n"
        "heavy = {'pydantic_settings', 'grpc_reflection.v1alpha', 'opentelemetry.sdk', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
