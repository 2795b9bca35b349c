"""The field of a model that says how it trains, in whatever form that is given."""

from __future__ import annotations

from typing import cast

from podium.core.errors import InvalidArgumentError, Violation
from podium.core.specs.sources import JobSource, read_job
from podium.types.v1 import spec_pb2


class SpecField:
    """Takes a job in any form, whole or in part, and gives the message, its own copy."""

    def __get__(self, model: object, owner: type | None = None) -> spec_pb2.JobSpec:
        # Of the class itself it is the default, which must not be one message for all.
        return cast(spec_pb2.JobSpec, None if model is None else vars(model)["spec"])

    def __set__(self, model: object, source: JobSource | None) -> None:
        source = spec_pb2.JobSpec() if source is None else source
        message, _, alias = read_job(source, partial=True)
        if alias:
            text = f"got {alias!r}; allowed is a number here: register(fork=...) takes an alias"
            raise InvalidArgumentError(violations=[Violation("fork.version", text)])
        own = spec_pb2.JobSpec()
        own.CopyFrom(message)
        vars(model)["spec"] = own
