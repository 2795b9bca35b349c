"""YAML text to a tree of nodes with lines, within limits.

PyYAML's composer alone would resolve the words of YAML 1.1 (`no` is false,
`1e-5` is text) and recurse as deep as the text says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from podium.core.contract.scalars import BOOL, FLOAT, INT, NULL
from podium.core.errors import Violation

MAX_BYTES = 1024 * 1024
"""Greatest file, bytes of UTF-8."""
MAX_NODES = 100_000
"""Most values, those repeated by aliases counted each time."""
MAX_DEPTH = 64
"""Deepest nesting."""

_PREFIX = "tag:yaml.org,2002:"
STR, MAP, SEQ = f"{_PREFIX}str", f"{_PREFIX}map", f"{_PREFIX}seq"
RESOLVERS = (
    (f"{_PREFIX}null", NULL, ["~", "n", "N", ""]),
    (f"{_PREFIX}bool", BOOL, list("tTfF")),
    (f"{_PREFIX}int", INT, list("-+0123456789")),
    (f"{_PREFIX}float", FLOAT, list("-+.0123456789")),
)
PLAIN = frozenset({STR, *(tag for tag, _, _ in RESOLVERS)})
"""Tags of scalars; a scalar that is not text is read by `read_scalar`."""
OBJECT = "!podium/object:"
"""Prefix of the tag of what a program gave and YAML does not have; the type's name follows."""


class _Loader(yaml.CSafeLoader):
    """Resolves plain scalars as YAML 1.2's core schema does."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _regexp, _first in RESOLVERS:
    # PyYAML calls match(), which would take a prefix.
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_regexp.pattern})\Z"), _first)


def compose(text: str) -> tuple[yaml.Node | None, list[Violation]]:
    """The root node of the one document; None for an empty text or a refused one."""
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        return None, [Violation("", f"got {size} bytes; allowed are at most {MAX_BYTES}")]
    try:
        refusal = next(_refusals(text), None)
        if refusal is not None:
            return None, [refusal]
        return yaml.compose(text, Loader=_Loader), []
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        # The end of the text counts as a line of its own.
        line = min(mark.line + 1, max(len(text.splitlines()), 1)) if mark else 1
        return None, [Violation("", f"no valid YAML: {problem}", line)]
    except (yaml.YAMLError, UnicodeError) as error:
        return None, [Violation("", f"no valid YAML: {str(error).splitlines()[0]}", 1)]


def line_of(node: yaml.Node | yaml.Event) -> int:
    """1-based."""
    return int(node.start_mark.line) + 1 if node.start_mark else 1


def _refusals(text: str) -> Iterator[Violation]:
    depth = documents = nodes = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = line_of(event)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                yield Violation("", "got a second document (`---`); allowed is one", line)
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                yield Violation("", f"nested deeper than {MAX_DEPTH} levels", line)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent):
            nodes += 1
            if nodes > MAX_NODES:
                yield Violation("", f"got more than {MAX_NODES} values", line)
