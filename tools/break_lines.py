"""Breaks lines of the product one at a time, and shows that the tests notice each.

usage: python tools/break_lines.py [--list] [--only WORD]... [--workers N]

A suite that passes says nothing about what it would let through. tools/break_lines.yaml holds
small, plausible faults: a dropped condition, a wrong sign, a missing fence. Each is put into a copy
of the tree, alone, where the tests that should notice it run, and if none of them does, every
fast test of its area. In the end the tests that noticed one run without any: a test that fails
anyway has noticed nothing. Exit status: 0 when every break was noticed, 1 when one was not, 2 when
a break no longer fits the tree.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
NOT_COPIED = shutil.ignore_patterns(
    ".git",
    ".venv*",
    ".*_cache",
    ".hypothesis",
    "__pycache__",
    "node_modules",
    "*.egg-info",
    "build",
)
PASSED, FAILED = 0, 1
# A test has 300 seconds of its own; this is for what hangs outside of one.
SUITE_SECONDS = 1800
NO_PLUGINS = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
UNPROVEN = "fails without the break too: "

_moments = count(1_000_000_000)


class UnfitError(Exception):
    """The data does not fit the tree, or the tests could not run."""


@dataclass(frozen=True)
class Break:
    """One fault, and who should notice it."""

    area: str
    name: str
    module: str
    """Dotted, so that a folder may move."""
    old: str
    """Whole lines; they stand once in the module, at whatever depth."""
    new: str
    why: str
    """What goes wrong where this is wrong."""
    tests: tuple[str, ...]
    """Of files anywhere under tests/, `NAME.py` or `NAME.py::test`; these are tried first."""
    suite: tuple[str, ...]
    """Folders of the area's fast tests."""


@dataclass(frozen=True)
class Outcome:
    """What came of a break."""

    broken: Break
    seconds: float
    noticed_by: str = ""
    """The first test that failed; empty when none did."""


def read(path: Path) -> list[Break]:
    """The breaks of a file, in its order."""
    found = [
        Break(
            area=area,
            suite=tuple(body["suite"]),
            **{**item, "tests": tuple(item["tests"])},
        )
        for area, body in yaml.safe_load(path.read_text()).items()
        for item in body["breaks"]
    ]
    names = [each.name for each in found]
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        raise UnfitError(f"two breaks have one name: {', '.join(doubles)}")
    return found


def source_roots(tree: Path) -> list[Path]:
    """The folders that hold the packages, as the editable install has them."""
    build = tomllib.loads((tree / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    return [tree / folder for folder in build["dev-mode-dirs"]]


def file_of(tree: Path, module: str) -> Path:
    """Where a module is.

    Raises:
        UnfitError: nowhere.
    """
    for root in source_roots(tree):
        path = root.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    raise UnfitError(f"there is no module {module}")


def _outdented(lines: Sequence[str]) -> list[str] | None:
    """Lines without the first one's indentation; None when one has less."""
    indent = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    if any(line.strip() and not line.startswith(indent) for line in lines):
        return None
    return [line[len(indent) :].rstrip() for line in lines]


def spoiled(text: str, broken: Break) -> tuple[str, int]:
    """A module's text with the break in it, and the number of the first line of it.

    Raises:
        UnfitError: the old lines do not stand there exactly once, or the new ones are no Python.
    """
    lines, old = text.splitlines(), broken.old.rstrip().splitlines()
    places = [
        start
        for start in range(len(lines) - len(old) + 1)
        if _outdented(lines[start : start + len(old)]) == old
    ]
    if len(places) != 1:
        raise UnfitError(
            f"{broken.name}: its old lines stand {len(places)} times in {broken.module}, not once;"
            " the code has changed, and the break must follow it"
        )
    start = places[0]
    first = lines[start]
    indent = first[: len(first) - len(first.lstrip())]
    new = [indent + line if line else line for line in broken.new.rstrip().splitlines()]
    result = "\n".join([*lines[:start], *new, *lines[start + len(old) :], ""])
    try:
        compile(result, broken.module, "exec")
    except SyntaxError as error:
        raise UnfitError(f"{broken.name}: its new lines are no Python: {error}") from None
    return result, start + 1


def first_tests(tree: Path, broken: Break) -> list[str]:
    """The tests that are tried first, as pytest is told them.

    Raises:
        UnfitError: there is no such file, or no such test in it.
    """
    found: list[str] = []
    for told in broken.tests:
        pattern, _, test = told.partition("::")
        files = sorted((tree / "tests").rglob(pattern))
        if test:
            files = [file for file in files if f"def {test}(" in file.read_text()]
        if not files:
            raise UnfitError(f"{broken.name}: there is no {told} under tests/")
        found += [f"{file.relative_to(tree)}{'::' if test else ''}{test}" for file in files]
    return list(dict.fromkeys(found))


def check(tree: Path, breaks: Sequence[Break]) -> list[str]:
    """Where each break stands; all that does not fit is told at once.

    Raises:
        UnfitError: a break does not fit the tree.
    """
    places, problems = [], []
    for each in breaks:
        try:
            file = file_of(tree, each.module)
            _, line = spoiled(file.read_text(), each)
            first_tests(tree, each)
            for folder in each.suite:
                if not (tree / folder).is_dir():
                    raise UnfitError(f"{each.area}: there is no folder {folder}")
            places.append(f"{file.relative_to(tree)}:{line}")
        except UnfitError as error:
            problems.append(str(error))
    if problems:
        raise UnfitError("\n".join(problems))
    return places


def _environment(tree: Path) -> dict[str, str]:
    """Imports come from the copy: PYTHONPATH stands before the path file of the install."""
    # Of a pytest that runs this, only what it may do without is passed on.
    foreign = {name for name in os.environ if name.startswith("PYTEST_")} - {NO_PLUGINS}
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(map(str, source_roots(tree))),
    }


def check_isolation(tree: Path, modules: Sequence[str]) -> None:
    """Makes sure that a module of the copy is what the tests will import.

    Raises:
        UnfitError: another is.
    """
    code = "import sys, importlib.util as u\nfor m in sys.argv[1:]: print(u.find_spec(m).origin)"
    ran = subprocess.run(
        [sys.executable, "-c", code, *modules],
        cwd=tree,
        env=_environment(tree),
        capture_output=True,
        text=True,
    )
    outside = [line for line in ran.stdout.splitlines() if not Path(line).is_relative_to(tree)]
    if ran.returncode or outside:
        raise UnfitError(f"tests would not import the copy: {outside or ran.stderr}")


def run_tests(tree: Path, *tests: str) -> tuple[int, list[str]]:
    """pytest's exit status, and the tests that failed.

    Raises:
        UnfitError: pytest could not run them.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--no-header", "--color=no"]
    try:
        ran = subprocess.run(
            [*command, "-p", "no:cacheprovider", *tests],
            cwd=tree,
            env=_environment(tree),
            capture_output=True,
            text=True,
            timeout=SUITE_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise UnfitError(f"no end within {SUITE_SECONDS} seconds: {' '.join(tests)}") from None
    failed = [
        line.split(" ", 1)[1].split(" - ")[0]
        for line in ran.stdout.splitlines()
        if line.startswith(("FAILED tests", "ERROR tests"))
    ]
    if ran.returncode not in (PASSED, FAILED) or (ran.returncode == FAILED and not failed):
        words = (ran.stdout + ran.stderr)[-2000:]
        raise UnfitError(f"pytest ended with {ran.returncode} at {' '.join(tests)}:\n{words}")
    return ran.returncode, failed


def write(file: Path, text: str) -> None:
    """Writes a module, at a time that no bytecode of it has."""
    file.write_text(text)
    moment = next(_moments)
    os.utime(file, (moment, moment))


def try_break(tree: Path, broken: Break) -> Outcome:
    """Runs the tests against a tree with the break in it, and mends the tree."""
    began = time.monotonic()
    file = file_of(tree, broken.module)
    whole = file.read_text()
    write(file, spoiled(whole, broken)[0])
    try:
        for tests in (first_tests(tree, broken), broken.suite):
            _, failed = run_tests(tree, "-x", *tests)
            if failed:
                return Outcome(broken, time.monotonic() - began, failed[0])
    finally:
        write(file, whole)
    return Outcome(broken, time.monotonic() - began)


def without_breaks(tree: Path, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Takes the word of no test that fails without any break."""
    functions = sorted({each.noticed_by.split("[")[0] for each in outcomes if each.noticed_by})
    failed = {name.split("[")[0] for name in run_tests(tree, *functions)[1]} if functions else set()
    return [
        replace(each, noticed_by=UNPROVEN + each.noticed_by)
        if each.noticed_by.split("[")[0] in failed
        else each
        for each in outcomes
    ]


def is_noticed(outcome: Outcome) -> bool:
    """Whether a test noticed the break, and because of the break."""
    return bool(outcome.noticed_by) and not outcome.noticed_by.startswith(UNPROVEN)


def table(outcomes: Sequence[Outcome]) -> str:
    """One line a break."""
    rows = [("area", "break", "noticed by", "seconds")]
    for each in outcomes:
        by = each.noticed_by.removeprefix("tests/") or "SURVIVED"
        rows.append((each.broken.area, each.broken.name, by, f"{each.seconds:.0f}"))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    )


def chosen(breaks: Sequence[Break], words: Sequence[str]) -> list[Break]:
    """Those of an area, or with a word in their names; all without words.

    Raises:
        UnfitError: none is left.
    """
    found = [b for b in breaks if not words or any(w == b.area or w in b.name for w in words)]
    if not found:
        raise UnfitError(f"no break has {' or '.join(words)} as its area or in its name")
    return found


def run(tree: Path, breaks: Sequence[Break], workers: int) -> list[Outcome]:
    """Tries every break, so many at once, and tells how it goes."""
    with tempfile.TemporaryDirectory(prefix="break-") as folder:
        # Nobody's edit of the tree gets between one break and the next.
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            copy = Path(folder, str(number))
            shutil.copytree(tree, copy, symlinks=True, ignore=NOT_COPIED)
            free.put(copy)
        check_isolation(copy, sorted({each.module for each in breaks}))

        def tried(broken: Break) -> Outcome:
            mine = free.get()
            try:
                return try_break(mine, broken)
            finally:
                free.put(mine)

        outcomes = []
        with ThreadPoolExecutor(workers) as pool:
            for outcome in pool.map(tried, breaks):
                outcomes.append(outcome)
                said = outcome.noticed_by or "SURVIVED"
                print(f"[{len(outcomes)}/{len(breaks)}] {outcome.broken.name}: {said}", flush=True)
        return without_breaks(copy, outcomes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--list", action="store_true", help="say where each break stands, and end")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="area or name")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (%(default)s)")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to break a copy of")
    parser.add_argument("--breaks", type=Path, help="the data (tools/break_lines.yaml of the tree)")
    given: Any = parser.parse_args(arguments)
    tree = given.tree.resolve()
    try:
        breaks = chosen(read(given.breaks or tree / "tools" / "break_lines.yaml"), given.only)
        places = check(tree, breaks)
        if given.list:
            for each, place in zip(breaks, places, strict=True):
                print(f"{each.area}: {each.name}\n    {place}\n    {each.why}")
            return 0
        began = time.monotonic()
        outcomes = run(tree, breaks, given.workers)
    except UnfitError as error:
        print(error, file=sys.stderr)
        return 2
    noticed = sum(map(is_noticed, outcomes))
    print(f"\n{table(outcomes)}\n")
    print(f"{noticed} of {len(outcomes)} noticed in {time.monotonic() - began:.0f} seconds")
    return 0 if noticed == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
