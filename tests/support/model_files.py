"""Bytes of safetensors files, for models that nobody loads."""

from __future__ import annotations

import json

NO_TENSORS = len(b"{}").to_bytes(8, "little") + b"{}"
"""A safetensors file that holds nothing."""


def of_type(dtype: str, name: str = "model.layers.0.mlp.up_proj.weight") -> bytes:
    """A safetensors file with one tensor of a single byte."""
    header = json.dumps({name: {"dtype": dtype, "shape": [1], "data_offsets": [0, 1]}}).encode()
    return len(header).to_bytes(8, "little") + header + b"\0"
