"""What checks found, and how it is shown: `podium doctor`, `podium install`, `podium env check`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import click

Status = Literal["ok", "info", "warn", "fail"]

_SIGNS: dict[Status, tuple[str, str | None]] = {
    "ok": ("ok  ", "green"),
    "info": ("-   ", None),
    "warn": ("warn", "yellow"),
    "fail": ("FAIL", "red"),
}


@dataclass(frozen=True)
class Finding:
    """What one check found, and what follows from it."""

    status: Status
    """`info`: neither good nor bad, such as what cannot be checked."""
    name: str
    detail: str
    advice: str = ""


def show(findings: Sequence[Finding]) -> None:
    """Prints findings for people on stdout."""
    width = max(11, *(len(finding.name) for finding in findings)) + 1
    for finding in findings:
        sign, colour = _SIGNS[finding.status]
        click.echo(f"{click.style(sign, fg=colour)}  {finding.name:<{width}}{finding.detail}")
        if finding.advice:
            click.echo(f"{'':{width + 6}}-> {finding.advice}")


def failed(findings: Sequence[Finding]) -> list[Finding]:
    """Those that say that something does not work."""
    return [finding for finding in findings if finding.status == "fail"]
