"""Messages in their JSON form, and how they are made to fit: long ones lose their middle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from podium.core.outside import clean

BYTES_PER_TOKEN = 3
"""English text has about 4 bytes a token and code or Chinese about 3 (no tokenizer is asked)."""

# Other tags may stand: escaping all of a web page's would double its tokens.
_TAG = re.compile(r"<(?=[\s/]*(?:attempt|context|tools|trajectory|available_tools))", re.IGNORECASE)
_LINE_BREAKS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}

_LEAST_MESSAGE_BYTES = 240
"""What a message is worth showing with; of more than fit so, the middle ones are left out."""
_CLOSE_ENOUGH = 0.98


def to_json(value: Any) -> str:
    """`value` as one line of JSON without a tag of the prompt."""
    text = clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return _TAG.sub(r"\\u003c", text.translate(_LINE_BREAKS))


def role_of(line: str) -> str:
    """The role of a message in its JSON form."""
    return line[2 : line.index('"', 2)]


def tokens_of(text: str) -> int:
    """About how many tokens a text has; more than most tokenizers make of it."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def size_of(lines: Iterable[str]) -> int:
    """Bytes of the lines with their line breaks."""
    return sum(len(line.encode()) + 1 for line in lines)


def fair_shares(wanted: Sequence[int], total: int) -> list[int]:
    """Divides `total`: who wants less than an even share leaves the rest to the others.

    Max-min fairness (Bertsekas and Gallager, Data Networks, section 6.5.2).
    """
    shares = [0] * len(wanted)
    waiting = sorted(range(len(wanted)), key=wanted.__getitem__)
    for place, index in enumerate(waiting):
        shares[index] = min(wanted[index], max(0, total) // (len(waiting) - place))
        total -= shares[index]
    return shares


def shorten(lines: Sequence[str], tokens: int) -> tuple[list[str], int]:
    """`lines` within about `tokens`, and how many bytes that left out.

    All lines get the same room; what short ones leave of theirs is the long ones', which
    lose their middle. Only of more lines than can be shown at all are the middle ones left
    out: the start says what was tried, the end what came of it.
    """
    limit = tokens * BYTES_PER_TOKEN
    total = size_of(lines)
    if total <= limit:
        return list(lines), 0
    start, end = _ends(lines, limit)
    missing = len(lines) - len(start) - len(end)
    gap = [f"[{missing} lines left out]"] if missing else []
    kept = [*start, *end]
    rooms = fair_shares([size_of([line]) for line in kept], limit - size_of(gap))
    cut = [cut_line(line, room - 1) for line, room in zip(kept, rooms, strict=True)]
    left_out = max(0, total - size_of(cut))
    return [*cut[: len(start)], *gap, *cut[len(start) :]], left_out


def _ends(lines: Sequence[str], limit: int) -> tuple[list[str], list[str]]:
    """As many first and last lines as can be shown, the last one at least."""
    start: list[str] = []
    end: list[str] = []
    first, last = 0, len(lines) - 1
    while first <= last:
        from_end = len(end) <= len(start)
        line = lines[last] if from_end else lines[first]
        limit -= min(size_of([line]), _LEAST_MESSAGE_BYTES)
        if limit < 0 and end:
            break
        if from_end:
            end.insert(0, line)
            last -= 1
        else:
            start.append(line)
            first += 1
    return start, end


def cut_line(line: str, limit: int) -> str:
    """A message in its JSON form within `limit` bytes, as far as that can be.

    Of its texts the longest lose their middle first. What is no message stays as it is.
    """
    if len(line.encode()) <= limit or not line.startswith("{"):
        return line
    whole = _fitting(json.loads(line), limit)
    # Many short values, or a long key: no text in it is worth more than the others.
    return whole or _fitting({role_of(line): line}, limit) or to_json({role_of(line): "\u2026"})


@dataclass(frozen=True)
class _Text:
    """A text of a message, as far as any cut of it can show."""

    start: bytes
    end: bytes
    size: int

    def cut(self, length: int) -> str:
        """All of it, or its first and last bytes, `length` together."""
        if self.size <= length:
            return self.start.decode()
        half = length // 2
        start = self.start[:half].decode(errors="ignore")
        end = self.end[len(self.end) - half :].decode(errors="ignore")
        return f"{start} [{self.size - 2 * half} bytes left out] {end}"


def _fitting(value: Any, limit: int) -> str:
    """The value with its texts cut to the greatest length that fits; empty when none does."""
    texts = _texts(value, limit)
    best = ""
    low, high = 0, limit
    while low <= high:
        length = (low + high) // 2
        tried = to_json(_shown(texts, length))
        size = len(tried.encode())
        if size > limit:
            high = length - 1
        else:
            best, low = tried, length + 1
            if size >= _CLOSE_ENOUGH * limit:
                break
    return best


def _texts(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        data = value.encode()
        return _Text(data[:limit], data[-limit:] if limit else b"", len(data))
    if isinstance(value, dict):
        return {key: _texts(inner, limit) for key, inner in value.items()}
    if isinstance(value, list):
        return [_texts(inner, limit) for inner in value]
    return value


def _shown(value: Any, length: int) -> Any:
    if isinstance(value, _Text):
        return value.cut(length)
    if isinstance(value, dict):
        return {key: _shown(inner, length) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shown(inner, length) for inner in value]
    return value
