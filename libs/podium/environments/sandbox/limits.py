"""What a sandboxed program may use."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, model_validator

MIB = 1024 * 1024
SMALLEST_PROCESS = 48 * MIB
"""Python alone takes about 30 MiB of addresses."""


class Limits(BaseModel):
    """Of one program and all that it starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wall_seconds: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    """From start to end, the start of Python inside included."""
    cpu_seconds: int = Field(default=5, ge=1)
    """Of each process."""
    memory_bytes: int = Field(default=256 * MIB)
    """Of all processes together: each has an equal share, whether the others run or not."""
    processes: int = Field(default=1, ge=1, le=64)
    """Processes and threads at once, the program's own included."""
    open_files: int = Field(default=64, ge=8)
    """Of each process."""
    disk_bytes: int = Field(default=16 * MIB, ge=0)
    """Of /tmp, the one place that can be written; it is memory, and not part of
    `memory_bytes`. 0: none can."""
    output_bytes: int = Field(default=MIB, ge=1)
    """Of standard output and of standard error, each."""

    @model_validator(mode="after")
    def _room_for_python(self) -> Limits:
        if self.process_bytes < SMALLEST_PROCESS:
            raise ValueError(
                f"memory_bytes / processes is {self.process_bytes}; "
                f"allowed is at least {SMALLEST_PROCESS}"
            )
        return self

    @property
    def process_bytes(self) -> int:
        """Addresses that one process may use."""
        return self.memory_bytes // self.processes
