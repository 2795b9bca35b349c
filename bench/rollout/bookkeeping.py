"""What the agent loop costs a turn, as episodes grow, with a policy in the same process."""

from __future__ import annotations

import statistics
import time
from typing import Any

from podium.environments.serving.convert import scenario_to_pb
from podium.environments.tic_tac_toe import TicTacToe
from podium.inference.v1 import inference_service_pb2 as pb
from podium.rollout.v1 import rollout_service_pb2 as rollout_pb
from podium.types.v1 import policy_pb2, spec_pb2
from podium_rollout.adapters.environments import Environments
from podium_rollout.domain.episode import Episode

from bench.rollout.stub_engine import answered


class InProcess:
    """`podium_rollout.adapters.policy.Policy` without a wire: the stub engine's words at once."""

    async def generate(self, request: pb.GenerateRequest) -> pb.GenerateResponse:
        return answered(request)


async def measure(turns: int, repeats: int) -> dict[str, Any]:
    """Milliseconds a turn of one episode: the median of `repeats`."""
    seconds = []
    for _ in range(repeats):
        episode = Episode(request_of(turns), 0, Environments(), InProcess())
        began = time.process_time()
        (trajectory,) = await episode.run()
        seconds.append(time.process_time() - began)
        assert trajectory.metrics["turns"] == turns
    (history,) = trajectory.histories
    return {
        "turns": turns,
        "tokens": len(history.tokens.token_ids),
        "ms_per_turn": 1000 * statistics.median(seconds) / turns,
    }


def request_of(turns: int) -> rollout_pb.CollectGroupRequest:
    """One attempt of so many turns."""
    return rollout_pb.CollectGroupRequest(
        group_id="bench/s1/g0",
        job_id="bench",
        environment=spec_pb2.EnvironmentSpec(name="tic_tac_toe"),
        scenario=scenario_to_pb(TicTacToe().scenarios("train")[0], "train"),
        attempts=1,
        policy=policy_pb2.PolicyRef(job="bench", version=1),
        sampling=policy_pb2.SamplingParams(temperature=1),
        episode=spec_pb2.EpisodeSpec(
            max_turns=turns, timeout_seconds=3600, step_timeout_seconds=60
        ),
    )
