"""Inference pools, and how projects and jobs share them."""
