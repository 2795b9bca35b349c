"""Each decision says when it was made, whether it stands and what else there was to choose; and
whoever cites one cites one that there is."""

from __future__ import annotations

import datetime
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.gathered import wrong_of
from support.programs import program

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "decisions"
PAGES = {int(path.name[:4]): path for path in sorted(FOLDER.glob("[0-9]*.md"))}
_HEAD = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n"
    r"Date: (?P<date>\d{4}-\d\d-\d\d)\. "
    r"Status: (?:Accepted|Superseded by \[(?P<by>\d+)\]\((?P<page>[\w-]+\.md)\))\.\n\n"
    r"\*\*Deci(?:sion|ded)\.\*\* "
)
_CITED = re.compile(r"decisions?(?:/|[ \n]+(?:# ?)?)(\d+(?:(?:, | and | to )\d+)*)")
_LINKED = re.compile(r"\[(?:decision )?(\d+)\]\([\w./-]*?(\d{4})-[\w-]+\.md\)")


def citations(text: str) -> set[int]:
    """The numbers of the decisions that a text speaks of."""
    return {int(number) for found in _CITED.findall(text) for number in re.findall(r"\d+", found)}


def tracked() -> list[Path]:
    listing = subprocess.run(
        [program("git", "git"), "ls-files", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return ""


def wrong_fields(page: Path) -> Iterator[str]:
    text, number = page.read_text(), int(page.name[:4])
    head = _HEAD.match(text)
    if head is None:
        yield f"does not begin with its number, title, date, status and decision: {text[:200]!r}"
        return
    if int(head["number"]) != number:
        yield f"calls itself {head['number']}"
    try:
        datetime.date.fromisoformat(head["date"])
    except ValueError as error:
        yield f"{head['date']}: {error}"
    if head["by"]:
        later = PAGES.get(int(head["by"]))
        if later is None or later.name != head["page"] or int(head["by"]) <= number:
            yield f"no later decision is {head['by']}, {head['page']}"
    if not re.search(r"^\*\*Alternatives\.\*\* \S", text, re.MULTILINE):
        yield "names no alternatives"


def test_a_decision_has_its_fields() -> None:
    assert len(PAGES) > 50
    wrong = wrong_of([(page.name, page) for page in PAGES.values()], wrong_fields)
    assert not wrong, wrong


def test_a_decision_that_lacks_a_field_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "0001-a.md"
    page.write_text(
        "# 2. A\n\nDate: 2026-02-30. Status: Superseded by [1](0001-a.md).\n\n**Decided.** B"
    )
    told = list(wrong_fields(page))
    assert [each.partition(" ")[0] for each in told] == ["calls", "2026-02-30:", "no", "names"]
    page.write_text("# 1. A\n\nWords.\n")
    (told,) = wrong_fields(page)
    assert "does not begin" in told


def test_the_list_of_decisions_is_whole() -> None:
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    titles = [(path.read_text().partition("\n")[0][2:], path.name) for path in PAGES.values()]
    assert listed == titles


def test_no_two_decisions_have_one_number() -> None:
    assert len(PAGES) == len(list(FOLDER.glob("[0-9]*.md")))


def test_whoever_cites_a_decision_cites_one_that_there_is() -> None:
    cited = {path: citations(text_of(path)) for path in tracked()}
    unknown = {str(path): numbers - PAGES.keys() for path, numbers in cited.items()}
    assert {path: numbers for path, numbers in unknown.items() if numbers} == {}
    # It reads code too, and not only pages.
    assert any(numbers for path, numbers in cited.items() if path.suffix == ".py")


def test_a_link_leads_to_the_decision_that_it_names() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {number} leads to {page}"
        for path in tracked()
        if path.suffix == ".md"
        for number, page in _LINKED.findall(text_of(path))
        if int(number) != int(page)
    ]
    assert wrong == []


def test_the_patterns_see_what_they_are_for() -> None:
    # In two parts, or this file would cite them.
    word = "decis" + "ion"
    assert citations(f"({word} 9), docs/{word}s/0097.") == {9, 97}
    assert citations(f"{word}s 4 to 6 and 97; {word}\n# 98") == {4, 6, 97, 98}
    assert citations(f"{word}s that the spine rests on, 12 of them") == set()
    assert _LINKED.findall(f"[{word} 3](../{word}s/0004-a-b.md) [5](0005-c.md)") == [
        ("3", "0004"),
        ("5", "0005"),
    ]
