"""Each command and each block of Python of a document is run by a test, or says why it is not.

What stands in no table here is new: run it here, name the test that does, or say why none can.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import podium as package
import pytest
from podium import environments
from podium.cli.init.templates import DEFAULT, files
from podium.core.trajectory_rows import rows_of
from podium.environments import Scenario, Scripted, play
from podium.environments.scenarios import write_scenarios
from podium.training.in_process import InProcessBackend
from support.cli import invoke
from support.document_commands import ROOT, commands, pages, python, yaml_blocks
from support.document_tables import ELSEWHERE, NOT_RUN, PYTHON_ELSEWHERE, PYTHON_NOT_RUN
from support.fake_judge import completion, fake_judge
from support.fake_podium import fake_podium
from support.played_installation import play_installation, store_evaluations
from support.programs import missing
from support.wild_episode import wild_episode

if shutil.which("git") is None:
    pytest.skip(missing("git", "git"), allow_module_level=True)

HERE = {
    "podium job submit -f examples/email_search.yaml --follow",
    "podium job submit -f examples/distill_email.yaml --set distillation.teacher=ID@best --follow",
    "podium job watch ID",
    "podium job pause ID",
    "podium job submit -f job.yaml --set fork.model=ID --set fork.version=best",
    "podium job metrics ID --plot",
    "podium trajectory show ID/s3/g0/t1",
    "podium trajectory show ID/s3/g0/t1 --turns 2: --tokens",
    "podium trajectory list ID",
    "podium trajectory export ID -o episodes.parquet",
    "podium trajectory export ID -o episodes.jsonl --step 2:4",
    "podium trajectory export ID -o heldout.parquet --split heldout",
    "podium trajectory export ID -o episodes/ --format datasets",
    "podium checkpoint list ID",
    "podium checkpoint export ID@latest policy/",
    "podium chat -m ID@best",
    "podium doctor",
    "podium init mytask",
    "podium env check task.py",
    "podium context list",
    "podium eval mymodule:Guess -a baseline:random -a openai:some-model",
    "podium eval email_search -a base -a my-job@best --attempts 4",
    "podium eval list --environment email_search",
    "podium eval show EVALUATION",
    "podium eval compare EVALUATION OTHER",
    "podium eval delete EVALUATION",
}
"""Run below, as printed, against doubles of the services: ID and my-job are a job `w`."""

# Whose commands are run here unless a table names them.
_TYPED = (
    *("docs/runbooks/", "docs/how-to/", "docs/own-agent.md", "docs/ruler-only.md"),
    "examples/mcp_rl/",
)
FOUND = [(page, command) for page in pages() for command in commands((ROOT / page).read_text())]
BLOCKS = [(page, block) for page in pages() for block in python((ROOT / page).read_text())]


def listed(text: str, *tables: Any) -> list[str]:
    return [each for table in tables for each in table if fnmatchcase(text, each)]


HERE |= {
    command
    for page, command in FOUND
    if page.startswith(_TYPED)
    and command.startswith("podium ")
    and not listed(command, ELSEWHERE, NOT_RUN)
}


@pytest.mark.parametrize(("page", "command"), FOUND)
def test_each_command_is_run_or_says_why_not(page: str, command: str) -> None:
    if command not in HERE:
        assert len(listed(command, ELSEWHERE, NOT_RUN)) == 1, f"{page}: {command} is not listed"


def test_what_is_listed_is_there() -> None:
    known = {command for _, command in FOUND}
    gone = HERE - known
    gone |= {p for p in (*ELSEWHERE, *NOT_RUN) if not any(fnmatchcase(c, p) for c in known)}
    assert gone == set(), "listed, and in no document"
    for test in (*ELSEWHERE.values(), *PYTHON_ELSEWHERE.values()):
        file, _, name = test.partition("::")
        names = re.findall(r"def (test_\w+)", (ROOT / file).read_text())
        assert any(fnmatchcase(each, name) for each in names), test


ignore = shutil.ignore_patterns("node_modules", "__pycache__")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands run: the examples are there, and what the pages name."""
    # What lies outside of the folder is not read: no link.
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=ignore)
    (snippet, *_) = python((ROOT / "libs/podium/environments/README.md").read_text())
    (tmp_path / "mymodule.py").write_text(snippet)
    (tmp_path / "task.py").write_text(files(DEFAULT, "mytask")["task.py"])
    (ruler,) = yaml_blocks((ROOT / "docs/ruler-only.md").read_text())
    (tmp_path / "ruler.yaml").write_text(ruler)
    job = "base_model: smollm2-135m-instruct\nenvironment: {name: email_search}\n"
    (tmp_path / "job.yaml").write_text(job + "training: {steps: 3}\n")
    return tmp_path


@pytest.mark.timeout(300)
@pytest.mark.parametrize("command", sorted(HERE))
async def test_a_command_runs_as_it_is_printed(command: str, folder: Path) -> None:
    if command.startswith("podium eval mcp"):
        pytest.importorskip("mcp")
    command = re.sub(r"\b(ID|my-job|brief-openai|JOB|OTHER)\b", "w", command)
    command = command.replace("PROJECT", "default").replace(" N", " 3").replace("=N", "=3")
    _, *words = shlex.split(command)
    if {"mymodule:Guess", "nightly"} & {*words}:
        words += ["--limit", "2"]
    if words[:2] == ["eval", "mcp"]:
        words += ["--limit", "1", "--max-turns", "2"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with fake_judge() as api:
        api.then(lambda _: completion("50"))
        async with fake_podium(stored=folder if words[0] == "eval" else None) as fake:
            play_installation(fake)
            if words[0] == "eval":
                await store_evaluations(fake)
            done = await invoke(
                *words,
                cwd=folder,
                environment={**fake.environment, "OPENAI_BASE_URL": api.base_url, "PATH": path},
                stdin="hello\n",
            )
    # What a doctor finds about this machine is not the command's failure.
    assert done.code == 0 or words == ["doctor"], done.err
    assert "Traceback" not in done.err


@contextlib.contextmanager
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`podium.AsyncClient()` trains in this process while the block runs."""
    with InProcessBackend(lambda messages, step: "x" * len(messages)) as backend:
        real = package.AsyncClient
        monkeypatch.setattr(package, "AsyncClient", lambda: real(backend=backend), raising=False)
        yield


async def execute(source: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs a block of a page, which may await, and returns what it leaves."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    made = eval(compile(source, "<page>", "exec", flags=flags), names)
    if inspect.isawaitable(made):
        await made
    return names


async def rollout(model: package.TrainableModel, scenario: str) -> package.Trajectory:
    async with model.openai_client() as client:
        answer = await client.chat.completions.create(
            model=model.name, messages=[{"role": "user", "content": scenario}]
        )
    return package.Trajectory(reward=float(len(answer.choices[0].message.content or "")))


async def train_with_the_readme(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_this_process(monkeypatch):
        names = {"podium": package, "rollout": rollout, "scenarios": ["a", "b"]}
        left = await execute(source, names)
        assert await left["model"].get_step() == 1


async def try_the_agent(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder / "examples"))
    left = await execute(source, {})
    assert len(left["first"]) == len(left["second"]) == 4


async def train_with_the_library_s_page(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_this_process(monkeypatch):
        left = await execute(source, {"scenarios": ["a"]})
        assert await left["model"].get_step() == 10


async def adapt_a_class(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs:
        def __init__(self, size: int) -> None:
            self.size = size

        def reset(self) -> dict[str, Any]:
            return {"board": "." * self.size}

        def step(
            self, action: dict[str, str]
        ) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
            return {"board": action["type"]}, 1.0, True, {}

    mine = (await execute(source, {"Theirs": Theirs}))["Mine"]
    environment = mine()
    (scenario,) = environment.listed("heldout")
    played = await play(environment, scenario, Scripted([" left "]), max_turns=3)
    assert (played.reward, played.metrics["success"]) == (1.0, 1.0)


async def iterate(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Scenario(f"s-{n}", {"task": str(n)}, split="train") for n in range(16)]
    write_scenarios(folder / "tasks.jsonl", made)
    monkeypatch.chdir(folder)
    left = await execute(source, {})
    assert left["batch"].step == 5


async def read_episodes(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    worse = wild_episode(1)
    worse.reward = 0.1
    rows = [json.dumps(row) for each in (wild_episode(), worse) for row in rows_of(each)]
    (folder / "episodes.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert (await execute(source, {}))["solved"] == [wild_episode()]


PYTHON_HERE: dict[str, Callable[[str, Path, pytest.MonkeyPatch], Any]] = {
    "model = await podium.AsyncClient()": train_with_the_readme,
    "from openai_agent import": try_the_agent,
    "import podium\n": train_with_the_library_s_page,
    "from podium.environments import Scenario, from_tuples": adapt_a_class,
    "from podium.environments.scenarios import ScenarioSource": iterate,
    "from podium.core.trajectory_rows import": read_episodes,
}


def beginnings(block: str, *tables: Any) -> list[str]:
    return [each for table in tables for each in table if block.lstrip().startswith(each)]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_each_block_of_python_is_run_or_says_why_not(page: str, block: str) -> None:
    found = beginnings(block, PYTHON_HERE, PYTHON_ELSEWHERE, PYTHON_NOT_RUN)
    assert len(found) == 1, f"{page} has a block that is not listed:\n{block}"


@pytest.mark.parametrize("beginning", PYTHON_HERE)
async def test_a_block_of_python_runs_as_it_is_printed(
    beginning: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = [block for _, block in BLOCKS if block.lstrip().startswith(beginning)]
    await PYTHON_HERE[beginning](block, folder, monkeypatch)


async def test_the_example_in_the_words_of_podium_environments_plays() -> None:
    text = inspect.getdoc(environments) or ""
    source = textwrap.dedent(text[text.index("    class Guess") : text.index("`podium env serve")])
    names = dict(vars(environments))
    guess = (await execute(source, names))["Guess"]()
    (scenario,) = guess.listed("train")
    assert (await play(guess, scenario, Scripted(["7"]), max_turns=3)).reward == 1.0


def test_a_command_that_is_new_is_seen(tmp_path: Path) -> None:
    page = "```\npodium frobnicate \\\n  --all  # new\nsome output\n```\n\n    make it\n"
    assert list(commands(page)) == ["podium frobnicate --all", "make it"]
    assert listed("podium frobnicate --all", HERE, ELSEWHERE, NOT_RUN) == []


def test_completion_is_what_the_page_says(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (line,) = [command for _, command in FOUND if command.startswith("eval ")]
    done = subprocess.run(
        ["bash", "-c", f"{line} && complete -p podium"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert "podium" in done.stdout, done.stderr
