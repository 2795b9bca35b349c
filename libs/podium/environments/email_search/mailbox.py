"""The emails in SQLite's full-text index."""

from __future__ import annotations

import re
import sqlite3
import threading
from functools import lru_cache

from podium.environments.email_search.corpus import Email, emails

_WORD = re.compile(r"[a-z0-9]+")


class Mailbox:
    """A read-only index over inboxes; safe to share between threads and tasks."""

    def __init__(self, content: tuple[Email, ...]) -> None:
        """Builds the index in memory."""
        self._emails = content
        self._by_number = {(e.inbox, e.number): e for e in content}
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute(
            "create virtual table email using fts5(inbox unindexed, sender, subject, body)"
        )
        self._database.executemany(
            "insert into email (rowid, inbox, sender, subject, body) values (?, ?, ?, ?, ?)",
            [(row, e.inbox, e.sender, e.subject, e.body) for row, e in enumerate(content)],
        )

    def get(self, inbox: str, number: int) -> Email | None:
        """The email of that number, if the inbox has it."""
        return self._by_number.get((inbox, number))

    def search(self, inbox: str, words: str, limit: int) -> list[Email]:
        """Emails of an inbox that hold every one of the words, newest first."""
        terms = _WORD.findall(words.lower())
        if not terms:
            return []
        match = " AND ".join(f'"{term}"' for term in terms)
        with self._lock:
            rows = self._database.execute(
                "select rowid from email where email match ? and inbox = ?", (match, inbox)
            ).fetchall()
        found = [self._emails[row] for (row,) in rows]
        return sorted(found, key=lambda email: (email.date, email.number), reverse=True)[:limit]


@lru_cache(maxsize=1)
def shared_mailbox() -> Mailbox:
    """The index over the generated corpus, built once a process."""
    return Mailbox(emails())
