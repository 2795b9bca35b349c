"""Where scenarios come from, and which column becomes what: `config.scenarios` of a job file."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Kind = Literal["any", "string", "integer", "number", "boolean", "array", "object"]
Format = Literal["jsonl", "parquet", "dataset"]

_SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class DataColumn(BaseModel):
    """A column that becomes a field of `Scenario.data`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    column: str = Field(min_length=1)
    type: Kind = "any"
    """What its values must be."""
    default: Any = None
    """For rows without a value; unless it is given, each row must have one."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return {"column": given} if isinstance(given, str) else given

    @property
    def required(self) -> bool:
        """Whether each row must have a value."""
        return "default" not in self.model_fields_set


class Columns(BaseModel):
    """Which column becomes which field of a scenario."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str | None = "id"
    """Unique ids. Where there is no such column, or with null, ids are made from the data."""
    split: str | None = "split"
    """The split of each row. Where there is no such column, or with null, a hash decides."""
    data: dict[str, DataColumn] | None = Field(default=None, min_length=1)
    """Fields of `Scenario.data` by column. Without it, the column `data` where that and the two
    above are all there is; else every column but those two."""


class ScenarioSource(BaseModel):
    """A file, a folder or a data set, and how to read it; a text alone is its path."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = ""
    """A `.jsonl` or `.parquet` file, or the folder of a Hugging Face data set."""
    dataset: str = ""
    """A data set's name on the Hugging Face hub."""
    subset: str = ""
    """Which configuration of a Hugging Face data set."""
    format: Format | None = None
    """Unless the path's ending says it."""
    columns: Columns = Columns()
    splits: dict[str, str] = {}
    """Splits by the names that the source gives them. Without it `test`, `validation`, `valid`,
    `dev` and `eval` are `heldout`, and other names stay."""
    heldout: float = Field(default=0.1, ge=0, lt=1)
    """Share held out by hash, of rows without a split."""
    group_by: list[str] = []
    """Fields of the data in which rows of one kind are equal: such rows are never in both train
    and another split. All fields unless given."""
    limit: int | None = Field(default=None, ge=1)
    """Most scenarios of a split, the first ones."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, given: Any) -> Any:
        return {"path": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_source(self) -> ScenarioSource:
        if bool(self.path) == bool(self.dataset):
            raise ValueError("set either path or dataset")
        return self

    @property
    def kind(self) -> Format:
        """What is read."""
        if self.dataset:
            return "dataset"
        suffix = self.path[self.path.rfind(".") :].lower() if "." in self.path else ""
        return self.format or _SUFFIXES.get(suffix, "dataset")

    def split_named(self, name: str) -> str:
        """The split that the source calls `name`."""
        return self.splits.get(name, name) if self.splits else _USUAL.get(name, name)


_USUAL = dict.fromkeys(("test", "validation", "valid", "dev", "eval"), "heldout")
