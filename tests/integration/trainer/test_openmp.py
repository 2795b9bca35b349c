"""The OpenMP that a trainer's process computes with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPUTE = "import torch; torch.randn(512, 512) @ torch.randn(512, 512)"
PREFER = (
    "from podium_trainer.adapters.openmp import prefer_intel_openmp as prefer; assert prefer(); "
)


@pytest.mark.skipif(
    not Path(sys.prefix, "lib", "libiomp5.so").exists(), reason="no Intel OpenMP is installed"
)
def test_torch_computes_with_intels_openmp() -> None:
    # It prints its settings when, and only when, something is computed with it.
    environment = {**os.environ, "KMP_SETTINGS": "1"}
    environment.pop("LD_PRELOAD", None)

    def said(code: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout + ran.stderr

    assert "KMP_" in said(PREFER + COMPUTE)
    assert "KMP_" not in said(COMPUTE)
