"""Shared-prefix packing: samples become rows, each a forest of token nodes.

A node stands for one token after one exact history, so whatever follows may
share it: hidden states depend on ancestors alone. Targets are never shared; each
trained token points at the node that predicts it, and a node at a fork predicts
several. Nodes lie in depth-first order: a node's subtree is the run of nodes from
itself to `subtree_ends`, and node j sees node i exactly when i <= j < subtree_ends[i].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float32, Float64, Int64

from podium_trainer.domain.batch import Weighted
from podium_trainer.domain.samples import FloatArray, IntArray, Sample


@dataclass(frozen=True)
class Row:
    """S nodes, K trained tokens, U slots: the different (node, temperature) that predict.

    Trained tokens are ordered by slot.
    """

    tokens: Int64[np.ndarray, "S"]
    """Token ids."""
    positions: Int64[np.ndarray, "S"]
    """Depth, which is the position id."""
    subtree_ends: Int64[np.ndarray, "S"]
    """End of each node's subtree."""
    slot_nodes: Int64[np.ndarray, "U"]
    """The node whose hidden state predicts."""
    slot_temperatures: Float32[np.ndarray, "U"]
    slots: Int64[np.ndarray, "K"]
    """Ascending."""
    targets: Int64[np.ndarray, "K"]
    """Token ids."""
    logprobs: Float32[np.ndarray, "K"]
    """The sampler's, nats."""
    advantages: Float32[np.ndarray, "K"]
    weights: Float32[np.ndarray, "K"]
    """Share in the loss."""
    trajectories: Int64[np.ndarray, "K"]
    """Index of the trajectory in the batch."""
    teacher: Float32[np.ndarray, "K"]
    """The teacher's log-probs, nats; NaN where there is none."""

    def segments(self) -> list[tuple[int, int, int]]:
        """Runs of nodes without a fork inside: (start, end, end of the subtree)."""
        starts = np.flatnonzero(
            (np.diff(self.positions, prepend=-2) != 1)
            | (np.diff(self.subtree_ends, prepend=-1) != 0)
        )
        ends = np.append(starts[1:], len(self.tokens))
        return [
            (int(start), int(end), int(self.subtree_ends[start]))
            for start, end in zip(starts, ends, strict=True)
        ]


def pack(
    samples: Sequence[Weighted], max_tokens: int, ask: Callable[[], None] = lambda: None
) -> list[Row]:
    """Places every sample once, in rows of at most `max_tokens` nodes.

    Units are whole groups (a group that is too great is cut in lexicographic order),
    placed by decreasing size into the row that they make grow the least: best fit,
    with prefixes shared across groups as well.

    Args:
        ask: called before each unit is placed and each row is built, for hundreds of long samples
            take many seconds; what it raises comes out.

    Raises:
        ValueError: a sample alone is longer than a row.
    """
    units = [
        unit
        for group in sorted({item.group for item in samples})
        for unit in _cut([item for item in samples if item.group == group], max_tokens)
    ]
    units.sort(key=lambda unit: -_size(unit))
    rows: list[list[Weighted]] = []
    sizes: list[int] = []
    for unit in units:
        ask()
        # What a unit costs a row is known only together: groups share their system prompts.
        merged = [_ordered([*row, *unit]) for row in rows]
        grown = [_size(row) for row in merged]
        fits = [i for i, size in enumerate(grown) if size <= max_tokens]
        if fits:
            best = min(fits, key=lambda i: grown[i] - sizes[i])
            rows[best], sizes[best] = merged[best], grown[best]
        else:
            rows.append(unit)
            sizes.append(_size(unit))
    built = []
    for row in rows:
        ask()
        built.append(build_row(row))
    return built


def flat(samples: Iterable[Weighted]) -> list[Row]:
    """The plain layout, nothing shared: one row a sample."""
    return [build_row([item]) for item in samples]


def build_row(samples: Sequence[Weighted]) -> Row:
    """The prefix tree of `samples`."""
    # In this order nobody before a sample shares more with it than its neighbour does, so the
    # neighbour's path is all that one pass has to remember, and nodes come out depth first.
    samples = _ordered(samples)
    tokens: list[IntArray] = []
    positions: list[IntArray] = []
    size = _size(samples)
    # A subtree reaches the row's end until a later sample turns off above it.
    ends = np.full(size, size, np.int64)
    nodes: list[IntArray] = []
    path = np.empty(0, np.int64)
    previous = path
    count = 0
    for item in samples:
        context = item.sample.context
        shared = _common(previous, context)
        # The rest of the neighbour's path has all its descendants by now: nodes from here on do
        # not see it.
        ends[path[shared:]] = count
        added = len(context) - shared
        path = np.concatenate([path[:shared], np.arange(count, count + added)])
        tokens.append(context[shared:])
        positions.append(np.arange(shared, len(context)))
        nodes.append(path[item.sample.positions])
        previous = context
        count += added
    lengths = [len(item.sample.targets) for item in samples]
    node = np.concatenate(nodes)
    temperature = np.concatenate([item.sample.temperatures for item in samples])
    # One slot for all attempts that sampled here at one temperature: the head makes each
    # distribution once. Temperatures are told apart by their bits, beside the nodes' integers.
    keys, slots = np.unique(
        np.stack([node, temperature.view(np.int32).astype(np.int64)]), axis=1, return_inverse=True
    )
    # The head finds the tokens of a chunk of slots by bisection.
    order = np.argsort(slots, kind="stable")

    def each(values: Iterable[float]) -> Float64[np.ndarray, "K"]:
        return np.repeat(np.array(list(values), np.float64), lengths)[order]

    return Row(
        tokens=np.concatenate(tokens),
        positions=np.concatenate(positions),
        subtree_ends=ends,
        slot_nodes=keys[0],
        slot_temperatures=keys[1].astype(np.int32).view(np.float32),
        slots=slots[order],
        targets=np.concatenate([item.sample.targets for item in samples])[order],
        logprobs=np.concatenate([item.sample.logprobs for item in samples])[order],
        advantages=np.concatenate(
            [np.broadcast_to(item.advantage, n) for item, n in zip(samples, lengths, strict=True)]
        )[order].astype(np.float32),
        weights=each(item.weight for item in samples).astype(np.float32),
        trajectories=each(item.trajectory for item in samples).astype(np.int64),
        teacher=np.concatenate([_teacher(item.sample) for item in samples])[order],
    )


def _teacher(sample: Sample) -> FloatArray:
    return np.full_like(sample.logprobs, np.nan) if sample.teacher is None else sample.teacher


def _key(item: Weighted) -> bytes:
    # Big-endian bytes compare as the token ids do, a prefix before what continues it.
    return item.sample.context.astype(">u4").tobytes()


def _ordered(samples: Sequence[Weighted]) -> list[Weighted]:
    return sorted(samples, key=_key)


def _common(one: Int64[np.ndarray, "A"], two: Int64[np.ndarray, "B"]) -> int:
    """Length of the longest common prefix."""
    length = min(len(one), len(two))
    differ = np.flatnonzero(one[:length] != two[:length])
    return int(differ[0]) if len(differ) else length


def _size(ordered: Sequence[Weighted]) -> int:
    """Nodes of the prefix tree of lexicographically ordered samples."""
    lengths = sum(len(item.sample.context) for item in ordered)
    shared = sum(_common(a.sample.context, b.sample.context) for a, b in pairwise(ordered))
    return lengths - shared


def _cut(group: Sequence[Weighted], max_tokens: int) -> list[list[Weighted]]:
    units: list[list[Weighted]] = []
    size = 0
    for item in _ordered(group):
        length = len(item.sample.context)
        if length > max_tokens:
            raise ValueError(f"a sample of {length} tokens is longer than a row of {max_tokens}")
        if units:
            # Against its neighbour alone, for the reason given in `build_row`.
            added = length - _common(units[-1][-1].sample.context, item.sample.context)
            if size + added <= max_tokens:
                units[-1].append(item)
                size += added
                continue
        units.append([item])
        size = length
    return units
