"""`podium trajectory export`: what is in a file is what was stored."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from podium.cli.trajectory import files
from podium.core.trajectory_rows import read_lines, trajectories_of
from podium.types.v1 import trajectory_pb2 as pb
from pyarrow import parquet
from support import job_records
from support.cli_user import Cli, add_job
from support.wild_episode import wild_episode


@pytest.fixture
def cli_with_episodes(cli: Cli) -> Cli:
    add_job(cli.fake)
    cli.fake.jobs.trajectories = [
        *(wild_episode(number, step) for step in (1, 2, 3, 4) for number in range(20)),
        *job_records.episodes(0, 3, 2, 1)[:3],
        *job_records.episodes(18, 3, 2, 1)[:3],
    ]
    return cli


def episodes_in(folder: Path, name: str = "out.jsonl") -> list[pb.Trajectory]:
    with (folder / name).open(encoding="utf-8") as file:
        return list(read_lines(file))


async def test_json_lines_hold_every_episode_of_training(cli_with_episodes: Cli) -> None:
    done = await cli_with_episodes("trajectory", "export", "w", "-o", "out.jsonl")
    assert (done.code, done.out) == (0, "out.jsonl\n")
    assert "wrote 80 episodes to out.jsonl" in done.err
    assert episodes_in(cli_with_episodes.folder) == cli_with_episodes.fake.jobs.trajectories[:80]
    first = json.loads((cli_with_episodes.folder / "out.jsonl").read_text().split("\n")[0])
    assert tuple(first) == files.COLUMNS
    assert first["split"] == "train"


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (("--step", "2"), {"s2"}),
        (("--step", "2:3"), {"s2", "s3"}),
        (("--step", "3:"), {"s3", "s4"}),
        (("--step", ":1"), {"s1"}),
        (("--step", "9:"), set()),
        (("--split", "heldout"), {"v0-sampled", "v18-sampled"}),
        (("--split", "heldout", "--step", "18"), {"v18-sampled"}),
        (("--split", "train", "--step", "1"), {"s1"}),
    ],
)
async def test_steps_and_splits(
    cli_with_episodes: Cli, arguments: tuple[str, ...], ids: set[str]
) -> None:
    done = await cli_with_episodes("trajectory", "export", "w", "-o", "-", *arguments)
    assert done.code == 0, done.err
    assert {
        json.loads(line)["trajectory_id"].split("/")[1] for line in done.out.split("\n")[:-1]
    } == ids


async def test_parquet_has_typed_columns_and_the_same_rows(cli_with_episodes: Cli) -> None:
    done = await cli_with_episodes("trajectory", "export", "w", "-o", "out.parquet")
    assert done.code == 0, done.err
    table = parquet.read_table(cli_with_episodes.folder / "out.parquet")
    assert tuple(table.column_names) == files.COLUMNS
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["token_ids"], types["logprobs"]) == (
        "list<element: int32>",
        "list<element: float>",
    )
    assert types["spans"].startswith("list<element: struct<start: int64")
    assert (types["messages"], types["reward"]) == ("string", "double")
    assert types["start_time"] == "timestamp[us, tz=UTC]"
    rows = [_plain(row) for row in table.to_pylist()]
    assert list(trajectories_of(rows)) == cli_with_episodes.fake.jobs.trajectories[:80]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row of Parquet as docs/trajectories.md says that it is to be read."""
    for name in files.JSON_COLUMNS:
        row[name] = None if row[name] is None else json.loads(row[name])
    for name in ("start_time", "end_time"):
        row[name] = row[name] and row[name].isoformat()
    return row


async def test_a_file_appears_whole_or_not_at_all(cli_with_episodes: Cli) -> None:
    target = cli_with_episodes.folder / "out.jsonl"
    target.write_text("old")
    target.chmod(0o640)
    cli_with_episodes.fake.jobs.break_trajectories_after = 60
    before = set(cli_with_episodes.folder.iterdir())
    for name in ("out.jsonl", "new.parquet"):
        lost = await cli_with_episodes("trajectory", "export", "w", "-o", name)
        assert (lost.code, lost.out) == (3, ""), lost.err
        assert set(cli_with_episodes.folder.iterdir()) == before
    assert target.read_text() == "old"
    cli_with_episodes.fake.jobs.break_trajectories_after = None
    assert (await cli_with_episodes("trajectory", "export", "w", "-o", "out.jsonl")).code == 0
    assert len(episodes_in(cli_with_episodes.folder)) == 80
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    (cli_with_episodes.folder / "beside").touch()
    assert (await cli_with_episodes("trajectory", "export", "w", "-o", "n.parquet")).code == 0
    modes = {(cli_with_episodes.folder / n).stat().st_mode for n in ("n.parquet", "beside")}
    assert len(modes) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("w", "-o", "out"), 2, "allowed are .jsonl and .parquet"),
        (("w", "-o", "no/out.jsonl"), 2, "there is no folder no"),
        (("w", "-o", "-", "--format", "parquet"), 2, "Parquet needs a file"),
        (("w", "-o", "out.jsonl", "--step", "2:1"), 2, "ends before it begins"),
        (("w", "-o", "out.jsonl", "--step", "-1:"), 2, "allowed are numbers from 0"),
        (("w", "-o", "o.jsonl", "--split", "test"), 2, "trains on 'train' and is evaluated on"),
        (("nope", "-o", "out.jsonl"), 5, "there is no job 'nope'"),
        (("w", "-o", "/dev/full", "--format", "jsonl"), 1, "cannot be written: No space left"),
    ],
)
async def test_what_cannot_be_exported(
    cli_with_episodes: Cli, arguments: tuple[str, ...], code: int, words: str
) -> None:
    before = set(cli_with_episodes.folder.iterdir())
    done = await cli_with_episodes("trajectory", "export", *arguments)
    assert (done.code, done.out) == (code, ""), done.err
    assert words in done.err
    assert set(cli_with_episodes.folder.iterdir()) == before


async def test_a_link_and_a_pipe_stay_what_they_are(cli_with_episodes: Cli) -> None:
    folder = cli_with_episodes.folder
    (folder / "real.jsonl").touch()
    (folder / "link.jsonl").symlink_to("real.jsonl")
    assert (await cli_with_episodes("trajectory", "export", "w", "-o", "link.jsonl")).code == 0
    assert (folder / "link.jsonl").is_symlink()
    assert len(episodes_in(folder, "real.jsonl")) == 80
    null = ("-o", os.devnull, "--format", "jsonl")
    assert (await cli_with_episodes("trajectory", "export", "w", *null)).code == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_few_episodes_are_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(files, "_BYTES", 5_000)
    monkeypatch.setattr(files, "_GROUP_BYTES", 20_000)
    item = wild_episode(tokens=500)
    sizes = []
    with files.writer(tmp_path / name, None) as write:
        (draft,) = tmp_path.iterdir()
        for _ in range(30):
            write(item, "train")
            sizes.append(draft.stat().st_size)
    assert len(set(sizes)) > 4, "what was written is not held"
    if name == "out.parquet":
        read = parquet.ParquetFile(tmp_path / name)
        assert (read.metadata.num_rows, read.num_row_groups > 4) == (60, True)


def test_the_page_has_every_column_in_order() -> None:
    page = (Path(__file__).parents[3] / "docs" / "trajectories.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert tuple(re.findall(r"`(\w+)`", "".join(rows))) == files.COLUMNS
