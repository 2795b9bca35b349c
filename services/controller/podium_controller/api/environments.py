"""What a job says of its environments, as far as no service has to be asked."""

from __future__ import annotations

import re
from collections import Counter

from podium.core.contract.rules import rules_of
from podium.core.errors import Violation
from podium.core.job_environments import environments_of, name_of, path_of
from podium.types.v1 import spec_pb2

_RULES = rules_of(spec_pb2.WeightedEnvironment.DESCRIPTOR.fields_by_name["name"])
_PATH = "job.spec.environments"


def environment_violations(spec: spec_pb2.JobSpec) -> list[Violation]:
    """Where the attempts come from: an environment, several, or the job's client."""
    evaluated = list(spec.evaluation.environments)
    found: list[Violation] = []
    if spec.environments and spec.HasField("environment"):
        got = f"got {spec.environment.name!r} beside {len(spec.environments)} in {_PATH}"
        found.append(Violation("job.spec.environment", f"{got}; allowed is one of the two"))
    elif not environments_of(spec) and not spec.HasField("client"):
        text = f"is required, unless {_PATH} or job.spec.client is set"
        found.append(Violation("job.spec.environment", text))
    elif not environments_of(spec) and spec.HasField("evaluation"):
        text = f"needs job.spec.environment or {_PATH}, whose split it uses"
        found.append(Violation("job.spec.evaluation", text))
    for index, each in enumerate(environments_of(spec)):
        found += _one(each.environment, path_of(spec, index))
    if spec.environments:
        found += _names(spec) + _steps(spec)
    names = [name_of(each) for each in spec.environments]
    for name in evaluated:
        if name not in names:
            allowed = ", ".join(map(repr, names)) or "none, for the job has one environment"
            text = f"got {name!r}; allowed are names of {_PATH}: {allowed}"
            found.append(Violation("job.spec.evaluation.environments", text))
    return found


def _one(environment: spec_pb2.EnvironmentSpec, path: str) -> list[Violation]:
    found = []
    if not environment.split:
        text = "got an empty value; leave it out for the default"
        found.append(Violation(f"{path}.split", text))
    if environment.image and path.startswith(_PATH):
        text = f"got {environment.image!r}; allowed is none among several: serve it, and name its"
        found.append(Violation(f"{path}.image", f"{text} address"))
    elif environment.image and environment.address:
        got = f"got {environment.address!r} beside an image; allowed is one of them"
        found.append(Violation(f"{path}.address", got))
    elif environment.replicas > 1 and not environment.image:
        got = f"got {environment.replicas}; allowed is 1 without an image"
        found.append(Violation(f"{path}.replicas", got))
    return found


def _names(spec: spec_pb2.JobSpec) -> list[Violation]:
    """Each has a name that metrics can have, and no two the same."""
    found = []
    counts = Counter(map(name_of, spec.environments))
    for index, each in enumerate(spec.environments):
        path, name = f"{_PATH}[{index}].name", name_of(each)
        if counts[name] > 1:
            text = f"got {name!r} {counts[name]} times; allowed is each name once: give each a name"
            found.append(Violation(path, text))
        # The rules of the field have seen one that is given.
        elif _RULES is not None and not (
            re.fullmatch(_RULES.pattern, name) and len(name) <= _RULES.max_len
        ):
            text = f"got none, and {name!r} cannot be one; allowed is {_RULES.pattern}"
            found.append(Violation(path, f"{text}, {_RULES.max_len} characters at most"))
    return found


def _steps(spec: spec_pb2.JobSpec) -> list[Violation]:
    """Every step of the job has an environment, and each environment a step."""
    found = []
    last = spec.training.steps
    covered = 0
    for each in sorted(spec.environments, key=lambda each: each.from_step):
        if each.from_step > covered + 1:
            break
        covered = max(covered, each.to_step if each.HasField("to_step") else last)
    for index, each in enumerate(spec.environments):
        if each.HasField("to_step") and each.to_step < each.from_step:
            got = f"got {each.to_step}; allowed is from_step, {each.from_step}, or more"
            found.append(Violation(f"{_PATH}[{index}].to_step", got))
    if covered < last and not found:
        text = f"step {covered + 1} of {last} is of none: from_step and to_step leave it out"
        found.append(Violation(_PATH, text))
    return found
