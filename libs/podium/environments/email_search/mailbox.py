"""The emails in SQLite's full-text index."""

from __future__ import annotations

from functools import lru_cache

from podium.environments.email_search.corpus import Email, emails
from podium.environments.full_text import FullText


class Mailbox:
    """A read-only index over inboxes; safe to share between threads and tasks."""

    def __init__(self, content: tuple[Email, ...]) -> None:
        """Builds the index in memory."""
        self._emails = content
        self._by_number = {(e.inbox, e.number): e for e in content}
        self._index = FullText((e.inbox, f"{e.sender}\n{e.subject}\n{e.body}") for e in content)

    def get(self, inbox: str, number: int) -> Email | None:
        """The email of that number, if the inbox has it."""
        return self._by_number.get((inbox, number))

    def search(self, inbox: str, words: str, limit: int) -> list[Email]:
        """Emails of an inbox that hold every one of the words, newest first."""
        found = [self._emails[place] for place in self._index.with_all(inbox, words)]
        return sorted(found, key=lambda email: (email.date, email.number), reverse=True)[:limit]


@lru_cache(maxsize=1)
def shared_mailbox() -> Mailbox:
    """The index over the generated corpus, built once a process."""
    return Mailbox(emails())
