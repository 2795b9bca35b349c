"""A job told on one HTML page, or in a terminal's plot."""

from __future__ import annotations

from podium.cli.html_report.collect import ReportData, collect
from podium.cli.html_report.page import render

__all__ = ["ReportData", "collect", "render"]
