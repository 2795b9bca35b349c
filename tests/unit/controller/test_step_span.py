"""A step's trace is linked to what it trains on, and stays small."""

from __future__ import annotations

import pytest
from podium.types.v1 import trajectory_pb2
from podium_controller.training import step_span

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def group(number: int, attempts: int) -> trajectory_pb2.Group:
    return trajectory_pb2.Group(
        id=f"g{number}",
        trajectories=[
            trajectory_pb2.Trajectory(
                id=f"g{number}/t{attempt}",
                trace_id=f"{number * 1000 + attempt + 1:032x}",
                root_span_id=f"{number * 1000 + attempt + 1:016x}",
            )
            for attempt in range(attempts)
        ],
    )


def ids(links) -> list[str]:
    return [link.attributes["podium.trajectory.id"] for link in links]


def linked(spans, groups: list[trajectory_pb2.Group]) -> list[str]:
    """What the root leads to; the spans below it are the first that are finished."""
    span = step_span.begin("job", PARENT, 3)
    step_span.link(span, groups)
    span.end()
    done = spans.get_finished_spans()[-1]
    assert done.parent is None
    assert done.dropped_links == 0
    first, *others = done.links
    assert f"{first.context.trace_id:032x}" == "a" * 32
    assert done.attributes["podium.trajectories"] == sum(len(g.trajectories) for g in groups)
    return ids(others)


def test_a_step_is_linked_to_its_rollouts_group_by_group(spans) -> None:
    found = linked(spans, [group(0, 2), group(1, 3)])
    assert found == ["g0/t0", "g1/t0", "g0/t1", "g1/t1", "g1/t2"]
    assert len(spans.get_finished_spans()) == 1


def test_the_roots_links_are_bounded_and_every_group_has_some(spans) -> None:
    found = linked(spans, [group(n, 8) for n in range(64)])
    assert len(found) == step_span.MAX_LINKS
    assert {each.partition("/")[0] for each in found} == {f"g{n}" for n in range(64)}


def test_every_rollout_that_is_traced_is_linked_to_the_step_that_trains_it(spans) -> None:
    groups = [group(0, 250), group(1, 3), group(2, 2)]
    # One is not traced, and one group has none that is.
    groups[1].trajectories[1].root_span_id = ""
    for each in groups[2].trajectories:
        each.root_span_id = ""
    linked(spans, groups)
    *below, root = spans.get_finished_spans()
    assert [each.attributes["podium.group.id"] for each in below] == ["g0", "g0", "g0", "g1"]
    assert [len(each.links) for each in below] == [100, 100, 50, 2]
    assert {each.parent.span_id for each in below} == {root.context.span_id}
    assert {each.context.trace_id for each in below} == {root.context.trace_id}
    assert [each.attributes["podium.trajectories"] for each in below] == [250, 250, 250, 3]
    found = [trajectory for each in below for trajectory in ids(each.links)]
    assert found == [f"g0/t{n}" for n in range(250)] + ["g1/t0", "g1/t2"]
    assert {link.context.span_id for each in below for link in each.links} == {
        int(each.root_span_id, 16) for g in groups for each in g.trajectories if each.root_span_id
    }


def test_a_failure_is_told_by_its_type_alone_and_the_step_goes_on(spans) -> None:
    span = step_span.begin("job", "", 3)
    with pytest.raises(ValueError, match="says"), step_span.current(span):
        raise ValueError("the environment says: hello")
    assert span.is_recording()
    span.end()
    (done,) = spans.get_finished_spans()
    assert done.attributes["error.type"] == "ValueError"
    assert "hello" not in done.to_json()


def test_what_clients_made_up_is_no_link(spans) -> None:
    strange = trajectory_pb2.Group(
        trajectories=[
            trajectory_pb2.Trajectory(id="t0", trace_id="hello", root_span_id="x" * 16),
            trajectory_pb2.Trajectory(id="t1", trace_id="c" * 32),
            trajectory_pb2.Trajectory(id="t2"),
        ]
    )
    # Both sides of one episode are one rollout.
    sides = group(0, 1)
    sides.trajectories.add().CopyFrom(sides.trajectories[0])
    assert linked(spans, [strange, sides]) == ["g0/t0"]
