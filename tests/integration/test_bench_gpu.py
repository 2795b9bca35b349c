"""The GPU bench on a machine that has torch, Transformers and PEFT, and nothing of Podium's own.

The interpreter is the one below the virtual environment, and sees its packages by PYTHONPATH alone:
without the editable install, without what is hidden here, and with a protobuf that says it is old.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("peft")

REPOSITORY = Path(__file__).parents[2]
SITE = """
import os, sys, time
from importlib.machinery import PathFinder

HIDDEN = {"grpc", "opentelemetry", "pydantic", "prometheus_client", "trl"}
find = PathFinder.find_spec
PathFinder.find_spec = staticmethod(
    lambda name, *rest: None if name.split(".")[0] in HIDDEN else find(name, *rest)
)
part = sys.orig_argv[sys.orig_argv.index("bench.gpu.part") + 1] if "-m" in sys.orig_argv else ""
if part == "attention":
    os.abort()
if part == "rows":
    time.sleep(3600)
if part:
    from google.protobuf import runtime_version
    runtime_version.MAJOR, runtime_version.MINOR = 6, 31
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of such a machine."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = [str(tmp_path / "site"), sysconfig.get_paths()["purelib"]]
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}


async def python(environment: dict[str, str], *arguments: str, cwd: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys._base_executable,  # type: ignore[attr-defined]
        *arguments,
        cwd=cwd,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


@pytest.mark.full
@pytest.mark.timeout(1600)
async def test_every_part_is_kept_and_one_that_dies_takes_no_other_along(
    bare: dict[str, str], tmp_path: Path
) -> None:
    bench = str(REPOSITORY / "bench" / "gpu" / "run.py")
    status, output = await python(
        bare,
        bench,
        "--output",
        "found",
        "--device",
        "cpu",
        "--budget",
        "1500",
        "--only",
        "attention,machine,exact,session,mesh,trl",
        cwd=tmp_path,
    )
    assert status == 1, output
    parts: dict[str, dict[str, Any]] = json.loads(
        (tmp_path / "found" / "results.json").read_text()
    )["parts"]
    died = parts.pop("attention")
    assert (died["status"], died["exit_status"]) == ("failed", -6)
    assert {name: part["status"] for name, part in parts.items()} == dict.fromkeys(
        ("machine", "exact", "session", "mesh", "trl"), "ok"
    ), output
    telemetry, protobuf = parts["machine"]["substituted"]
    assert "podium.kit.telemetry" in telemetry
    assert "older than the generated code" in protobuf
    assert parts["machine"]["matmul_tflops"] > 0
    assert parts["exact"]["podium_dense T9 packed"]["within"] is True
    assert parts["session"]["lora resume bit for bit"] is True
    assert parts["session"]["full resume bit for bit"] is True
    assert parts["mesh"]["mesh"] == {"sharded": True, "backend": "gloo"}
    assert parts["mesh"]["lora mesh of one"]["within"] is True
    assert "trl" in parts["trl"]["skipped"]


@pytest.mark.full
@pytest.mark.timeout(300)
async def test_a_part_that_hangs_is_ended_and_its_log_kept(
    bare: dict[str, str], tmp_path: Path
) -> None:
    call = (
        "import json, pathlib, bench.gpu.run as run;"
        "print(json.dumps(run.run_part('rows', 'cpu', pathlib.Path('.'), 2.0)))"
    )
    path = os.pathsep.join([str(REPOSITORY), bare["PYTHONPATH"]])
    status, output = await python({**bare, "PYTHONPATH": path}, "-c", call, cwd=tmp_path)
    assert status == 0, output
    part = json.loads(output)
    assert part["status"] == "out of time"
    assert part["limit_seconds"] == 2.0


@pytest.mark.timeout(300)
async def test_without_a_gpu_each_part_says_so(bare: dict[str, str], tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    bench = str(REPOSITORY / "bench" / "gpu" / "run.py")
    status, output = await python(
        bare, bench, "--output", "found", "--only", "machine", cwd=tmp_path
    )
    assert status == 1, output
    part = json.loads((tmp_path / "found" / "results.json").read_text())["parts"]["machine"]
    assert "no CUDA device" in part["error"]
    assert "Traceback" in part["traceback"]
