"""The names of span attributes are in one module, and all that are there are used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from podium.kit.telemetry import attributes
from support.sources import written

HOME = "libs/podium/kit/telemetry/attributes.py"
FOLDERS = ("libs", "services", "examples", "bench")
CONVENTIONS = re.compile(
    r"(gen_ai|rpc|error|exception|client|server|service|session|k8s)\.[a-z_.]+"
)
NAMED = {value for name, value in vars(attributes).items() if name.isupper()}
TAKES_A_NAME = {"set_attribute"}
TAKES_NAMES = {"set_attributes", "add_event", "start_span", "start_as_current_span"}
MAY_NAME = re.compile(
    "|".join(
        [rf"[\"']{CONVENTIONS.pattern}[\"']", *map(re.escape, NAMED | TAKES_A_NAME | TAKES_NAMES)]
    )
)
"""Parts the modules that are worth parsing from the many that are not."""


def sources() -> dict[str, str]:
    """Everything that may write a span, but the generated contracts and the names' home."""
    return {file: text for file, text in written(*FOLDERS).items() if file != HOME}


def literal_names(text: str) -> Iterator[tuple[int, str]]:
    """The lines where a name of an attribute is written out, and how."""
    if not MAY_NAME.search(text):
        return
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if CONVENTIONS.fullmatch(node.value) or node.value in NAMED:
                yield node.lineno, node.value
        elif isinstance(node, ast.Call):
            for given in names_given(node):
                if isinstance(given, ast.Constant | ast.JoinedStr | ast.BinOp):
                    yield given.lineno, ast.unparse(given)


def names_given(call: ast.Call) -> Iterator[ast.expr | None]:
    """What a call names attributes with."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if function in TAKES_A_NAME:
        yield from call.args[:1]
        yield from (each.value for each in call.keywords if each.arg == "key")
    if function in TAKES_NAMES:
        given = [*call.args, *(each.value for each in call.keywords if each.arg == "attributes")]
        for each in given:
            if isinstance(each, ast.Dict):
                yield from each.keys


@pytest.mark.parametrize(
    "code",
    [
        'span.set_attribute("gen_ai.operation.name", "chat")',
        'span.set_attribute("mine", 1)',
        'span.set_attribute(f"podium.phase.{phase}", 1)',
        'span.set_attribute("podium." + name, 1)',
        'span.set_attributes({"podium.trajectory": 1})',
        'tracer.start_as_current_span("turn", attributes={"podium.turn": 1})',
        'span.add_event("retried", {"attempt": 1})',
        'NAME = "gen_ai.request.seed"',
        'ids = {"podium.job.id": job}',
    ],
)
def test_a_name_that_is_written_out_is_found(code: str) -> None:
    assert list(literal_names(code))


@pytest.mark.parametrize(
    "code",
    [
        "span.set_attribute(attributes.STEP, 1)",
        'tracer.start_span("train_step", attributes={attributes.STEP: 1})',
        'SERVICE = "podium.jobs.v1.JobService"',
        'body["error"]["type"] = "not_found"',
    ],
)
def test_what_names_no_attribute_is_let_be(code: str) -> None:
    assert not list(literal_names(code))


def test_names_of_attributes_are_written_in_one_module() -> None:
    found = [
        f"{file}:{line}: {name}"
        for file, text in sources().items()
        for line, name in literal_names(text)
    ]
    assert found == []


def test_every_name_is_used() -> None:
    used = {
        name for text in sources().values() for name in re.findall(r"\battributes\.(\w+)", text)
    }
    names = [name for name in vars(attributes) if re.fullmatch(r"[A-Z_]+|phase_seconds", name)]
    assert len(names) > 10
    assert [name for name in names if name not in used] == []
