from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.environments.email_search.corpus import Email, emails
from podium.environments.email_search.mailbox import Mailbox, shared_mailbox

OLD = Email("a", 1, "Anna Berg", "Roof repair", "On Monday at 9:00.", "2026-01-05")
NEW = Email("a", 2, "Ben Costa", "Roof party", "Bring a chair.", "2026-03-05")
SAME_DAY = Email("a", 3, "Carla Diaz", "Roof garden", "Seeds.", "2026-03-05")
OTHER = Email("b", 1, "Anna Berg", "Roof tiles", "They are red.", "2026-04-01")


@pytest.fixture(scope="module")
def mailbox() -> Mailbox:
    return Mailbox((OLD, NEW, SAME_DAY, OTHER))


def test_every_word_must_stand_somewhere_in_the_email(mailbox: Mailbox) -> None:
    assert mailbox.search("a", "roof ANNA", 9) == [OLD]
    assert mailbox.search("a", "monday", 9) == [OLD]
    assert mailbox.search("a", "roof zebra", 9) == []
    assert mailbox.search("a", "roo", 9) == []


def test_the_newest_come_first_and_of_one_day_the_later_numbered(mailbox: Mailbox) -> None:
    assert mailbox.search("a", "roof", 9) == [SAME_DAY, NEW, OLD]
    assert mailbox.search("a", "roof", 2) == [SAME_DAY, NEW]


def test_an_inbox_shows_only_its_own_emails(mailbox: Mailbox) -> None:
    assert mailbox.search("b", "anna", 9) == [OTHER]
    assert mailbox.search("c", "anna", 9) == []
    assert mailbox.search("' or 1=1 --", "anna", 9) == []


def test_the_inboxs_name_is_not_searched(mailbox: Mailbox) -> None:
    assert mailbox.search("a", "a", 9) == [NEW]


@pytest.mark.parametrize(
    "words",
    [
        '"',
        '"roof',
        "roof*",
        "NEAR(roof repair, 2)",
        "roof NEAR repair",
        "roof OR party",
        "NOT roof",
        "subject:roof",
        "{subject body} : roof",
        "^roof",
        "roof AND",
        "roof) OR (",
        "'; drop table email; --",
        "\x00roof\x00",
        "\ud800",
        "Ωμέγα 屋根",
        "w " * 20_000,
        " ".join(f"w{n}" for n in range(5_000)),
    ],
)
def test_hostile_words_are_only_words(mailbox: Mailbox, words: str) -> None:
    mailbox.search("a", words, 9)
    assert mailbox.search("a", "roof", 9) == [SAME_DAY, NEW, OLD]


def test_operators_are_searched_for_as_words(mailbox: Mailbox) -> None:
    assert mailbox.search("a", "roof OR party", 9) == []
    assert mailbox.search("a", '"roof" repair*', 9) == [OLD]
    assert mailbox.search("a", "subject:roof", 9) == []


@given(st.text(max_size=60))
def test_no_text_at_all_raises(words: str) -> None:
    for email in shared_mailbox().search("train-0", words, 24):
        assert email.inbox == "train-0"


async def test_many_episodes_share_the_index() -> None:
    def mine(email: Email) -> list[Email]:
        return shared_mailbox().search(email.inbox, f"{email.sender} {email.subject}", 24)

    wanted = emails()[:100]
    found = await asyncio.gather(*(asyncio.to_thread(mine, email) for email in wanted))
    assert found == [[email] for email in wanted]
