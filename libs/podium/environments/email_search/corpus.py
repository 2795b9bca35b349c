"""A generated corpus: inboxes of short emails, and questions about them.

Deterministic. Within an inbox eight people write about twelve topics, so a
sender alone and a topic alone each fit several emails; the two together fit
one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

INBOX_SIZE = 24
SENDERS_PER_INBOX = 8
INBOXES = {"train": 14, "heldout": 7}
_SEED = 20260

_FIRST = (  # noqa: SIM905 - a list of one name a line is harder to read
    "Anna Ben Carla David Elena Frank Grace Hugo Irene Jonas Karen Liam Maria Nina Oscar "
    "Paula Quentin Rosa Simon Tara Victor Wanda Yusuf Zoe"
).split()
_LAST = (  # noqa: SIM905
    "Berg Costa Diaz Evans Fischer Grant Hughes Ivanov Jensen Keller Lopez Meyer Novak "
    "Ortiz Patel Reed Silva Turner Vogel Walsh"
).split()
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
_CITIES = ["Oslo", "Paris", "Lisbon", "Vienna", "Madrid", "Dublin"]


@dataclass(frozen=True)
class Topic:
    """Templates of a topic: subject, body, and questions with `{sender}`."""

    subject: str
    body: str
    questions: tuple[str, ...]


TOPICS = (
    Topic(
        "Budget review",
        "The budget review is on {day} at {hour}. Please bring last month's numbers.",
        (
            "When is the budget review that {sender} wrote about?",
            "{sender} planned a budget review. Which day?",
        ),
    ),
    Topic(
        "Office lease",
        "The lease must be signed by {day}. The landlord in {city} is waiting for us.",
        (
            "By when does {sender} want the lease signed?",
            "What is the deadline for the lease from {sender}?",
        ),
    ),
    Topic(
        "Invoice {number}",
        "Please pay invoice {number} before {day}. The total has not changed.",
        ("Which invoice does {sender} want paid?", "{sender} sent an invoice. What is its number?"),
    ),
    Topic(
        "Flight to {city}",
        "Your flight to {city} leaves {day} at {hour}. Check in online the evening before.",
        (
            "When does the flight that {sender} booked leave?",
            "To which city goes the flight from {sender}?",
        ),
    ),
    Topic(
        "Designer interview",
        "The interview with the designer is {day} at {hour} in the small room.",
        (
            "What time is the interview that {sender} set up?",
            "{sender} arranged an interview. When is it?",
        ),
    ),
    Topic(
        "Team dinner",
        "We are having dinner on {day} at {hour}. Tell me if you cannot come.",
        (
            "When is the dinner that {sender} invited us to?",
            "{sender} wrote about a dinner. Which day?",
        ),
    ),
    Topic(
        "Server outage",
        "The server will be down on {day} from {hour}. Save your work before that.",
        (
            "When will the server be down, according to {sender}?",
            "{sender} announced that the server goes down. When?",
        ),
    ),
    Topic(
        "Contract draft",
        "Here is the contract draft. I need your comments by {day}.",
        (
            "When does {sender} need comments on the contract?",
            "{sender} sent a contract. By when are comments due?",
        ),
    ),
    Topic(
        "Safety training",
        "The safety training starts {day} at {hour}. It takes two hours.",
        (
            "When does the training that {sender} announced start?",
            "{sender} announced a training. Which day is it?",
        ),
    ),
    Topic(
        "Delivery to {city}",
        "The delivery to {city} arrives {day}. Someone has to sign for it.",
        (
            "When does the delivery that {sender} wrote about arrive?",
            "{sender} mentioned a delivery. Where does it go?",
        ),
    ),
    Topic(
        "Password reset",
        "Your password expires on {day}. Choose a new one before {hour}.",
        (
            "When does the password expire, according to {sender}?",
            "{sender} wrote about a password. Until when is it good?",
        ),
    ),
    Topic(
        "Customer survey",
        "The customer survey closes on {day}. We have {number} answers so far.",
        (
            "When does the survey that {sender} sent close?",
            "{sender} wrote about a survey. How many answers are there?",
        ),
    ),
)


@dataclass(frozen=True)
class Email:
    """One email; `number` is its place in its inbox, from 1."""

    inbox: str
    number: int
    sender: str
    subject: str
    body: str
    date: str


@dataclass(frozen=True)
class Question:
    """A question and the one email that answers it."""

    text: str
    email: Email


@lru_cache(maxsize=1)
def emails() -> tuple[Email, ...]:
    """Every email of every inbox."""
    return tuple(
        email
        for split, count in INBOXES.items()
        for index in range(count)
        for email, _ in _inbox(f"{split}-{index}")
    )


@lru_cache(maxsize=2)
def questions(split: str) -> tuple[Question, ...]:
    """One question for each email of a split's inboxes, shuffled once.

    No two splits share an email, and no held-out question has the words of a
    training question.
    """
    rng = random.Random(f"{_SEED}-questions-{split}")
    taken = {q.text for q in questions("train")} if split != "train" else set()
    found = []
    for index in range(INBOXES[split]):
        for email, topic in _inbox(f"{split}-{index}"):
            text = rng.choice(topic.questions).format(sender=email.sender)
            if text not in taken:
                found.append(Question(text, email))
    rng.shuffle(found)
    return tuple(found)


def _inbox(name: str) -> list[tuple[Email, Topic]]:
    rng = random.Random(f"{_SEED}-{name}")
    senders = [
        f"{first} {last}"
        for first, last in zip(
            rng.sample(_FIRST, SENDERS_PER_INBOX), rng.sample(_LAST, SENDERS_PER_INBOX), strict=True
        )
    ]
    pairs = [(sender, topic) for sender in senders for topic in TOPICS]
    rng.shuffle(pairs)
    return [
        (_write(rng, name, number, sender, topic), topic)
        for number, (sender, topic) in enumerate(pairs[:INBOX_SIZE], start=1)
    ]


def _write(rng: random.Random, inbox: str, number: int, sender: str, topic: Topic) -> Email:
    facts = {
        "day": rng.choice(_DAYS),
        "hour": f"{rng.randint(8, 18)}:00",
        "number": str(rng.randint(1000, 9999)),
        "city": rng.choice(_CITIES),
    }
    return Email(
        inbox=inbox,
        number=number,
        sender=sender,
        subject=topic.subject.format(**facts),
        body=topic.body.format(**facts),
        date=f"2026-{rng.randint(1, 6):02d}-{rng.randint(1, 28):02d}",
    )
