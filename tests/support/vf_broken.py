"""A taskset of verifiers whose tasks are not there."""

from collections.abc import Iterator

import verifiers.v1 as vf


class Broken(vf.Taskset[vf.Task[vf.TaskData], vf.TasksetConfig]):
    def load(self) -> Iterator[vf.Task]:
        raise LookupError("the corpus is\nnot here")


__all__ = ["Broken"]
