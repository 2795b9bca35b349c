"""A generated corpus: short documents about towns, people, novels and companies of no real world.

Deterministic. Every name is made of syllables and has a word that no other
entity of either split has, so no answer can be known without searching.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

Kind = Literal["town", "person", "novel", "company"]

COUNTS: dict[str, dict[Kind, int]] = {
    "train": {"town": 16, "person": 48, "novel": 32, "company": 24},
    "heldout": {"town": 8, "person": 24, "novel": 16, "company": 12},
}
_SEED = 20261

_CONSONANTS = "b d f g k l m n p r s t v z".split()  # noqa: SIM905 - as in a sentence
_VOWELS = "aeiou"
_PROFESSIONS = ["baker", "doctor", "farmer", "lawyer", "painter", "pilot", "singer", "teacher"]
_PRODUCTS = ["bicycles", "boats", "cameras", "clocks", "furniture", "pianos", "shoes", "toys"]
_SUBJECTS = ["a lost dog", "a long winter", "two brothers", "a secret garden", "the sea", "a trial"]
_TITLES = ["The Road to", "A Summer in", "The Queen of", "Letters from", "The Bells of"]


@dataclass(frozen=True)
class Document:
    """What the corpus says about an entity; the text begins with its name."""

    name: str
    kind: Kind
    text: str


@dataclass(frozen=True)
class Hop:
    """A fact that a document of a kind states."""

    kind: Kind
    pattern: str
    """Finds it in the text, as the first group."""


@dataclass(frozen=True)
class QuestionForm:
    """Questions of one form; `hops` lead from the entity in `{name}` to the answer."""

    text: str
    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Question:
    """A question; `names` are the entities whose documents it takes, in order."""

    text: str
    answer: str
    names: tuple[str, ...]


_PERSON_NAME = r"([A-Z]\w+ [A-Z]\w+)"
RIVER = Hop("town", r"on the river (\w+)")
FOUNDED = Hop("town", r"founded in (\d+)")
PROFESSION = Hop("person", r"is a (\w+)")
BIRTHPLACE = Hop("person", r"born in (\w+)")
AUTHOR = Hop("novel", rf"novel by {_PERSON_NAME}")
PUBLISHED = Hop("novel", r"published in (\d+)")
FOUNDER = Hop("company", rf"founded by {_PERSON_NAME}")
PRODUCT = Hop("company", r"company that makes (\w+)")
SEAT = Hop("company", r"based in (\w+)")

FORMS = (
    QuestionForm("On which river is the town of {name}?", (RIVER,)),
    QuestionForm("In which year was the town of {name} founded?", (FOUNDED,)),
    QuestionForm("In which town was {name} born?", (BIRTHPLACE,)),
    QuestionForm("Who wrote the novel {name}?", (AUTHOR,)),
    QuestionForm("In which year was the novel {name} published?", (PUBLISHED,)),
    QuestionForm("What does the company {name} make?", (PRODUCT,)),
    QuestionForm("Who founded the company {name}?", (FOUNDER,)),
    QuestionForm("On which river is the town where {name} was born?", (BIRTHPLACE, RIVER)),
    QuestionForm("In which town was the author of the novel {name} born?", (AUTHOR, BIRTHPLACE)),
    QuestionForm("What is the profession of the author of the novel {name}?", (AUTHOR, PROFESSION)),
    QuestionForm(
        "In which town was the founder of the company {name} born?", (FOUNDER, BIRTHPLACE)
    ),
    QuestionForm(
        "In which year was the town founded where the company {name} is based?", (SEAT, FOUNDED)
    ),
)


def extract(hop: Hop, text: str) -> str | None:
    """The fact in a document's text."""
    match = re.search(hop.pattern, text)
    return match[1] if match else None


@lru_cache(maxsize=1)
def documents() -> dict[str, tuple[Document, ...]]:
    """The documents of each split, shuffled once."""
    rng = random.Random(f"{_SEED}-documents")
    name = _names(rng)
    return {split: _write(rng, name, counts) for split, counts in COUNTS.items()}


@lru_cache(maxsize=2)
def questions(split: str) -> tuple[Question, ...]:
    """Every form of question about every document of a split, shuffled once."""
    by_name = {document.name: document for document in documents()[split]}
    found = [
        _ask(form, document, by_name)
        for form in FORMS
        for document in by_name.values()
        if document.kind == form.hops[0].kind
    ]
    random.Random(f"{_SEED}-questions-{split}").shuffle(found)
    return tuple(found)


def _ask(form: QuestionForm, document: Document, by_name: dict[str, Document]) -> Question:
    names, answer = [], document.name
    for hop in form.hops:
        names.append(answer)
        fact = extract(hop, by_name[answer].text)
        assert fact is not None
        answer = fact
    return Question(form.text.format(name=document.name), answer, tuple(names))


def _names(rng: random.Random) -> Callable[[], str]:
    """Draws words that were not drawn before."""
    taken: set[str] = set()

    def draw() -> str:
        while True:
            syllables = [rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(3)]
            word = "".join(syllables).capitalize() + rng.choice(["", "n", "r", "s"])
            if word not in taken:
                taken.add(word)
                return word

    return draw


def _write(
    rng: random.Random, name: Callable[[], str], counts: dict[Kind, int]
) -> tuple[Document, ...]:
    towns = [name() for _ in range(counts["town"])]
    people = [f"{name()} {name()}" for _ in range(counts["person"])]
    found = [_town(rng, town, name()) for town in towns]
    found += [_person(rng, person, rng.choice(towns)) for person in people]
    found += [_novel(rng, name(), rng.choice(people)) for _ in range(counts["novel"])]
    found += [_company(rng, name(), people, towns) for _ in range(counts["company"])]
    rng.shuffle(found)
    return tuple(found)


def _town(rng: random.Random, name: str, river: str) -> Document:
    founded, people = rng.randint(1100, 1799), rng.randint(2, 90)
    about = f"{name} is a town on the river {river}."
    return Document(
        name, "town", f"{about} It was founded in {founded} and has {people}000 inhabitants."
    )


def _person(rng: random.Random, name: str, town: str) -> Document:
    born = rng.randint(1850, 1985)
    text = f"{name} is a {rng.choice(_PROFESSIONS)} who was born in {town} in {born}."
    return Document(name, "person", text)


def _novel(rng: random.Random, word: str, author: str) -> Document:
    name = f"{rng.choice(_TITLES)} {word}"
    year, subject = rng.randint(1880, 2020), rng.choice(_SUBJECTS)
    text = f"{name} is a novel by {author} about {subject}. It was published in {year}."
    return Document(name, "novel", text)


def _company(
    rng: random.Random, name: str, people: Sequence[str], towns: Sequence[str]
) -> Document:
    product, founder, seat = rng.choice(_PRODUCTS), rng.choice(people), rng.choice(towns)
    about = f"{name} is a company that makes {product}."
    return Document(name, "company", f"{about} It was founded by {founder} and is based in {seat}.")
