"""A job told on one HTML page, or in a terminal's plot."""

from __future__ import annotations

from podium.report.collect import ReportData, collect
from podium.report.page import render

__all__ = ["ReportData", "collect", "render"]
