"""Email search: find the one email of an inbox that answers a question."""

from podium.environments.email_search.environment import EmailSearch

__all__ = ["EmailSearch"]
