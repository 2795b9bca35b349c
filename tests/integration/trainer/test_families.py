"""S2: one tiny model of every family steps, its rows meaning what separate sequences mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from podium.core.errors import InvalidArgumentError
from podium.local.models import resolve
from podium_trainer.domain.batch import Weighted, build_batch
from podium_trainer.domain.packing import Row, build_row, flat, pack
from podium_trainer.learner import families
from podium_trainer.learner.attention import DENSE
from podium_trainer.learner.families import check_family
from podium_trainer.learner.model import Policy
from podium_trainer.learner.network import Network, load
from podium_trainer.learner.session import Compute, JobConfig, Session
from support.families import FAMILIES, SCALED, build_family
from support.full import long
from support.model_files import NO_TENSORS
from support.tiny_policy import VOCABULARY, group, move_adapter, training_spec, trajectory


@pytest.fixture(scope="module", params=[*FAMILIES, *SCALED])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_family(request.param, tmp_path_factory.mktemp(request.param))


def groups(length: int = 12) -> list[Any]:
    rng = np.random.default_rng(2)
    prompt = rng.integers(1, VOCABULARY, 6).tolist()
    return [
        group(
            "g",
            *(
                trajectory(
                    f"g/t{i}",
                    float(i % 2),
                    [*prompt, *rng.integers(1, VOCABULARY, length).tolist()],
                    [(6, 5), (12, length - 6)],
                )
                for i in range(4)
            ),
        )
    ]


@pytest.mark.timeout(300)
def test_s2_a_model_of_the_family_takes_a_step(folder: Path) -> None:
    training = training_spec(lora={"rank": 4}, learning_rate=1e-2)
    config = JobConfig("job", "family", training, 0)
    session = Session(config, folder, "sha256:x", Compute())
    before = session.checkpoint().weights
    outcome = session.train(groups(), lambda: False)
    assert outcome.metrics["tokens_trained"] == 44
    assert outcome.metrics["grad_norm"] > 0
    after = session.checkpoint().weights
    assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("attention", ["", DENSE])
def test_packed_equals_plain_transformers(folder: Path, attention: str) -> None:
    """Deeper than the windows of the families whose attention slides."""
    spec = training_spec(lora={"rank": 4})
    policy = Policy(folder, "m", spec, seed=0, dtype=torch.float32, attention=attention)
    move_adapter(policy, scale=0.05)
    batch = build_batch(groups(30), spec, VOCABULARY)
    (row,) = pack(batch.samples, 4096)
    with torch.no_grad():
        packed = policy.evaluate(row).logprobs
        for item in batch.samples:
            (alone,) = flat([item])
            tokens = torch.from_numpy(np.append(item.sample.context, item.sample.targets[-1]))
            logs = torch.log_softmax(policy.network.plain(tokens), -1)
            expected = logs[item.sample.positions, item.sample.targets]
            own = packed[torch.from_numpy(row.trajectories == item.trajectory)]
            torch.testing.assert_close(own, expected, atol=2e-5, rtol=1e-5)
            torch.testing.assert_close(
                policy.evaluate(alone).logprobs, expected, atol=2e-5, rtol=1e-5
            )


LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
BLOOM = {"hidden_size": 32, "n_layer": 2, "n_head": 2, "initializer_range": 0.3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("kind", "config", "words"),
    [
        ("bloom", BLOOM, "0 of its 2 layers have an attention that takes a tree"),
        ("falcon", SMALL, "its attention cannot be exchanged for one that takes a tree"),
        ("mamba", {**SMALL, "state_size": 4}, "its layers have convolutions"),
        ("qwen3_5_text", {**SMALL, "head_dim": 16, **LINEAR}, "its layers have convolutions"),
        ("gemma2", {**SMALL, "head_dim": 16}, "its attention bounds its scores"),
        ("phi", SMALL, "its output embedding has a bias"),
        ("stablelm", SMALL, "takes a layout, no mask, no dropout and no soft cap"),
    ],
)
def test_s2_a_family_that_cannot_be_packed_is_refused(
    kind: str, config: dict[str, Any], words: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    """Whatever its numbers: bfloat16 hides a small difference, and a bias is zero at first."""
    from transformers import AutoConfig, AutoModelForCausalLM

    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    made = AutoConfig.for_model(kind, **{"vocab_size": VOCABULARY, **_ids(), **heads, **config})
    AutoModelForCausalLM.from_config(made).save_pretrained(tmp_path)
    with pytest.raises(InvalidArgumentError) as caught:
        Policy(tmp_path, "m", training_spec(), seed=0, dtype=dtype)
    assert caught.value.reason == "UNSUPPORTED_MODEL"
    assert caught.value.violations[0].field == "base_model"
    assert words in caught.value.message


def _ids() -> dict[str, int]:
    return {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def test_s2_what_tf32_rounds_is_no_fault_of_the_model(
    small_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU rounds factors to ten bits where TF32 is asked for; here a stand-in does."""
    plain = Network.plain

    def rounded(network: Network, tokens: torch.Tensor) -> torch.Tensor:
        logits = plain(network, tokens)
        return logits + 0.02 * torch.randn(logits.shape, generator=torch.manual_seed(0))

    monkeypatch.setattr(Network, "plain", rounded)
    network = Network(load(str(small_llama), torch.float32, DENSE))
    with pytest.raises(InvalidArgumentError, match="log-probs are off by"):
        check_family(network, torch.float32)
    torch.set_float32_matmul_precision("high")
    try:
        check_family(network, torch.float32)
    finally:
        torch.set_float32_matmul_precision("highest")


def counted_along_the_row(row: Row) -> Row:
    return replace(row, positions=np.arange(len(row.tokens)))


def without_the_tree(row: Row) -> Row:
    return replace(row, subtree_ends=np.full_like(row.subtree_ends, len(row.tokens)))


@pytest.mark.parametrize("dtype", [torch.float32, long(torch.bfloat16)], ids=str)
def test_s2_rounding_is_told_from_a_tree_that_is_not_kept(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trained model: what bfloat16 rounds depends on its weights."""
    network = Network(load(str(resolve("smollm2-135m-instruct")), dtype, DENSE))
    check_family(network, dtype)
    for wrong in (counted_along_the_row, without_the_tree):
        monkeypatch.setattr(families, "build_row", partial(spoil, wrong))
        with pytest.raises(InvalidArgumentError, match="log-probs are off by"):
            check_family(network, dtype)


def spoil(how: Callable[[Row], Row], samples: Sequence[Weighted]) -> Row:
    return how(build_row(samples))


def test_s2_an_unknown_family_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "abacus", "vocab_size": 97}')
    (tmp_path / "model.safetensors").write_bytes(NO_TENSORS)
    with pytest.raises(InvalidArgumentError, match="abacus") as caught:
        Policy(tmp_path, "m", training_spec(), seed=0, dtype=torch.float32)
    assert caught.value.reason == "UNSUPPORTED_MODEL"
