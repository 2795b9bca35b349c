"""How a pool says over HTTP whether its base model stays as it is."""

from __future__ import annotations

WEIGHT_MODE_HEADER = "x-podium-weight-mode"
"""On every answer of a pool's OpenAI API: one of the values below."""

ADAPTER = "adapter"
"""Policies stand beside the base model, which is frozen."""

MERGED = "merged"
"""The policy in training is merged into the weights: no model of the pool stays as it is."""
