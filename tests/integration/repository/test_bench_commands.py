"""Each command of the benchmarks' page is one that the benchmark itself would take.

None is run, which takes minutes to hours and says nothing but times: its own argparse reads the
words, with what the page has in brackets.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

import pytest
from support.document_commands import ROOT, commands

PAGE = (ROOT / "bench/README.md").read_text()
FOUND = [each for each in commands(PAGE) if "bench." in each or "bench/" in each]


class Read(Exception):  # noqa: N818 - it says that all went well
    """The words were read, and nothing was run."""


def typed(line: str) -> Iterator[list[str]]:
    """A line without its brackets, with each of its choices."""
    words = shlex.split(re.sub(r"\b(ROUNDS)\b", "3", re.sub(r"[][]", "", line)))
    for chosen in itertools.product(*(word.split("|") for word in words)):
        yield list(chosen)


def read(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the benchmark's own parser read its options.

    Raises:
        SystemExit: it does not take them.
    """
    real = argparse.ArgumentParser.parse_args

    def then_stop(
        self: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: None = None
    ) -> NoReturn:
        real(self, args, namespace)
        raise Read

    name = words[2] + ".__main__" if words[1] == "-m" else words[1].removesuffix(".py")
    main = importlib.import_module(name.replace("/", ".")).main
    with monkeypatch.context() as patched:
        patched.setattr(sys, "argv", [name, *words[3 if words[1] == "-m" else 2 :]])
        patched.setattr(argparse.ArgumentParser, "parse_args", then_stop)
        with pytest.raises(Read):
            main()


@pytest.mark.parametrize("line", FOUND)
def test_a_benchmark_takes_the_options_that_the_page_prints(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    for words in typed(line):
        read(words, monkeypatch)


def test_every_benchmark_is_on_the_page() -> None:
    there = {path.parent.name for path in (ROOT / "bench").glob("*/__main__.py")}
    assert there == set(re.findall(r"-m bench\.(\w+)", " ".join(FOUND)))


def test_an_option_that_is_gone_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    with pytest.raises(SystemExit):
        read(shlex.split("python -m bench.judge --nonsense 3"), monkeypatch)
    assert "--nonsense" in capsys.readouterr().err
    assert list(typed("python a [--b c|d]")) == [["python", "a", "--b", e] for e in "cd"]
