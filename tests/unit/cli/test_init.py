"""`podium init`: what it makes trains as it is, and it overwrites nothing."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from podium.cli.exits import Exit
from podium.cli.init.templates import TEMPLATES
from podium.cli.job.submit import load
from podium.cli.main import run
from podium.environments.checking import check
from podium.environments.task_file import load_task

_ASKED = re.compile(r"(?P<words>\w+(, \w+){2})\. Which is an? (?P<kind>\w+)\?")
"""A question of the words."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("template", TEMPLATES)
async def test_what_it_makes_has_nothing_wrong(folder: Path, template: str) -> None:
    assert run(["init", "my_task", "--template", template]) == Exit.OK
    made = folder / "my_task"
    assert sorted(path.name for path in made.iterdir()) == ["README.md", "job.yaml", "task.py"]
    assert not [path.name for path in made.iterdir() if "__NAME__" in path.read_text()]
    kind = load_task(str(made / "task.py"))
    assert kind.name == load(str(made / "job.yaml"), []).spec.environment.name == "my_task"
    report = await check(kind)
    assert report.findings == ()
    # A reward for what leads to the rest of it, so that the first groups teach something.
    assert {0.0, 0.2, 1.0} <= set(report.rewards)


@pytest.mark.parametrize("split", ["train", "heldout"])
async def test_the_examples_favour_no_place_and_give_no_answer_away(
    folder: Path, split: str
) -> None:
    """With answers at the first places alone, two names in three taught to say the first word."""
    run(["init", "my_task", "--template", "words"])
    task = load_task(str(folder / "my_task" / "task.py"))()
    scenarios = {each.id: each for each in task.scenarios(split)}
    places, kinds = Counter[int](), set[str]()
    for scenario in scenarios.values():
        *examples, question = (await task.reset(scenario, 0)).messages
        asked = [_ASKED.fullmatch(each.content) for each in [*examples[::2], question]]
        assert all(asked), "an example is asked otherwise than the question"
        *shown, own = (found["words"].split(", ") for found in asked if found)
        said = [each.content for each in examples[1::2]]
        places += Counter(map(list.index, shown, said))
        kinds |= {found["kind"] for found in asked[:-1] if found}
        assert not {word for words in shown for word in words} & set(own)
    assert sorted(places) == [0, 1, 2]
    assert len(set(places.values())) == 1
    assert not kinds & {str(each.data["kind"]) for each in scenarios.values()}


def test_it_says_what_comes_next(capsys: pytest.CaptureFixture[str]) -> None:
    run(["init", "t", "--folder", "deep/here"])
    out, err = capsys.readouterr()
    assert out == "deep/here\n"
    assert "cd deep/here" in err
    assert "podium train task.py" in err


def test_a_folder_that_holds_something_is_left_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "task.py").write_text("precious")
    assert run(["init", "mine"]) == Exit.CONFLICT
    assert "mine is not empty: it has task.py" in capsys.readouterr().err
    assert (folder / "mine" / "task.py").read_text() == "precious"
    assert not (folder / "mine" / "job.yaml").exists()
    (folder / "file").write_text("")
    assert run(["init", "file"]) == Exit.CONFLICT
    assert "file is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("my-task", "init my_task"),
        ("9lives", "init task_9lives"),
        ("class", "init task_class"),
        ("a/b", "init b; --folder says where"),
        ("../up", "init up; --folder"),
        ("größe", "init gr_e"),
        ("..", "init my_task"),
        ("", "init my_task"),
        ("x" * 64, f"init {'x' * 63}"),
        ("random", "my_random"),
    ],
)
def test_a_name_that_cannot_be_one_is_told_with_one_that_can(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, better: str
) -> None:
    assert run(["init", name]) == Exit.USAGE
    assert better in capsys.readouterr().err
    assert list(folder.iterdir()) == []
