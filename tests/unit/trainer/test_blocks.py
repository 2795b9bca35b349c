"""A row's blocks, for the kernel that skips what holds nothing, against its mask."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from podium_trainer.domain import packing
from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.blocks import BLOCK, plan_blocks
from podium_trainer.domain.packing import Row, build_row
from podium_trainer.learner import attention
from podium_trainer.learner.attention import DENSE, FLEX, SEGMENTS, attend
from podium_trainer.learner.layout import Layout
from support.tiny_policy import sample, weighted
from support.trees import samples_of_trees
from torch._dynamo import config as dynamo_config
from torch._dynamo.exc import TorchDynamoException
from torch.nn.attention import flex_attention as flex_module
from torch.nn.attention.flex_attention import flex_attention

CPU = torch.device("cpu")


def blocks_of(mask: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """[B, B] the blocks of a mask that hold anything, and those that hold everything."""
    size = -(-len(mask) // block) * block
    padded = np.zeros((size, size), bool)
    padded[: len(mask), : len(mask)] = mask
    squares = padded.reshape(size // block, block, size // block, block)
    return squares.any(axis=(1, 3)), squares.all(axis=(1, 3))


@given(items=samples_of_trees(), block=st.integers(1, 9))
def test_the_blocks_of_a_tree_are_those_of_its_mask(items: list[Weighted], block: int) -> None:
    row = build_row(items)
    some, full = blocks_of(Layout(row, CPU).mask.numpy(), block)
    plan = plan_blocks(row.subtree_ends, row.positions, block=block)
    np.testing.assert_array_equal(plan.partial | plan.full, some)
    # On the diagonal a block is looked at, were it of one node.
    np.testing.assert_array_equal(plan.full, full & ~np.eye(len(full), dtype=bool))
    assert not (plan.partial & plan.full).any()


@given(items=samples_of_trees(), block=st.integers(1, 9), window=st.integers(1, 12))
def test_a_window_loses_no_pair_and_looks_at_each_that_it_may_cut(
    items: list[Weighted], block: int, window: int
) -> None:
    row = build_row(items)
    mask = Layout(row, CPU).mask.numpy()
    near = row.positions[:, None] - row.positions[None, :] < window
    np.testing.assert_array_equal(Layout(row, CPU).windowed_mask(window).numpy(), mask & near)
    some, full = blocks_of(mask & near, block)
    plan = plan_blocks(row.subtree_ends, row.positions, window, block)
    assert (plan.partial | plan.full)[some].all()
    assert full[plan.full].all()


def tree_of_several_blocks() -> Row:
    """533 nodes: five blocks, the last one cut by the row's end."""
    prompt = list(range(1, 201))
    answers = [[number] * length for number, length in ((60, 130), (61, 3), (62, 180))]
    other = [99] * 20
    samples = [sample([*prompt, *each], [len(prompt)]) for each in answers]
    return build_row(weighted([*samples, sample(other, [9])]))


def evaluated(
    kernel: str, row: Row, window: int | None, heads: int = 4, shared: int = 2
) -> list[torch.Tensor]:
    """Output, and gradients of query, key and value."""
    generator = torch.Generator().manual_seed(4)
    size = len(row.tokens)
    states = [
        torch.randn((1, each, size, 16), generator=generator).requires_grad_()
        for each in (heads, heads // shared, heads // shared)
    ]
    output = attend(kernel, *states, Layout(row, CPU), 0.25, window)
    output.backward(torch.randn(output.shape, generator=generator))
    return [output, *(state.grad for state in states if state.grad is not None)]


@pytest.mark.parametrize("window", [None, 40])
def test_flex_attention_over_blocks_equals_the_dense_mask_forward_and_backward(
    monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    """Its own plain form, which has a backward pass on a CPU too but for this check."""
    monkeypatch.setattr(flex_module, "_validate_device", lambda *_: None)
    monkeypatch.setattr(attention, "_flex", lambda: (flex_attention, TorchDynamoException))
    row = tree_of_several_blocks()
    expected = evaluated(DENSE, row, window)
    for found in (evaluated(FLEX, row, window), evaluated(SEGMENTS, row, window)):
        assert len(found) == 4
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("window", [None, 40])
def test_compiled_it_looks_at_the_planned_blocks_alone(window: int | None) -> None:
    """On a CPU, forward: the plain form takes the mask and no blocks."""
    row = tree_of_several_blocks()
    generator = torch.Generator().manual_seed(4)
    query, key, value = (
        torch.randn((1, heads, len(row.tokens), 16), generator=generator) for heads in (4, 2, 2)
    )
    expected = attend(DENSE, query, key, value, Layout(row, CPU), 0.25, window)
    found = attend(FLEX, query, key, value, Layout(row, CPU), 0.25, window)
    assert not attention.uncompiled
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)


@pytest.fixture
def compiles_lightly(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Kernels are torch's own program of each graph; the graphs that were asked for."""
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    monkeypatch.setattr(attention, "uncompiled", set())
    attention._flex.cache_clear()
    with dynamo_config.patch(recompile_limit=1):
        yield graphs
    attention._flex.cache_clear()
    torch.compiler.reset()


def test_it_is_compiled_for_every_kind_of_row_and_never_runs_uncompiled(
    compiles_lightly: list[Any],
) -> None:
    """Past torch's limit of kinds it would run with all scores of a row in memory, unsaid."""
    row = tree_of_several_blocks()
    for window in (None, 40):
        for _ in range(2):
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("error")
                attend(FLEX, *states_of(row), Layout(row, CPU), 0.25, window)
    assert len(compiles_lightly) == 2
    assert not attention.uncompiled


def test_past_the_greatest_number_of_kinds_the_dense_mask_is_taken(
    compiles_lightly: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "_KERNELS", 1)
    row = tree_of_several_blocks()
    for window in (None, 40):
        with torch.no_grad():
            found = attend(FLEX, *states_of(row), Layout(row, CPU), 0.25, window)
            expected = attend(DENSE, *states_of(row), Layout(row, CPU), 0.25, window)
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-5)
    assert len(compiles_lightly) == 1
    assert attention.uncompiled


def states_of(row: Row) -> list[torch.Tensor]:
    """Query, key and value."""
    generator = torch.Generator().manual_seed(4)
    shapes = [(1, heads, len(row.tokens), 16) for heads in (4, 2, 2)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def test_where_it_does_not_compile_the_dense_mask_is_taken_and_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def refuses(*_: object, **__: object) -> None:
        nonlocal calls
        calls += 1
        raise TorchDynamoException("no kernel for it")

    monkeypatch.setattr(attention, "_flex", lambda: (refuses, TorchDynamoException))
    monkeypatch.setattr(attention, "uncompiled", set())
    row = build_row(weighted([sample([1, 2, 3, 4, 5], [3]), sample([1, 2, 9, 9], [2])]))
    expected = evaluated(DENSE, row, None)
    for _ in range(2):
        for one, other in zip(evaluated(FLEX, row, None), expected, strict=True):
            assert torch.equal(one, other)
    assert calls == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "heads of 16 and 16 in torch.float32" in caplog.text


def test_a_plan_of_a_long_row_makes_nothing_of_its_square() -> None:
    """A row of 32k nodes, whose mask alone has 2**30 entries."""
    size = 2**15
    plan = plan_blocks(np.full(size, size), np.arange(size))
    assert plan.full.shape == (256, 256)
    assert plan.full.sum() == 256 * 255 // 2
    np.testing.assert_array_equal(plan.partial, np.eye(256, dtype=bool))


def test_a_long_row_is_packed_and_planned_with_work_in_its_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tree of 32k nodes: what is compared and held follows tokens and blocks, not their square.

    On the way here there was a mask of 2**30 entries.
    """
    prompt, attempts, answer = 2**12, 8, 7 * 2**9
    rng = np.random.default_rng(3)
    shared = rng.integers(100, 200, prompt)
    samples = [
        sample([*shared, *rng.integers(100, 200, answer + 1)], range(prompt, prompt + answer + 1))
        for _ in range(attempts)
    ]
    flat = sum(len(each.context) for each in samples)
    compared = 0
    common = packing._common

    def counted(one: np.ndarray, two: np.ndarray) -> int:
        nonlocal compared
        compared += min(len(one), len(two))
        return common(one, two)

    monkeypatch.setattr(packing, "_common", counted)
    items = weighted(samples)
    tracemalloc.start()
    try:
        (row,) = packing.pack(items, 2**15)
        plan = plan_blocks(row.subtree_ends, row.positions)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(row.tokens) == prompt + attempts * answer == 2**15
    assert compared <= 6 * flat
    # Sixteen numbers a token, and a handful of entries a pair of blocks.
    assert held <= 8 * 16 * flat
    side, above, own = 2**15 // BLOCK, prompt // BLOCK, answer // BLOCK
    assert plan.full.shape == (side, side)
    # Each block looks at those of its path alone: a third of what a causal row would have.
    path = above * (above - 1) // 2 + attempts * (own * above + own * (own - 1) // 2)
    assert plan.full.sum() == path
    np.testing.assert_array_equal(plan.partial, np.eye(side, dtype=bool))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("window", [None, 40])
def test_compiled_it_equals_the_dense_mask_on_a_gpu(window: int | None) -> None:
    row = tree_of_several_blocks()
    found, expected = [], []
    for kernel, into in ((FLEX, found), (DENSE, expected)):
        states = [torch.randn((1, n, len(row.tokens), 64)) for n in (4, 2, 2)]
        torch.manual_seed(4)
        states = [torch.randn_like(each).cuda().requires_grad_() for each in states]
        output = attend(kernel, *states, Layout(row, torch.device("cuda")), 0.125, window)
        output.sum().backward()
        into += [output, *(state.grad for state in states)]
    assert not attention.uncompiled
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=2e-3)
