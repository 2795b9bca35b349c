"""How the nodes of a row see each other, in the forms that attention kernels take."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch

from podium_trainer.domain.packing import Row

Segments = list[tuple[int, int, int]]
"""(start, end, end of the subtree) of every fork-free run of nodes."""


class Layout:
    """The prefix trees of one row on one device; every form is made once, when first asked for."""

    def __init__(self, row: Row, device: torch.device) -> None:
        self._row = row
        self._device = device

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
        return torch.from_numpy(self._row.mask()).to(self._device)

    def windowed_mask(self, window: int) -> torch.Tensor:
        """[S, S] as `mask`, for attention that slides over `window` tokens."""
        positions = torch.from_numpy(self._row.positions).to(self._device)
        return self.mask & (positions[:, None] - positions[None, :] < window)

    @cached_property
    def blocks(self) -> Any:
        """The same as FlexAttention's block mask."""
        from torch.nn.attention.flex_attention import create_block_mask

        ends = torch.from_numpy(self._row.subtree_ends).to(self._device)

        def sees(batch: Any, head: Any, query: Any, key: Any) -> Any:
            return (key <= query) & (query < ends[key])

        size = len(self._row.tokens)
        return create_block_mask(sees, None, None, size, size, device=self._device)
