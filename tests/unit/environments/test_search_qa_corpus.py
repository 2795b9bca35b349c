from __future__ import annotations

import re

from podium.environments.search_qa import SearchQa
from podium.environments.search_qa.corpus import COUNTS, documents, questions
from podium.environments.search_qa.environment import EXAMPLE
from podium.environments.search_qa.library import search

_NAME = re.compile(r"\b(?:[BDFGKLMNPRSTVZ][aeiou])(?:[bdfgklmnprstvz][aeiou]){2}[nrs]?\b")


def test_no_held_out_entity_is_trained_on() -> None:
    train, heldout = (
        {name for document in documents()[split] for name in _NAME.findall(document.text)}
        for split in ("train", "heldout")
    )
    assert len(train) > 150
    assert len(heldout) > 80
    assert not train & heldout
    assert not {q.text for q in questions("train")} & {q.text for q in questions("heldout")}


def test_there_is_enough_to_train_on_and_to_measure_with() -> None:
    for split, at_least in (("train", 300), ("heldout", 150)):
        found = questions(split)
        assert len(found) >= at_least
        assert len({question.text for question in found}) == len(found)
        hops = [len(question.names) for question in found]
        assert set(hops) == {1, 2}
        assert 0.3 < hops.count(2) / len(hops) < 0.6
        assert len(documents()[split]) == sum(COUNTS[split].values())


def test_the_last_document_says_the_answer_and_each_one_names_the_next() -> None:
    for split in COUNTS:
        texts = {document.name: document.text for document in documents()[split]}
        for question in questions(split):
            assert question.names[0] in question.text
            for name, following in zip(question.names, question.names[1:], strict=False):
                assert following in texts[name]
                assert following not in question.text
            assert re.search(rf"\b{question.answer}\b", texts[question.names[-1]])
            assert question.answer not in question.text


def test_a_questions_words_find_its_first_document_and_seldom_the_second() -> None:
    """Else a question of two hops would take one search."""
    for split in COUNTS:
        lucky = 0
        two_hops = [question for question in questions(split) if len(question.names) == 2]
        for question in questions(split):
            shown = [document.name for document in search(split, question.text, 3)]
            assert shown[0] == question.names[0]
            lucky += question.names[-1] in shown[1:]
        assert lucky < 0.1 * len(two_hops)


def test_the_example_is_about_nobody_in_the_corpus() -> None:
    shown = " ".join(message.content for message in EXAMPLE)
    assert not [d for split in COUNTS for d in documents()[split] if d.name in shown]
    assert not _NAME.findall(shown)


def test_scenario_ids_are_unique() -> None:
    ids = [s.id for split in SearchQa.splits for s in SearchQa().scenarios(split)]
    assert len(set(ids)) == len(ids)
