"""A stranger's function behind `podium scorer serve`, asked by the real judge service."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from podium.core.errors import FailedPreconditionError
from podium.types.v1 import spec_pb2, trajectory_pb2
from support.fake_judge import fake_judge
from support.full import full
from support.judging import JudgeBench, group_of, rewards
from support.scorer_process import served_scorer

STRANGER = """
import os, subprocess, sys, time

async def later(trajectories):
    return [(len(t["messages"]), "counted") for t in trajectories]

def score(scenario, trajectories):
    print("a word on its output", flush=True)
    sys.stdin.read()
    match scenario["id"]:
        case "raise":
            raise KeyError("city")
        case "exit":
            sys.exit(0)
        case "nan":
            return [float("nan")] * len(trajectories)
        case "few":
            return [1.0]
        case "die":
            os._exit(3)
        case "hang":
            # What it started holds its output open.
            subprocess.Popen(["sleep", "3600"])
            while True:
                pass
        case "await":
            return later(trajectories)
        case "null":
            return [None, 0.25]
    return [float(t["messages"][-1]["content"].split()[-1]) for t in trajectories]
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("scorer")
    with served_scorer(folder, STRANGER, "--timeout", "5", "--processes", "2") as served:
        yield served


def scorer(address: str, **fields: str) -> spec_pb2.Scorer:
    http = spec_pb2.HttpScorerSpec(base_url=address, **fields)
    return spec_pb2.Scorer(kind=spec_pb2.SCORER_KIND_HTTP, http=http)


async def scored(
    address: str, *scenarios: str, trusted: str = "", **fields: str
) -> list[trajectory_pb2.Group]:
    """A group of two attempts at each scenario, all scored at once."""
    groups = [group_of("answer 3", "answer 9", group=f"job/s1/{name}") for name in scenarios]
    for group, name in zip(groups, scenarios, strict=True):
        group.scenario.id = name
    with fake_judge() as judge:
        async with httpx.AsyncClient(timeout=None) as client:
            bench = JudgeBench(
                judge,
                client,
                trusted_base_urls=(trusted or address,),
                request_timeout_seconds=60.0,
            )
            answers = await asyncio.gather(
                *(bench.rewarded(group, scorer(address, **fields)) for group in groups)
            )
    return [answer.group for answer in answers]


FAULTS = {
    "raise": "it raised KeyError: 'city' (strangers.py, line 12)",
    "exit": "it raised SystemExit: 0 (strangers.py, line 14)",
    "nan": "its score of attempt 0 is nan; allowed are finite ones",
    "few": "it returned 1 scores for 2 attempts",
    "die": "its process ended, with code 3",
    "hang": "it had no answer within 5 seconds",
}


async def test_what_a_strangers_function_does_to_a_group_costs_that_group(address: str) -> None:
    """All at once, in two processes: the others are scored, and each says why it is not."""
    names = [*FAULTS, "fine", "await", "null", "fine again"]
    found = dict(zip(names, await scored(address, *names), strict=True))
    for name, reason in FAULTS.items():
        assert found[name].skip_reason == "judge_failed"
        for attempt in found[name].trajectories:
            assert not attempt.HasField("reward")
            assert reason in attempt.explanation
        assert reason in found[name].judgements[0].opinions[0].failure
    assert rewards(found["fine"]) == rewards(found["fine again"]) == [3, 9]
    assert rewards(found["await"]) == [2, 2]
    assert found["await"].trajectories[0].explanation == "counted"
    assert rewards(found["null"]) == [None, 0.25]


async def test_after_all_of_that_it_still_scores(address: str) -> None:
    await scored(address, "die", "die", "raise")
    assert [rewards(group) for group in await scored(address, *"abcd")] == [[3, 9]] * 4


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("GET", "/health", b"", 200),
        ("GET", "/score", b"", 404),
        ("POST", "/other", b"{}", 404),
        ("POST", "/score", b"[" * 100_000, 400),
        ("POST", "/score", b"{}", 400),
        ("POST", "/score", b'{"scenario": [], "trajectories": []}', 400),
        ("POST", "/score", b"\xff\xfe", 400),
    ],
)
async def test_what_is_no_group_is_refused(
    address: str, method: str, path: str, content: bytes, status: int
) -> None:
    async with httpx.AsyncClient() as client:
        response = await client.request(method, address + path, content=content)
    assert response.status_code == status


@full
async def test_a_key_must_be_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("s3cret\n")
    monkeypatch.setenv("PODIUM_JUDGE_KEY_MINE", "s3cret")
    with served_scorer(tmp_path, STRANGER, "--key-file", "key") as address:
        with pytest.raises(FailedPreconditionError, match="check its key"):
            await scored(address, "fine")
        (group,) = await scored(address, "fine", api_key_env="PODIUM_JUDGE_KEY_MINE")
    assert rewards(group) == [3, 9]


async def test_the_example_scores(tmp_path: Path) -> None:
    code = (Path(__file__).parents[2] / "examples" / "own_scorer" / "scorer.py").read_text()
    with served_scorer(tmp_path, code) as address:
        (group,) = await scored(address, "any")
    assert rewards(group) == [0, 0]
    assert "0 messages more" in group.trajectories[0].explanation
