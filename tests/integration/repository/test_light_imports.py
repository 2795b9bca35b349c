"""The light packages run where neither torch nor vLLM is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

LIGHT = (
    "podium",
    "podium_controller",
    "podium_judge",
    "podium_registry",
    "podium_rollout",
)
HEAVY = ("torch", "vllm", "transformers", "peft", "tokenizers", "numpy")

# Makes heavy packages unimportable, imports every module, and names what was wanted.
PROBE = """
import importlib, pkgutil, sys

heavy = {heavy!r}
for name in heavy:
    sys.modules[name] = None
package = importlib.import_module({package!r})
walk = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
names = [package.__name__] + [module.name for module in walk]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""


@pytest.mark.parametrize("package", LIGHT)
def test_every_module_imports_without_the_heavy_packages(package: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=HEAVY, package=package)],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 1


def test_the_probe_notices_a_heavy_import() -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=("json",), package="podium.local.models")],
        capture_output=True,
        text=True,
    )
    assert result.returncode != 0
    assert "json" in result.stderr


def test_a_client_does_not_load_what_serves() -> None:
    code = (
        "import sys\nfrom podium.kit.rpc import connect, rpc_errors\n"
        "heavy = {'pydantic_settings', 'grpc_reflection.v1alpha', 'opentelemetry.sdk', 'torch'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
