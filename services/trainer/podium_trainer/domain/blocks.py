"""Which square blocks of a row's attention hold anything, told from the prefix tree alone.

FlexAttention skips blocks that hold nothing and needs no mask in those that are full. Its own
`create_block_mask` finds out by making the whole S by S mask first; a tree says it by the least and
the greatest of each block, for nodes lie in depth-first order: node q sees node k if
k <= q < subtree_ends[k].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

BLOCK = 128
"""Nodes of a block's side: FlexAttention's own."""


@dataclass(frozen=True)
class BlockPlan:
    """Of B blocks a side, queries by the first axis and keys by the second; no block is both."""

    partial: Bool[np.ndarray, "B B"]
    """Some of its pairs may see each other: each is looked at."""
    full: Bool[np.ndarray, "B B"]
    """All of its pairs do."""


def plan_blocks(
    subtree_ends: Int64[np.ndarray, "S"],
    positions: Int64[np.ndarray, "S"],
    window: int | None = None,
    block: int = BLOCK,
) -> BlockPlan:
    """The blocks of a row of S nodes, in O(S + B²).

    Args:
        subtree_ends: of `Row`.
        positions: of `Row`.
        window: a node sees only those fewer than so many positions above it; None for all above.
        block: nodes of a block's side.
    """
    starts = np.arange(0, len(positions), block)
    ends = np.minimum(starts + block, len(positions))
    whole = ends - starts == block
    query, key = np.arange(len(starts))[:, None], np.arange(len(starts))[None, :]
    before = key < query

    def least(values: Int64[np.ndarray, "S"]) -> Int64[np.ndarray, "B"]:
        return np.minimum.reduceat(values, starts)

    def greatest(values: Int64[np.ndarray, "S"]) -> Int64[np.ndarray, "B"]:
        return np.maximum.reduceat(values, starts)

    # A block's first query is the one that most of the keys before it still reach.
    some = (before & (greatest(subtree_ends)[None, :] > starts[:, None])) | (key == query)
    full = before & (least(subtree_ends)[None, :] >= ends[:, None])
    # The kernel takes a block that runs over the row's end for one to be looked at.
    full &= whole[:, None] & whole[None, :]
    if window is not None:
        some &= least(positions)[:, None] - greatest(positions)[None, :] < window
        full &= greatest(positions)[:, None] - least(positions)[None, :] < window
    return BlockPlan(partial=some & ~full, full=full)
