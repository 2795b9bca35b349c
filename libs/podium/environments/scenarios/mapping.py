"""From a row to a scenario: which columns, of which types, and what is wrong with them."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from podium.core.errors import Violation
from podium.core.outside import MOST_NESTED, is_nested_deeper
from podium.environments.scenarios.rows import Row, kind_of
from podium.environments.scenarios.source import DataColumn, ScenarioSource
from podium.environments.scenarios.splits import content_key, hash_split, made_id
from podium.environments.types import Scenario

MAX_ID = 256
_EXACT = 2**53
_SHOWN = 80
_ALLOWED = {
    "string": "texts",
    "integer": "whole numbers",
    "number": "numbers",
    "boolean": "booleans",
    "array": "arrays",
    "object": "objects",
}


@dataclass(frozen=True)
class Mapped:
    """A scenario, where it was found, and what it is compared by."""

    scenario: Scenario
    where: str
    content: bytes
    """Equal for equal data, letter case and white space aside."""
    group: bytes
    """Equal for rows that must not be in train and another split both."""


def mapped(row: Row, source: ScenarioSource, splits: Sequence[str]) -> Mapped | list[Violation]:
    """The row's scenario, or all that is wrong with it; `splits` are those that exist."""
    found: list[Violation] = []
    if is_nested_deeper(row.values, MOST_NESTED):
        return [Violation(row.where, f"is nested more than {MOST_NESTED} levels deep")]
    data = _data(row, source, found)
    split = _split(row, source, splits, found)
    id_ = _id(row, source, found)
    for name in source.group_by:
        if name not in data:
            found.append(_wrong(row, name, "is missing, and group_by names it"))
    if found:
        return found
    content = content_key(data)
    group = content_key({name: data[name] for name in source.group_by}) if source.group_by else None
    chosen = split or hash_split(group or content, source.heldout)
    scenario = Scenario(id_ or made_id(content), data, chosen)
    return Mapped(scenario, row.where, content, group or content)


def _id(row: Row, source: ScenarioSource, found: list[Violation]) -> str:
    column = source.columns.id
    if column is None or (column not in row.values and "id" not in source.columns.model_fields_set):
        return ""
    value = row.values.get(column)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ID:
        allowed = f"allowed are texts of 1 to {MAX_ID} characters and whole numbers"
        found.append(_wrong(row, column, f"got {_shown(value)}; {allowed}"))
        return ""
    return value


def _split(row: Row, source: ScenarioSource, splits: Sequence[str], found: list[Violation]) -> str:
    column = source.columns.split
    given: Any = row.split
    field = column or "split"
    if column is not None and (column in row.values or "split" in source.columns.model_fields_set):
        given = row.values.get(column)
        if not isinstance(given, str) or not given:
            found.append(_wrong(row, field, f"got {_shown(given)}; allowed are names of splits"))
            return ""
    if given is None:
        return ""
    split = source.split_named(given)
    if split not in splits:
        said = f"got {_shown(given)}" + (f", which is {split!r}" if split != given else "")
        allowed = f"{', '.join(splits)}; `splits` can rename others"
        found.append(_wrong(row, field, f"{said}; allowed are {allowed}"))
    return split


def _data(row: Row, source: ScenarioSource, found: list[Violation]) -> dict[str, Any]:
    columns = source.columns
    if columns.data is not None:
        return _chosen(row, columns.data, found)
    beside = {name for name in (columns.id, columns.split) if name is not None}
    rest = {name: value for name, value in row.values.items() if name not in beside}
    whole = rest.get("data")
    if set(rest) == {"data"} and isinstance(whole, Mapping):
        return {name: _json(row, f"data.{name}", whole[name], found) for name in whole}
    return {name: _json(row, name, value, found) for name, value in rest.items()}


def _chosen(row: Row, columns: Mapping[str, DataColumn], found: list[Violation]) -> dict[str, Any]:
    data = {}
    for name, column in columns.items():
        value = row.values.get(column.column)
        if value is None and not column.required:
            data[name] = column.default
            continue
        if value is None:
            there = ", ".join(row.values) or "none"
            has = "nothing" if column.column in row.values else f"no such column; it has {there}"
            found.append(_wrong(row, column.column, f"got {has}; a value is needed"))
            continue
        value = _json(row, column.column, value, found)
        if column.type != "any" and not _is(column.type, value):
            allowed = _ALLOWED[column.type]
            found.append(
                _wrong(
                    row,
                    column.column,
                    f"got {_shown(value)}, {kind_of(value)}; allowed are {allowed}",
                )
            )
        data[name] = value
    return data


def _is(kind: str, value: Any) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    types: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "array": list,
        "object": dict,
    }
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return kind in types and isinstance(value, types[kind])


def _json(row: Row, field: str, value: Any, found: list[Violation]) -> Any:
    """As JSON has it; complaints about what JSON lacks go to `found`."""
    match value:
        case None | bool() | str():
            return value
        case int() if abs(value) > _EXACT:
            why = f"got {value}; beyond 2**53 a number is not exact, give it as text"
        case int():
            return value
        case float() if math.isfinite(value):
            return value
        case float():
            why = f"got {value}; allowed are finite numbers"
        case Decimal() if value.is_finite():
            return str(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case list() | tuple():
            return [_json(row, f"{field}[{n}]", item, found) for n, item in enumerate(value)]
        case Mapping():
            return {
                str(name): _json(row, f"{field}.{name}", item, found)
                for name, item in value.items()
            }
        case _:
            why = f"got {kind_of(value)}; allowed are JSON values"
    found.append(_wrong(row, field, why))
    return None


def _wrong(row: Row, field: str, why: str) -> Violation:
    return Violation(f"{row.where}: {field}", why)


def _shown(value: Any) -> str:
    text = repr(value) if value is not None else "nothing"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
