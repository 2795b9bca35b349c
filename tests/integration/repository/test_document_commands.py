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

_SPINE = "tests/integration/spine"
_LOGIN = "tests/unit/cli/test_login.py"
_LOGIN_RELEASE = "tests/integration/cli/test_login_release.py"
ELSEWHERE = {
    "python examples/train_openai.py": f"{_SPINE}/test_client_driven.py::"
    "test_an_agent_that_knows_nothing_of_podium_trains_as_it_is",
    "python examples/reading_judge.py &": "tests/unit/judge/test_reading_judge.py::test_an_*",
    "python examples/mcp_rl/stockroom*": "tests/integration/test_example_mcp_rl.py::test_only_*",
    "podium eval email_search -a base -a ID@best -a baseline:scripted": f"{_SPINE}/test_readme.py::"
    "test_chat_and_eval_serve_what_they_name_and_give_it_back",
    "podium eval email_search -a base -a ID@best --judge ruler": "tests/unit/cli/"
    "test_evaluate_judged.py::test_two_policies_are_compared_in_both_orders_and_the_wins_are_stored",
    "podium eval * --judge reward.yaml": "tests/unit/cli/test_evaluate_scored.py::test_scorers_*",
    "podium scenarios generate --url http://host:8000/mcp -n 48 --out tasks.jsonl": "tests/unit/"
    "cli/test_scenarios.py::test_tasks_are_written_counted_and_added_to",
    "podium scenarios generate --command *": "tests/integration/test_example_mcp_rl.py::"
    "test_tasks_are_generated_from_the_real_servers_tools",
    'eval "$(podium completion bash)"': "tests/unit/cli/test_completion.py::"
    "test_bash_completes_a_job_with_the_script",
    "podium install": "tests/integration/cli/test_install_cluster.py::"
    "test_a_ready_cluster_is_exit_code_0",
    "podium login work": f"{_LOGIN_RELEASE}::"
    "test_login_to_a_release_needs_neither_address_nor_token",
    "podium login lab *": f"{_LOGIN_RELEASE}::test_login_says_why_a_release_cannot_be_reached",
    "podium login office *": f"{_LOGIN}::test_login_saves_the_installation_and_uses_it",
    "podium checkpoint export * --merged": "tests/integration/test_cli_export.py::"
    "test_merged_export_equals_base_plus_adapter",
    "podium checkpoint export * --gguf": "tests/integration/test_cli_push.py::"
    "test_an_adapter_and_a_gguf_are_pushed_with_a_card",
    "podium checkpoint load *": "tests/integration/test_load_adapter.py::test_a_version_*",
    "podium checkpoint push *": "tests/integration/test_cli_push.py::test_an_adapter_and_a_gguf_*",
    "podium job cancel JOB": "tests/unit/cli/test_commands.py::test_steering",
    "podium trajectory show TRAJECTORY": "tests/unit/cli/test_trajectory.py::"
    "test_an_episode_is_read_turn_by_turn",
    "helm rollback *": "tests/e2e/test_e2e_training_rollback.py::"
    "test_a_rollback_brings_the_first_release_back",
    "helm test *": "tests/e2e/test_e2e_training.py::test_helm_test_passes",
    "helm upgrade *": "tests/e2e/test_e2e_training.py::"
    "test_an_upgrade_in_the_middle_of_a_job_loses_no_step_and_keeps_the_secrets",
    "WANDB_API_KEY=* podium up --tracking": "tests/integration/tracking/test_tracking_service.py::"
    "test_s3_s28_s32_s45_*",
    "podium up --jobs 4": f"{_SPINE}/test_shared_trainer.py::test_two_jobs_*",
    "node server.js --port 50061": "tests/integration/test_environment_node.py::"
    "test_scenarios_are_listed",
    "node dist/submit.js*": "tests/integration/test_typescript.py::"
    "test_a_job_is_submitted_and_followed",
    "podium env serve mymodule:Guess --port 50060": "tests/integration/test_rollout_service.py::"
    "test_*",
    "podium train task.py*": "tests/integration/cli/test_train.py::"
    "test_it_submits_follows_reports_and_leaves_nothing_running",
    "podium sft *": "tests/integration/test_controller_sft.py::test_the_command_*",
    "curl *": "tests/integration/test_curl.py::test_each_command_of_the_page_runs_as_it_is_printed",
    "torchrun *": "tests/integration/test_trainer_ranks.py::test_t12_two_processes_take_the_step_*",
} | dict.fromkeys(
    ("make up", "podium up", "podium up &", "PODIUM_MCP_COMMANDS=python3 podium up *"),
    "tests/integration/test_cli_stack.py::test_status_down_and_where_commands_find_the_stack",
)
"""By the test that runs it, or its like with the placeholders filled in."""

NOT_RUN = {
    "make demo*": "sixteen minutes; it is run as it stands before its numbers are written down",
    "make test": "it is what runs this test",
    "podium up --data-dir build/demo/stack &": "make demo prints it, with the folder it has made",
    "podium chat --data-dir build/demo/stack *": "likewise; the same chat is in " + _SPINE,
    ". *venv/bin/activate": "the shell's own",
    "pip *": "installs gigabytes",
    "export *": "the shell's own",
    "PODIUM_INFERENCE_GPU_MEMORY_UTILIZATION=* podium train *": "needs a GPU, and the hub",
    "PODIUM_INFERENCE_REASONING_PARSER=* podium up *": "fetches a model from the hub",
    "npm install *": "fetches packages: `make adapters` does",
    "helm install *": "needs a cluster: make e2e installs the chart",
    "kubectl *": "needs a cluster: make e2e",
}
"""By the reason."""

PYTHON_ELSEWHERE = {
    "run = podium.train_sft(": "tests/integration/test_controller_sft.py::test_rows_*",
    "from datasets import load_dataset": "tests/unit/cli/test_trajectory_datasets.py::"
    "test_the_pages_lines_run",
    "from openai import OpenAI": f"{_SPINE}/test_openai_client.py::"
    "test_chat_and_stream_with_job_at_version",
    "import random": "tests/unit/environments/test_session.py::test_the_readmes_environment_runs",
} | dict.fromkeys(
    ("# A job is t", "# The same ", "# Path, what came", "# All that the command line does"),
    "tests/unit/sdk/test_python_page.py::test_every_block_runs",
)
_PORTS = "tests/integration/training/test_ports.py"
PYTHON_ELSEWHERE |= {
    # Both are the examples' own, which tests/unit/repository/test_pages.py holds.
    "async with AsyncOpenAI(": f"{_PORTS}::test_an_agent_of_openais_plain_client_*",
    "async def rollout(model": f"{_PORTS}::test_an_agent_that_knows_nothing_of_podium_trains",
}
PYTHON_NOT_RUN = {
    "# A sub-agent: it begins": "three endings of a method; tests/unit/rollout has whole ones",
    "from podium.core.time_limits import": "a part of a step; "
    "tests/unit/core/test_time_limits.py has the same calls",
    "from podium.environments.sandbox import Limits, Sandbox": "needs bubblewrap and a program; "
    "tests/integration/test_sandbox.py has the same calls",
    "async with httpx.AsyncClient": "a part of a program; tests/unit/scenarios/test_generate.py "
    "has the whole",
    "groups = await podium.gather_trajectory_groups(\n    groups,": "needs a judge; "
    "tests/unit/training/test_ruler.py has the same calls",
}

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
        left = await execute(source, {"scenarios": ["a", "b"]})
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
