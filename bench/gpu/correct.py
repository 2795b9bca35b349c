"""The parts that must be right: arithmetic on the device against references of more precision."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from podium_trainer.domain.packing import Row, flat, pack
from podium_trainer.learner.attention import DENSE, FLEX, SEGMENTS, attend, uncompiled
from podium_trainer.learner.head import logprobs_and_entropy
from podium_trainer.learner.layout import Layout
from podium_trainer.learner.objectives import Tokens, token_losses

from bench.gpu.measure import gradient, measured, relative, relative_of_all
from bench.gpu.part import Found
from bench.gpu.shapes import make_policy, model_folder, training, tree

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"

FLOAT32 = 2e-5
"""Of a norm: sums in another order."""
BFLOAT16 = 0.03
"""Of a gradient's norm: a bfloat16 number is off by up to 0.4 %, and layers add up. A choice."""

SINGLE_FLOAT32 = 0.05
"""Of one token's gradient: float32 knows a probability of 1 - 1e-4 no better."""
SINGLE_BFLOAT16 = 0.01
"""Of one token's gradient: the likeliest is kept apart, so that what is rounded is small."""


def kernels(device: torch.device) -> list[str]:
    """Those that run there, backward too."""
    return [SEGMENTS, DENSE] if device.type == "cpu" else [DENSE, FLEX]


def attention(found: Found) -> None:
    """Each kernel over packed rows, forward and backward, against sequences one by one."""
    device = torch.device(found.device)
    shapes = [(5, 7, 3), (40, 17, 4)] if found.tiny else [(5, 7, 3), (300, 200, 6), (1024, 512, 8)]
    heads, size = (4, 16) if found.tiny else (16, 128)
    for prompt, completion, group in shapes:
        (row,) = pack(tree(prompt, completion, group, 97), 1 << 20)
        for dtype, bound in ((torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)):
            expected = _reference(row, _states(row, heads, size, dtype))
            for kernel in kernels(device):
                name = f"{kernel} {prompt}+{group}x{completion} {str(dtype)[6:]}"
                found.try_each(
                    name, _compare, found, name, kernel, row, heads, size, dtype, expected, bound
                )


def _states(row: Row, heads: int, size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key, value and what comes back, [1, heads, S, size], as the type rounds them."""
    generator = torch.Generator().manual_seed(4)
    shape = (1, heads, len(row.tokens), size)
    return [torch.randn(shape, generator=generator).to(dtype) for _ in range(4)]


def _reference(row: Row, states: list[torch.Tensor]) -> list[torch.Tensor]:
    """Output and gradients in float64 from each sequence by itself, by torch's own attention.

    A node that several sequences share has one output, and the sum of their gradients; each
    node's output counts in one sequence alone.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    query, key, value = (x.to(device, torch.float64).requires_grad_() for x in states[:3])
    back = states[3].to(device, torch.float64)
    output = torch.zeros_like(query)
    done = np.zeros(len(row.tokens), bool)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for path in _paths(row):
        nodes = torch.from_numpy(path).to(device)
        alone = torch.nn.functional.scaled_dot_product_attention(
            query[:, :, nodes], key[:, :, nodes], value[:, :, nodes], is_causal=True
        )
        new = torch.from_numpy(~done[path]).to(device)
        done[path] = True
        output[:, :, nodes[new]] = alone[:, :, new].detach()
        total = total + (alone[:, :, new] * back[:, :, nodes[new]]).sum()
    assert done.all()
    total.backward()
    return [output.cpu(), *(x.grad.cpu() for x in (query, key, value) if x.grad is not None)]


def _paths(row: Row) -> list[np.ndarray]:
    """The nodes from the root to each leaf."""
    index = np.arange(len(row.tokens))
    leaves = index[row.subtree_ends == index + 1]
    return [index[(index <= leaf) & (leaf < row.subtree_ends)] for leaf in leaves]


def _compare(
    found: Found,
    name: str,
    kernel: str,
    row: Row,
    heads: int,
    size: int,
    dtype: torch.dtype,
    expected: list[torch.Tensor],
    bound: float,
) -> None:
    device = torch.device(found.device)
    layout = Layout(row, device)
    query, key, value, back = (x.to(device) for x in _states(row, heads, size, dtype))
    inputs = [x.requires_grad_() for x in (query, key, value)]

    def run() -> list[torch.Tensor]:
        output = attend(kernel, query, key, value, layout, size**-0.5)
        return [output.detach(), *torch.autograd.grad(output, inputs, back)]

    off = max(relative(got, want) for got, want in zip(run(), expected, strict=True))
    if kernel == FLEX and uncompiled:
        raise RuntimeError(f"FlexAttention was not compiled for {uncompiled}: this is the mask's")
    found.expect(name, off, bound)
    times = measured(run, device, 3 if found.tiny else 10, seconds=5)
    times.pop("seconds")
    found.put(f"{name} time", times)


def exact(found: Found) -> None:
    """T1, T2, T8, T9 and the golden losses on the device in float32, for each kernel."""
    device = torch.device(found.device)
    found.try_each("golden losses", _golden_losses, found, device)
    found.try_each("head", _head, found, device)
    found.try_each("head of single tokens", _single_tokens, found, device)
    folder = model_folder(found.work, "tiny", device)
    spec = training(rank=4, dtype="COMPUTE_DTYPE_FLOAT32")
    reference = make_policy(folder, spec, torch.float32, torch.device("cpu"))
    items = [*tree(9, 11, 4, 500), *tree(1, 30, 2, 400, index=1)]
    plain = gradient(reference, flat(items))
    for kernel in kernels(device):
        found.try_each(f"{kernel} exact", _packed, found, kernel, items, plain)


def _packed(found: Found, kernel: str, items: list[Any], plain: dict[str, torch.Tensor]) -> None:
    device = torch.device(found.device)
    folder = model_folder(found.work, "tiny", device)
    spec = training(rank=4, dtype="COMPUTE_DTYPE_FLOAT32")
    policy = make_policy(folder, spec, torch.float32, device, kernel)
    rows = pack(items, 4096)
    # T9: packed rows have the gradient of separate ones; here, of separate ones on the CPU.
    found.expect(f"{kernel} T9 packed", relative_of_all(gradient(policy, rows), plain), FLOAT32)
    found.expect(
        f"{kernel} T9 flat", relative_of_all(gradient(policy, flat(items)), plain), FLOAT32
    )
    # T8: what a sample is worth does not depend on what is beside it.
    (alone,) = flat(items[:1])
    (row,) = (row for row in rows if (row.trajectories == 0).any())
    with torch.no_grad():
        beside = policy.evaluate(row).logprobs.cpu()[torch.from_numpy(row.trajectories == 0)]
        by_itself = policy.evaluate(alone).logprobs.cpu()
    found.expect(f"{kernel} T8", float((beside - by_itself).abs().max()), 1e-4)


def _head(found: Found, device: torch.device) -> None:
    """T2: chunked log-probs, entropies and gradients against all logits at once in float64."""
    generator = torch.Generator().manual_seed(3)
    count, vocabulary, hidden = (13, 301, 32) if found.tiny else (700, 20_011, 512)
    slots = torch.arange(count).repeat_interleave(2)
    targets = torch.randint(vocabulary, slots.shape, generator=generator)
    temperatures = torch.linspace(0.7, 1.3, count)
    states = torch.randn(count, hidden, generator=generator)
    # Logits of a few nats, as models have: of a hundred, float32 itself is off by 1e-5.
    weights = torch.randn(vocabulary, hidden, generator=generator) * 4 / hidden**0.5
    for dtype, bound in ((torch.float32, FLOAT32), (torch.bfloat16, BFLOAT16)):
        low = [x.to(dtype) for x in (states, weights)]
        exact = [x.double().requires_grad_() for x in low]
        logits = exact[0] @ exact[1].T / temperatures[:, None]
        logs = torch.log_softmax(logits, -1)
        want = [logs[slots, targets], -(logs.exp() * logs).sum(-1)]
        factors = torch.linspace(-1, 2, len(slots))
        want += torch.autograd.grad((want[0] * factors).sum(), exact)
        by, head = (x.to(device).requires_grad_() for x in low)
        got: list[torch.Tensor] = list(
            logprobs_and_entropy(
                by, head, temperatures.to(device), slots.to(device), targets.to(device)
            )
        )
        got += torch.autograd.grad((got[0] * factors.to(device)).sum(), [by, head])
        for name, one, reference in zip(
            ("log-probs", "entropies", "by states", "by weights"), got, want, strict=True
        ):
            off = relative(one.detach(), reference.detach())
            found.expect(f"head {str(dtype)[6:]} {name}", off, bound)


def _single_tokens(found: Found, device: torch.device) -> None:
    """The worst of single tokens' gradients by their states, of a policy that is sure or not.

    Over all tokens at once the unsure ones' gradients hide what a sure one's is off by.
    """
    generator = torch.Generator().manual_seed(6)
    count, vocabulary, hidden = (40, 301, 32) if found.tiny else (200, 20_011, 512)
    weights = torch.randn(vocabulary, hidden, generator=generator)
    # States towards their tokens: what is left to the others falls from most to a ten-thousandth.
    ways = weights[:count] / weights[:count].square().sum(-1, keepdim=True)
    states = ways * torch.linspace(2, math.log(vocabulary) + 9, count)[:, None]
    likeliest = torch.arange(count)
    for dtype, bound in ((torch.float32, SINGLE_FLOAT32), (torch.bfloat16, SINGLE_BFLOAT16)):
        low = [x.to(dtype) for x in (states, weights)]
        for name, targets in (("likely", likeliest), ("unlikely", likeliest + count)):
            exact = [x.double() for x in low]
            exact[0].requires_grad_()
            logs = torch.log_softmax(exact[0] @ exact[1].T, -1)
            (want,) = torch.autograd.grad(logs[likeliest, targets].sum(), exact[0])
            # In float32, so that the gradient is not rounded as it comes back.
            by = low[0].to(device, torch.float32).requires_grad_()
            ours, _ = logprobs_and_entropy(
                by,
                low[1].to(device),
                torch.ones(count, device=device),
                likeliest.to(device),
                targets.to(device),
            )
            (got,) = torch.autograd.grad(ours.sum(), by)
            off = (got.cpu().double() - want).norm(dim=-1) / want.norm(dim=-1)
            found.expect(f"head {str(dtype)[6:]} worst {name} token", float(off.max()), bound)


ART_LOSSES: dict[str, dict[str, Any]] = {
    "cispo_default": {"objective": "OBJECTIVE_CISPO"},
    "ppo_default": {"objective": "OBJECTIVE_CLIPPED", "epsilon": 0.2, "epsilon_high": 0.2},
    "cispo_avg": {"objective": "OBJECTIVE_CISPO", "ratio_level": "RATIO_LEVEL_AVERAGE"},
}
TUTORIAL_LOSS = {
    "objective": "OBJECTIVE_REINFORCE",
    "kl_coefficient": 0.1,
    "kl_estimator": "KL_ESTIMATOR_K1",
}


def _golden_losses(found: Found, device: torch.device) -> None:
    """T1: losses and gradients on the device are those of ART's and the tutorial's programs."""
    expected = json.loads((GOLDEN / "art_losses.json").read_text())
    inputs = expected["inputs"]
    # ART shifts by one: position i scores token i + 1, and the trained tokens are 3 to 6.
    trained, scored = slice(2, 6), slice(3, 7)
    for name, changes in ART_LOSSES.items():
        tokens = _tokens(
            device,
            inputs["new_logprobs"][trained],
            inputs["old_logprobs"][scored],
            inputs["advantages"][scored],
            inputs["reference_logprobs"][trained],
            inputs["group_ids"][scored],
        )
        total = token_losses(tokens, training(loss=changes).loss).total.mean()
        (by,) = torch.autograd.grad(total, tokens.logprobs)
        wanted = [expected["loss"][name]["loss"], *expected["loss"][name]["grad"][trained]]
        found.expect(f"golden {name}", _greatest([float(total), *by.tolist()], wanted), 1e-5)
    tokens = _tokens(
        device, [-1, -0.5, -2], [-1, -0.5, -2], [1, 0, -1], [-1.1, -0.4, -1.5], [0, 1, 2]
    )
    total = token_losses(tokens, training(loss=TUTORIAL_LOSS).loss).total.mean()
    tutorial = json.loads((GOLDEN / "trainer_tutorial.json").read_text())["grpo_seed_loss"]
    found.expect("golden tutorial", abs(float(total) - tutorial["total"]), 1e-5)


def _tokens(
    device: torch.device,
    now: Sequence[float],
    sampler: Sequence[float],
    advantages: Sequence[float],
    reference: Sequence[float],
    trajectories: Sequence[int],
) -> Tokens:
    def on(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    return Tokens(
        on(now).requires_grad_(),
        on(sampler),
        on(advantages),
        torch.tensor(trajectories, device=device),
        on(reference),
    )


def _greatest(found: Sequence[float], expected: Sequence[float]) -> float:
    return max(abs(one - two) for one, two in zip(found, expected, strict=True))


def bfloat16(found: Found) -> None:
    """The gradient of a real shape in bfloat16 on the device against float32 on the CPU."""
    device = torch.device(found.device)
    name = "tiny" if found.tiny else "qwen3-0.6b"
    folder = model_folder(found.work, name, device)
    items = tree(32, 16, 4, 500)
    rows = {"packed": pack(items, 4096), "flat": flat(items)}
    spec = training(rank=8)
    slow = make_policy(folder, spec, torch.float32, torch.device("cpu"))
    expected = gradient(slow, rows["packed"])
    del slow
    for kernel in kernels(device):
        for layout, each in rows.items():
            found.try_each(
                f"{kernel} {layout}", _bfloat16, found, folder, kernel, layout, each, expected
            )


def _bfloat16(
    found: Found,
    folder: Path,
    kernel: str,
    layout: str,
    rows: list[Row],
    expected: dict[str, torch.Tensor],
) -> None:
    device = torch.device(found.device)
    policy = make_policy(folder, training(rank=8), torch.bfloat16, device, kernel)
    off = relative_of_all(gradient(policy, rows), expected)
    # Two layers of a width of 64 round more than a real model's sums do.
    found.expect(f"{kernel} {layout} bfloat16", off, 0.1 if found.tiny else BFLOAT16)
