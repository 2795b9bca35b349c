"""Products of frozen weights by oneDNN: float32's numbers, or those of rounded factors."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from podium.types.v1 import spec_pb2
from podium_trainer.learner import products
from podium_trainer.learner.frozen_layers import AdaptedLinear, FrozenLinear, freeze, join_adapters
from podium_trainer.learner.precision import arithmetic
from podium_trainer.learner.products import Products, has_bfloat16, refusal
from support.tiny_policy import training_spec
from torch import Tensor

KINDS = [
    (Products.ONEDNN, 1e-6),
    pytest.param(
        Products.BFLOAT16,
        # Both factors lose 2^-9 at most, the result once more.
        6e-3,
        marks=pytest.mark.skipif(not has_bfloat16(), reason="this CPU has no bfloat16 products"),
    ),
]


class Block(torch.nn.Module):
    def __init__(self, *, bias: bool = False) -> None:
        super().__init__()
        self.proj = torch.nn.Linear(48, 80, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.proj(x)
        return result


def adapted(products: Products, *, bias: bool = False, **options: object) -> torch.nn.Module:
    """A frozen layer with an adapter, all of whose weights are drawn."""
    torch.manual_seed(1)
    block = Block(bias=bias).requires_grad_(False)
    if products != Products.TORCH:
        assert freeze(block, products) == 1
    config = LoraConfig(r=4, lora_alpha=12, target_modules=["proj"], **options)  # type: ignore[arg-type]
    model = get_peft_model(block, config)  # type: ignore[arg-type]
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.2)
    join_adapters(model)
    return model


def passed(model: torch.nn.Module) -> dict[str, Tensor]:
    """What it says of a batch, and all gradients."""
    model.zero_grad()
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(1, 37, 48, generator=generator).requires_grad_()
    result = model(x)
    result.backward(torch.randn(result.shape, generator=generator))
    assert x.grad is not None
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert len(gradients) == 2
    return {"result": result.detach(), "input": x.grad, **gradients}


def off(found: Tensor, expected: Tensor) -> float:
    """Of the norm."""
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kind", "bound"), KINDS)
def test_an_adapted_layer_is_pefts_within_what_its_factors_were_rounded(
    kind: Products, bound: float, bias: bool
) -> None:
    model = adapted(kind, bias=bias)
    assert isinstance(model.base_model.model.proj, AdaptedLinear)
    found, expected = passed(model), passed(adapted(Products.TORCH, bias=bias))
    plain = {name.replace("proj.base_layer", "proj"): value for name, value in found.items()}
    assert plain.keys() == expected.keys()
    for name, value in plain.items():
        assert value.dtype == torch.float32
        assert off(value, expected[name]) < bound, name
        if kind == Products.BFLOAT16 and name in ("result", "input"):
            # It is not float32 by another name.
            assert off(value, expected[name]) > 1e-4
    again = passed(model)
    assert all(torch.equal(again[name], found[name]) for name in found)


@pytest.mark.parametrize(("kind", "bound"), KINDS)
def test_an_adapter_that_is_off_leaves_the_layer(kind: Products, bound: float) -> None:
    model = adapted(kind)
    layer = model.base_model.model.proj
    x = torch.randn(5, 48)
    with model.disable_adapter():
        found = model(x)
    assert torch.equal(found, layer.base_layer(x))
    assert off(found, x @ layer.base_layer.weight.T) < bound
    assert not torch.equal(found, model(x))


@pytest.mark.parametrize(
    "options", [{"use_dora": True}, {"lora_dropout": 0.5}, {"lora_bias": True}]
)
def test_what_is_more_than_an_adapter_stays_pefts(options: dict[str, object]) -> None:
    bias = "lora_bias" in options
    layer = adapted(Products.ONEDNN, bias=bias, **options).base_model.model.proj
    assert isinstance(layer.base_layer, FrozenLinear)
    assert not isinstance(layer, AdaptedLinear)


def test_a_layer_that_trains_stays_torchs() -> None:
    block = Block()
    assert freeze(block, Products.ONEDNN) == 0
    assert type(block.proj) is torch.nn.Linear


@pytest.mark.parametrize(
    ("given", "machine", "said"),
    [
        (("torch", "native", 4), {"cuda": True}, ""),
        (("onednn", "auto", 1), {}, ""),
        (("bfloat16", "auto", 1), {}, ""),
        (("onednn", "auto", 1), {"bfloat16": False}, ""),
        (("onednn", "auto", 1), {"cuda": True}, "on a GPU, whose products are its own"),
        (("bfloat16", "auto", 2), {}, "got bfloat16 with 2 processes; allowed is torch"),
        (("bfloat16", "native", 1), {}, "with PODIUM_TRAINER_BFLOAT16=native"),
        (("onednn", "auto", 1), {"onednn": False}, "was built without oneDNN"),
        (
            ("bfloat16", "auto", 1),
            {"bfloat16": False},
            "this CPU has AVX2 and neither AVX512-BF16 nor AMX",
        ),
    ],
)
def test_what_a_machine_cannot_do_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, str, int],
    machine: dict[str, bool],
    said: str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: machine.get("cuda", False))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: machine.get("onednn", True))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(products, "has_bfloat16", lambda: machine.get("bfloat16", True))
    kind, bfloat16, processes = given
    found = refusal(Products(kind), bfloat16, processes)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("job", "setting", "expected"),
    [
        ({}, "bfloat16", "float32, products bfloat16"),
        ({}, "onednn", "float32, products onednn"),
        ({}, "torch", "float32"),
        # It asked for float32, and has it.
        ({"dtype": "COMPUTE_DTYPE_FLOAT32"}, "bfloat16", "float32, products onednn"),
        # Nothing of it is frozen.
        ({"trainable": spec_pb2.TRAINABLE_KIND_FULL}, "bfloat16", "float32"),
    ],
)
def test_what_a_job_computes_in(job: dict[str, object], setting: str, expected: str) -> None:
    training = training_spec(**job)
    found = arithmetic(training, "auto", Products(setting), torch.device("cpu"))
    assert str(found) == expected
