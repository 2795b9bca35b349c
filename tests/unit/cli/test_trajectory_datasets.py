"""`podium trajectory export --format datasets`: what `load_dataset` reads is what was stored."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from podium.cli.trajectory import files
from podium.core.trajectory_rows import trajectories_of
from podium.types.v1 import trajectory_pb2 as pb
from support import job_records
from support.cli_user import Cli, add_job
from support.document_commands import ROOT, python
from support.wild_episode import wild_episode

EXPORT = ("trajectory", "export", "w", "--format", "datasets", "-o")


@pytest.fixture(scope="module", autouse=True)
def datasets() -> Any:
    """Slow to import, and not for whoever collects this file alone."""
    return pytest.importorskip("datasets")


@pytest.fixture
def cli_with_episodes(cli: Cli) -> Cli:
    add_job(cli.fake)
    cli.fake.jobs.trajectories = [
        *(wild_episode(number, step) for step in (1, 2) for number in range(20)),
        # One that ended before its first turn.
        pb.Trajectory(
            id="w/s3/g0/t0",
            group_id="w/s3/g0",
            job_id="w",
            step=3,
            stop_reason=pb.STOP_REASON_FAILED,
        ),
        *job_records.episodes(18, 3, 2, 1)[:3],
    ]
    return cli


@pytest.fixture
def load(cli: Cli, tmp_path: Path, datasets: Any) -> Any:
    def loaded(name: str, **options: Any) -> Any:
        cache = str(tmp_path / "cache")
        return datasets.load_dataset(str(cli.folder / name), cache_dir=cache, **options)

    return loaded


def episodes_of(split: Any) -> list[pb.Trajectory]:
    rows = []
    for row in split:
        times = {name: row[name] and row[name].isoformat() for name in ("start_time", "end_time")}
        rows.append({**row, **times})
    return list(trajectories_of(rows))


async def test_a_folder_holds_every_episode_by_split(cli_with_episodes: Cli, load: Any) -> None:
    done = await cli_with_episodes(*EXPORT, "episodes/")
    assert (done.code, "wrote 44 episodes" in done.err) == (0, True), done.err
    found = load("episodes")
    stored = cli_with_episodes.fake.jobs.trajectories
    assert list(found) == ["train", "heldout"]
    assert tuple(found["train"].column_names) == files.COLUMNS
    assert episodes_of(found["train"]) == stored[:41]
    assert episodes_of(found["heldout"]) == stored[41:]
    # Objects and not text, each with the keys that it has and no others.
    first = found["train"][0]
    assert first["messages"][0] == {"role": "system", "content": "Be brief."}
    assert first["tools"][0]["function"]["parameters"]["required"] == ["q"]
    assert first["info"] == {"found": [1, None, {"deep": True}]}
    streamed = load("episodes", split="heldout", streaming=True)
    assert episodes_of(streamed) == stored[41:]
    folder = cli_with_episodes.folder / "episodes"
    made = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert made == {"README.md", "data/train.parquet", "data/heldout.parquet"}
    assert "| `train` | 41 | 81 |" in (folder / "README.md").read_text()


async def test_the_pages_lines_run(
    cli_with_episodes: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, datasets: Any
) -> None:
    """Of the page and of the folder's own card."""
    await cli_with_episodes(*EXPORT, "episodes")
    monkeypatch.chdir(cli_with_episodes.folder)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    page = (ROOT / "docs" / "trajectories.md").read_text()
    (block,) = [each for each in python(page) if "load_dataset" in each]
    (own,) = python((cli_with_episodes.folder / "episodes" / "README.md").read_text())
    names: dict[str, Any] = {}
    exec(block, names)
    assert {row["reward"] for row in names["solved"]} == {0.75}
    exec(own.replace("this/folder", "episodes"), names)
    assert len(names["good"]) == len(names["solved"]) == 80


async def test_steps_and_a_split_alone(cli_with_episodes: Cli, load: Any) -> None:
    await cli_with_episodes(*EXPORT, "some", "--step", "2:")
    assert {row["step"] for row in load("some", split="train")} == {2, 3}
    await cli_with_episodes(*EXPORT, "held", "--split", "heldout")
    assert list(load("held")) == ["heldout"]


async def test_a_split_of_any_name_gets_one_that_datasets_takes(
    cli_with_episodes: Cli, load: Any
) -> None:
    job = cli_with_episodes.fake.jobs.known["w"]
    job.spec.environment.split, job.spec.evaluation.split = "held-out: a", "held out a"
    done = await cli_with_episodes(*EXPORT, "episodes")
    assert done.code == 0, done.err
    found = load("episodes")
    assert {name: found[name][0]["split"] for name in found} == {
        "held_out_a": "held-out: a",
        "held_out_a_2": "held out a",
    }


async def test_the_folder_is_whole_or_not_there(cli_with_episodes: Cli) -> None:
    jobs, folder = cli_with_episodes.fake.jobs, cli_with_episodes.folder
    (folder / "empty").mkdir(mode=0o750)
    before = set(folder.iterdir())
    jobs.break_trajectories_after = 20
    for name in ("new", "empty"):
        lost = await cli_with_episodes(*EXPORT, name)
        assert (lost.code, set(folder.iterdir())) == (3, before), lost.err
    jobs.break_trajectories_after = None
    assert (await cli_with_episodes(*EXPORT, "empty")).code == 0
    assert stat.S_IMODE((folder / "empty").stat().st_mode) == 0o750
    (folder / "beside").mkdir()
    assert (await cli_with_episodes(*EXPORT, "new")).code == 0
    assert (folder / "new").stat().st_mode == (folder / "beside").stat().st_mode


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((*EXPORT, "full"), 2, "allowed is a new folder, or an empty one"),
        ((*EXPORT, "full/kept"), 2, "allowed is a new folder, or an empty one"),
        ((*EXPORT, "-"), 2, "needs a folder, and - is none"),
        ((*EXPORT, "no/where"), 2, "there is no folder"),
        ((*EXPORT, "new", "--step", "99:"), 1, "has no such episodes"),
        (("trajectory", "export", "w", "-o", "full"), 2, "a folder with --format datasets"),
        (("trajectory", "export", "w", "-o", "full", "--format", "jsonl"), 2, "is a folder"),
    ],
)
async def test_what_cannot_be_exported(
    cli_with_episodes: Cli, arguments: tuple[str, ...], code: int, words: str
) -> None:
    kept = cli_with_episodes.folder / "full" / "kept"
    kept.parent.mkdir()
    kept.write_text("mine")
    before = set(cli_with_episodes.folder.iterdir())
    done = await cli_with_episodes(*arguments)
    assert (done.code, done.out) == (code, ""), done.err
    assert words in " ".join(done.err.split())
    assert (set(cli_with_episodes.folder.iterdir()), kept.read_text()) == (before, "mine")
