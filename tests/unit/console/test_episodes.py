"""An episode, as its page is told of it."""

from __future__ import annotations

import pytest
from podium.types.v1 import trajectory_pb2 as pb
from podium_console.domain.episodes import whole


@pytest.mark.parametrize("root", ["", "b" * 16])
def test_the_page_is_told_whether_anybody_keeps_the_trace(root: str) -> None:
    # Logs have the id of one that nobody keeps.
    told = whole(pb.Trajectory(id="j/s1/g0/t0", trace_id="a" * 32, root_span_id=root))
    assert (told["trace_id"], told["traced"]) == ("a" * 32, bool(root))
