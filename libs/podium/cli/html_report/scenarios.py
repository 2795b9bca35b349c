"""Every evaluated scenario in a row: what the first and the last version made of it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from podium.cli.html_report.collect import ReportData
from podium.cli.html_report.rewards import reward_of
from podium.cli.html_report.scrolled import scrolled
from podium.types.v1 import trajectory_pb2 as pb


def all_scenarios(data: ReportData) -> str:
    """The table, closed until it is asked for; nothing where nothing was evaluated."""
    before, after = _by_scenario(data.before), _by_scenario(data.after)
    names = list(dict.fromkeys((*before, *after)))
    if not names:
        return ""
    head = '<th class="n">solved</th><th class="n">reward</th>'
    times = [("before", before)] + ([("after", after)] if after else [])
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(_cells(found.get(name, ())) for _, found in times)
        + "</tr>"
        for name in names
    )
    groups = "".join(f'<th class="n" colspan="2">{when}</th>' for when, _ in times)
    table = (
        f"<table><tr><th></th>{groups}</tr>"
        f"<tr><th>scenario</th>{head * len(times)}</tr>{rows}</table>"
    )
    return (
        f"<h2>Every scenario</h2><details><summary>{len(names)} scenarios: sampled attempts "
        "that solved each, and their mean reward</summary>"
        f"{scrolled('Every scenario', table)}</details>"
    )


def _by_scenario(episodes: Iterable[pb.Trajectory]) -> dict[str, list[pb.Trajectory]]:
    found: dict[str, list[pb.Trajectory]] = {}
    for episode in episodes:
        # Scenarios of several environments may have the same ids.
        of = f"{episode.environment}: " if episode.environment else ""
        found.setdefault(f"{of}{episode.scenario_id}", []).append(episode)
    return found


def _cells(attempts: Iterable[pb.Trajectory]) -> str:
    found = list(attempts)
    judged = [item.metrics["success"] >= 1.0 for item in found if "success" in item.metrics]
    rewards = [paid for item in found if (paid := reward_of(item)) is not None]
    solved = f"{sum(judged)} of {len(judged)}" if judged else ""
    mean = f"{sum(rewards) / len(rewards):.3f}" if rewards else ""
    return f'<td class="n">{solved}</td><td class="n">{mean}</td>'
