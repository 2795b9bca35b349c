"""The contract's rules at work: checks, defaults, and job files."""

from podium.core.contract.defaults import PRESENCE_IS_MEANING, apply_defaults
from podium.core.contract.describe import FieldRow, describe_fields
from podium.core.contract.judging import scorer_violations
from podium.core.contract.nul import nul_violations
from podium.core.contract.paths import set_path
from podium.core.contract.reader import ParsedYaml, parse_yaml
from podium.core.contract.rollout import (
    client_rollout_violations,
    complete_rollout,
    rollout_violations,
)
from podium.core.contract.tracking import tracking_violations
from podium.core.contract.training import complete_training, training_violations
from podium.core.contract.validate import validate
from podium.core.contract.writer import to_plain, to_yaml

__all__ = [
    "PRESENCE_IS_MEANING",
    "FieldRow",
    "ParsedYaml",
    "apply_defaults",
    "client_rollout_violations",
    "complete_rollout",
    "complete_training",
    "describe_fields",
    "nul_violations",
    "parse_yaml",
    "rollout_violations",
    "scorer_violations",
    "set_path",
    "to_plain",
    "to_yaml",
    "tracking_violations",
    "training_violations",
    "validate",
]
