"""The README's tables are the code's."""

from __future__ import annotations

import re
from pathlib import Path

from podium.kit.rpc import ServerSettings
from podium.types.v1 import trajectory_pb2
from podium_rollout.domain import metrics
from podium_rollout.settings import Settings

README = (Path(__file__).parents[3] / "services" / "rollout" / "README.md").read_text()


def _told(default: object) -> str:
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, bool):
        return str(default).lower()
    return "none" if default == () else str(default)


def test_the_settings_and_their_defaults() -> None:
    told = dict(re.findall(r"\| `PODIUM_ROLLOUT_(\w+)` \| (\S+) \|", README))
    inherited = ServerSettings.model_fields
    own = {
        name.upper(): _told(field.default)
        for name, field in Settings.model_fields.items()
        if name not in inherited or field.default != inherited[name].default
    }
    assert told == own


def test_the_metrics() -> None:
    told = set(re.findall(r"podium_rollout_\w+", README))
    collectors = [value for name, value in vars(metrics).items() if name.isupper()]
    families = [family for collector in collectors for family in collector.describe()]
    real = {f.name + ("_total" if f.type == "counter" else "") for f in families}
    assert told == real


def test_the_ways_that_an_episode_ends() -> None:
    table = README[README.index("| stop_reason |") : README.index("The other attempts")]
    told = set(re.findall(r"`([A-Z_]{4,})`", table))
    assert told == {
        name.removeprefix("STOP_REASON_") for name in trajectory_pb2.StopReason.keys()[1:]
    }
