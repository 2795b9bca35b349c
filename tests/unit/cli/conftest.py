"""What the tests of commands share."""

from support.cli_fixtures import cli, fake, user

__all__ = ["cli", "fake", "user"]
