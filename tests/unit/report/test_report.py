"""The numbers and the page of a report."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podium.cli.html_report import ReportData, render
from podium.cli.html_report.analysis import pairs, rates, split_gain
from podium.cli.html_report.curves import CURVES
from podium.cli.html_report.figures import Point, Series, line_chart, stacked_bars
from podium.cli.html_report.plot import curves
from podium.types.v1 import trajectory_pb2
from support import job_records as records


def data(**changes: object) -> ReportData:
    given: dict[str, object] = {
        "job": records.job(),
        "steps": records.steps(),
        "evaluations": records.evaluations(),
        "before": records.episodes(0, 30, 12, 6),
        "after": records.episodes(18, 99, 98, 96),
    }
    return ReportData(**{**given, **changes})


def test_rates_by_hand() -> None:
    found = rates(records.episodes(0, 30, 12, 6))
    assert found is not None
    assert (found.format, found.success) == (0.3, 0.06)
    assert found.hit_if_valid == pytest.approx(0.4)
    assert found.success_if_valid == pytest.approx(0.2)
    assert found.success_if_invalid == 0.0


def test_gain_by_hand() -> None:
    before, after = rates(records.episodes(0, 30, 12, 6)), rates(records.episodes(1, 90, 80, 72))
    assert before is not None
    assert after is not None
    gain = split_gain(before, after)
    # v: 0.2 -> 0.8, f: 0.3 -> 0.9, w = 0: (0.6)(0.5) and (0.6)(0.6).
    assert gain.by_format == pytest.approx(0.30)
    assert gain.by_search == pytest.approx(0.36)
    assert gain.total == pytest.approx(0.66)


def test_a_gain_that_is_only_format_is_called_so() -> None:
    before, after = rates(records.episodes(0, 10, 10, 5)), rates(records.episodes(1, 100, 100, 50))
    assert before is not None
    assert after is not None
    gain = split_gain(before, after)
    assert gain.by_search == pytest.approx(0.0)
    assert gain.by_format == pytest.approx(0.45)


counts = st.tuples(st.integers(0, 100), st.integers(0, 100), st.integers(0, 100))


@given(counts, counts)
def test_the_split_leaves_no_remainder(
    first: tuple[int, int, int], second: tuple[int, int, int]
) -> None:
    before, after = rates(records.episodes(0, *first)), rates(records.episodes(1, *second))
    assert before is not None
    assert after is not None
    gain = split_gain(before, after)
    assert gain.by_format + gain.by_search == pytest.approx(gain.total, abs=1e-12)


def test_no_format_metric_no_rates() -> None:
    assert rates([]) is None
    assert rates([trajectory_pb2.Trajectory(id="a")]) is None


def test_only_a_task_that_searches_has_a_row_for_it() -> None:
    assert "Format or search?" in render(data())
    assert "search found the target" in render(data())
    page = render(
        data(
            before=records.without_search(records.episodes(0, 30, 12, 6)),
            after=records.without_search(records.episodes(18, 99, 98, 96)),
        )
    )
    assert "Format or acting?" in page
    assert "search found the target" not in page


def test_pairs_show_what_was_learned_first() -> None:
    chosen = pairs(records.episodes(0, 30, 12, 6), records.episodes(18, 99, 98, 96), 3)
    assert [before.scenario_id for before, _ in chosen] == ["heldout-6", "heldout-7", "heldout-8"]
    assert all(before.scenario_id == after.scenario_id for before, after in chosen)
    assert pairs([], records.episodes(0, 1, 1, 1), 3) == []


def test_chart_of_nothing_is_nothing() -> None:
    assert line_chart([Series("a", [])], label="a") == ""
    assert line_chart([Series("a", [Point(1, float("nan"))])], label="a") == ""
    assert stacked_bars([], [], label="a") == ""


def chart_of(html: str) -> Any:
    """The numbers of the one chart in it."""
    (found,) = re.findall(r'data-chart="([^"]*)"', html)
    return json.loads(unescape(found))


def test_chart_has_the_points_and_their_intervals_at_their_steps() -> None:
    curve = Series("a <b>", [Point(0, 0), Point(10, 1), Point(5, float("inf"))])
    dots = Series("b", [Point(3, 0.5, low=0.25, high=2), Point(4, 1, low=float("nan"), high=1)], 3)
    found = chart_of(line_chart([curve, dots], label="<a>", y_range=(0, 1)))
    assert found["x"] == [0, 3, 4, 10]
    assert found["range"] == [0, 2]
    first, second = found["series"]
    assert (first["name"], first["y"]) == ("a <b>", [0, None, None, 1])
    assert (second["y"], second["bounds"]) == ([None, 0.5, 1, None], [[3, 0.25, 2]])


def test_stacked_parts_are_told_by_name() -> None:
    found = chart_of(stacked_bars(["x", "y"], [(1, [2, 3]), (2, [4, 5])], label="a"))
    assert [(each["name"], each["y"]) for each in found["series"]] == [("x", [2, 4]), ("y", [3, 5])]


class Page(HTMLParser):
    """Checks nesting and collects text and links."""

    void = frozenset({"meta", "line", "circle", "rect", "polyline", "path", "i", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in {"src", "href", "srcset"}]
        if tag not in self.void or tag == "i":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.void and tag != "i":
            return
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_page_is_whole_and_loads_nothing() -> None:
    html = render(data())
    page = Page(html)
    assert page.open == []
    assert page.links == []
    # The programs name their home in a comment, and are in the file.
    assert html.count("<script>") == html.count("<script") == 2
    own = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r"url\(|@import|https?://", own)
    assert "uPlot" in html
    text = " ".join(page.words)
    for words in ("Learning curve", "Format or search?", "Training dynamics", "Configuration"):
        assert words in text
    assert "6 %" in text
    assert "96 %" in text
    assert "90 to 98 %" in text
    assert "prefers-color-scheme: dark" in html


def test_s18_the_report_is_a_page_that_works_offline() -> None:
    html = render(data())
    page = Page(html)
    assert "<title>email-demo: Podium training report</title>" in html
    assert page.links == []
    text = " ".join(page.words)
    assert "of 18 steps" in text


def test_the_page_tells_what_tokens_were_used_for() -> None:
    job = records.job()
    job.usage.prompt_tokens = 4_200_000
    job.usage.sampled_tokens = 61_400
    job.usage.trained_tokens = 950
    job.usage.judge_prompt_tokens, job.usage.judge_completion_tokens = 20_000, 3_000
    cards = re.findall(
        r'<div class="card"><b>([^<]*)</b><span>([^<]*)</span>', render(data(job=job))
    )
    told = {what: count for count, what in cards if "tokens" in what}
    assert told == {
        "tokens of prompts": "4.2M",
        "tokens sampled, evaluations included": "61k",
        "tokens trained on": "950",
        "tokens of judges": "23k",
    }
    job.usage.teacher_tokens = 12_345
    assert "<b>12k</b><span>tokens that a teacher read</span>" in render(data(job=job))


def test_page_shows_model_output_as_text() -> None:
    html = render(data(before=records.episodes(0, 0, 0, 0)))
    assert "<b>I</b>" not in html
    assert "&lt;b&gt;I&lt;/b&gt;" in html


def test_page_folds_thoughts_away_as_text() -> None:
    episodes = records.episodes(0, 30, 12, 6)
    assert "<summary>thoughts</summary>" not in render(data(before=episodes))
    for episode in episodes:
        history = episode.histories.add()
        history.messages.add(role=trajectory_pb2.ROLE_ASSISTANT, reasoning="<script>so</script>")
    html = render(data(before=episodes))
    assert Page(html).open == []
    folded = "<details><summary>thoughts</summary><pre>&lt;script&gt;so&lt;/script&gt;</pre>"
    assert f'<span class="who">assistant · turn 2</span>{folded}</details></div>' in html


def test_s19_the_page_tells_what_each_step_paid() -> None:
    episodes = records.episodes(0, 30, 12, 6)
    assert "rewards of the steps" not in render(data(before=episodes))
    for episode in episodes:
        episode.transitions.add(reward=0.15)
        episode.transitions.add(reward=-0.05, terminated=True)
        episode.score_reward = 0.5
    page = render(data(before=episodes))
    assert "rewards of the steps: 0.15 · -0.05 · and 0.5 in the end" in page


def test_the_page_tells_at_each_turn_what_it_was_paid_and_a_repeated_one_once() -> None:
    episodes = records.episodes(0, 30, 12, 6)
    assert "· turn 1</span>" in render(data(before=episodes))
    for episode in episodes:
        episode.transitions.add(reward=0.15)
        episode.transitions.add(reward=-0.05, terminated=True)
        again = episode.histories.add(messages=episode.histories[0].messages)
        again.messages.add(role=trajectory_pb2.ROLE_ASSISTANT, content="the <second>")
    html = render(data(before=episodes[5:6], after=records.episodes(18, 99, 98, 96)))
    assert Page(html).open == []
    before = html[html.index("<h3>before</h3>") : html.index("<h3>after</h3>")]
    turns = re.findall(r'<span class="who">(assistant[^<]*)</span>', before)
    assert turns == ["assistant · turn 1 · reward +0.15", "assistant · turn 2 · reward -0.05"]
    assert before.count("Find Dana") == before.count("the &lt;second&gt;") == 1
    assert "a new history" in before


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": [], "evaluations": [], "before": [], "after": []},
        {"steps": records.steps(1), "after": []},
        {"evaluations": records.evaluations()[:1], "before": [], "after": []},
    ],
)
def test_page_of_a_job_that_has_hardly_begun(changes: dict[str, object]) -> None:
    assert Page(render(data(job=records.job(done=0), **changes))).open == []


def test_failed_job_says_why() -> None:
    job = records.job()
    job.failure_message = "the pool <died>"
    assert "the pool &lt;died&gt;" in render(data(job=job))


def test_terminal_curves() -> None:
    text = curves(records.steps(), records.evaluations(), colour=False, width=80)
    assert "\x1b" not in text
    assert "reward" in text
    assert "●" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" in curves(records.steps(), [], colour=True, width=80)


def test_every_scenario_is_on_the_page() -> None:
    shown = data()
    page = render(shown)
    names = {item.scenario_id for item in (*shown.before, *shown.after)}
    assert len(names) == 100
    table = page[page.index("Every scenario") :]
    rows = re.findall(r"<tr><td>([^<]+)</td>((?:<td[^>]*>[^<]*</td>)+)</tr>", table)
    found = {name: re.findall(r">([^<]*)</td>", cells) for name, cells in rows if name in names}
    assert set(found) == names
    assert sum(cells[0] == "1 of 1" for cells in found.values()) == 6
    assert sum(cells[2] == "1 of 1" for cells in found.values()) == 96
    assert "Every scenario" not in render(data(before=(), after=()))


def test_every_step_is_a_row_and_what_is_no_number_is_said() -> None:
    made = records.steps(500)
    made[3].metrics["train/loss"] = float("nan")
    made[4].metrics["reward_mean"] = 0.123456
    del made[5].metrics["success_mean"]
    page = render(data(steps=made))
    table = page.split("<h2>Every step</h2>")[1].split("</table>")[0]
    rows = re.findall(r"<tr><td.*?</tr>", table)
    assert len(rows) == 500
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    assert re.findall(r"<th[^>]*>(.*?)</th>", table)[:4] == [
        "step",
        "reward",
        "training success",
        "loss",
    ]
    assert (cells[3][3], cells[4][1], cells[5][2]) == ("nan", "0.1235", "")
    assert cells[7][-2:] == ["17.0", "08:02:16 UTC"]
    # What no step has takes no column.
    for step in made:
        del step.metrics["train/kl_reference"]
    kl = f">{CURVES['train/kl_reference'].label}<"
    assert kl in table
    assert kl not in render(data(steps=made)).split("Every step")[1].split("</table>")[0]
    assert "Every step" not in render(data(steps=[]))


def spread(page: str) -> list[list[str]]:
    rows = re.findall(r"<tr><td>.*?</tr>", page.split("<h2>Rewards</h2>")[1].split("</table>")[0])
    return [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in rows]


def test_the_rewards_of_before_and_after_are_spread_over_their_values() -> None:
    assert spread(render(data())) == [["0", "94 %", "4 %"], ["1", "6 %", "96 %"]]
    one, other = records.episodes(0, 1, 1, 1), records.episodes(18, 1, 1, 1)
    for at, episode in enumerate(one):
        episode.reward = at / 100
    for episode in other:
        episode.reward = 0.5
    other[0].reward = 1.0
    other[1].reward = float("inf")
    other[2].ClearField("reward")
    other[2].ClearField("environment_reward")
    rows = spread(render(data(before=one, after=other)))
    assert [row[0] for row in rows][::9] == ["0 to 0.1", "0.9 to 1"]
    assert [row[1] for row in rows] == ["10 %"] * 10
    # The highest of all is in the last; what is no number, and who has none, is in no row.
    assert [row[2] for row in rows] == ["0 %"] * 5 + ["99 %"] + ["0 %"] * 3 + ["1 %"]
    assert "<h2>Rewards</h2>" not in render(data(before=[], after=[]))


def test_the_judges_words_stand_with_the_episode_and_are_no_markup() -> None:
    said = "named <b>Dana</b>, and not Ed"
    before, after = records.episodes(0, 30, 12, 6), records.episodes(18, 99, 98, 96)
    assert "the judge" not in render(data())
    for episode in after:
        episode.explanation = said
    page = render(data(before=before, after=after))
    assert page.count("the judge</span>") == 3
    assert page.count("named &lt;b&gt;Dana&lt;/b&gt;, and not Ed") == 3
    assert said not in page


def test_another_job_stands_beside_it_in_curves_numbers_and_keys() -> None:
    longer = records.job("<i>other", steps=20, done=4)
    longer.spec.training.learning_rate = 3e-4
    longer.spec.environment.ClearField("name")
    other = ReportData(job=longer, steps=records.steps(4), evaluations=records.evaluations()[:1])
    page = render(data(other=other))
    section = page.split("email-demo and &lt;i&gt;other</h2>")[1].split("<h2>")[0]
    charts = [json.loads(unescape(each)) for each in re.findall(r'data-chart="([^"]*)"', section)]
    assert [one["name"] for one in charts[0]["series"]] == ["email-demo", "<i>other"]
    assert [sum(y is not None for y in one["y"]) for one in charts[1]["series"]] == [18, 4]
    rows = re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td></tr>", section)
    found = {name: (one, two) for name, one, two in rows}
    assert found["state"] == ("succeeded", "running")
    assert found["steps"] == ("18 of 18", "4 of 20")
    assert found["held-out success, sampled"] == (
        "0.960 (95 % 0.90 to 0.98), version 18",
        "0.060 (95 % 0.03 to 0.12), version 0",
    )
    assert found["held-out success, greedy"][1] == ""
    assert found["training.steps"] == ("18", "20")
    assert found["environment.name"] == ("email_search", "–")
    assert "rollout.group_size" not in found
    same = render(data(other=data()))
    assert "Their specifications are the same" in same


def test_of_an_evaluation_that_nobody_judges_the_environments_reward_is_told() -> None:
    before, after = records.episodes(0, 30, 12, 6), records.episodes(18, 99, 98, 96)
    for episode in (*before, *after):
        episode.ClearField("reward")
    page = render(data(before=before, after=after))
    assert spread(page) == [["0", "94 %", "4 %"], ["1", "6 %", "96 %"]]
    row = re.search(r"<tr><td>heldout-50</td>(.*?)</tr>", page)
    assert row is not None
    assert re.findall(r"<td[^>]*>(.*?)</td>", row[1]) == ["0 of 1", "0.000", "1 of 1", "1.000"]
    assert "terminated · reward 1.000" in page
    after[50].ClearField("environment_reward")
    row = re.search(r"<tr><td>heldout-50</td>(.*?)</tr>", render(data(before=before, after=after)))
    assert row is not None
    assert re.findall(r"<td[^>]*>(.*?)</td>", row[1])[3] == ""
