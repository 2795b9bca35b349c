"""The number that makes a version the best one: what of it can be told before the job runs."""

from __future__ import annotations

from podium.core.errors import Violation
from podium.core.job_environments import name_of
from podium.types.v1 import spec_pb2

from podium_controller.domain.identifiers import GREEDY
from podium_controller.domain.step_metrics import ENVIRONMENT_PREFIX

GREEDY_PREFIX = f"{GREEDY}/"
"""Of the numbers of greedy attempts, before all else."""

_FIELD = "job.spec.evaluation.best_metric"


def best_metric_violations(spec: spec_pb2.JobSpec) -> list[Violation]:
    """Why no evaluation of the job will have its `best_metric`.

    Which metrics an environment reports, its episodes tell: one that none has is a warning then.
    """
    evaluation = spec.evaluation
    metric = evaluation.best_metric
    if not metric:
        return [Violation(_FIELD, "got an empty value; leave it out for the default")]
    name = metric.removeprefix(GREEDY_PREFIX)
    if name != metric and not evaluation.greedy:
        text = f"got {metric!r}; needs job.spec.evaluation.greedy, whose attempts it is of"
        return [Violation(_FIELD, text)]
    if name.startswith(ENVIRONMENT_PREFIX):
        return _of_environment(spec, metric, name.removeprefix(ENVIRONMENT_PREFIX))
    if not name:
        return [Violation(_FIELD, f"got {metric!r}; allowed is a metric after {GREEDY_PREFIX}")]
    return []


def _of_environment(spec: spec_pb2.JobSpec, metric: str, rest: str) -> list[Violation]:
    evaluated = spec.evaluation.environments
    names = [name_of(each) for each in spec.environments]
    names = [name for name in names if not evaluated or name in evaluated]
    # A name may hold a slash: the one that fits decides.
    if any(rest.startswith(f"{name}/") and rest != f"{name}/" for name in names):
        return []
    form = f"{ENVIRONMENT_PREFIX}NAME/METRIC"
    if not names:
        text = f"got {metric!r}; the job has one environment, whose metrics have no {form}"
    else:
        allowed = ", ".join(map(repr, names))
        text = f"got {metric!r}; allowed is {form} with NAME one that is evaluated: {allowed}"
    return [Violation(_FIELD, text)]
