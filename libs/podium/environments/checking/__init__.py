"""Plays an environment without a model, and says what is wrong with it in sentences.

report = await check(Guess)
assert not report.errors, report.errors
"""

from podium.environments.checking.check import check
from podium.environments.checking.findings import Finding, Report
from podium.environments.checking.plays import Bounds

__all__ = ["Bounds", "Finding", "Report", "check"]
