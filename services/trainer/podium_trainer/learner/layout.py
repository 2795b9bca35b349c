"""How the nodes of a row see each other, in the forms that attention kernels take."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import torch

from podium_trainer.domain.blocks import BLOCK, plan_blocks
from podium_trainer.domain.packing import Row

Segments = list[tuple[int, int, int]]
"""(start, end, end of the subtree) of every fork-free run of nodes."""


class Layout:
    """The prefix trees of one row on one device; every form is made once, when first asked for."""

    def __init__(self, row: Row, device: torch.device) -> None:
        self._row = row
        self._device = device
        self._windowed: dict[int, torch.Tensor] = {}
        self._blocks: dict[int | None, Any] = {}
        self.attended: set[int] = set()
        """Layers, by their modules' ids, whose attention took the tree."""

    @cached_property
    def depth(self) -> int:
        """Tokens of the longest path, so that no window of this size cuts anything."""
        return int(self._row.positions.max()) + 1

    @cached_property
    def segments(self) -> Segments:
        """Fork-free runs, see `Row.segments`."""
        return self._row.segments()

    @cached_property
    def mask(self) -> torch.Tensor:
        """[S, S] whether a node (first axis) sees a node (second axis)."""
        index = torch.arange(len(self._row.tokens), device=self._device)
        # Made where it is used: on the host a row of 32k nodes would take a GiB and seconds.
        return (index[None, :] <= index[:, None]) & (index[:, None] < self._ends[None, :])

    def windowed_mask(self, window: int) -> torch.Tensor:
        """[S, S] as `mask`, for attention that slides over `window` tokens."""
        if window not in self._windowed:
            oldest = (self._positions - window)[:, None]
            self._windowed[window] = self.mask & (self._positions[None, :] > oldest)
        return self._windowed[window]

    def blocks(self, window: int | None = None) -> Any:
        """The same as FlexAttention's block mask, of the tree or of a window on it."""
        if window not in self._blocks:
            self._blocks[window] = self._block_mask(window)
        return self._blocks[window]

    @cached_property
    def _ends(self) -> torch.Tensor:
        return torch.from_numpy(self._row.subtree_ends).to(self._device)

    @cached_property
    def _positions(self) -> torch.Tensor:
        return torch.from_numpy(self._row.positions).to(self._device)

    def _block_mask(self, window: int | None) -> Any:
        from torch.nn.attention.flex_attention import BlockMask

        ends, positions = self._ends, self._positions
        # A tensor and no number: kernels are compiled for numbers anew.
        oldest = positions - (window or 0)

        def sees(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return (key <= query) & (query < ends[key])

        def sees_window(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return sees(batch, head, query, key) & (positions[key] > oldest[query])

        plan = plan_blocks(self._row.subtree_ends, self._row.positions, window)
        size = len(self._row.tokens)
        return BlockMask.from_kv_blocks(
            *_listed(plan.partial, self._device),
            *_listed(plan.full, self._device),
            BLOCK_SIZE=BLOCK,
            mask_mod=sees if window is None else sees_window,
            seq_lengths=(size, size),
        )


def _listed(blocks: np.ndarray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """[1, 1, B] how many of a [B, B]'s blocks each row has, and [1, 1, B, B] which, those first."""
    counts = blocks.sum(axis=1)
    order = np.argsort(~blocks, axis=1, kind="stable")
    counted, listed = (
        torch.from_numpy(each.astype(np.int32))[None, None].to(device) for each in (counts, order)
    )
    return counted, listed
