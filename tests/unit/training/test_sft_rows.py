"""Rows of conversations: what trains, and what is refused by file, number and field."""

from __future__ import annotations

import gzip
import json
import logging
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from podium.core.errors import InvalidArgumentError
from podium.training.sft.files import ReadRows, Source, read_rows
from podium.training.sft.rows import Conversation, conversation_of
from podium.types.v1 import trajectory_pb2 as pb

ASK = {"role": "user", "content": "one?"}
YES = {"role": "assistant", "content": "Yes."}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    ],
}
SEEN = {"role": "tool", "tool_call_id": "c1", "content": "a lamp"}
TOOL = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "default": None}},
}


def lines(folder: Path, *rows: Any, name: str = "train.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def one(folder: Path, *messages: Any, **columns: Any) -> ReadRows:
    return read_rows(lines(folder, {"messages": list(messages), **columns}))


def wrong(source: Source, **options: Any) -> list[str]:
    with pytest.raises(InvalidArgumentError) as caught:
        read_rows(source, **options)
    assert caught.value.reason in ("INVALID_ROWS", "INVALID_ARGUMENT")
    return [str(each) for each in caught.value.violations]


def refused(folder: Path, *messages: Any, **columns: Any) -> list[str]:
    return wrong(lines(folder, {"messages": list(messages), **columns}))


def test_each_of_the_assistants_messages_trains_but_those_of_weight_0(tmp_path: Path) -> None:
    off, on = {**YES, "weight": 0}, {**YES, "weight": 1}
    (row,) = one(tmp_path, {"role": "developer", "content": "Be."}, ASK, off, ASK, on, YES).rows
    assert row.trained == (4, 5)
    assert row.where == "train.jsonl:1"
    assert row.messages[0].role == pb.ROLE_SYSTEM
    assert [each.content for each in row.messages[1:3]] == ["one?", "Yes."]


def test_calls_results_tools_and_thoughts_are_kept(tmp_path: Path) -> None:
    thought = {**YES, "reasoning_content": "why"}
    (row,) = one(tmp_path, ASK, CALL, SEEN, thought, tools=[TOOL]).rows
    call = row.messages[1].tool_calls[0]
    assert (call.name, call.arguments_json) == ("look", '{"at": 1}')
    # Templates write the function's name, which rows leave to the call.
    assert row.messages[2].name == "look"
    assert row.messages[3].reasoning == "why"
    assert [tool.name for tool in row.tools] == ["look"]
    assert "default" in row.tools[0].parameters
    as_object = {"function": {"name": "look", "arguments": {"at": 1}}}
    (same,) = one(tmp_path, ASK, {**CALL, "tool_calls": [as_object]}).rows
    assert json.loads(same.messages[1].tool_calls[0].arguments_json) == {"at": 1}


def test_parts_of_text_are_joined(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "on"}, {"type": "text", "text": "e?"}]
    (row,) = one(tmp_path, {"role": "user", "content": parts}, YES).rows
    assert row.messages[0].content == "one?"


def test_a_mark_of_byte_order_and_line_ends_of_windows_are_read(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    row = json.dumps({"messages": [ASK, YES]})
    path.write_bytes(f"\ufeff{row}\r\n\r\n{row}\r\n".encode())
    assert [each.where for each in read_rows(path).rows] == ["train.jsonl:1", "train.jsonl:3"]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages: got an empty list"),
        ([ASK], "messages: got none; at least one message of the assistant's must train"),
        ([{"role": "system", "content": "Be."}], "messages: got none"),
        ([ASK, {**YES, "weight": 0}], "messages: got 1, all of weight 0"),
        (["Yes."], "messages[0]: got a text; allowed is an object"),
        ([{"role": "bot", "content": "x"}, YES], "messages[0].role: got 'bot'; allowed are system"),
        ([{"content": "x"}, YES], "messages[0].role: is required, and there is 'content'"),
        ([{"role": ["user"], "content": "x"}, YES], "messages[0].role: got ['user']"),
        ([ASK, {**YES, "weight": 0.5}], "messages[1].weight: got 0.5; allowed are 0 and 1"),
        ([ASK, {**YES, "weight": True}], "messages[1].weight: got True"),
        ([{**ASK, "weight": 1}, YES], "messages[0].weight: got it of 'user'"),
        ([ASK, {"role": "assistant", "content": ""}], "messages[1]: says nothing"),
        ([ASK, {"role": "assistant"}], "messages[1]: says nothing"),
        ([ASK, {**YES, "content": 5}], "messages[1].content: got a whole number"),
        ([ASK, {**YES, "content": {"a": 1}}], "messages[1].content: got an object"),
        ([{**ASK, "content": [{"type": "image_url"}]}, YES], "content[0].type: got 'image_url'"),
        ([{**ASK, "content": [7]}, YES], "messages[0].content[0]: got a whole number"),
        ([{**ASK, "content": [{"type": "text"}]}, YES], "content[0].text: got nothing"),
        ([ASK, {**YES, "audio": {"id": "a"}}], "messages[1].audio: is not read here"),
        ([ASK, {**YES, "content": "\ud800"}], "messages[1].content: holds NUL or half"),
        ([{**ASK, "content": "a\0"}, YES], "messages[0].content: holds NUL or half"),
        ([{**ASK, "tool_calls": CALL["tool_calls"]}, YES], "messages[0].tool_calls: got it of"),
        ([ASK, {**YES, "tool_calls": "look"}], "messages[1].tool_calls: got a text"),
        ([ASK, {**YES, "tool_calls": [{}]}], "tool_calls[0].function: is required"),
        ([ASK, {**YES, "tool_calls": [{"function": {}}]}], "function.name: is required"),
        ([{"role": "user", "text": "one?"}, YES], "content: is required, and there is 'role', 'te"),
        ([{"role": "user", "content": None}, YES], "messages[0].content: is required"),
        ([ASK, {**YES, "function_call": {"name": "look"}}], "function_call: is the older form"),
        ([{**ASK, "reasoning": "hm"}, YES], "messages[0].reasoning: got it of 'user'"),
        ([ASK, {**YES, "name": "x" * 300}], "messages[1].name: got 300 characters"),
    ],
)
def test_a_row_that_cannot_train_says_where_and_what(
    tmp_path: Path, messages: Sequence[Any], said: str
) -> None:
    assert any(said in each for each in refused(tmp_path, *messages)), refused(tmp_path, *messages)
    assert all(each.startswith("train.jsonl:1: ") for each in refused(tmp_path, *messages))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{'at': 1}", "is no JSON"),
        ('{"at": NaN}', "finite numbers"),
        ('{"at": [1e999]}', "finite numbers"),
        ("[1]", "got an array as JSON; allowed is an object"),
        (7, "got a whole number"),
        ('{"at": "\\ud800"}', "half of a surrogate pair"),
        ({"at": "\ud800"}, "half of a surrogate pair"),
    ],
)
def test_arguments_are_json_that_can_be_said(tmp_path: Path, arguments: Any, said: str) -> None:
    call = {"function": {"name": "look", "arguments": arguments}}
    (found,) = refused(tmp_path, ASK, {**YES, "tool_calls": [call]})
    assert found.startswith("train.jsonl:1: messages[1].tool_calls[0].function.arguments: ")
    assert said in found


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("look", "tools: got a text; allowed is a list"),
        ([{"type": "retrieval"}], "tools[0]: allowed are objects of type 'function'"),
        ([{"function": {"description": "x"}}], "tools[0].function.name: is required"),
        ([{"function": {"name": "x", "parameters": 5}}], "parameters: got a whole number"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(tmp_path: Path, tools: Any, said: str) -> None:
    assert any(said in each for each in refused(tmp_path, ASK, YES, tools=tools))


def test_files_that_hold_no_rows_are_refused_by_name(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    assert wrong(empty) == ["empty.jsonl: holds no row to train on"]
    assert wrong(str(tmp_path / "none.jsonl")) == [f"data: {tmp_path}/none.jsonl is no file"]
    assert "allowed are files that end in" in wrong(tmp_path / "rows.csv")[0]
    folder = tmp_path / "folder.jsonl"
    folder.mkdir()
    assert "is a folder" in wrong(folder)[0]
    assert wrong([]) == ["data: holds no row to train on"]
    assert wrong([5], name="rows") == ["rows[0]: got a whole number; allowed is an object"]  # type: ignore[list-item]
    broken = tmp_path / "broken.parquet"
    broken.write_text("PAR1")
    assert "broken.parquet: is no Parquet file" in wrong(broken)[0]
    utf16 = tmp_path / "utf16.jsonl"
    utf16.write_text("{}\n", encoding="utf-16")
    assert wrong(utf16)[0] == f"{utf16.name}:1: is UTF-16; write the file as UTF-8"
    assert len(wrong(utf16)) == 1
    address = (
        "data: got 's3://bucket/rows.jsonl'; allowed are files of this machine: fetch it first"
    )
    assert wrong("s3://bucket/rows.jsonl") == [address]
    assert "cannot be read: File name too long" in wrong(f"{'x' * 5000}.jsonl")[0]
    whole = tmp_path / "rows.json"
    whole.write_text("[]")
    assert "`jq -c '.[]' rows.json > lines.jsonl` writes" in wrong(whole)[0]
    other = lines(tmp_path, {"conversations": []}, name="share.jsonl")
    assert "share.jsonl:1: messages: is required" in wrong(other)[0]


def test_all_that_is_wrong_is_told_at_once_but_not_without_end(tmp_path: Path) -> None:
    bad = [{"messages": [ASK]} for _ in range(500)]
    found = wrong(lines(tmp_path, {"messages": [ASK, YES]}, *bad))
    assert len(found) == 21
    assert found[0].startswith("train.jsonl:2: ")
    assert found[-1] == "these are the first of what is wrong with 500 rows"


def test_bad_rows_are_left_out_only_when_asked_and_then_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = lines(tmp_path, {"messages": [ASK]}, {"messages": [ASK, YES]}, [1])
    with caplog.at_level(logging.WARNING):
        found = read_rows(path, skip_bad=True)
    assert [row.where for row in found.rows] == ["train.jsonl:2"]
    assert found.skipped == 2
    assert "2 rows are left out: train.jsonl:1: messages: got none" in caplog.text
    assert "holds no row" in wrong(lines(tmp_path, [1]), skip_bad=True)[-1]


def parquet(folder: Path, rows: Sequence[Any], name: str = "rows.parquet") -> Path:
    path = folder / name
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


def test_nested_columns_of_parquet_are_rows_like_others(tmp_path: Path) -> None:
    # A table gives every message the keys of all, and every object's keys to the others.
    rows = [{"messages": [ASK, CALL, SEEN, YES], "tools": [TOOL]}, {"messages": [ASK, YES]}]
    first, second = read_rows(parquet(tmp_path, rows)).rows
    plain_first, plain_second = read_rows(lines(tmp_path, *rows)).rows
    assert (first.messages, first.trained) == (plain_first.messages, plain_first.trained)
    assert (second.messages, second.tools) == (plain_second.messages, [])
    assert first.where == "rows.parquet:1"
    assert "default" not in first.tools[0].parameters


def test_parquet_with_json_texts_is_read_as_exports_write_it(tmp_path: Path) -> None:
    rows = [{"messages": json.dumps([ASK, CALL, YES]), "tools": json.dumps([TOOL])}]
    (found,) = read_rows(parquet(tmp_path, rows)).rows
    assert found.trained == (1, 2)
    assert len(found.tools) == 1


def test_arguments_of_several_calls_columns_are_refused(tmp_path: Path) -> None:
    def call(arguments: dict[str, Any]) -> dict[str, Any]:
        return {**YES, "tool_calls": [{"function": {"name": "look", "arguments": arguments}}]}

    path = parquet(tmp_path, [{"messages": [ASK, call({"at": 1}), call({"on": 2})]}])
    found = wrong(path)
    assert "rows.parquet:1: messages[1].tool_calls[0].function.arguments: holds nulls" in found[0]


def test_a_weight_that_is_no_number_is_refused(tmp_path: Path) -> None:
    rows = [{"messages": [ASK, {**YES, "weight": float("nan")}]}]
    assert wrong(parquet(tmp_path, rows)) == [
        "rows.parquet:1: messages[1].weight: got nan; allowed are 0 and 1"
    ]
    path = tmp_path / "train.jsonl"
    path.write_text('{"messages": [{"role": "assistant", "content": "x", "weight": NaN}]}')
    assert "is no JSON: got NaN" in wrong(path)[0]


ROW = json.dumps({"messages": [ASK, YES]})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"[{ROW},\n{ROW}]", "is one JSON value (an array); each line must be an object"),
        (f"[{ROW}]", "`jq -c '.[]' train.jsonl > lines.jsonl`"),
        (json.dumps(json.loads(ROW), indent=2), "`jq -c . train.jsonl > lines.jsonl`"),
        ("5\n", "train.jsonl:1: got a whole number; allowed are JSON objects"),
        (
            gzip.compress(ROW.encode(), mtime=0),
            "train.jsonl:1: is packed by gzip; unpack the file first",
        ),
        ('{"prompt": "a", "completion": "b"}', "write them; the row has 'prompt', 'completion'"),
        (f'{ROW[:-1]}, "functions": [{{"name": "look"}}]}}', "functions: is the older form"),
        ('{"conversations": []}', "write them; the row has 'conversations'"),
        (
            '{"messages": [{"from": "human", "value": "a"}]}',
            "messages[0].role: is required, and there is 'from', 'value'; allowed are system",
        ),
        (f"{ROW},", "train.jsonl:1: is no JSON at column"),
    ],
    ids=[
        "array",
        "array with jq",
        "indented",
        "number",
        "gzip",
        "prompt",
        "functions",
        "share",
        "from",
        "comma",
    ],
)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_files_that_are_something_else_are_told_apart(
    tmp_path: Path, body: str | bytes, said: str, skip_bad: bool
) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(body if isinstance(body, bytes) else body.encode())
    told = wrong(path, skip_bad=skip_bad)
    assert said in told[0], told


@pytest.mark.parametrize("body", [f"\ufeff{ROW}\n", f"{ROW}\r\n{ROW}\r\n\r\n"])
def test_what_other_systems_write_around_lines_is_no_error(tmp_path: Path, body: str) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(body.encode())
    assert {len(each.messages) for each in read_rows(path).rows} == {2}


@pytest.mark.parametrize("given", [None, 5, {"messages": [ASK, YES]}])
def test_what_is_neither_file_nor_rows_is_told(given: Any) -> None:
    (told,) = wrong(given)
    assert told.startswith("data: got ")
    assert told.endswith("; allowed are a file, and a list of rows")


@pytest.mark.parametrize(
    ("row", "form", "messages"),
    [
        (
            {"conversations": [{"from": who, "value": who} for who in ("system", "human", "gpt")]},
            "ShareGPT",
            ["system", "human", "gpt"],
        ),
        ({"instruction": "a", "input": "it's", "output": "b"}, "Alpaca", ["a\n\nit's", "b"]),
        ({"instruction": "a", "input": "", "output": "b"}, "Alpaca", ["a", "b"]),
        ({"prompt": "a", "completion": "b"}, "a prompt and its completion", ["a", "b"]),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "preferences", ["a", "b"]),
    ],
    ids=["ShareGPT", "Alpaca", "Alpaca without input", "completion", "preferences"],
)
def test_forms_of_other_trainers_are_told_with_the_command_that_converts_them(
    tmp_path: Path, row: dict[str, Any], form: str, messages: list[str]
) -> None:
    path = lines(tmp_path, row, row).rename(tmp_path / "it's a file.jsonl")
    told = wrong(path)[-1]
    assert told.startswith(f"the form is {form}")
    command = told.split("`")[1]
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    converted = read_rows(tmp_path / "lines.jsonl").rows
    assert [[each.content for each in one.messages] for one in converted] == [messages] * 2
    assert converted[0].trained == (len(messages) - 1,)


def test_no_command_for_jq_is_told_of_what_jq_does_not_read(tmp_path: Path) -> None:
    row = {"prompt": "a", "completion": "b"}
    for source in ([row], parquet(tmp_path, [row])):
        (told,) = wrong(source)
        assert "messages" in told
        assert "jq" not in told


def test_no_command_writes_over_the_file_that_it_reads(tmp_path: Path) -> None:
    path = lines(tmp_path, {"prompt": "a", "completion": "b"}).rename(tmp_path / "lines.jsonl")
    assert wrong(path)[-1].split("`")[1].endswith("' lines.jsonl > lines.new.jsonl")
    odd = path.rename(tmp_path / "-n.jsonl")
    assert wrong(odd)[-1].split("`")[1].endswith("' ./-n.jsonl > lines.jsonl")
    odd.write_text('[{"prompt": "a"}]')
    assert "`jq -c '.[]' ./-n.jsonl > lines.jsonl`" in wrong(odd)[0]


def test_rows_are_held_as_bytes_and_come_back_as_they_were_read(tmp_path: Path) -> None:
    """As messages they took five times the memory: 450 MB of 100,000 rows."""
    thought = {**YES, "reasoning_content": "hm", "weight": 0}
    values = {"messages": [ASK, thought, ASK, CALL, SEEN, YES], "tools": [TOOL]}
    made = conversation_of(values, "train.jsonl:1")
    assert isinstance(made, Conversation)
    assert (len(made.tools), made.trained) == (1, (3, 5))
    rows = read_rows(lines(tmp_path, values, values)).rows
    assert rows[0] == made
    assert rows[-1:] == [replace(made, where="train.jsonl:2")]
    assert rows[0].messages[0] is not rows[0].messages[0]
