"""What the tasks ask is made by code: the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

EMAIL_SEARCH = """
import hashlib
from podium.environments.email_search import EmailSearch, corpus
content = repr((corpus.emails(), [EmailSearch().scenarios(s) for s in ("heldout", "train")]))
print(hashlib.sha256(content.encode()).hexdigest())
"""
SEARCH_QA = """
import hashlib
from podium.environments.search_qa import SearchQa, corpus
content = repr((corpus.documents(), [SearchQa().scenarios(s) for s in ("heldout", "train")]))
print(hashlib.sha256(content.encode()).hexdigest())
"""


@pytest.mark.parametrize("digest", [EMAIL_SEARCH, SEARCH_QA], ids=["email_search", "search_qa"])
def test_every_process_makes_the_same_corpus(digest: str) -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", digest],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
