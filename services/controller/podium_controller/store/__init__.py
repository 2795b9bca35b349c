"""The controller's database: SQLite or PostgreSQL through SQLAlchemy.

`Database` opens transactions, `JobStore` is what the API reads and writes,
`BatchStore` what clients submit, `EvaluationStore` what they measured, `ClientStore`
which of them live, `SqlLedger` what the loop writes while its lease lives, `LeaseStore`
that lease, `UsageStore` what the API tells of what jobs have used.
"""

from podium_controller.store.batches import BatchStore, NewBatch
from podium_controller.store.clients import ClientStore
from podium_controller.store.database import Database
from podium_controller.store.evaluations import EvaluationStore
from podium_controller.store.jobs import JobStore
from podium_controller.store.leases import LeaseStore
from podium_controller.store.ledger import SqlLedger
from podium_controller.store.usage import UsageStore

__all__ = [
    "BatchStore",
    "ClientStore",
    "Database",
    "EvaluationStore",
    "JobStore",
    "LeaseStore",
    "NewBatch",
    "SqlLedger",
    "UsageStore",
]
