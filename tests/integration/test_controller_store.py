"""The controller's database on a real PostgreSQL, and what only a database can get wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import podium_controller
import pytest
import sqlalchemy as sa
from podium.core.errors import NotFoundError
from podium.jobs.v1 import job_service_pb2 as pb
from podium.kit import sql
from podium_controller.domain.errors import DatabaseUnavailableError
from podium_controller.domain.ports import JUDGED, GroupKey
from podium_controller.domain.stop_signals import StopSignals
from podium_controller.store import Database, EvaluationStore
from podium_controller.store.groups import store_group
from podium_controller.store.leases import check_fence
from podium_controller.store.rows import live_job
from podium_controller.store.tables import jobs, metadata, steps
from podium_controller.training.patient_ledger import PatientLedger
from sqlalchemy.ext.asyncio import AsyncConnection
from support.batch_contract import *  # noqa: F403 : the tests
from support.empty_database import CONTROLLER
from support.evaluation_contract import *  # noqa: F403 : the tests
from support.evaluation_contract import EvaluationStores
from support.postgres import Postgres
from support.store_contract import *  # noqa: F403 : the tests
from support.store_contract import sequences
from support.stores import SqlStores, group, lead, new, step
from support.taken_contract import *  # noqa: F403 : the tests
from support.trajectory_contract import *  # noqa: F403 : the tests
from support.trajectory_contract import committed, shown
from support.usage_contract import *  # noqa: F403 : the tests


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/new/controller.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.create_database()


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return await CONTROLLER.sqlite(tmp_path)
    return await CONTROLLER.postgresql(request.getfixturevalue("postgres"))


@pytest.fixture
async def both(url: str) -> AsyncIterator[SqlStores]:
    replica = SqlStores(url)
    yield replica
    await replica.close()


@pytest.fixture
async def stores(postgres: Postgres) -> AsyncIterator[SqlStores]:
    """For the contract, which tests/unit holds the SQLite store to."""
    replica = SqlStores(await CONTROLLER.postgresql(postgres))
    yield replica
    await replica.close()


@pytest.fixture
def evaluation_stores(stores: SqlStores) -> EvaluationStores:
    """For the contract; see `EvaluationStores`."""
    return lambda **limits: EvaluationStore(stores.another().database, **limits)


async def test_migrations_make_the_tables_that_the_code_expects(both: SqlStores) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def differences(connection: sa.Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))

    async with both.database.read() as connection:
        assert await connection.run_sync(differences) == []


async def test_an_older_databases_trajectories_are_counted_when_it_is_migrated(
    both: SqlStores,
) -> None:
    from alembic import command
    from alembic.config import Config

    ledger = await lead(both)
    await both.jobs.create(new())
    await ledger.start("job", "pool")
    for number in (1, 2):
        for index in range(3):
            key = GroupKey("job", number, index)
            await ledger.save_group(key, JUDGED, group(number, index))
    await ledger.commit_step("job", step(1, *(f"job/s1/g{index}" for index in range(3))))
    counted = await ledger.trajectories.stored_bytes()
    committed = (await both.jobs.steps("job", 0, 1))[0][0]

    def go(connection: sa.Connection) -> None:
        config = Config()
        scripts = Path(podium_controller.__file__).parent / "migrations"
        config.set_main_option("script_location", str(scripts))
        config.attributes["connection"] = connection
        command.downgrade(config, "0005")
        command.upgrade(config, "head")

    async with both.database.write() as connection:
        await connection.run_sync(go)
    assert await ledger.trajectories.stored_bytes() == counted > 0
    # The older database knew no end of it.
    await ledger.settle("job", pb.JOB_STATE_FAILED)
    spare = await ledger.trajectories.spare(2**63 - 1, 10)
    assert sorted(each.step for each in spare) == [1, 2]
    made = await both.jobs.get("job")
    times = {each.step: each.time for each in spare}
    assert times[1] == committed.commit_time.ToNanoseconds()
    assert times[2] == made.create_time.ToNanoseconds()


async def test_a_page_shows_no_part_of_a_step_whose_deletion_begins_before_its_groups_are_read(
    stores: SqlStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 5)
    (first, *_) = await ledger.trajectories.spare(2**63 - 1, 1)
    reading = AsyncConnection.stream

    @asynccontextmanager
    async def late(connection: AsyncConnection, query: sa.Select[Any]) -> AsyncIterator[Any]:
        assert (await ledger.trajectories.delete(first, 1))[0] == 1
        async with reading(connection, query) as rows:
            yield rows

    monkeypatch.setattr(AsyncConnection, "stream", late)
    assert await shown(stores) == [2, 3, 4, 5]


async def test_replicas_that_start_together_migrate_once(empty: str) -> None:
    replicas = [SqlStores(empty) for _ in range(4)]
    await asyncio.gather(*(replica.database.migrate() for replica in replicas))
    await replicas[0].jobs.create(new())
    assert (await replicas[3].jobs.get("job")).id == "job"
    for replica in replicas:
        await replica.close()


async def test_a_start_waits_for_its_database(
    postgres: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = sa.make_url(postgres.create_database())
    later = tmp_path / "later"
    database = Database(where.set(query={"host": str(later)}).render_as_string())
    waiting = asyncio.create_task(database.reachable(60))
    while "later" not in caplog.text:
        await asyncio.sleep(0.01)
    assert not waiting.done()
    later.symlink_to(str(where.query["host"]))
    await waiting
    await database.migrate()
    await database.close()


async def test_a_database_that_stays_away_ends_the_start() -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(DatabaseUnavailableError, match=r"could not be reached in 0\.2 s"):
        await away.reachable(0.2)
    await away.close()


async def test_a_database_that_is_away_is_unavailable() -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(DatabaseUnavailableError):
        await away.migrate()
    await away.close()


async def test_a_database_that_turns_read_only_is_waited_for(postgres: Postgres) -> None:
    # As a standby that a service's connections were moved to, or a server with a full disk.
    stores = SqlStores(postgres.create_database())
    await stores.database.migrate()
    ledger = await lead(stores)
    await _set(stores, "default_transaction_read_only = on")
    moved = stores.another()
    for write in (
        lambda: moved.jobs.create(new()),
        lambda: moved.ledger(1).set_phase("job", "collect"),
        lambda: moved.leases.renew("test", 1, 60),
    ):
        with pytest.raises(DatabaseUnavailableError, match="read-only") as caught:
            await write()
        assert caught.value.reason == "DATABASE_READ_ONLY"
    with pytest.raises(NotFoundError):
        await moved.jobs.get("job")
    await ledger.counts()
    await stores.close()


async def test_a_user_without_rights_is_told_as_that(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    stores = SqlStores(url := postgres.create_database())
    await stores.database.migrate()
    async with stores.database.write() as connection:
        await connection.execute(sa.text("drop role if exists weak"))
        await connection.execute(sa.text("create role weak login"))
    weak = Database(url.replace("podium@", "weak@"))
    with pytest.raises(DatabaseUnavailableError, match="refuses its user") as caught:
        await weak.migrate()
    assert caught.value.reason == "DATABASE_FORBIDDEN"
    assert "permission denied for table alembic_version" in caplog.text
    await weak.close()
    await stores.close()


async def _set(stores: SqlStores, setting: str) -> None:
    """For connections from now on."""
    async with stores.database.write() as connection:
        name = await connection.scalar(sa.text("select current_database()"))
        await connection.execute(sa.text(f"alter database {name} set {setting}"))


async def test_a_step_that_breaks_off_leaves_nothing(
    both: SqlStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last write of the commit fails: none of the earlier ones stays."""
    ledger = await lead(both)
    await both.jobs.create(new())
    await ledger.start("job", "pool")
    await ledger.save_group(GroupKey("job", 1, 0), JUDGED, group(1, 0))
    before = await sequences(both)

    async def broken(*_: object, **__: object) -> int:
        raise ConnectionError("the plug was pulled")

    monkeypatch.setattr("podium_controller.store.ledger.add_event", broken)
    with pytest.raises(ConnectionError):
        await ledger.commit_step("job", step(1, "job/s1/g0"))
    assert (await both.jobs.get("job")).completed_steps == 0
    assert await sequences(both) == before
    assert (await ledger.stored_groups("job", 1))[0].status == JUDGED
    async with both.database.read() as connection:
        assert (await connection.execute(sa.select(steps))).all() == []


async def test_a_renewal_goes_before_the_writers_that_wait(both: SqlStores, url: str) -> None:
    """More of them than there are connections, and each under the lease's fence."""
    epoch = await both.leases.acquire("busy", 60)
    assert epoch is not None
    order: list[str] = []
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        async with both.database.write() as connection:
            await check_fence(connection, epoch)
            inside.set()
            await go_on.wait()
        order.append("write")

    async def renew() -> None:
        assert await both.leases.renew("busy", epoch, 60)
        order.append("renewal")

    async with asyncio.timeout(60):
        writes = [asyncio.create_task(write()) for _ in range(40)]
        await inside.wait()
        renewal = asyncio.create_task(renew())
        # SQLite has one writer: the renewal follows it, and at most one more. PostgreSQL lets it
        # through meanwhile, however long it takes to connect.
        await asyncio.wait({renewal}, timeout=1 if url.startswith("sqlite") else 30)
        go_on.set()
        await asyncio.gather(renewal, *writes)
    assert order.index("renewal") <= 2


async def test_a_lease_passes_on_after_what_was_begun_under_it(both: SqlStores) -> None:
    epoch = await both.leases.acquire("old", 0.01)
    assert epoch == 1

    async def take_over() -> int:
        while (taken := await both.leases.acquire("new", 60)) is None:
            await asyncio.sleep(0.01)
        return taken

    async with asyncio.timeout(60):
        async with both.database.write() as connection:
            await check_fence(connection, epoch)
            taking = asyncio.create_task(take_over())
            done, _ = await asyncio.wait({taking}, timeout=1)
            assert not done
        assert await taking == 2


async def test_making_room_does_not_wait_for_who_holds_a_job(stores: SqlStores) -> None:
    # Who deletes a job holds it and then wants its sums; making room holds them.
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 1)
    await ledger.settle("job", pb.JOB_STATE_SUCCEEDED)
    (spare,) = await ledger.trajectories.spare(2**63 - 1, 100)
    async with stores.database.write() as connection:
        await connection.execute(sa.select(jobs).where(jobs.c.id == "job").with_for_update())
        assert (await asyncio.wait_for(ledger.trajectories.delete(spare, 10), 30))[0] == 2


async def test_who_holds_a_job_lets_rows_be_written_that_refer_to_it(stores: SqlStores) -> None:
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 1)
    async with stores.database.write() as connection:
        await live_job(connection, "job", lock=True)
        saved = ledger.save_group(GroupKey("job", 2, 0), JUDGED, group(2, 0))
        await asyncio.wait_for(saved, 30)


async def test_a_group_that_is_written_again_meets_its_first_write(stores: SqlStores) -> None:
    """Whose connection broke as it was committed: the run's ledger repeats it, and it is there."""
    ledger = await lead(stores)
    await committed(stores, ledger, "job", 1)
    key, waits = GroupKey("job", 2, 0), sa.text("select count(*) from pg_locks where not granted")
    async with stores.database.write() as connection:
        await store_group(connection, key, JUDGED, group(2, 0))
        patient = PatientLedger(ledger, StopSignals())
        again = asyncio.create_task(patient.save_group(key, JUDGED, group(2, 0)))
        async with asyncio.timeout(30):
            while not again.done():
                async with stores.database.read() as looking:
                    if await looking.scalar(waits):
                        break
    await again
    assert set(await ledger.stored_groups("job", 2)) == {0}


async def test_nothing_is_prepared_since_a_pooler_may_stand_before_the_database(
    postgres: Postgres,
) -> None:
    # As pgbouncer in transaction mode, whose next transaction may have another connection.
    database = sql.Database(postgres.create_database())
    prepared = 0
    for _ in range(10):
        async with database.write() as connection:
            count = await connection.scalar(sa.text("select count(*) from pg_prepared_statements"))
            prepared = max(prepared, count)
    await database.close()
    assert prepared == 0
