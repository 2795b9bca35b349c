"""What `make docs` adds to the pages of the repository."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from docs_site import contents, contract, diagrams, keyboard, python_api, source_files
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[3]


def test_every_page_of_the_documents_is_in_the_index() -> None:
    index = ROOT / f"{contents.INDEX}.md"
    named = {
        page for pages in contents.sections(index.read_text(), "docs").values() for page in pages
    }
    tracked = {file.removesuffix(".md") for file in source_files.tracked(ROOT)}
    pages = {
        page.relative_to(ROOT).as_posix().removesuffix(".md")
        for page in (ROOT / "docs").rglob("*.md")
        if page.name == "README.md"
        or page.parent.as_posix().removeprefix(f"{ROOT}/") not in contents.FOLDERS
    } - {contents.INDEX}
    assert (pages & tracked) - named == set()


def test_a_page_is_at_the_first_section_that_names_it() -> None:
    one = "# Top\n\n[out](x.md)\n\n## A\n\n[a](a.md), [b](../b/README.md#part)"
    text = f"{one}\n\n## B\n\n[a](a.md) [c](how/c.md)"
    assert contents.sections(text, "docs") == {"A": ["docs/a"], "B": ["docs/how/c"]}


def test_all_of_the_contract_has_its_words() -> None:
    texts = contract.comments(ROOT / "proto")
    assert len(texts) > 10
    for file, named in texts.items():
        module = importlib.import_module(file.removesuffix(".proto").replace("/", ".") + "_pb2")
        page = contract.page(module.DESCRIPTOR, named)
        assert "No comment." not in page, file


def test_a_field_tells_type_bounds_and_default() -> None:
    texts = contract.comments(ROOT / "proto")["podium/types/v1/spec.proto"]
    spec = importlib.import_module("podium.types.v1.spec_pb2")
    page = contract.page(spec.DESCRIPTOR, texts)
    assert "`group_size` = 1: whole number, default `8`, from 2 to 1024\n: Attempts of each" in page
    assert "`loss` = 9: [LossSpec](#podium.types.v1.LossSpec)\n" in page
    assert (
        "`judges` = 5: list of [JudgeModel](#podium.types.v1.JudgeModel), at most 16 items" in page
    )


def test_each_diagram_has_the_picture_that_the_site_shows_and_each_picture_its_diagram() -> None:
    named = {diagrams.picture(each) for each in diagrams.of_documents()}
    assert named == {file.name for file in diagrams.IMAGES.glob("diagram-*.svg")}, (
        "see tools/docs_site/diagrams.py"
    )
    page = "a\n\n```mermaid\nflowchart LR\n  a -->|Asks| b\n```\n\n```python\nx\n```\n"
    (diagram,) = diagrams.diagrams(page)
    assert diagrams.with_pictures(page) == (
        f"a\n\n![Diagram: Asks](/docs/images/{diagrams.picture(diagram)})\n\n```python\nx\n```\n"
    )


@pytest.mark.parametrize(
    ("comment", "markdown"),
    [
        ("A `*` of p*logits_x", "A `*` of p\\*logits\\_x"),
        ("one ` alone <b>", "one ` alone \\<b\\>"),
    ],
)
def test_a_comment_is_words_and_code_alone(comment: str, markdown: str) -> None:
    assert contract.words(comment) == markdown


@pytest.mark.parametrize(
    ("line", "inert"),
    [
        ("The `host:port` of name_ and *args", "The ``host:port`` of name\\_ and \\*args"),
        ("``a_`` of two `step`s", "``a_`` of two ``step``\\ s"),
        ("one ` alone", "one \\` alone"),
    ],
)
def test_a_docstring_is_words_and_code_alone(line: str, inert: str) -> None:
    assert python_api.plain([line]) == [inert]


def test_links_lead_to_pages_of_the_site() -> None:
    def leads(page: str, target: str) -> str | None:
        return source_files.page_of(ROOT, page, target)

    assert leads("docs/architecture", "../Makefile") == "Makefile"
    assert leads("docs/a", "../services/judge") == "services/judge/README"
    assert leads("docs/a", "../proto/podium") == "proto/podium/index"
    assert leads("docs/a", "glossary.md") is None
    assert leads("docs/a", "images/console-light.png") is None
    assert leads("docs/a", "no/such/file.py") is None


def test_what_scrolls_takes_the_focus_and_captions_have_a_level(tmp_path: Path) -> None:
    """As Furo and Pygments write them, on a site of one page; axe calls each serious without."""
    (tmp_path / "conf.py").write_text(
        "extensions = ['myst_parser', 'docs_site.keyboard']\nhtml_theme = 'furo'\n"
    )
    (tmp_path / "index.md").write_text(
        "# A\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n    make demo\n\n"
        "```{toctree}\n:caption: Parts\n\nb\n```\n"
    )
    (tmp_path / "b.md").write_text("# B\n")
    application = Sphinx(
        str(tmp_path), str(tmp_path), str(tmp_path / "out"), str(tmp_path / "trees"), "html",
        status=None, warningiserror=True,
    )  # fmt: skip
    application.build()
    page = (tmp_path / "out/index.html").read_text()
    wrappers, blocks, captions = (
        re.findall(beginning + "[^>]*>", page)
        for beginning in ('<div[^>]*class="table-wrapper', "<pre", '<p class="caption"')
    )
    # The navigation has the caption, and so has the page.
    assert (len(wrappers), len(blocks), len(captions)) == (1, 1, 2)
    assert all('tabindex="0"' in each for each in (*wrappers, *blocks))
    assert all('aria-level="2"' in each for each in captions)
    assert keyboard.reachable("<pre><p>") == '<pre tabindex="0"><p>'
