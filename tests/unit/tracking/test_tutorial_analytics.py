"""S33: what three episodes come to."""

from __future__ import annotations

from podium.sdk.analytics import get_performance_analytics
from podium.types.v1 import trajectory_pb2
from support.tracking import episode

SEARCH = ("search: a", 0.3, {"found": 1})
READ = ("read_email: 3", 0.1, {"read": 3})


def test_s33_three_episodes_give_the_tutorials_numbers() -> None:
    found = get_performance_analytics(
        [
            episode(1, 0, [SEARCH, READ, ("select: 3", 0.5, {})], reward=0.9),
            episode(1, 1, [SEARCH, READ], reward=0.6),
            episode(1, 2, [SEARCH], success=False, reward=0.0, failure="TimeoutError"),
        ]
    )
    assert found == {
        "total_traces": 3,
        "success_rate": 2 / 3,
        "average_reward": 0.5,
        "average_steps": 2.0,
        # Of a type with an underscore the tutorial counts the last word.
        "action_distribution": {"search": 3, "read_email": 2, "select": 1},
        "error_patterns": [
            {"pattern": "TimeoutError: it broke", "count": 1, "episodes": ["search/s1/g0/t2"]}
        ],
    }


def test_s33_no_episode_is_all_zeros() -> None:
    assert get_performance_analytics([]) == {
        "total_traces": 0,
        "success_rate": 0,
        "average_reward": 0,
        "average_steps": 0,
        "action_distribution": {},
        "error_patterns": [],
    }


def test_s33_error_patterns_are_what_went_wrong_most_often_first() -> None:
    unknown = episode(1, 0, success=False)
    unknown.info["error"] = "unknown action 'fly'"
    cut = [episode(1, at, success=False) for at in (1, 2)]
    for each in cut:
        each.stop_reason = trajectory_pb2.STOP_REASON_MAX_TURNS
    won = episode(1, 3)
    won.stop_reason = trajectory_pb2.STOP_REASON_MAX_TURNS
    found = get_performance_analytics([unknown, *cut, won])
    assert [(each["pattern"], each["count"]) for each in found["error_patterns"]] == [
        ("max_turns", 2),
        ("unknown action 'fly'", 1),
    ]
