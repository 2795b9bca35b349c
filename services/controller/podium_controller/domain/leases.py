"""What the scheduler needs of the lease under which one controller runs the jobs."""

from __future__ import annotations

from typing import Protocol


class Leases(Protocol):
    """The database's one lease. Every method can raise DatabaseUnavailableError."""

    async def acquire(self, holder: str, ttl: float) -> int | None:
        """Takes the lease for `ttl` seconds; its fencing token, None when another holds it."""

    async def renew(self, holder: str, epoch: int, ttl: float) -> bool:
        """Holds on for `ttl` seconds more; False when another has taken the lease."""

    async def release(self, holder: str, epoch: int) -> None:
        """Gives the lease back, so that a standby need not wait. Idempotent."""
