"""The parts by name, in the module of their kind."""

from __future__ import annotations

from collections.abc import Callable

from bench.gpu import correct, speed, steps
from bench.gpu.part import Found

PARTS: dict[str, Callable[[Found], None]] = {
    "machine": speed.machine,
    "exact": correct.exact,
    "attention": correct.attention,
    "session": steps.session,
    "mesh": steps.mesh,
    "published": speed.published,
    "rows": speed.rows,
    "bfloat16": correct.bfloat16,
    "lora_and_full": speed.lora_and_full,
    "trl": speed.trl,
}
