"""The documents, searchable."""

from __future__ import annotations

from functools import lru_cache

from podium.environments.full_text import FullText
from podium.environments.search_qa.corpus import Document, documents


@lru_cache(maxsize=1)
def _index() -> tuple[list[Document], FullText]:
    found = [(split, document) for split, some in documents().items() for document in some]
    index = FullText((split, document.text) for split, document in found)
    return [document for _, document in found], index


def search(split: str, words: str, limit: int) -> list[Document]:
    """Documents of a split that hold any of the words, best first."""
    every, index = _index()
    return [every[place] for place in index.best(split, words, limit)]
