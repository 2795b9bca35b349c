"""Unfinished uploads: one that has ended touches nothing of the next of the same content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from podium.core.errors import NotFoundError, UnavailableError
from podium_registry.adapters.staging import Staging
from podium_registry.domain.digests import of_bytes

DATA = b"the same content"


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path)


def test_an_ended_upload_takes_nothing_more(staging: Staging) -> None:
    ended = staging.start(of_bytes(DATA), len(DATA))
    ended.append(DATA[:4], 0)
    staging.finish(ended)
    following = staging.start(of_bytes(DATA), len(DATA))
    assert following is not ended
    for use in (lambda: ended.append(DATA, 0), ended.persist, ended.verify):
        with pytest.raises(NotFoundError) as caught:
            use()
        assert caught.value.reason == "UPLOAD_NOT_FOUND"
    following.append(DATA, 0)
    assert following.persist() == len(DATA)
    following.verify()


def test_an_upload_that_ends_twice_leaves_the_next_alone(staging: Staging, tmp_path: Path) -> None:
    ended = staging.start(of_bytes(DATA), len(DATA))
    staging.finish(ended)
    following = staging.start(of_bytes(DATA), len(DATA))
    following.append(DATA, 0)
    staging.finish(ended)
    assert staging.get(following.upload_id) is following
    assert following.persist() == len(DATA)
    assert Staging(tmp_path).get(following.upload_id).persist() == len(DATA)


def test_an_upload_whose_files_were_tidied_away_begins_again(
    staging: Staging, tmp_path: Path
) -> None:
    upload = staging.start(of_bytes(DATA), len(DATA))
    upload.append(DATA[:4], 0)
    assert upload.persist() == 4
    for file in tmp_path.iterdir():
        file.unlink()
    assert staging.start(of_bytes(DATA), len(DATA)).persist() == 0
    upload.append(DATA, 0)
    upload.verify()


def test_a_folder_that_was_tidied_away_is_made_again(tmp_path: Path) -> None:
    staging = Staging(tmp_path / "uploads")
    shutil.rmtree(tmp_path / "uploads")
    upload = staging.start(of_bytes(DATA), len(DATA))
    upload.append(DATA, 0)
    upload.verify()


def test_a_disk_that_fails_is_told_without_its_paths(tmp_path: Path) -> None:
    staging = Staging(tmp_path / "uploads")
    upload = staging.start(of_bytes(DATA), len(DATA))
    shutil.rmtree(tmp_path / "uploads")
    (tmp_path / "uploads").touch()
    for use in (
        upload.persist,
        lambda: upload.append(DATA, 0),
        upload.verify,
        lambda: staging.start(of_bytes(b"other"), 5),
        lambda: Staging(tmp_path / "uploads"),
    ):
        with pytest.raises(UnavailableError, match="the registry's disk failed: ") as caught:
            use()
        assert caught.value.reason == "STORE_UNAVAILABLE"
        assert str(tmp_path) not in str(caught.value)
