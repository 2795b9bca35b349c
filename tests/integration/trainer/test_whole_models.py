"""What full fine-tuning publishes is the model that the trainer has, in the base's own names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from podium_inference.adapters.weight_files import check_model
from podium_trainer.learner.checkpoint import MODEL, write
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.session import Compute, JobConfig, Session
from safetensors.torch import load_file, save_file
from support.families import build_family, build_mixture
from support.near_policy import near_groups
from support.tiny_policy import training_spec
from transformers import AutoModelForCausalLM

TOKENS = torch.tensor([3, 5, 8, 13, 21, 34, 55, 89])
SORTS: dict[str, Callable[[Path], Path]] = {
    # Experts, of which the files have a matrix each and the model a stack.
    "qwen3_moe": partial(build_mixture, "qwen3_moe"),
    "mixtral": partial(build_mixture, "mixtral"),
    # A bias of its router that is no parameter.
    "kimi": partial(build_family, "kimi"),
}


@pytest.mark.parametrize("sort", SORTS)
def test_a_whole_version_is_what_was_trained(sort: str, tmp_path: Path) -> None:
    folder = SORTS[sort](tmp_path / "base")
    weights = load_file(folder / "model.safetensors")
    biases = [name for name in weights if name.endswith("e_score_correction_bias")]
    assert bool(biases) == (sort == "kimi")
    for name in biases:
        weights[name] = torch.linspace(-0.5, 0.5, len(weights[name]))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    spec = training_spec(trainable="TRAINABLE_KIND_FULL", learning_rate=1e-2)
    session = Session(JobConfig("job", "whole", spec, 0), folder, "d", Compute())
    before = session.policy.network.plain(TOKENS).detach()
    session.train(near_groups(folder, 1, groups=3), lambda: False)
    trained = session.policy.network.plain(TOKENS).detach()
    assert float((trained - before).abs().max()) > 0.1
    write(session.checkpoint(), folder, tmp_path / "version", Ranks())

    published = tmp_path / "version" / MODEL
    check_model(folder, published)
    plain = AutoModelForCausalLM.from_pretrained(published, dtype=torch.float32).eval()
    with torch.no_grad():
        torch.testing.assert_close(plain(TOKENS[None]).logits[0], trained, atol=0, rtol=0)
