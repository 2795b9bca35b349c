"""An episode as people read it leads to its trace."""

from __future__ import annotations

import click
import pytest
from podium.cli import episodes, traces
from podium.cli.html_report import episodes as report
from podium.types.v1 import trajectory_pb2 as pb

KEPT = pb.Trajectory(id="t", trace_id="a" * 32, root_span_id="b" * 16)
NOT_KEPT = pb.Trajectory(id="t", trace_id="a" * 32)


@pytest.mark.parametrize(
    ("template", "trajectory", "address"),
    [
        ("https://x/traces/{trace_id}?a&b", KEPT, f"https://x/traces/{'a' * 32}?a&b"),
        ("https://x/traces/{trace_id}", NOT_KEPT, ""),
        ("https://x/traces/{trace_id}", pb.Trajectory(root_span_id="b" * 16), ""),
        ("https://x/{trace_id}", pb.Trajectory(trace_id="../\x1b[1m", root_span_id="b" * 16), ""),
        ("javascript:alert('{trace_id}')", KEPT, ""),
        ("http://[{trace_id}", KEPT, ""),
        ("https:{trace_id}", KEPT, ""),
        ("", KEPT, ""),
    ],
)
def test_a_trace_that_is_kept_is_linked_by_the_template(
    monkeypatch: pytest.MonkeyPatch, template: str, trajectory: pb.Trajectory, address: str
) -> None:
    monkeypatch.setenv(traces.VARIABLE, template)
    assert traces.link(trajectory) == address
    shown = click.unstyle(episodes.conversation(trajectory)).splitlines()[-1]
    assert shown.startswith("trace ") == bool(trajectory.root_span_id)
    assert shown.endswith(address)
    assert "\x1b" not in shown
    page = report._episode("after", trajectory)
    assert ("<a href" in page) == bool(address)
    assert address.replace("&", "&amp;") in page
