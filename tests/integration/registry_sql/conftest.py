"""Fixtures of the registry's tests."""

from support.registry import database_url, registry, replica

__all__ = ["database_url", "registry", "replica"]
