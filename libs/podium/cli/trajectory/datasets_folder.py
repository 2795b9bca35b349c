"""A folder of episodes that `datasets.load_dataset` reads: a file of Parquet a split, and a card.

Nothing of `datasets` is needed to write it. Columns of JSON say so in Parquet's own way, by which
`datasets` gives objects and not text.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from podium.cli.exits import CliError
from podium.cli.trajectory.files import (
    Write,
    arrow,
    check_place,
    mode_of,
    parquet_file,
    refused,
    write_errors,
)

if TYPE_CHECKING:
    from podium.types.v1 import trajectory_pb2 as pb

_CARD = """---
{metadata}---

# Episodes of `{job}`

What a policy did while it was trained by reinforcement learning with Podium {version}, exported
with `podium trajectory export`. A row is one conversation of an episode: its messages and tools as
OpenAI's API writes them, its tokens with their log-probs, and the episode's rewards, metrics and
end. docs/trajectories.md of Podium has every column.

| split | episodes | rows |
|---|---|---|
{rows}

```python
from datasets import load_dataset

episodes = load_dataset("this/folder", split="{first}")
good = episodes.filter(lambda row: (row["reward"] or 0) > 0.5)
```
"""


@dataclass
class _Split:
    name: str
    """Of the file, and in `datasets`."""
    write: Write
    episodes: int = 0
    rows: int = 0


def folder(output: Path, job: str) -> AbstractContextManager[Write]:
    """Opens a new or empty folder for a job's episodes; it appears when it is whole.

    Raises:
        CliError: it cannot be written, there is something in it, or no episode came.
    """
    if str(output) == "-":
        raise refused("--format datasets needs a folder, and - is none")
    output = output.resolve()
    check_place(output)
    with write_errors(output):
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise refused(f"{output} is there already; allowed is a new folder, or an empty one")
    arrow("pyarrow.parquet")
    return _whole(output, job)


@contextmanager
def _whole(output: Path, job: str) -> Iterator[Write]:
    with write_errors(output):
        mode = mode_of(output, 0o777)
        draft = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
        try:
            splits: dict[str, _Split] = {}
            (draft / "data").mkdir()
            with ExitStack() as files:

                def write(item: pb.Trajectory, split: str) -> None:
                    if split not in splits:
                        name = _name(split, {each.name for each in splits.values()})
                        file = parquet_file(draft / "data" / f"{name}.parquet", json_type=True)
                        splits[split] = _Split(name, files.enter_context(file))
                    found = splits[split]
                    found.write(item, split)
                    found.episodes += 1
                    found.rows += max(len(item.histories), 1)

                yield write
            if not splits:
                raise CliError(
                    f"job {job} has no such episodes, and datasets reads no empty folder"
                )
            (draft / "README.md").write_text(_card(job, list(splits.values())), encoding="utf-8")
            draft.chmod(mode)
            # An empty one gives its place; one that was filled meanwhile does not.
            os.rename(draft, output)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _name(split: str, taken: set[str]) -> str:
    """A name that `datasets` takes: letters, digits and underscores."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", split).strip("_") or "split"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{plain}_{number}"
    return name


def _card(job: str, splits: list[_Split]) -> str:
    import yaml

    from podium import __version__

    files = [{"split": each.name, "path": f"data/{each.name}.parquet"} for each in splits]
    metadata = {
        "pretty_name": f"Episodes of {job}",
        "tags": ["podium", "reinforcement-learning", "trajectories"],
        "configs": [{"config_name": "default", "data_files": files}],
    }
    return _CARD.format(
        metadata=yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True),
        job=job,
        version=__version__,
        rows="\n".join(f"| `{each.name}` | {each.episodes} | {each.rows} |" for each in splits),
        first=splits[0].name,
    )
