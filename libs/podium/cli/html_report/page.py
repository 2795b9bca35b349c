"""The page: its sections in order."""

from __future__ import annotations

from datetime import UTC
from html import escape

import podium
from podium.cli.html_report import analysis
from podium.cli.html_report.charts import dynamics, learning_curve
from podium.cli.html_report.collect import SAMPLED, ReportData
from podium.cli.html_report.compare import compared
from podium.cli.html_report.episodes import episode_pairs
from podium.cli.html_report.figures import head, script
from podium.cli.html_report.rewards import reward_spread
from podium.cli.html_report.scenarios import all_scenarios
from podium.cli.html_report.scrolled import scrolled
from podium.cli.html_report.steps import all_steps
from podium.cli.html_report.style import CSS
from podium.core.contract import to_yaml
from podium.core.job_environments import title_of
from podium.jobs.v1 import job_service_pb2 as jobs


def render(data: ReportData) -> str:
    """The report as one HTML document that loads nothing."""
    title = f"{data.job.id}: Podium training report"
    body = "".join(
        filter(
            None,
            (
                _head(data.job),
                _cards(data),
                learning_curve(data),
                _evaluations(data),
                compared(data),
                _gain(data),
                reward_spread(data),
                dynamics(data),
                all_steps(data),
                episode_pairs(data),
                all_scenarios(data),
                _configuration(data.job),
                _trouble(data),
                _foot(data.job),
            ),
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}</style>{head()}</head>"
        f"<body><main>{body}</main>{script()}</body></html>\n"
    )


def _head(job: jobs.Job) -> str:
    state = jobs.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
    failure = (
        f'<p class="verdict bad" style="float:none">{escape(job.failure_message)}</p>'
        if job.failure_message
        else ""
    )
    return (
        f'<header><h1>{escape(job.id)}<span class="state {state}">{state}</span></h1>'
        f'<p class="soft">{escape(job.spec.base_model)} learning '
        f"{escape(title_of(job.spec))}</p>{failure}</header>"
    )


def _cards(data: ReportData) -> str:
    cells = []
    measured = data.of_mode(SAMPLED)
    if measured and "success" in measured[0].metrics:
        first, last = measured[0], measured[-1]
        cells.append((_percent(first.metrics["success"]), f"success before, {_interval(first)}"))
        if last.version != first.version:
            gain = last.metrics["success"] - first.metrics["success"]
            cells.append((_percent(last.metrics["success"]), f"success after, {_interval(last)}"))
            cells.append((f"{100 * gain:+.0f} pts", "change in success"))
    cells.append((f"{data.job.completed_steps}", f"of {data.job.spec.training.steps} steps"))
    if data.steps:
        seconds = (
            data.steps[-1].commit_time.ToNanoseconds() - data.steps[0].start_time.ToNanoseconds()
        ) / 1e9
        cells.append((_duration(seconds), "training, evaluations between steps included"))
    usage = data.job.usage
    for tokens, what in (
        (usage.prompt_tokens, "tokens of prompts"),
        (usage.sampled_tokens, "tokens sampled, evaluations included"),
        (usage.trained_tokens, "tokens trained on"),
        (usage.teacher_tokens, "tokens that a teacher read"),
        (usage.judge_prompt_tokens + usage.judge_completion_tokens, "tokens of judges"),
    ):
        if tokens:
            cells.append((_count(tokens), what))
    gpus = usage.trainer_gpu_seconds + usage.pool_gpu_seconds
    if gpus:
        cells.append((f"{gpus / 3600:.2f}", "GPU hours, of the trainer and of its share of a pool"))
    if usage.HasField("gpu_cost"):
        cells.append((f"{usage.gpu_cost:.2f}", "cost of the GPUs"))
    if usage.judge_cost:
        cells.append((f"{usage.judge_cost:.2f}", "cost of the judges"))
    items = (f'<div class="card"><b>{big}</b><span>{small}</span></div>' for big, small in cells)
    return f'<section class="cards">{"".join(items)}</section>'


def _evaluations(data: ReportData) -> str:
    if not data.evaluations:
        return ""
    names = sorted({name for item in data.evaluations for name in item.metrics} - {"success"})
    head = "".join(f'<th class="n">{escape(name)}</th>' for name in names)
    rows = "".join(
        f"<tr><td>{item.version}</td><td>{escape(item.mode)}</td>"
        f'<td class="n">{item.episodes}</td>'
        f'<td class="n">{_metric(item, "success")}</td>'
        f'<td class="n">{_interval(item) if item.success_high else ""}</td>'
        + "".join(f'<td class="n">{_metric(item, name)}</td>' for name in names)
        + "</tr>"
        for item in sorted(data.evaluations, key=lambda item: (item.version, item.mode))
    )
    split = escape(data.job.spec.evaluation.split or "held-out")
    return (
        f'<h2>Evaluation</h2><p class="soft">Scenarios of the split <b>{split}</b>; version 0 '
        "is the model before training. <b>sampled</b> is at the training temperature, "
        "<b>greedy</b> at temperature 0; intervals are 95 %, over scenarios.</p>"
        + scrolled(
            "Evaluation",
            "<table><tr><th>version</th><th>mode</th>"
            '<th class="n">episodes</th><th class="n">success</th><th class="n">95 %</th>'
            f"{head}</tr>{rows}</table>",
        )
    )


def _gain(data: ReportData) -> str:
    before, after = analysis.rates(data.before), analysis.rates(data.after)
    if before is None or after is None:
        return ""
    gain = analysis.split_gain(before, after)
    rest, better = ("search", "searching and choosing") if after.searches else ("acting", "acting")
    rows = "".join(
        f'<tr><td>{name}</td><td class="n">{_rate(first)}</td><td class="n">{_rate(last)}</td></tr>'
        for name, first, last in (
            *analysis.labelled(before, after),
            ("success", before.success, after.success),
        )
    )
    table = scrolled(
        "Before and after",
        '<table><tr><th>share of sampled episodes</th><th class="n">before</th>'
        f'<th class="n">after</th></tr>{rows}</table>',
        "scroll",
    )
    return (
        f"<h2>Format or {rest}?</h2>"
        f"<p>Of the change of {100 * gain.total:+.0f} points, "
        f"<b>{100 * gain.by_format:+.0f}</b> come from writing actions that can be read and "
        f"<b>{100 * gain.by_search:+.0f}</b> from {better} better once they can.</p>"
        f'<div class="panel">{_gain_bar(gain, rest)}{table}</div>'
        '<p class="soft" style="margin-top:8px">Kitagawa decomposition: '
        "change of the mix of formats, and change of success within each; the two add up "
        "exactly.</p>"
    )


def _gain_bar(gain: analysis.Gain, rest: str) -> str:
    total = gain.by_format + gain.by_search
    if gain.by_format < 0 or gain.by_search < 0 or total <= 0:
        return ""
    parts = "".join(
        f'<div class="b{style}" style="flex:{amount / total:.4f}">'
        f"{name if amount / total > 0.08 else ''}</div>"
        for style, name, amount in ((3, "format", gain.by_format), (1, rest, gain.by_search))
        if amount > 0
    )
    return f'<div class="bar">{parts}</div>'


def _configuration(job: jobs.Job) -> str:
    return f'<h2>Configuration</h2><div class="panel"><pre>{escape(to_yaml(job.spec))}</pre></div>'


def _trouble(data: ReportData) -> str:
    kinds = (jobs.EVENT_TYPE_RECOVERY, jobs.EVENT_TYPE_WARNING)
    found = [event for event in data.events if event.type in kinds]
    if not found:
        return ""
    rows = "".join(
        f"<tr><td>{event.time.ToDatetime(UTC):%H:%M:%S} UTC</td>"
        f"<td>{event.step or ''}</td><td>{escape(event.message)}</td></tr>"
        for event in found
    )
    table = f"<table><tr><th>time</th><th>step</th><th>what</th></tr>{rows}</table>"
    return "<h2>Warnings and recoveries</h2>" + scrolled("Warnings and recoveries", table)


def _foot(job: jobs.Job) -> str:
    facts = [f"Podium {podium.__version__}", f"seed {job.spec.seed}"]
    if job.create_time.seconds:
        facts.append(f"submitted {job.create_time.ToDatetime(UTC):%Y-%m-%d %H:%M} UTC")
    return f"<footer>{escape(' · '.join(facts))}</footer>"


def _interval(item: jobs.Evaluation) -> str:
    return f"{100 * item.success_low:.0f} to {100 * item.success_high:.0f} %"


def _metric(item: jobs.Evaluation, name: str) -> str:
    return f"{item.metrics[name]:.3f}" if name in item.metrics else ""


def _rate(value: float | None) -> str:
    return "no such episode" if value is None else _percent(value)


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _count(value: float) -> str:
    return (
        f"{value / 1e6:.1f}M"
        if value >= 1e6
        else f"{value / 1e3:.0f}k"
        if value >= 1e4
        else f"{value:.0f}"
    )


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 90 else f"{seconds:.0f} s"
