"""Agents of packages of PyPI, written as their documentation writes them; none knows of Podium."""
