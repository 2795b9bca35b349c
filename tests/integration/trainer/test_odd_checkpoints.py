"""Checkpoints as the hub has them: a trainer computes them rightly, or refuses them by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from podium.cli.merge import merge
from podium.core.errors import InvalidArgumentError, NotFoundError
from podium.registry.v1 import registry_service_pb2 as registry_pb2
from podium_inference.adapters.weight_files import check_adapter
from podium_trainer.learner.base import load_network
from podium_trainer.learner.checkpoint import read, write
from podium_trainer.learner.model import Policy
from podium_trainer.learner.parallel import Ranks
from podium_trainer.learner.session import Compute, JobConfig, Session
from safetensors.torch import load_file, save_file
from support.families import IMAGES, build_with_images
from support.near_policy import near_groups
from support.tiny_policy import build_small_llama, training_spec
from transformers import AutoModelForCausalLM

TOKENS = torch.tensor([3, 5, 8, 13, 21, 34, 55, 89])
ADAPTER = "adapter_model.safetensors"
DOWN = "model.layers.1.mlp.down_proj.weight"
EMBEDDING = "model.embed_tokens.weight"
CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_small_llama(tmp_path / "model")


def edit(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def put(folder: Path, held: dict[str, torch.Tensor], name: str = "model.safetensors") -> None:
    save_file(held, folder / name, metadata={"format": "pt"})


def says(folder: Path) -> torch.Tensor:
    return load_network(folder, torch.float32, "", CPU).plain(TOKENS).detach()


def without_one(folder: Path) -> None:
    held = tensors(folder)
    del held[DOWN]
    put(folder, held)


def of_another_shape(folder: Path) -> None:
    put(folder, tensors(folder) | {DOWN: torch.zeros(3, 3)})


def cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def with_another_head(folder: Path) -> None:
    held = tensors(folder)
    put(folder, held | {"lm_head.weight": held[EMBEDDING] + 1})


def with_an_adapter(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    config = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    get_peft_model(model, config).save_pretrained(folder)


def quantised(folder: Path) -> None:
    """Transformers knows no such method and would go on with the numbers as they are."""
    edit(folder, quantization_config={"quant_method": "exl2", "bits": 4})


def with_images(folder: Path) -> None:
    edit(folder, model_type="qwen2_5_vl", architectures=["Qwen2_5_VLForConditionalGeneration"])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (without_one, f"its files have no {DOWN}"),
        (of_another_shape, "Transformers cannot load it"),
        (cut, "model.safetensors cannot be read"),
        (with_another_head, "its files hold an output embedding that differs"),
        (with_an_adapter, "it holds an adapter"),
        (quantised, "'exl2'"),
        (with_images, "no causal language model of kind 'qwen2_5_vl'"),
    ],
)
def test_what_would_compute_another_model_is_refused_by_name(
    spoil: Callable[[Path], None], words: str, folder: Path
) -> None:
    spoil(folder)
    with pytest.raises((InvalidArgumentError, NotFoundError)) as caught:
        says(folder)
    assert words in caught.value.message
    assert str(folder) in caught.value.message


def test_code_of_a_checkpoint_never_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anybody at a terminal asked whether it may."""
    ran = tmp_path / "ran"
    (folder / "modeling_own.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    classes = {"AutoConfig": "modeling_own.C", "AutoModelForCausalLM": "modeling_own.M"}
    edit(folder, auto_map=classes)
    expected = says(folder)
    assert torch.isfinite(expected).all()
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    edit(folder, model_type="own")
    with pytest.raises(InvalidArgumentError, match=r"code of its own \(auto_map\)"):
        says(folder)
    assert not ran.exists()


def halved(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.half() for name, tensor in held.items()}


def doubled(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.double() for name, tensor in held.items()}


def mixed(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {n: t.half() if "mlp" in n else t.bfloat16() for n, t in held.items()}


def with_more(held: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What older Transformers wrote besides."""
    more = {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": torch.ones(8) for n in range(2)}
    return {**held, **more, "lm_head.weight": held[EMBEDDING].clone()}


@pytest.mark.parametrize("how", [halved, doubled, mixed, with_more])
def test_what_is_stored_otherwise_is_what_plain_transformers_reads(
    how: Callable[[dict[str, Any]], dict[str, Any]], folder: Path
) -> None:
    put(folder, how(tensors(folder)))
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = plain(input_ids=TOKENS[None]).logits[0]
    torch.testing.assert_close(says(folder), expected, atol=0, rtol=0)


def test_a_model_whose_files_call_its_layers_otherwise_is_refused(folder: Path) -> None:
    """As those of embedding models do, which lack the first part of every name."""
    put(folder, {name.removeprefix("model."): each for name, each in tensors(folder).items()})
    with pytest.raises(InvalidArgumentError) as caught:
        Policy(folder, "m", training_spec(), seed=0, dtype=torch.float32)
    assert "its files have no model.layers.0." in caught.value.message
    assert caught.value.violations[0].field == "base_model"


@pytest.mark.parametrize("kind", IMAGES)
def test_of_a_model_with_images_the_part_for_text_is_adapted_and_served(
    kind: str, tmp_path: Path
) -> None:
    """Of both parts layers have the same names; of Gemma 3 files have other names than modules."""
    base, version, merged = (tmp_path / name for name in ("base", "version", "merged"))
    build_with_images(kind, base)
    spec = training_spec(lora={"rank": 4}, learning_rate=1e-2)
    session = Session(JobConfig("job", "m", spec, 0), base, "d", Compute())
    session.train(near_groups(base, 1, groups=3), lambda: False)
    ours = session.policy.network.plain(TOKENS).detach()
    write(session.checkpoint(), base, version, Ranks())
    resumed = Session(JobConfig("job", "m", spec, 0), base, "d", Compute(), read(version))
    assert torch.equal(resumed.policy.network.plain(TOKENS), ours)

    adapter = version / "adapter"
    assert all("language_model" in name for name in load_file(adapter / ADAPTER))
    check_adapter(base, adapter)
    merge(registry_pb2.Manifest(base_model=str(base)), adapter, merged)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    assert float((said(plain) - ours).abs().max()) > 1e-3
    torch.testing.assert_close(said(PeftModel.from_pretrained(plain, adapter)), ours)
    whole = AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)
    torch.testing.assert_close(said(whole), ours, atol=1e-4, rtol=1e-4)


def said(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model.eval()(input_ids=TOKENS[None]).logits[0]
    return found
