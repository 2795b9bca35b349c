"""Somebody outside of a cluster who has a kubeconfig, and types `podium`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

from support.kubernetes_cluster import RELEASE, Installation

_WITHIN = 300


def typed(
    environment: Mapping[str, str], *arguments: str, text_in: str = ""
) -> subprocess.CompletedProcess[str]:
    """A command that has ended, whatever came of it."""
    return subprocess.run(
        [sys.executable, "-m", "podium.cli", *arguments],
        env=environment,
        input=text_in,
        capture_output=True,
        text=True,
        timeout=_WITHIN,
        check=False,
    )


def of_release(installation: Installation, *, certificate: bool = True) -> list[str]:
    """The options of `podium login` for the release."""
    options = ["--release", RELEASE, "--namespace", installation.cluster.namespace]
    if certificate:
        for name in ("certificate", "key", "authorities"):
            options += [
                f"--tls-{name}",
                installation.certificate[f"PODIUM_TLS_{name.upper()}_FILE"],
            ]
    return options
