"""What pages of Podium's show with: words, and others' programs for browsers with their licences.

In the package, so that a page works where nothing else can be reached.
"""

from __future__ import annotations

from pathlib import Path

UPLOT = Path(__file__).parent / "uplot"
"""uPlot, which draws the curves: `uPlot.iife.min.js`, `uPlot.min.css`; NOTICE has its version."""

REPORT_SCRIPT = Path(__file__).parent / "report.js"
"""Draws a report's charts by it."""

CURVES = Path(__file__).parent / "curves.json"
"""Title and unit of each curve by step that pages show unasked, by its metric, in their order."""
