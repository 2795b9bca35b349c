"""The contract's rules at work: checks, defaults, and job files."""

from podium.contract.defaults import PRESENCE_IS_MEANING, apply_defaults
from podium.contract.describe import FieldRow, describe_fields
from podium.contract.judging import ruler_violations
from podium.contract.nul import nul_violations
from podium.contract.paths import set_path
from podium.contract.reader import ParsedYaml, parse_yaml
from podium.contract.training import complete_training, training_violations
from podium.contract.validate import validate
from podium.contract.writer import to_plain, to_yaml

__all__ = [
    "PRESENCE_IS_MEANING",
    "FieldRow",
    "ParsedYaml",
    "apply_defaults",
    "complete_training",
    "describe_fields",
    "nul_violations",
    "parse_yaml",
    "ruler_violations",
    "set_path",
    "to_plain",
    "to_yaml",
    "training_violations",
    "validate",
]
