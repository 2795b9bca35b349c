"""A package as verifiers 0.1 had them."""


def load_environment() -> None:
    """What 0.4 does not call."""
