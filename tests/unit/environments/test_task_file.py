"""A task by its file: found, or told where the file is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from podium.core.errors import InvalidArgumentError
from podium.environments.task_file import load_task

HEAD = "from podium.environments import Environment, Observation, Scenario, from_tuples\n"
ONE = """
class {0}(Environment):
    name = "{0}"
    def scenarios(self, split): return [Scenario("a")]
    async def reset(self, scenario, seed): return Observation()
    async def step(self, action): ...
"""
GAME = """
class Game:
    def reset(self): return {}
    def step(self, action): return {}, 0.0, True, {}
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    for name in [each for each in sys.modules if each.startswith(("task_of", "podium_task"))]:
        monkeypatch.delitem(sys.modules, name)


def write(text: str, name: str = "task_of.py") -> str:
    sys.modules.pop(Path(name).stem, None) if name.startswith("task_of") else None
    Path(name).write_text(HEAD + text)
    return name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (ONE.format("Mine"), "Mine"),
        # A base that cannot be played is none to choose from.
        ("class Base(Environment): ...\n" + ONE.format("Mine"), "Mine"),
        (GAME, "game"),
        (GAME + "Theirs = from_tuples(Game, name='theirs')\n", "theirs"),
    ],
)
def test_the_one_environment_of_a_file_needs_no_name(text: str, name: str) -> None:
    assert load_task(write(text)).name == name


def test_one_of_several_is_named() -> None:
    file = write(ONE.format("A") + ONE.format("B"))
    assert load_task(f"{file}:B").name == "B"
    with pytest.raises(InvalidArgumentError, match=r"several.*task_of.py:A; it has A, B"):
        load_task(file)
    with pytest.raises(InvalidArgumentError, match=r"no class C; it has A, B"):
        load_task(f"{file}:C")


def test_what_lies_beside_it_can_be_imported_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "task_of_words.py").write_text("NAME = 'beside'\n")
    write("from task_of_words import NAME\n" + ONE.format("Mine"))
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    assert load_task("../task_of.py").name == "Mine"


def test_a_file_called_as_a_module_of_pythons_is_not_taken_for_it() -> None:
    assert load_task(write(ONE.format("Mine"), "calendar.py")).name == "Mine"
    import calendar

    assert calendar.isleap(2024)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (\n", r"stops at task_of.py:2: SyntaxError"),
        ("\n1 / 0\n", r"stops at task_of.py:3: ZeroDivisionError"),
        ("import no_such_package\n", r"stops at task_of.py:2: ModuleNotFoundError: .*no_such"),
        ("raise SystemExit(3)\n", r"stops at task_of.py:2: SystemExit: 3"),
        ("", r"has no environment: no class that derives"),
    ],
)
def test_a_file_that_is_wrong_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        load_task(write(text))


def test_a_class_that_lacks_a_method_is_told_which() -> None:
    file = write("class Half(Environment):\n    name = 'half'\n")
    with pytest.raises(InvalidArgumentError, match="Half has no reset, scenarios, step"):
        load_task(f"{file}:Half")


def test_no_file() -> None:
    with pytest.raises(InvalidArgumentError, match=r"there is no file nowhere/task.py"):
        load_task("nowhere/task.py")
