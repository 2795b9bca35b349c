"""Fixtures of the registry's tests."""

from support.postgres import postgres
from support.registry import database_url, registry, replica

__all__ = ["database_url", "postgres", "registry", "replica"]
