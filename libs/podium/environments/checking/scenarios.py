"""Whether an environment's scenarios can be drawn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from podium.core.errors import InvalidArgumentError, PodiumError
from podium.environments.base import Environment
from podium.environments.checking.findings import Finding, error, warning
from podium.environments.serving.convert import struct
from podium.environments.task_file import line_of
from podium.environments.types import Scenario

_SHOWN = 3
_OPTION = "environment.config."


def class_findings(kind: type[Environment]) -> Iterator[Finding]:
    """What is wrong with the class itself."""
    name: object = getattr(kind, "name", None)
    if not isinstance(name, str) or not name:
        yield error("class", f"{kind.__name__} has no name", 'Give it one: name = "my_task"')
    elif len(name) > 128:
        yield error("class", f"the name has {len(name)} letters; allowed are 128")
    splits: object = kind.splits
    if isinstance(splits, str) or not isinstance(splits, Sequence) or not splits:
        yield error("class", f"splits is {splits!r}", 'For example splits = ("train", "heldout")')
        return
    if "train" not in splits:
        yield warning("class", "there is no split 'train', which jobs train on unless told")
    if "heldout" not in splits:
        yield warning("class", "there is no split 'heldout', which evaluations use unless told")


def listed(
    kind: type[Environment], config: Mapping[str, Any], folder: Path
) -> tuple[dict[str, list[Scenario]], list[Finding]]:
    """The scenarios of each split, and what is wrong with them."""
    found: dict[str, list[Scenario]] = {}
    findings: list[Finding] = []
    for split in kind.splits:
        try:
            # Two instances: what is kept in one, or drawn at random, shows as a difference.
            first, second = list(kind(config).listed(split)), list(kind(config).listed(split))
        except Exception as raised:
            told = _raised(split, raised, folder)
            # Wrong options are so for every split.
            findings += [] if told in findings else [told]
            continue
        wrong = next((each for each in first if not isinstance(each, Scenario)), None)
        if wrong is not None:
            said = f"scenarios({split!r}) has a {type(wrong).__name__}; allowed are Scenario(id, …)"
            findings.append(error("scenarios", said))
            continue
        found[split] = first
        findings += _of_split(split, first, second)
    findings += _across(found)
    return found, findings


def _raised(split: str, raised: Exception, folder: Path) -> Finding:
    if isinstance(raised, PodiumError):
        violations = getattr(raised, "violations", ())
        said = "; ".join(map(str, violations or (raised.message,)))
        what = "class" if isinstance(raised, InvalidArgumentError) else "scenarios"
        options = [each.field for each in violations if each.field.startswith(_OPTION)]
        return error(what, said, _how_to_give(options[0]) if options else "")
    said = f"scenarios({split!r}) raises {type(raised).__name__}: {raised}"
    return error("scenarios", said, line=line_of(raised, folder))


def _how_to_give(field: str) -> str:
    option = field.removeprefix(_OPTION).partition(".")[0].partition("[")[0]
    return f"Options are given with --set {option}=VALUE here, and in a job as {_OPTION}{option}."


def _of_split(
    split: str, first: Sequence[Scenario], second: Sequence[Scenario]
) -> Iterator[Finding]:
    if not first:
        yield error("scenarios", f"the split {split!r} is empty")
        return
    repeated = [repr(name) for name, count in Counter(s.id for s in first).items() if count > 1]
    if repeated:
        yield error(
            "scenarios",
            f"ids of {split!r} come more than once: {_some(repeated)}",
            "An id names one scenario of a split.",
        )
    if any(not isinstance(each.id, str) or not each.id for each in first):
        yield error("scenarios", f"a scenario of {split!r} has no id", "An id is a text.")
    if [each.id for each in first] != [each.id for each in second]:
        yield error(
            "scenarios",
            f"scenarios({split!r}) differs from call to call",
            "It must give the same list in the same order: seed what is drawn at random.",
        )
    for each in first:
        try:
            struct(each.data)
        except (TypeError, ValueError) as wrong:
            yield error("scenarios", f"the data of {each.id!r} are no JSON: {wrong}")
            return
    if len(first) == 1:
        yield warning("scenarios", f"the split {split!r} has one scenario alone")


def _across(found: Mapping[str, Sequence[Scenario]]) -> Iterator[Finding]:
    train = {_content(each) for each in found.get("train", ())}
    for split, scenarios in found.items():
        if split == "train":
            continue
        same = [repr(each.id) for each in scenarios if _content(each) in train]
        if same:
            yield warning(
                "scenarios",
                f"{len(same)} of {len(scenarios)} scenarios of {split!r} are in 'train' too: "
                f"{_some(same)}",
                "What is trained on measures nothing new.",
            )


def _content(scenario: Scenario) -> str:
    # Without data the id is all that there is.
    return repr(scenario.data or scenario.id)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
