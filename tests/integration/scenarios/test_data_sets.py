"""Scenarios of a folder that Hugging Face's `datasets` wrote."""

from __future__ import annotations

from pathlib import Path

import datasets
import pytest
from podium.core.errors import InvalidArgumentError
from podium.environments.scenarios import ScenarioSource, load_scenarios

ANSWERS = {"columns": {"data": {"task": "question", "answer": "gold"}}, "heldout": 0}


def source(path: Path, **options: object) -> ScenarioSource:
    return ScenarioSource.model_validate({"path": str(path), **options})


@pytest.mark.parametrize("layout", ["saved", "files"])
def test_a_folder_of_a_hugging_face_data_set(tmp_path: Path, layout: str) -> None:
    folder = tmp_path / "set"
    rows = {
        "train": [{"question": f"q{n}", "gold": n} for n in range(20)],
        "test": [{"question": text, "gold": n} for text, n in (("t0", 0), ("t1", 1), ("q7", 7))],
    }
    found = datasets.DatasetDict({s: datasets.Dataset.from_list(r) for s, r in rows.items()})
    if layout == "saved":
        found.save_to_disk(str(folder))
    else:
        for split, dataset in found.items():
            (folder / "data").mkdir(parents=True, exist_ok=True)
            dataset.to_parquet(str(folder / "data" / f"{split}-00000-of-00001.parquet"))
    train = load_scenarios(source(folder, **ANSWERS), "train")
    assert [s.data["task"] for s in train] == [f"q{n}" for n in range(20) if n != 7]
    heldout = load_scenarios(source(folder, **ANSWERS), "heldout")
    assert [s.data["answer"] for s in heldout] == [0, 1, 7]
    wrong = {"columns": {"data": {"task": {"column": "gold", "type": "string"}}}}
    with pytest.raises(InvalidArgumentError) as caught:
        load_scenarios(source(folder, **wrong), "train")
    assert str(caught.value.violations[0]).startswith("set/t")
    # Of one without splits a hash decides.
    datasets.Dataset.from_list(rows["train"]).save_to_disk(str(tmp_path / "one"))
    sides = [load_scenarios(source(tmp_path / "one"), s) for s in ("train", "heldout")]
    assert sum(map(len, sides)) == 20
