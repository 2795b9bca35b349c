"""What a report's charts are called."""

from __future__ import annotations

import re
from html import unescape

import pytest
from podium.cli.html_report import ReportData, render
from podium.cli.html_report.curves import CURVES, Curve
from support import job_records as records


def data(**changes: object) -> ReportData:
    given = {"job": records.job(), "steps": records.steps(), "evaluations": [], **changes}
    return ReportData(**{"before": [], "after": [], **given})


def headings(**changes: object) -> list[str]:
    """The words above each panel of a report."""
    page = render(data(**changes))
    found = re.findall(r'<div class="panel"><h3>(.*?)</h3>', page)
    return [unescape(re.sub(r"<[^>]*>", "", each)) for each in found]


def test_curves_are_called_what_the_console_calls_them() -> None:
    titles = [f"{curve.title} {curve.unit}" for curve in CURVES.values()]
    assert titles[0] == "Reward mean of a step"
    assert headings() == [*titles[2:], "Time of a step seconds by phase"]
    assert headings(other=data())[:2] == titles[:2]
    # What no step has is not drawn.
    made = records.steps()
    for step in made:
        del step.metrics["train/entropy"]
    assert not [each for each in headings(steps=made) if "Entropy" in each]


@pytest.mark.parametrize(
    ("title", "label"), [("Gradient norm", "gradient norm"), ("KL to it", "KL to it"), ("", "")]
)
def test_a_curve_among_other_words_has_no_capital(title: str, label: str) -> None:
    assert Curve(title, "").label == label
