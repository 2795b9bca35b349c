"""`podium scenarios`, with a scripted model and a file of tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from podium.core.errors import InvalidArgumentError
from podium.environments.scenarios.tools_file import read_tools
from support.cli import Result, invoke
from support.fake_judge import FakeJudge, completion, fake_judge

TOOLS = [
    {"name": "search", "description": "Finds.", "parameters": {"type": "object"}},
    {"type": "function", "function": {"name": "read"}},
    {"name": "mcp", "inputSchema": {"type": "object"}},
]
pytestmark = pytest.mark.timeout(600)
WORDS = ("apple", "bread", "candle", "drum", "engine", "feather", "garden", "hammer", "island")


@pytest.fixture
def api() -> Iterator[FakeJudge]:
    """Writes what is asked for, and never a task again."""
    count = 0

    def write(request: dict[str, Any]) -> Any:
        nonlocal count
        tasks = []
        asked = re.findall(r"(\d+) of difficulty (\d)", request["messages"][1]["content"])
        for number, level in asked:
            for _ in range(int(number)):
                words = [f"{WORDS[count // 9**place % 9]}{place}" for place in range(3)]
                tasks.append({"task": f"Find {' '.join(words)}", "difficulty": int(level)})
                count += 1
        return completion(json.dumps({"scenarios": tasks}))

    with fake_judge() as server:
        server.then(write)
        yield server


async def generate(folder: Path, api: FakeJudge, *arguments: str) -> Result:
    (folder / "tools.json").write_text(json.dumps(TOOLS))
    environment = {"OPENAI_BASE_URL": api.base_url, "OPENAI_API_KEY": "secret"}
    source = ("--tools", "tools.json", "--out", "tasks.jsonl")
    return await invoke(
        *("scenarios", "generate", *source, *arguments), cwd=folder, environment=environment
    )


async def test_tasks_are_written_counted_and_added_to(tmp_path: Path, api: FakeJudge) -> None:
    prices = ("--prompt-price", "1", "--completion-price", "10")
    result = await generate(tmp_path, api, "-n", "10", *prices)
    assert result.code == 0, result.err
    assert result.out == "tasks.jsonl: 8 train, 2 heldout\n"
    assert "difficulty: 2 of 1, 2 of 2, 2 of 3, 2 of 4, 2 of 5" in result.err
    assert "1 calls, 100 tokens read, 10 written, cost 0.0002" in result.err
    # No model was named: the first that the API lists is asked.
    assert api.requests[0]["model"] == "fake-judge"
    assert api.authorizations == ["Bearer secret"]
    first = (tmp_path / "tasks.jsonl").read_text().splitlines()

    again = await generate(tmp_path, api, "-n", "5")
    assert (again.code, "tasks.jsonl exists" in again.err) == (5, True)
    again = await generate(tmp_path, api, "-n", "5", "--append")
    assert again.code == 0, again.err
    assert set(first) < set((tmp_path / "tasks.jsonl").read_text().splitlines())

    checked = await invoke("scenarios", "check", "tasks.jsonl", "-o", "json", cwd=tmp_path)
    assert checked.code == 0, checked.err
    assert [row["scenarios"] for row in json.loads(checked.out)] == [12, 3]


async def test_what_was_made_is_kept_when_there_is_no_more(tmp_path: Path, api: FakeJudge) -> None:
    same = {"scenarios": [{"task": "Find the only thing", "difficulty": 1}]}
    api.then(lambda _: completion(json.dumps(same)))
    result = await generate(tmp_path, api, "-n", "4", "--heldout", "0")
    assert result.code == 1
    assert "1 of 4 tasks were made: 3 rounds in a row gave nothing new" in result.err
    assert "left out: 3 duplicate" in result.err
    assert len((tmp_path / "tasks.jsonl").read_text().splitlines()) == 1


async def test_wrong_use_is_told_before_anything_is_asked(tmp_path: Path, api: FakeJudge) -> None:
    for arguments, told in (
        (("--url", "http://x"), "give one of --command, --url and --tools"),
        (("--prompt-price", "1"), "belong together"),
        (("--max-cost", "1"), "--max-cost needs"),
        (("--out", "no/such.jsonl"), "there is no folder no"),
    ):
        result = await generate(tmp_path, api, *arguments)
        assert result.code == 2, result.err
        assert told in result.err
    assert api.requests == []


async def test_a_wrong_file_is_named_by_line_and_field(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n{"n": NaN}\n[]\n')
    result = await invoke("scenarios", "check", "a.jsonl", cwd=tmp_path)
    assert result.code == 2
    assert "a.jsonl:2: is no JSON: got NaN" in result.err
    assert "a.jsonl:3: got an array; allowed are JSON objects" in result.err
    result = await invoke("scenarios", "check", "a.jsonl", "--set", "heldot=0.1", cwd=tmp_path)
    assert result.code == 2
    assert "scenarios.heldot: unknown option; did you mean 'heldout'?" in result.err


def test_tools_are_read_as_each_api_writes_them(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(TOOLS))
    assert [(t.name, t.description, t.parameters) for t in read_tools(file)] == [
        ("search", "Finds.", {"type": "object"}),
        ("read", "", {}),
        ("mcp", "", {"type": "object"}),
    ]
    schema = '{"type": "object", "properties": {"at": {}}}'
    for text in (
        f'\ufeff[{{"name": "a", "input_schema": {schema}}}]',
        f'{{"tools": [{{"name": "a", "inputSchema": {schema}}}]}}',
    ):
        file.write_text(text, encoding="utf-8")
        (tool,) = read_tools(file)
        assert (tool.name, tool.parameters) == ("a", json.loads(schema))
    for text, told in (
        ("{", "is no JSON"),
        ('[{"name": "a"}, {"name": "a"}]', r"tools.json\[1\]: name: got 'a', which an earlier"),
        ('[{"name": "a", "parameters": {"most": NaN}}]', "got NaN; allowed are finite"),
        ("[]", "is no JSON list of tools"),
        ('[{"name": ""}, 3]', r"tools.json\[0\]: name: got ''.*tools.json\[1\]: got 3"),
        ('[{"name": "a", "parameters": []}]', "parameters: got"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidArgumentError, match=told):
            read_tools(file)
    with pytest.raises(InvalidArgumentError, match=r"none.json: cannot be read: No such file"):
        read_tools(tmp_path / "none.json")
