"""Environments of other frameworks, as ours. Each needs a package of its own when it is used."""
