"""`python -m bench.judge`: judge tokens of a group, Podium's over ART's RULER."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from podium.local.models import resolve

from bench.judge import art_side, podium_side
from bench.judge.groups import Kind, kinds
from bench.judge.server import Exchange, Recorder, recorder

MODEL = "smollm2-135m-instruct"
REPEATS = 5
"""Prompts of each group on Podium's side: each of another group's id, and the longest counts."""
PARTS = ("prompt", "schema", "answer")
Count = Callable[[Exchange], dict[str, int]]


class UnequalError(Exception):
    """The two sides came to different scores."""


def main() -> int:
    """Returns 1 when the scores of the two sides differ; a missed target is no error."""
    options = _options()
    try:
        ruler = art_side.load(art_side.wheel(options.output.parent / "art"))
    except RuntimeError as error:
        print(f"skipped: {error}")
        return 0
    try:
        rows = asyncio.run(_measure(ruler, _counter()))
    except UnequalError as error:
        print(f"NOT EQUAL, nothing was counted: {error}")
        return 1
    result = {"tokenizer": MODEL, "art": art_side.VERSION, "groups": rows, "met": _met(rows)}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(_table(rows))
    return 0


async def _measure(ruler: art_side.Ruler, count: Count) -> list[dict[str, Any]]:
    rows = []
    with recorder() as server:
        for kind in kinds():
            theirs = await art_side.judge(ruler, kind, server.base_url)
            art = _totals(server, count)
            runs: list[dict[str, int]] = []
            for number in range(REPEATS):
                ours = await podium_side.judge(kind, server.base_url, number)
                _assert_equal(kind, ours, theirs)
                runs.append(_totals(server, count))
            podium = max(runs, key=lambda totals: sum(totals.values()))
            rows.append({"group": kind.name, "art": art, "podium": podium})
    return rows


def _totals(server: Recorder, count: Count) -> dict[str, int]:
    totals = dict.fromkeys(PARTS, 0)
    for exchange in server.take():
        for part, tokens in count(exchange).items():
            totals[part] += tokens
    return totals


def _assert_equal(kind: Kind, ours: Sequence[float] | None, theirs: Sequence[float]) -> None:
    if ours is None:
        if len(set(theirs)) > 1:
            raise UnequalError(f"{kind.name}: Podium sees no variance, ART's scores are {theirs}")
        return
    compared = [n for n in range(len(theirs)) if n not in kind.art_shows_nothing_of]
    if [ours[n] for n in compared] != [theirs[n] for n in compared]:
        raise UnequalError(f"{kind.name}: Podium's scores are {ours}, ART's {theirs}")


def _counter() -> Count:
    """Counts with one tokenizer, in its own chat template, for both sides."""
    from transformers import AutoTokenizer

    # Counting, not running: a prompt beyond this model's context is no matter.
    tokenizer = AutoTokenizer.from_pretrained(resolve(MODEL), model_max_length=sys.maxsize)

    def tokens(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    def count(exchange: Exchange) -> dict[str, int]:
        rendered = tokenizer.apply_chat_template(
            exchange.request["messages"], tokenize=False, add_generation_prompt=True
        )
        schema = exchange.request["response_format"]["json_schema"]["schema"]
        return {
            "prompt": tokens(rendered),
            "schema": tokens(json.dumps(schema)),
            "answer": tokens(exchange.answer),
        }

    return count


def _ratio(row: dict[str, Any], parts: Sequence[str]) -> float:
    ours = sum(row["podium"][part] for part in parts)
    theirs = sum(row["art"][part] for part in parts)
    return ours / theirs if theirs else float(ours > 0)


def _met(rows: Sequence[dict[str, Any]]) -> bool:
    return all(_ratio(row, ("prompt", "answer")) <= 1 for row in rows)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "",
        f"judge tokens of a group, {MODEL}'s tokenizer: prompt + answer (schema apart)",
        f"  {'group':<40} {'ART':>18} {'Podium':>18} {'ratio':>8} {'with schema':>12}",
    ]
    for row in rows:
        sides = [
            f"{row[side]['prompt']} + {row[side]['answer']} ({row[side]['schema']})"
            for side in ("art", "podium")
        ]
        lines.append(
            f"  {row['group']:<40} {sides[0]:>18} {sides[1]:>18} "
            f"{_ratio(row, ('prompt', 'answer')):>8.2f} {_ratio(row, PARTS):>12.2f}"
        )
    total: dict[str, Any] = {
        side: {part: sum(row[side][part] for row in rows) for part in PARTS}
        for side in ("art", "podium")
    }
    verdict = "met" if _met(rows) else "MISSED"
    lines.append(
        f"  all groups together: {_ratio(total, ('prompt', 'answer')):.2f}, with schema "
        f"{_ratio(total, PARTS):.2f}; at most 1.00 in every group: {verdict}"
    )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.judge", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("build/bench/judge.json"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
