"""`python -m bench.gpu.part NAME DEVICE WORK`: one part; WORK/NAME.json holds what it found."""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from bench.gpu import bare


class Found:
    """A part's numbers, in its file as soon as they are known."""

    def __init__(self, path: Path, device: str, work: Path) -> None:
        self.device = device
        self.work = work
        self._path = path
        self._values: dict[str, Any] = {}
        self.wrong: list[str] = []
        """What is not as it must be; the part goes on and fails at its end."""

    @property
    def tiny(self) -> bool:
        """Whether shapes are to be those of a test."""
        return self.device == "cpu"

    def put(self, name: str, value: Any) -> None:
        """Keeps a number, or a table of them."""
        self._values[name] = value
        self._write()
        print(f"{name}: {json.dumps(value)}", flush=True)

    def expect(self, name: str, off: float, most: float) -> None:
        """Keeps a difference and holds it to its bound; what is no number is never within."""
        self.put(name, {"off": off, "most": most, "within": off <= most})
        if not off <= most:
            self.wrong.append(f"{name} is off by {off:.3g}, allowed is {most:g}")

    def fail(self, error: BaseException) -> None:
        """Keeps why the part ended."""
        self._values["error"] = f"{type(error).__name__}: {error}"[:2000]
        self._values["traceback"] = "".join(traceback.format_exception(error))[-8000:]
        self._write()

    def try_each(self, name: str, work: Any, *arguments: Any) -> None:
        """Runs one measurement; when it fails, that is kept and the part goes on."""
        try:
            work(*arguments)
        except Exception as error:
            traceback.print_exc()
            text = f"{type(error).__name__}: {error}"[:2000]
            self.put(name, {"error": text, "traceback": traceback.format_exc()[-4000:]})
            self.wrong.append(f"{name}: {text[:200]}")

    def _write(self) -> None:
        beside = self._path.with_suffix(".part")
        beside.write_text(json.dumps(self._values, indent=1))
        beside.replace(self._path)


class PartFailedError(Exception):
    """Something that was measured is not as it must be."""


def main() -> int:
    """Returns 1 when the part fails; why is in its file."""
    name, device, work = sys.argv[1:]
    found = Found(Path(work) / f"{name}.json", device, Path(work))
    try:
        found.put("substituted", bare.prepare())
        import torch

        if device == "cuda" and not torch.cuda.is_available():
            raise PartFailedError("torch sees no CUDA device; --device cpu tries the parts without")
        from bench.gpu import parts

        parts.PARTS[name](found)
        if found.wrong:
            raise PartFailedError("; ".join(found.wrong))
    except BaseException as error:
        traceback.print_exc()
        found.fail(error)
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Compilers and process groups leave threads behind that a part need not wait for.
    os._exit(status)
