"""Alembic migrations of the controller's database."""
