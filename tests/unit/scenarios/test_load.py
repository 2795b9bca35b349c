"""Scenarios of files: what is read, which column becomes what, and what is wrong with a row."""

from __future__ import annotations

import datetime
import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from podium.core.errors import FailedPreconditionError, InvalidArgumentError
from podium.environments.scenarios import (
    Counts,
    ScenarioSource,
    load_scenarios,
    stream_scenarios,
    write_scenarios,
)
from pyarrow import parquet

ANSWERS = {"columns": {"data": {"task": "question", "answer": "gold"}}, "heldout": 0}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{r if isinstance(r, str) else json.dumps(r)}\n" for r in rows))
    return path


def source(path: Path, **options: Any) -> ScenarioSource:
    return ScenarioSource.model_validate({"path": str(path), **options})


def complaints(path: Path, **options: Any) -> list[str]:
    with pytest.raises(InvalidArgumentError) as caught:
        load_scenarios(source(path, **options), "train")
    return [str(violation) for violation in caught.value.violations]


def test_lines_in_our_own_shape_need_no_options(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "a.jsonl",
        {"id": "x", "split": "train", "data": {"n": 1}},
        "",
        {"id": 2, "split": "heldout", "data": {"n": 2}},
        {"id": "z", "split": "train", "data": {"n": [1.5, None, {"a": True}]}},
    )
    found = load_scenarios(str(file), "train")
    assert [(s.id, s.data, s.split) for s in found] == [
        ("x", {"n": 1}, "train"),
        ("z", {"n": [1.5, None, {"a": True}]}, "train"),
    ]
    assert [s.id for s in load_scenarios(str(file), "heldout")] == ["2"]
    # And they are what is written.
    write_scenarios(tmp_path / "b.jsonl", found)
    assert load_scenarios(str(tmp_path / "b.jsonl"), "train") == found


def test_columns_become_data_by_name_and_type(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "a.jsonl",
        {"key": "q1", "fold": "dev", "question": "Why?", "gold": 3, "junk": 1},
        {"key": "q2", "fold": "train", "question": "How?", "gold": 4.5},
    )
    options = {
        "columns": {
            "id": "key",
            "split": "fold",
            "data": {
                "task": {"column": "question", "type": "string"},
                "answer": {"column": "gold", "type": "number"},
                "level": {"column": "level", "type": "integer", "default": 1},
            },
        }
    }
    (train,) = load_scenarios(source(file, **options), "train")
    assert (train.id, train.data) == ("q2", {"task": "How?", "answer": 4.5, "level": 1})
    (heldout,) = load_scenarios(source(file, **options), "heldout")
    assert (heldout.id, heldout.data["answer"]) == ("q1", 3)
    # Without columns, all but id and split.
    by_name = {"columns": {"id": "key", "split": "fold"}}
    assert load_scenarios(source(file, **by_name), "train")[0].data == {
        "question": "How?",
        "gold": 4.5,
    }


def test_names_of_splits_are_renamed(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"split": "a", "n": 1}, {"split": "b", "n": 2})
    splits = {"a": "train", "b": "heldout"}
    assert load_scenarios(source(file, splits=splits), "heldout")[0].data == {"n": 2}
    assert complaints(file, splits={"a": "train"}) == [
        "a.jsonl:2: split: got 'b'; allowed are train, heldout; `splits` can rename others"
    ]


@pytest.mark.parametrize(
    ("row", "columns", "told"),
    [
        ("[1]", {}, "a.jsonl:2: got an array; allowed are JSON objects"),
        ('{"a": ', {}, "a.jsonl:2: is no JSON at column 6: Expecting value"),
        ('{"a": NaN}', {}, "a.jsonl:2: is no JSON: got NaN; allowed are finite numbers"),
        ('{"a": 9007199254740993}', {}, "a.jsonl:2: a: got 9007199254740993; beyond 2**53"),
        ('{"id": "", "a": 1}', {}, "a.jsonl:2: id: got ''; allowed are texts of 1 to 256"),
        ('{"id": true, "a": 1}', {}, "a.jsonl:2: id: got True; allowed are texts"),
        ('{"a": 1}', {"id": "key"}, "a.jsonl:2: key: got nothing; allowed are texts"),
        ('{"split": 3, "a": 1}', {}, "a.jsonl:2: split: got 3; allowed are names of splits"),
        ('{"split": "x"}', {}, "a.jsonl:2: split: got 'x'; allowed are train, heldout"),
        (
            '{"a": "x"}',
            {"data": {"n": {"column": "a", "type": "integer"}}},
            "a.jsonl:2: a: got 'x', a text; allowed are whole numbers",
        ),
        (
            '{"a": true}',
            {"data": {"n": {"column": "a", "type": "number"}}},
            "a.jsonl:2: a: got True, a boolean; allowed are numbers",
        ),
        (
            '{"b": 1}',
            {"data": {"n": "a"}},
            "a.jsonl:2: a: got no such column; it has b; a value is needed",
        ),
        ('{"a": null}', {"data": {"n": "a"}}, "a.jsonl:2: a: got nothing; a value is needed"),
    ],
)
def test_a_wrong_row_is_named_by_file_line_and_field(
    tmp_path: Path, row: str, columns: dict[str, Any], told: str
) -> None:
    good = {"a": 1, "key": "k"}
    assert complaints(lines(tmp_path / "a.jsonl", good, row), columns=columns)[0].startswith(told)


def test_bytes_that_are_no_text_and_endless_lines_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a": "\xff"}\n')
    assert complaints(file) == ["a.jsonl:1: is not UTF-8 from byte 8 on"]
    file.write_bytes(b'{"a": "' + b"x" * (16 * 1024 * 1024) + b'"}\n')
    assert complaints(file) == ["a.jsonl:1: is longer than 16777216 bytes, the most of a line"]


def test_all_faults_are_told_at_once_but_no_more_than_twenty(tmp_path: Path) -> None:
    assert len(complaints(lines(tmp_path / "a.jsonl", *["[]"] * 3, {"a": 1}))) == 3
    assert len(complaints(lines(tmp_path / "a.jsonl", *["[]"] * 50))) == 20


def test_ids_are_unique_and_stay_when_the_file_changes(tmp_path: Path) -> None:
    first = lines(tmp_path / "a.jsonl", {"n": 1}, {"n": 2})
    ids = {s.data["n"]: s.id for s in load_scenarios(source(first, heldout=0), "train")}
    second = lines(tmp_path / "b.jsonl", {"n": 3}, {"n": 2}, {"n": 1})
    again = {s.data["n"]: s.id for s in load_scenarios(source(second, heldout=0), "train")}
    assert {n: again[n] for n in ids} == ids
    assert len(set(again.values())) == 3
    taken = lines(tmp_path / "c.jsonl", {"id": "x", "n": 1}, {"id": "x", "n": 2})
    assert complaints(taken) == [
        "c.jsonl:2: id: got 'x', which c.jsonl:1 has for other data; ids must be unique, "
        "`columns: {id: null}` makes them from the data"
    ]
    assert len(load_scenarios(source(taken, heldout=0, columns={"id": None}), "train")) == 2


def test_duplicates_count_once_and_train_has_nothing_of_another_split(tmp_path: Path) -> None:
    file = lines(
        tmp_path / "a.jsonl",
        {"split": "train", "task": "Add a note"},
        {"split": "train", "task": "add  A note "},
        {"split": "train", "task": "Find it"},
        {"split": "test", "task": "FIND it"},
    )
    counts = Counts()
    found = list(stream_scenarios(str(file), "train", counts=counts))
    assert [s.data["task"] for s in found] == ["Add a note"]
    assert (counts.rows, counts.duplicates, counts.leaked) == (4, 1, 1)
    assert [s.data["task"] for s in load_scenarios(str(file), "heldout")] == ["FIND it"]


def test_rows_of_one_group_are_on_one_side(tmp_path: Path) -> None:
    rows = [{"page": n // 5, "question": f"q{n}"} for n in range(1000)]
    file = lines(tmp_path / "a.jsonl", *rows)
    by_split = {
        split: {s.data["page"] for s in load_scenarios(source(file, group_by=["page"]), split)}
        for split in ("train", "heldout")
    }
    assert not by_split["train"] & by_split["heldout"]
    assert len(by_split["train"]) + len(by_split["heldout"]) == 200
    assert 5 <= len(by_split["heldout"]) <= 40
    assert complaints(lines(tmp_path / "b.jsonl", {"a": 1}), group_by=["page"]) == [
        "b.jsonl:1: page: is missing, and group_by names it"
    ]


def test_the_hash_holds_out_the_share_and_moves_nobody(tmp_path: Path) -> None:
    rows = [{"n": n} for n in range(2000)]
    file = lines(tmp_path / "a.jsonl", *rows)
    tenth = {s.id for s in load_scenarios(source(file), "heldout")}
    assert 150 <= len(tenth) <= 250
    train = {s.id for s in load_scenarios(source(file), "train")}
    assert not tenth & train
    assert len(tenth | train) == 2000
    more = lines(tmp_path / "b.jsonl", *({"n": n} for n in range(3000)))
    assert tenth <= {s.id for s in load_scenarios(source(more), "heldout")}
    assert tenth <= {s.id for s in load_scenarios(source(file, heldout=0.3), "heldout")}


def test_a_limit_stops_reading(tmp_path: Path) -> None:
    rows = ({"split": "heldout", "n": n} for n in range(3))
    file = lines(tmp_path / "a.jsonl", *rows, {"split": "train", "n": 4}, {"split": "train"})
    assert len(load_scenarios(source(file, limit=2), "heldout")) == 2
    assert [s.data for s in load_scenarios(source(file, limit=1), "train")] == [{"n": 4}]
    unread = lines(tmp_path / "b.jsonl", {"split": "heldout", "n": 1}, "no JSON")
    assert len(load_scenarios(source(unread, limit=1), "heldout")) == 1


def test_parquet_is_read_like_lines(tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 2)
    rows = [{"question": f"q{n}", "gold": n, "day": day, "tags": ["a", "b"]} for n in range(600)]
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    found = load_scenarios(source(file, heldout=0), "train")
    assert len(found) == 600
    assert found[599].data == {
        "question": "q599",
        "gold": 599,
        "day": "2026-01-02",
        "tags": ["a", "b"],
    }
    # The same content is the same scenario, whatever it is stored in.
    as_lines = lines(tmp_path / "a.jsonl", *({**row, "day": "2026-01-02"} for row in rows))
    assert load_scenarios(source(as_lines, heldout=0), "train") == found
    parquet.write_table(pyarrow.Table.from_pylist([{"a": b"\x00"}, {"a": None}, {"a": b""}]), file)
    assert complaints(file) == [
        "a.parquet:1: a: got a bytes; allowed are JSON values",
        "a.parquet:3: a: got a bytes; allowed are JSON values",
    ]
    file.write_bytes(b"PAR1 not really")
    assert complaints(file)[0].startswith("a.parquet: is no Parquet file: ")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    assert complaints(tmp_path / "no.jsonl") == [
        f"path: got '{tmp_path / 'no.jsonl'}'; there is no such file or folder"
    ]
    (tmp_path / "a.csv").write_text("a,b")
    assert "allowed are .jsonl and .parquet files" in complaints(tmp_path / "a.csv")[0]
    lines(tmp_path / "a.txt", {"n": 1})
    assert load_scenarios(source(tmp_path / "a.txt", format="jsonl", heldout=0), "train")
    (tmp_path / "empty").mkdir()
    told = complaints(tmp_path / "empty")[0]
    assert told.startswith("path: got ")
    assert "no data set that can be read" in told


def test_a_reader_that_gives_up_names_the_file(tmp_path: Path) -> None:
    def told(name: str, column: pyarrow.Array) -> str:
        parquet.write_table(pyarrow.table({"a": column}), tmp_path / name)
        return complaints(tmp_path / name)[0]

    far = pyarrow.array([2**60], pyarrow.timestamp("us"))
    assert told("far.parquet", far) == "far.parquet: cannot be read: date value out of range"
    nowhere = pyarrow.array([1], pyarrow.timestamp("us", "Nowhere/Land"))
    assert told("zone.parquet", nowhere).startswith("zone.parquet: cannot be read: ")
    no_text = pyarrow.array([b"\xff"]).view(pyarrow.string())
    assert told("text.parquet", no_text).startswith("text.parquet: cannot be read: 'utf-8' codec")
    damaged = bytearray((tmp_path / "text.parquet").read_bytes())
    damaged[4:20] = b"\xff" * 16
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    assert complaints(tmp_path / "damaged.parquet")[0].startswith("damaged.parquet: cannot be read")
    shards = tmp_path / "shards"
    shards.mkdir()
    lines(shards / "0.jsonl", {"q": 1})
    lines(shards / "1.jsonl", {"q": {"a": 1}})
    assert complaints(shards)[0].startswith("shards/train: cannot be read: ")


def test_a_hub_that_is_not_reached_is_no_wrong_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*given: object, **options: object) -> None:
        raise ConnectionError("Couldn't reach 'org/name' on the Hub (ConnectError)")

    monkeypatch.setattr("datasets.load_dataset", away)
    with pytest.raises(FailedPreconditionError) as caught:
        load_scenarios(ScenarioSource(dataset="org/name"), "train")
    assert caught.value.reason == "DATASET_UNREACHABLE"


def test_paths_that_are_no_files_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "is neither a file nor a folder" in complaints(tmp_path / "pipe.jsonl")[0]
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    assert "Symlink loop" in complaints(tmp_path / "loop.jsonl")[0]
    assert "File name too long" in complaints(tmp_path / f"{'x' * 5000}.jsonl")[0]
    assert "embedded null byte" in complaints(tmp_path / "a\0.jsonl")[0]


def test_rows_deeper_than_messages_carry_are_refused(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", f'{{"q": {"[" * 900}{"]" * 900}}}')
    assert complaints(file) == ["a.jsonl:1: is nested more than 28 levels deep"]


def test_bytes_that_are_no_text_are_told_once(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    for body, told in (
        ('{"q": 1}\n{"q": 2}\n'.encode("utf-16"), "UTF-16; write the file as UTF-8"),
        ('{"q": 1}\n{"q": 2}\n'.encode("utf-16-le"), "UTF-16; write the file as UTF-8"),
        (b"\x28\xb5\x2f\xfd\n{}\n", "packed by zstd; unpack the file first"),
    ):
        file.write_bytes(body)
        assert complaints(file) == [f"a.jsonl:1: is {told}"]


def test_a_source_is_one_thing() -> None:
    for given in ({}, {"path": "a", "dataset": "b"}, {"path": "a", "colums": {}}):
        with pytest.raises(ValueError, match=r"either path or dataset|Extra inputs"):
            ScenarioSource.model_validate(given)
