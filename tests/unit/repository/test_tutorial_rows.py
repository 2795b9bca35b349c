"""docs/reference/tutorial_rows.md against the tests, contract and golden numbers that it names."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.golden import golden

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs/reference/tutorial_rows.md").read_text()
REFERENCE = ROOT.parent / "shared/golden/tutorial.json"
NOT_BUILT: set[int] = set()


def rows() -> dict[int, str]:
    """The tests' column by row; `S28 to S33` is six rows."""
    found: dict[int, str] = {}
    for line in DOCUMENT.splitlines():
        if match := re.match(r"\| S(\d+)(?: to S(\d+))? \|.*\|([^|]*)\|$", line):
            first, last = int(match[1]), int(match[2] or match[1])
            assert not found.keys() & set(range(first, last + 1)), line
            found.update(dict.fromkeys(range(first, last + 1), match[3]))
    return found


def test_every_row_of_the_tutorial_names_tests_that_exist() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^(?:async )?def (test_\w+)\(", tests, re.MULTILINE))
    found = rows()
    assert sorted(found) == list(range(1, 48))
    named = {row: re.findall(r"`(test_\w+)`", text) for row, text in found.items()}
    assert {row for row, each in named.items() if not each} == NOT_BUILT
    assert sorted({name for each in named.values() for name in each} - defined) == []


def test_a_test_that_is_named_for_a_row_stands_in_it() -> None:
    for row, text in rows().items():
        of_others = [
            name
            for name in re.findall(r"`test_((?:s\d+_)+)", text)
            if row != 43 and f"s{row}_" not in name.replace("_s", "_ s").split()
        ]
        assert of_others == [], row


def test_s15_every_call_of_the_table_is_in_the_contract() -> None:
    calls = re.findall(r"`(podium\.\w+\.v1)\.(\w+)/(\w+)`", DOCUMENT)
    assert {method for _, _, method in calls} >= {"CollectGroup", "LoadPolicy", "WatchJob"}
    for package, service, method in calls:
        stem = re.sub(r"(?<!^)(?=[A-Z])", "_", service).lower()
        contract = importlib.import_module(f"{package}.{stem}_pb2").DESCRIPTOR
        assert method in contract.services_by_name[service].methods_by_name
    section = DOCUMENT.partition("\n## The five messages\n")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(named) == [
        "episode_result",
        "shutdown",
        "status_update",
        "train_episodes",
        "update_model",
    ]


def test_s18_the_dashboards_show_what_runs_and_what_waits() -> None:
    files = sorted((ROOT / "charts/podium/files/dashboards").glob("*.json"))
    boards = [json.loads(path.read_text()) for path in files]
    assert boards
    assert all(board["title"].startswith("Podium") for board in boards)
    asked = json.dumps(boards)
    for metric in (
        "podium_rollout_episodes_in_flight",
        "podium_controller_pool_episodes",
        "podium_controller_pool_groups_waiting",
    ):
        assert metric in asked, metric


def test_s43_the_benchmark_of_replicas_is_described() -> None:
    options = importlib.import_module("bench.rollout.__main__")
    assert "python -m bench.rollout --replicas 1,2,4" in (ROOT / "bench/README.md").read_text()
    assert "--replicas" in Path(options.__file__).read_text()


@pytest.fixture
def reference() -> Any:
    if not REFERENCE.exists():
        pytest.skip("the reference study's golden/tutorial.json is not beside this checkout")
    return json.loads(REFERENCE.read_text())


def test_golden_criteria_are_the_reference_studys(reference: Any) -> None:
    ours = golden("judge_criteria.json")
    del ours["_source"]
    assert ours == {name: reference[name] for name in ours}
    assert set(ours) >= {"ruler_example", "efficiency", "satisfaction", "completeness"}


def test_golden_loss_and_emails_are_the_reference_studys(reference: Any) -> None:
    assert golden("trainer_tutorial.json") == {"grpo_seed_loss": reference["grpo_seed_loss"]}
    assert golden("tutorial_email.json")["email_search"] == reference["email_search"]


def test_golden_efficiency_of_a_run_is_the_reference_studys(reference: Any) -> None:
    assert golden("tutorial_tracking.json")["wandb_eff"] == reference["wandb_eff"]


def test_golden_2048_is_the_reference_studys(reference: Any) -> None:
    ours, theirs = golden("game_2048.json"), reference["2048"]
    assert {
        str(each["line"]): [each["merged"], each["gained"], each["moved"]] for each in ours["merge"]
    } == reference["merge"]
    for name in ("left_after_merge", "invalid", "reward_after_spawn_2_at_33"):
        assert ours[name] == theirs[name]
    for name in ("B1", "B2_snakeless", "B3_checker"):
        assert {key: ours["boards"][name][key] for key in theirs[name]} == theirs[name]
    for name in ("B1", "B4"):
        assert ours["boards"][name]["depth1"] == theirs[f"expectimax_{name}_depth1"]
