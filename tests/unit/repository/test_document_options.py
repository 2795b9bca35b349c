"""Each command that a document prints is one that there is: options, arguments and targets.

None is run, so this holds for pages of clusters and of GPUs too; those that can be run,
tests/integration/repository/test_document_commands.py runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor
from podium.core.contract import parse_yaml, scorer_violations
from podium.core.contract.fork_alias import take_alias
from podium.types.v1 import spec_pb2
from support.document_commands import commands, script_commands, unclassified
from support.document_options import faults, podium_words, unknown_key
from support.gathered import wrong_in
from support.programs import missing

if shutil.which("git") is None:
    pytest.skip(missing("git", "git"), allow_module_level=True)

ROOT = Path(__file__).parents[3]


def listed(*patterns: str) -> list[str]:
    """Files of the repository, those too that are not committed yet."""
    found = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(found.stdout.split())


PAGES = listed("*.md")
SCRIPTS = listed("examples/*.sh", "examples/*.yaml")
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", MAKEFILE, re.MULTILINE))
VARIABLES = set(re.findall(r"^([A-Z][A-Z_]*) *\?=", MAKEFILE, re.MULTILINE))
# Sections whose names are no values of the chart's, which has `rollout` and `trainer` as well.
_FIELD = re.compile(
    r"`((?:training|reward|evaluation|retention|budget|fork|rollout\.(?:sampling|episode))"
    r"(?:\.[a-z_0-9]+(?:\[\])?)+)(?=[`:=])"
)
_INLINE = re.compile(r"(?<!`)`(podium [^`\n]+)`(?!`)")
_FENCED = re.compile(r"^```\w*\n.*?^```", re.DOTALL | re.MULTILINE)
_YAML = re.compile(r"^```yaml\n(.*?)^```|((?:^ {4}[^\n]*\n)+)", re.DOTALL | re.MULTILINE)
JOB_KEYS = set(spec_pb2.JobSpec.DESCRIPTOR.fields_by_name)


def make_faults(line: str) -> list[str]:
    """Targets and variables that the Makefile has not."""
    words = line.split()
    if words[:1] != ["make"]:
        return []
    unknown = []
    for word in re.sub(r"=(\"[^\"]*\"|'[^']*')", "=x", line).split()[1:]:
        name, assigned, _ = word.partition("=")
        known = VARIABLES if assigned else TARGETS
        if name not in known and not name.startswith("-"):
            unknown.append(f"{line}: {name}")
    return unknown


def wrong_commands(text: str) -> Iterator[str]:
    for line in commands(text):
        words = podium_words(line)
        yield from faults(words) if words is not None else make_faults(line)


def test_each_command_of_a_page_is_there() -> None:
    wrong = wrong_in(PAGES, wrong_commands)
    assert not wrong, wrong


def test_each_line_of_a_block_is_a_command_that_is_known() -> None:
    wrong = wrong_in(PAGES, unclassified)
    assert not wrong, wrong


def wrong_calls(text: str) -> Iterator[str]:
    for line in script_commands(text):
        yield from faults(podium_words(line) or [], whole=False)


def test_each_command_of_an_example_is_there() -> None:
    wrong = wrong_in(SCRIPTS, wrong_calls)
    assert not wrong, wrong


def wrong_names(text: str) -> Iterator[str]:
    for line in _INLINE.findall(_FENCED.sub("", text)):
        words = podium_words(line.replace("…", "").replace("...", ""))
        yield from faults(words or [], whole=False)


def test_each_command_that_a_page_names_has_the_options_that_it_is_named_with() -> None:
    wrong = wrong_in(PAGES, wrong_names)
    assert not wrong, wrong


def job_parts(text: str) -> list[str]:
    """YAML blocks that are a job file, or sections of one."""
    blocks = (
        fenced or re.sub("^    ", "", indented, flags=re.MULTILINE)
        for fenced, indented in _YAML.findall(text)
    )
    found = []
    for block in blocks:
        keys = set(re.findall(r"^(\w+):(?: |$)", block, re.MULTILINE))
        if keys and keys <= JOB_KEYS:
            found.append(block)
    return found


def wrong_job_parts(text: str) -> Iterator[str]:
    for block in job_parts(text):
        # An alias of the version to fork is for the client to look up.
        spec, found = parse_yaml(block, spec_pb2.JobSpec)
        _, found, _ = take_alias(block, found, ())
        for scorer in spec.reward.scorers:
            found = [*found, *scorer_violations(scorer, "reward.scorers")]
        told = (f"{each.field}: {each.description}" for each in found)
        # A section shows what it is about.
        yield from (each for each in told if "required" not in each)


def test_each_part_of_a_job_file_holds_to_the_contract() -> None:
    wrong = wrong_in(PAGES, wrong_job_parts)
    assert not wrong, wrong


def unknown_fields(text: str) -> list[str]:
    """Fields of a job that a page names in full, and the contract has not."""
    unknown = []
    for path in _FIELD.findall(text):
        message: Descriptor | None = spec_pb2.JobSpec.DESCRIPTOR
        for name in re.sub(r"\[\]", "", path).split("."):
            # Below a mapping of the environment's own anything may stand.
            if message is None or message.full_name.startswith("google.protobuf."):
                break
            field = message.fields_by_name.get(name)
            if field is None:
                unknown.append(path)
                break
            message = field.message_type
    return unknown


def test_each_field_of_a_job_that_a_page_names_is_in_the_contract() -> None:
    wrong = wrong_in(PAGES, unknown_fields)
    assert not wrong, wrong


def test_a_program_that_no_test_knows_is_seen() -> None:
    known = "    cd there\n    vf/bin/podium doctor\n"
    assert list(unclassified(f"{known}\nand:\n\n    key: value\n")) == []
    (block,) = unclassified("    podium doctor\n    frobnicate --all\n")
    assert "frobnicate" in block
    assert podium_words("vf/bin/podium doctor") == ["doctor"]


def test_what_is_not_there_is_seen() -> None:
    assert podium_words("A_B=1 podium job list -o json | head") == ["job", "list", "-o", "json"]
    assert podium_words("podium up &") == ["up"]
    assert podium_words("helm install podium") is None
    for line in (
        "podium job sumbit -f a",
        "podium job submit",
        "podium job list --nonsense",
        "podium job list -o xml",
        "podium job get a b",
        "podium job",
        "podium job submit -f a --set training.stepz=3",
    ):
        assert len(list(faults(podium_words(line) or []))) == 1, line
    assert list(faults(["job", "submit"], whole=False)) == []
    script = 'v=$(podium job show "$id" -o json | x)\npodium up \\\n  --port-base $((1 + 2))\n'
    assert script_commands(script) == ['podium job show "id" -o json', "podium up --port-base 1"]
    assert list(faults(["job", "show", "id"], whole=False)) != []
    assert list(unknown_key("fork.version=best")) == []
    assert make_faults("make tests") == ["make tests: tests"]
    assert make_faults("make test NONE=1") == ["make test NONE=1: NONE"]
    assert make_faults('make simulate SIMULATE_ARGS="--seeds 9"') == []
    assert unknown_fields("`training.stepz` `training.steps: 3` `reward.scorers[].ruler.no`") == [
        "training.stepz",
        "reward.scorers[].ruler.no",
    ]
    (block,) = job_parts("```yaml\ntraining:\n  step: 3\n```\n```yaml\npools: []\n```\n")
    fields = [violation.field for violation in parse_yaml(block, spec_pb2.JobSpec).violations]
    assert "training.step" in fields
