"""A turn's own reward teaches what the trajectory's cannot tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from podium.types.v1 import trajectory_pb2
from podium_trainer.domain.batch import build_batch
from podium_trainer.domain.packing import pack
from podium_trainer.learner.model import Policy
from podium_trainer.learner.optimizer import Optimizer
from podium_trainer.learner.phases import Phases
from podium_trainer.learner.step import accumulate_gradient, apply_gradient
from support.tiny_policy import VOCABULARY, group, training_spec, trajectory

GOOD, BAD = 11, 12
FIRST, SECOND = 2, 4
"""Places of the two turns, a token each."""


def attempt(number: int, first: int, second: int) -> trajectory_pb2.Trajectory:
    """Each turn is paid for saying GOOD."""
    made = trajectory(f"g/t{number}", 0, [1, 2, first, 5, second], [(FIRST, 1), (SECOND, 1)])
    for token in (first, second):
        made.transitions.add(reward=float(token == GOOD))
    made.reward = sum(each.reward for each in made.transitions)
    return made


def test_good_turns_are_learned_from_attempts_of_equal_rewards(small_llama: Path) -> None:
    attempts = group("g", attempt(0, GOOD, BAD), attempt(1, BAD, GOOD))
    loss = {"objective": "OBJECTIVE_REINFORCE", "turn_advantage": "TURN_ADVANTAGE_RETURN_TO_GO"}
    training = training_spec(
        learning_rate=0.01, lora={"rank": 4, "alpha": 8}, loss={**loss, "turn_discount": 0}
    )
    plain = training_spec()
    assert build_batch([attempts], plain, VOCABULARY).skipped_groups == {"g": "zero_variance"}
    policy = Policy(small_llama, "small-llama", training, seed=0, dtype=torch.float32)
    optimizer = Optimizer(policy.masters.weights, training)
    batch = build_batch([attempts], training, VOCABULARY)
    (row,) = pack(batch.samples, 4096)

    def preference() -> np.ndarray:
        """[2] how much likelier than BAD each turn's GOOD is, in nats, by turn."""
        with torch.no_grad():
            logprobs = policy.evaluate(row).logprobs.numpy()
        depths = row.positions[row.slot_nodes[row.slots]]
        return np.array(
            [
                logprobs[(depths == place - 1) & (row.targets == GOOD)].item()
                - logprobs[(depths == place - 1) & (row.targets == BAD)].item()
                for place in (FIRST, SECOND)
            ]
        )

    before = preference()
    for _ in range(20):
        numbers = accumulate_gradient(
            policy,
            batch,
            training,
            row_tokens=4096,
            cancelled=lambda: False,
            phases=Phases(),
        )
        apply_gradient(policy, optimizer, learning_rate=0.01, phases=Phases())
    assert (numbers["turns"], numbers["turns_alone"]) == (4, 0)
    assert (preference() - before > 1).all()
