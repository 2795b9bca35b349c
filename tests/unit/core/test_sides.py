from __future__ import annotations

from podium.core.sides import by_side
from podium.types.v1 import trajectory_pb2 as pb


def group(*sides: str) -> pb.Group:
    made = pb.Group(id="j/s1/g0", job_id="j", step=1, scenario=pb.Scenario(id="s"))
    for number, side in enumerate(sides):
        made.trajectories.add(id=f"t{number}", side=side)
    return made


def test_a_group_of_one_side_is_itself() -> None:
    for whole in (group(), group("", ""), group("opponent")):
        assert by_side(whole) == [whole]


def test_each_side_is_a_group_of_the_same_scenario() -> None:
    main, opponent = by_side(group("", "opponent", "", "opponent"))
    assert (main.id, opponent.id) == ("j/s1/g0", "j/s1/g0/opponent")
    assert [t.id for t in main.trajectories] == ["t0", "t2"]
    assert [t.id for t in opponent.trajectories] == ["t1", "t3"]
    assert main.scenario.id == opponent.scenario.id == "s"
    assert main.step == opponent.step == 1
