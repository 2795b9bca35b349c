"""Environments of verifiers that others put on PyPI train as they are.

Real are their packages, verifiers, the services of environments, rollouts, inference, the
controller and the registry; the engine says what a function says, and the trainer is a double.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from podium.environments.serving.convert import struct, unstruct
from podium.types.v1 import policy_pb2, spec_pb2
from podium.types.v1 import trajectory_pb2 as pb
from podium_rollout.adapters.environments import Environments
from support.controlled import small_job
from support.controlled_fixtures import fleet, registry
from support.fleet import Fleet
from support.one_process import LOGPROB, Say, services
from support.processes import free_port, wait_for_port

__all__ = ["fleet", "registry"]

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("PODIUM_TEST_VERIFIERS_PYTHON", "")
WORDS = ("apple", "bread", "chair", "house", "water")
MARBLE = {"env": {"taskset": {"id": "marble_v1"}}, "train": 8, "heldout": 2}
HANGMAN = {"env": {"taskset": {"id": "textarena", "game": "Hangman-v0"}}, "train": 4, "heldout": 1}

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="needs verifiers' packages: `make adapters`"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # TextArena's games take their words from NLTK, which would download them.
    corpus = tmp_path_factory.mktemp("nltk") / "corpora" / "words"
    corpus.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (corpus / name).write_text("\n".join(WORDS))
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "libs"),
        "PATH": os.pathsep.join([str(Path(PYTHON).parent), os.environ["PATH"]]),
        "NLTK_DATA": str(corpus.parents[1]),
    }
    command = [PYTHON, "-m", "podium.cli", "env", "serve", "verifiers", "--port", str(port)]
    process = subprocess.Popen(command, env=environment)
    try:
        asyncio.run(wait_for_port(port, process))
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def spec(address: str, config: Mapping[str, Any]) -> spec_pb2.EnvironmentSpec:
    return spec_pb2.EnvironmentSpec(name="verifiers", address=address, config=struct(config))


async def scenarios(environment: spec_pb2.EnvironmentSpec) -> Sequence[pb.Scenario]:
    opened = Environments()
    try:
        return (await opened.scenarios(environment, "train", 0, ""))[0]
    finally:
        await opened.close()


async def trained(
    fleet: Fleet, environment: spec_pb2.EnvironmentSpec, say: Say, name: str
) -> list[list[pb.Trajectory]]:
    """A job of one step; its groups, the attempts of each by their reward."""
    rollout = spec_pb2.RolloutSpec(
        group_size=2,
        groups_per_step=2,
        episode=spec_pb2.EpisodeSpec(max_turns=8, step_timeout_seconds=200),
    )
    job_spec = small_job(1, environment=environment, rollout=rollout)
    async with services(fleet, say, name) as client:
        job = await client.create(job_spec, name)
        await client.succeeded(job.id)
        assert fleet.trainer.taken == [(name, 1)]
        stored = await client.trajectories(name)
    groups: dict[str, list[pb.Trajectory]] = {}
    for each in sorted(stored, key=lambda trajectory: trajectory.reward):
        groups.setdefault(each.group_id, []).append(each)
    assert [len(group) for group in groups.values()] == [2, 2]
    return list(groups.values())


def sampled(trajectory: pb.Trajectory) -> list[str]:
    """What the tokens say that train; a token is a byte, and the last of a turn ends it."""
    (history,) = trajectory.histories
    tokens = history.tokens
    assert set(tokens.logprobs) == {LOGPROB}
    spans = [tokens.token_ids[s.start : s.start + s.length - 1] for s in tokens.spans]
    return [bytes(span).decode() for span in spans]


async def test_marbles_are_rolled_by_their_own_physics(address: str, fleet: Fleet) -> None:
    """marble-v1: one turn, a reward that a simulation computes."""
    environment = spec(address, MARBLE)
    solutions = {}
    for scenario in await scenarios(environment):
        data = unstruct(scenario.data)
        ring = re.search(r"centred at \(.*?\)", data["prompt"])
        assert ring is not None
        solutions[ring[0]] = f"```json\n{json.dumps(data['solution'])}\n```"
    asked: Counter[str] = Counter()

    def say(prompt: Sequence[int], sampling: policy_pb2.SamplingParams) -> str:
        (ring,) = [found for found in solutions if found in bytes(prompt).decode()]
        asked[ring] += 1
        return solutions[ring] if asked[ring] == 1 else "It cannot be done."

    for wrong, right in await trained(fleet, environment, say, "marbles"):
        assert (wrong.reward, right.reward) == (0.0, 1.0)
        assert (right.metrics["scored"], wrong.metrics["answered_legally"]) == (1.0, 0.0)
        assert sampled(wrong) == ["It cannot be done."]
        assert sampled(right)[0] in solutions.values()


@pytest.mark.full
async def test_a_game_of_textarena_is_played_to_its_end(address: str, fleet: Fleet) -> None:
    """verifiers' own taskset of TextArena's games: many turns, an agent called `player`."""

    def say(prompt: Sequence[int], sampling: policy_pb2.SamplingParams) -> str:
        text = bytes(token for token in prompt if token < 256).decode()
        said = text.count("<assistant>") - 1
        # A turn's seed follows from the job's, so that the same attempts give up each time.
        gives_up = "I give up." in text if said else sampling.seed % 2
        return "I give up." if gives_up else f"[{WORDS[min(said, len(WORDS) - 1)]}]"

    groups = await trained(fleet, spec(address, HANGMAN), say, "hangman")
    attempts = [each for group in groups for each in group]
    for attempt in attempts:
        said = sampled(attempt)
        assert attempt.reward == (0.0 if said[0] == "I give up." else 1.0)
        assert said == [f"[{word}]" for word in WORDS[: len(said)]] or not attempt.reward
    assert {attempt.reward for attempt in attempts} == {0.0, 1.0}
    assert max(len(sampled(attempt)) for attempt in attempts) > 1
