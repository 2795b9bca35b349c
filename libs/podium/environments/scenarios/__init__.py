"""Scenarios: from files and data sets, in epochs, and made by a model from tool descriptions.

scenarios = load_scenarios("tasks.jsonl", "train")
for batch in iterate_dataset(scenarios, groups_per_step=8, num_epochs=3): ...
made = await generate_scenarios(tools, chat=chat)  # of podium.environments.scenarios.generate
write_scenarios(Path("tasks.jsonl"), made.scenarios)
"""

from podium.environments.scenarios.batches import DatasetBatch, iterate_dataset
from podium.environments.scenarios.loader import Counts, load_scenarios, stream_scenarios
from podium.environments.scenarios.source import ScenarioSource
from podium.environments.scenarios.writer import write_scenarios

__all__ = [
    "Counts",
    "DatasetBatch",
    "ScenarioSource",
    "iterate_dataset",
    "load_scenarios",
    "stream_scenarios",
    "write_scenarios",
]
