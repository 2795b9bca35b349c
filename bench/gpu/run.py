"""`python3 bench/gpu/run.py --output DIR`: every part of the GPU bench, within a time budget.

Each part is a process with a limit of its own, so that a hang or a crash of CUDA ends that part
alone; DIR/results.json is written after each. This file needs nothing but Python, and no
installation: it sets the path of the parts itself. Without CUDA, `--device cpu` runs the same
parts at tiny shapes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (ROOT, ROOT / "libs", ROOT / "services" / "trainer")

PARTS: dict[str, float] = {
    "machine": 60,
    "exact": 100,
    "attention": 120,
    "session": 100,
    "mesh": 100,
    "published": 200,
    "rows": 150,
    "bfloat16": 120,
    "lora_and_full": 120,
    "trl": 90,
}
"""Greatest seconds of each, in the order that they run: first what must be right."""

_LEAST_SECONDS = 15.0
_LOG_BYTES = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 when every part that ran is well, 1 when one is not, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="python3 bench/gpu/run.py", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--budget", type=float, default=560.0, metavar="SECONDS", help="of everything together"
    )
    parser.add_argument("--only", default="", metavar="A,B", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args(arguments)
    wanted = [name for name in options.only.split(",") if name] or list(PARTS)
    unknown = sorted(set(wanted) - PARTS.keys())
    if unknown:
        parser.error(f"--only: got {', '.join(unknown)}; allowed are {', '.join(PARTS)}")
    options.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"device": options.device, "parts": {}}
    deadline = time.monotonic() + options.budget
    with tempfile.TemporaryDirectory(prefix="podium-gpu-", dir=_roomy()) as work:
        for name in wanted:
            left = deadline - time.monotonic()
            if left < _LEAST_SECONDS:
                results["parts"][name] = {"status": "no time left"}
            else:
                # A CPU's shapes are tiny, but what else it does is anybody's guess.
                limit = PARTS[name] if options.device == "cuda" else left
                results["parts"][name] = run_part(
                    name, options.device, Path(work), min(limit, left)
                )
            write(options.output / "results.json", results)
            print(summary(name, results["parts"][name]), flush=True)
    return int(any(it["status"] in ("failed", "out of time") for it in results["parts"].values()))


def run_part(name: str, device: str, work: Path, limit: float) -> dict[str, Any]:
    """What a part found, also when it failed, hung or died."""
    found = work / f"{name}.json"
    log = work / f"{name}.log"
    path = [str(source) for source in SOURCES]
    if os.environ.get("PYTHONPATH"):
        path.append(os.environ["PYTHONPATH"])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "TMPDIR": str(work),
        # Rows of many sizes leave holes between fixed blocks.
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.gpu.part", name, device, str(work)],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    result: dict[str, Any] = {
        "status": "out of time" if status is None else "failed" if status else "ok",
        "seconds": round(time.monotonic() - began, 1),
    }
    try:
        result |= json.loads(found.read_text())
    except (OSError, ValueError) as error:
        result["unreadable"] = repr(error)
    if result["status"] != "ok":
        result |= {
            "exit_status": status,
            "limit_seconds": round(limit, 1),
            "log": log.read_bytes()[-_LOG_BYTES:].decode(errors="replace"),
        }
    return result


def write(path: Path, results: dict[str, Any]) -> None:
    """Whole or not at all: the machine may be taken away at any moment."""
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(results, indent=1) + "\n")
    beside.replace(path)


def summary(name: str, part: dict[str, Any]) -> str:
    """One line of a part."""
    text = f"{name}: {part['status']}"
    if "seconds" in part:
        text += f", {part['seconds']} s"
    if "error" in part:
        text += f", {part['error']}"
    if part.get("skipped"):
        text += f", skipped: {part['skipped']}"
    return text


def _end(process: subprocess.Popen[bytes]) -> None:
    """The part and whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _roomy() -> str | None:
    """Memory for the models' files, where there is enough: eight gigabytes are written and read."""
    try:
        at = os.statvfs("/dev/shm")
    except OSError:
        return None
    return "/dev/shm" if at.f_bavail * at.f_frsize > 32 << 30 else None


if __name__ == "__main__":
    sys.exit(main())
