"""The controller's database: SQLite or PostgreSQL through SQLAlchemy.

`Database` opens transactions, `JobStore` is what the API reads and writes,
`BatchStore` what clients submit, `SqlLedger` what the loop writes while its
lease lives, `LeaseStore` that lease.
"""

from podium_controller.store.batches import BatchStore, NewBatch
from podium_controller.store.database import Database
from podium_controller.store.jobs import JobStore
from podium_controller.store.leases import LeaseStore
from podium_controller.store.ledger import SqlLedger

__all__ = ["BatchStore", "Database", "JobStore", "LeaseStore", "NewBatch", "SqlLedger"]
