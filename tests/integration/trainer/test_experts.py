"""A mixture's experts train where they are named, and are served under their files' names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from podium.core.errors import DataLossError, InvalidArgumentError
from podium_inference.adapters import worker_extension
from podium_inference.adapters.weight_files import check_adapter
from podium_trainer.learner.checkpoint import read, write
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.session import Compute, JobConfig, Session
from safetensors.torch import load_file, save_file
from support.families import MIXTURES, WITH_DENSE_LAYERS, build_mixture
from support.near_policy import near_groups
from support.tiny_policy import build_small_llama, training_spec
from transformers import AutoModelForCausalLM

WITH_EXPERTS = {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "v_proj", "experts"]}
TOKENS = torch.tensor([[3, 5, 8, 13, 21, 34, 55, 89]])


@pytest.fixture(scope="module", params=MIXTURES)
def mixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_mixture(request.param, tmp_path_factory.mktemp(request.param))


def session(folder: Path, lora: dict[str, Any], checkpoint: Any = None, **changes: Any) -> Session:
    training = training_spec(
        lora=lora, learning_rate=2e-2, dtype="COMPUTE_DTYPE_FLOAT32", **changes
    )
    return Session(JobConfig("job", "mixture", training, 0), folder, "d", Compute(), checkpoint)


def moved(before: dict[str, torch.Tensor], of: Session) -> set[str]:
    """What differs, by the last part of the module's name."""
    now = of.checkpoint().weights
    return {
        name.split(".lora_")[0].rpartition(".")[2]
        for name in now
        if not torch.equal(before[name], now[name])
    }


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=TOKENS).logits[0]
    return found


@pytest.mark.parametrize("again", [False, True], ids=["activations kept", "computed again"])
def test_experts_that_are_named_train_and_are_served(
    mixture: Path, tmp_path: Path, again: bool
) -> None:
    ours = session(mixture, WITH_EXPERTS, gradient_checkpointing=again)
    before = dict(ours.checkpoint().weights)
    for step in (1, 2):
        ours.train(near_groups(mixture, step, groups=3), lambda: False)
    projections = {"gate_proj", "up_proj", "down_proj"} | {"w1", "w2", "w3"}
    changed = moved(before, ours)
    assert changed - projections == {"q_proj", "v_proj"}
    assert len(changed & projections) == 3
    ours_says = ours.policy.network.plain(TOKENS[0]).detach()

    version = tmp_path / "version"
    write(ours.checkpoint(), mixture, version, Ranks())
    adapter = version / "adapter"
    # A pool that serves adapters takes it for one of the base's own matrices.
    check_adapter(mixture, adapter)
    # A pool that merges makes of it what the trainer has.
    merged = tmp_path / "merged"
    merged.mkdir()
    tensors = {
        name: tensor.contiguous() for name, tensor in worker_extension._merged(mixture, adapter)
    }
    save_file(tensors, merged / "model.safetensors", metadata={"format": "pt"})
    (merged / "config.json").write_bytes((mixture / "config.json").read_bytes())
    served = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(mixture, dtype=torch.float32)
    assert float((logits(base) - ours_says).abs().max()) > 0.1
    torch.testing.assert_close(logits(served), ours_says, atol=1e-4, rtol=1e-4)
    # So does PEFT, with the same files.
    loaded = PeftModel.from_pretrained(base, adapter)
    torch.testing.assert_close(logits(loaded), ours_says, atol=1e-4, rtol=1e-4)


def test_experts_resume_bit_for_bit(mixture: Path, tmp_path: Path) -> None:
    whole = session(mixture, WITH_EXPERTS)
    first, second = (near_groups(mixture, step, groups=3) for step in (1, 2))
    whole.train(first, lambda: False)
    write(whole.checkpoint(), mixture, tmp_path / "version", Ranks())
    whole.train(second, lambda: False)
    stored = read(tmp_path / "version")
    resumed = session(mixture, WITH_EXPERTS, stored)
    resumed.train(second, lambda: False)
    expected = whole.checkpoint().weights
    for name, tensor in resumed.checkpoint().weights.items():
        assert torch.equal(tensor, expected[name]), name


def test_a_damaged_adapter_of_experts_is_refused(mixture: Path, tmp_path: Path) -> None:
    write(session(mixture, WITH_EXPERTS).checkpoint(), mixture, tmp_path / "version", Ranks())
    file = tmp_path / "version" / "adapter" / "adapter_model.safetensors"
    weights = load_file(file)
    up = next(name for name in weights if ".3.up_proj.lora_A" in name or ".3.w3.lora_A" in name)
    save_file(weights | {up: weights[up] + 1}, file)
    with pytest.raises(DataLossError, match="do not share their factor A"):
        session(mixture, WITH_EXPERTS, read(tmp_path / "version"))
    del weights[up]
    save_file(weights, file)
    with pytest.raises(DataLossError, match="the adapter lacks"):
        session(mixture, WITH_EXPERTS, read(tmp_path / "version"))


def test_experts_that_are_not_named_stay_as_they_are(mixture: Path) -> None:
    ours = session(mixture, {"rank": 4})
    assert ours.policy.adapter_config["target_modules"] == ["k_proj", "o_proj", "q_proj", "v_proj"]


@pytest.mark.parametrize("kind", WITH_DENSE_LAYERS)
def test_a_mixture_with_dense_layers_has_an_adapter_that_is_served(
    kind: str, tmp_path: Path
) -> None:
    """PEFT takes the names of their projections for the experts'."""
    folder = build_mixture(kind, tmp_path / "base")
    ours = session(folder, {"rank": 4})
    ours.train(near_groups(folder, 1, groups=3), lambda: False)
    ours_says = ours.policy.network.plain(TOKENS[0]).detach()
    write(ours.checkpoint(), folder, tmp_path / "version", Ranks())
    check_adapter(folder, tmp_path / "version" / "adapter")
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert float((logits(base) - ours_says).abs().max()) > 1e-3
    loaded = PeftModel.from_pretrained(base, tmp_path / "version" / "adapter")
    torch.testing.assert_close(logits(loaded), ours_says, atol=1e-4, rtol=1e-4)
    text = refused(folder, {"rank": 4, "target_modules": ["down_proj"]})
    assert text == "got down_proj; the blocks of this model have k_proj, o_proj, q_proj, v_proj" + (
        ", and experts"
    )


def test_experts_alone_train(mixture: Path) -> None:
    ours = session(mixture, {"rank": 4, "target_modules": ["experts"]})
    before = dict(ours.checkpoint().weights)
    ours.train(near_groups(mixture, 1, groups=3), lambda: False)
    assert len(moved(before, ours)) == 3


def test_experts_that_are_not_named_are_told_of(mixture: Path, tmp_path: Path) -> None:
    ours = session(mixture, {"rank": 4})
    parameters = dict(ours.policy.network.causal.named_parameters())
    held = {n: p.numel() for n, p in parameters.items() if "lora_" not in n}
    share = sum(size for n, size in held.items() if ".experts." in n) / sum(held.values())
    assert ours.policy.warnings == [
        f"the model's experts, {share:.0%} of its parameters, are frozen: name `experts` among"
        " training.lora.target_modules to train them"
    ]
    assert session(mixture, WITH_EXPERTS).policy.warnings == []
    assert session(build_small_llama(tmp_path), {"rank": 4}).policy.warnings == []


def refused(folder: Path, lora: dict[str, Any]) -> str:
    with pytest.raises(InvalidArgumentError) as caught:
        session(folder, lora)
    (violation,) = caught.value.violations
    assert violation.field == "training.lora.target_modules"
    return violation.description


def test_experts_of_a_model_without_any_are_refused(tmp_path: Path) -> None:
    text = refused(build_small_llama(tmp_path), WITH_EXPERTS)
    assert text.startswith("got experts; the blocks of this model have no fused experts")


def test_experts_that_could_not_be_served_are_refused(tmp_path: Path) -> None:
    """The files hold the stacks whole, as some models' do: there is no matrix to name."""
    folder = build_mixture("qwen3_moe", tmp_path)
    weights = load_file(folder / "model.safetensors")
    model = AutoModelForCausalLM.from_pretrained(folder)
    kept = {name: each for name, each in weights.items() if ".experts." not in name}
    whole = {n: p.detach().clone() for n, p in model.named_parameters() if ".experts." in n}
    save_file(kept | whole, folder / "model.safetensors", metadata={"format": "pt"})
    assert "could not be served" in refused(folder, WITH_EXPERTS)
    # Everything else of it trains.
    ours = session(folder, {"rank": 4})
    assert ours.policy.trainable_parameters > 0
    (warning,) = ours.policy.warnings
    assert "are frozen: training.trainable TRAINABLE_KIND_FULL trains them" in warning


def test_a_layer_that_the_blocks_lack_is_named_with_what_there_is(mixture: Path) -> None:
    text = refused(mixture, {"rank": 4, "target_modules": ["experts", "gate_up"]})
    assert text.startswith("got gate_up; the blocks of this model have k_proj, o_proj")
    assert "experts" in text
