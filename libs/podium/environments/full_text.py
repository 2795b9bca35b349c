"""Texts in SQLite's full-text index, for environments with something to search in."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable

_WORD = re.compile(r"[a-z0-9]+")
_MOST_WORDS = 64


class FullText:
    """A read-only index over collections of texts; safe to share between threads and tasks.

    Of a search only the first 64 different words count, as a longer one would
    hold up the event loop.
    """

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        """Builds the index in memory; `texts` are pairs of a collection's name and a text."""
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("create virtual table entry using fts5(collection unindexed, text)")
        self._database.executemany(
            "insert into entry (rowid, collection, text) values (?, ?, ?)",
            [(row, *entry) for row, entry in enumerate(texts)],
        )

    def with_all(self, collection: str, words: str) -> list[int]:
        """Places of the collection's texts that hold every one of the words, in order."""
        return self._find(collection, words, "AND", "rowid")

    def best(self, collection: str, words: str, limit: int) -> list[int]:
        """Places of its texts that hold any of the words, best first by BM25."""
        return self._find(collection, words, "OR", "rank, rowid")[:limit]

    def _find(self, collection: str, words: str, operator: str, order: str) -> list[int]:
        terms = list(dict.fromkeys(_WORD.findall(words.lower())))[:_MOST_WORDS]
        if not terms:
            return []
        match = f" {operator} ".join(f'"{term}"' for term in terms)
        with self._lock:
            rows = self._database.execute(
                f"select rowid from entry where entry match ? and collection = ? order by {order}",
                (match, collection),
            ).fetchall()
        return [row for (row,) in rows]
