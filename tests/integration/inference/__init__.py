"""A package, so that the fixtures of its conftest.py, which hold engines, end with it."""
