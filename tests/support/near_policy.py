"""Groups that the small model could have sampled: ratios near 1, as a job's are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from podium.types.v1 import trajectory_pb2
from support.tiny_policy import VOCABULARY, group, trajectory

PROMPT = 6
ANSWER = 12


def tokens_of(attempt: trajectory_pb2.Trajectory) -> torch.Tensor:
    """[PROMPT + ANSWER] token ids."""
    return torch.tensor(attempt.histories[0].tokens.token_ids)


def answer_logprobs(causal: torch.nn.Module, attempt: trajectory_pb2.Trajectory) -> torch.Tensor:
    """[ANSWER] log-probs of what was sampled, by Transformers' own forward pass."""
    tokens = tokens_of(attempt)
    logits = causal(input_ids=tokens[None]).logits[0]
    logs = torch.log_softmax(logits[PROMPT - 1 : -1].float(), -1)
    return logs[torch.arange(ANSWER), tokens[PROMPT:]]


def near_groups(
    folder: Path, step: int, *, groups: int = 6, attempts: int = 4, noise: float = 0.2
) -> list[trajectory_pb2.Group]:
    """Of the model in `folder`, whose log-probs are off by `noise` nats; the same for one step."""
    from transformers import AutoModelForCausalLM

    causal = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rng = np.random.default_rng(step)
    made = []
    for g in range(groups):
        prompt = rng.integers(1, VOCABULARY, PROMPT).tolist()
        found = []
        for i in range(attempts):
            answer = rng.integers(1, VOCABULARY, ANSWER).tolist()
            attempt = trajectory(
                f"s{step}/g{g}/t{i}", float(rng.normal()), [*prompt, *answer], [(PROMPT, ANSWER)]
            )
            with torch.no_grad():
                logprobs = answer_logprobs(causal, attempt).numpy()
            record = attempt.histories[0].tokens
            off = rng.normal(0, noise, ANSWER)
            record.logprobs[:] = np.minimum(logprobs + off, -1e-3).tolist()
            found.append(attempt)
        made.append(group(f"s{step}/g{g}", *found))
    return made
