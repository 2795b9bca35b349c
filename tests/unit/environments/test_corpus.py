from __future__ import annotations

import re

from podium.environments import Scenario
from podium.environments.email_search import EmailSearch, corpus
from podium.environments.email_search.mailbox import shared_mailbox


def scenarios(split: str) -> list[Scenario]:
    return list(EmailSearch().scenarios(split))


def target(scenario: Scenario) -> tuple[str, int]:
    return scenario.data["inbox"], scenario.data["answer"]


def test_no_held_out_email_or_question_is_trained_on() -> None:
    train, heldout = scenarios("train"), scenarios("heldout")
    assert not {target(s) for s in train} & {target(s) for s in heldout}
    assert not {s.data["inbox"] for s in train} & {s.data["inbox"] for s in heldout}
    assert not {s.data["question"] for s in train} & {s.data["question"] for s in heldout}


def test_scenario_ids_are_unique_and_each_email_is_asked_for_once() -> None:
    everything = scenarios("train") + scenarios("heldout")
    assert len({s.id for s in everything}) == len(everything)
    assert len({target(s) for s in everything}) == len(everything)


def test_there_is_enough_to_train_on_and_to_measure_with() -> None:
    assert len(scenarios("train")) == corpus.INBOXES["train"] * corpus.INBOX_SIZE
    assert 100 <= len(scenarios("heldout")) <= corpus.INBOXES["heldout"] * corpus.INBOX_SIZE
    assert len(corpus.emails()) == sum(corpus.INBOXES.values()) * corpus.INBOX_SIZE


def test_every_question_is_answered_by_one_search_with_its_own_words() -> None:
    senders = {(e.inbox, e.number): e.sender for e in corpus.emails()}
    for scenario in scenarios("train") + scenarios("heldout"):
        inbox, number = target(scenario)
        sender = senders[inbox, number]
        assert sender in scenario.data["question"]
        words = re.findall(r"[a-z]+", scenario.data["question"].replace(sender, "").lower())
        found = [
            [e.number for e in shared_mailbox().search(inbox, f"{sender} {word}", 4)]
            for word in words
        ]
        assert [number] in found, scenario


def test_a_sender_alone_or_a_topic_alone_leaves_several_emails() -> None:
    """Else the search would need no thought."""
    for inbox in {e.inbox for e in corpus.emails()}:
        content = [e for e in corpus.emails() if e.inbox == inbox]
        assert len({e.sender for e in content}) <= len(content) / 2
        assert len({e.subject.split()[0] for e in content}) <= len(content) / 2
