"""Batches, advantages and packing; no torch."""
