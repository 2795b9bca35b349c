"""Fixtures of the library's tests: what is found in this process's environment."""

from support.sdk_here import clean, kubectl, served

__all__ = ["clean", "kubectl", "served"]
