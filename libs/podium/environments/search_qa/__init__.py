"""Question answering: search a corpus, and answer from what it says."""

from podium.environments.search_qa.environment import SearchQa

__all__ = ["SearchQa"]
