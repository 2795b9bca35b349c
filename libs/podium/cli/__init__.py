"""The `podium` command.

Modules here import click and the standard library at the top, and everything
else inside the functions that need it: `podium --help` must answer at once.
"""
