"""The transactional outbox on real databases: rows of the caller's transaction, sent once after its commit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from dayjob import Admin, BadOption, Discard, Enqueuer, Job, WorkerPool
from dayjob.cli.health import _outbox
from dayjob.errors import Rejected
from dayjob.outbox import Outbox, schema
from dayjob.outbox.databases import EngineDatabase
from dayjob.sqlalchemy import after_commit
from dayjob.store.keys import Keys
from dayjob.store.op import plain
from dayjob.store.ops.outbox import KEPT_SECONDS, publish_outbox
from dayjob.testing import testing
from server import running, wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    found: str = request.getfixturevalue("postgres").database()
    return found.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def engine(url):
    found = create_engine(url, connect_args={"timeout": 30} if url.startswith("sqlite") else {})
    if url.startswith("sqlite"):

        @event.listens_for(found, "connect")
        def set_up(connection, _):
            connection.execute("PRAGMA journal_mode=WAL")

    yield found
    found.dispose()


def shop(engine, namespace: str, redis: str) -> WorkerPool:
    """A pool with an outbox in the database, and a job type."""
    pool = WorkerPool(namespace=namespace, redis=redis, outbox=Outbox(engine))
    pool.outbox.create_tables()

    @pool.job
    def ship(n: int) -> None: ...

    pool.ship = ship
    return pool


def waiting(pool) -> list[int]:
    """The arguments of the jobs in the queue, the next one first."""
    from dayjob.store import codec

    queue = pool.enqueuer._builder.keys.queue("ship")
    found = pool.enqueuer.run(plain("LRANGE", queue, 0, -1))
    return [codec.job_of(codec.read(payload)).args["n"] for payload in reversed(found)]


def rows(engine) -> list[tuple[str, bool]]:
    with engine.connect() as connection:
        return [tuple(one) for one in connection.execute(text("SELECT name, sent IS NOT NULL FROM dayjob_outbox ORDER BY seq"))]  # fmt: skip


@pytest.fixture
def pool(engine, namespace, redis_url):
    found = shop(engine, namespace, redis_url)
    yield found
    found.enqueuer.close()


def relay(pool) -> None:
    """One round that does not wait for the writers."""
    database = pool.outbox.database
    database.patience = 0.0
    pool.outbox.relay_step(pool)()


def test_a_job_is_a_row_of_its_transaction_and_is_sent_after_the_commit(pool, engine):
    with Session(engine) as session:
        with session.begin():
            job = pool.ship.using(session=session).enqueue(1)
            pool.enqueuer.using(session=session).enqueue_many("ship", [{"n": 2}, {"n": 3}])
            assert waiting(pool) == []
        assert waiting(pool) == [1, 2, 3]
        assert rows(engine) == [("ship", True)] * 3
        with session.begin():
            pool.ship.using(session=session).enqueue(4)
            session.rollback()
        with session.begin(), session.begin_nested() as savepoint:
            pool.ship.using(session=session).enqueue(5)
            savepoint.rollback()
    assert waiting(pool) == [1, 2, 3]
    assert len(rows(engine)) == 3
    assert pool.enqueuer.state(job) == "waiting"
    relay(pool)
    assert waiting(pool) == [1, 2, 3]


def test_the_order_the_time_and_the_unique_key_of_a_job_are_kept(pool, engine):
    with Session(engine) as session, session.begin():
        connection = session.connection()
        for n in range(20):
            pool.ship.using(session=connection).enqueue(n)
        later = pool.ship.using(session=connection).enqueue_in(3600, 100)
        pool.ship.using(session=connection, unique_key="one").enqueue_unique(200)
        pool.ship.using(session=connection, unique_key="one").enqueue_unique(201)
    # A Connection reports no commit, so nothing was sent by the writer.
    assert waiting(pool) == []
    relay(pool)
    assert waiting(pool) == [*range(20), 200]
    assert pool.enqueuer.state(later.id) == "scheduled"
    assert all(sent for _, sent in rows(engine))


def test_rows_wait_while_redis_is_down_and_the_commit_succeeds(engine, namespace, tmp_path):
    with running(tmp_path) as server:
        pool = shop(engine, namespace, server.url)
        waiting(pool)
        server.kill()
        with Session(engine) as session, session.begin():
            pool.ship.using(session=session).enqueue(1)
        assert rows(engine) == [("ship", False)]
        server.start()
        relay(pool)
        assert waiting(pool) == [1]
        assert rows(engine) == [("ship", True)]
        pool.enqueuer.close()


def test_a_server_that_lost_jobs_gets_them_again_and_one_that_did_not_stores_them_once(
    engine, namespace, tmp_path
):
    (tmp_path / "kept").mkdir()
    with running(tmp_path / "kept", "--appendonly", "yes", "--appendfsync", "always") as server:
        pool = shop(engine, namespace, server.url)
        with Session(engine) as session, session.begin():
            pool.enqueuer.using(session=session).enqueue_many("ship", [{"n": n} for n in range(5)])
        relay(pool)
        assert waiting(pool) == [0, 1, 2, 3, 4]
        # A restart that lost nothing.
        server.stop()
        server.start()
        relay(pool)
        assert waiting(pool) == [0, 1, 2, 3, 4]
        # Another server takes over, without what the first had acknowledged.
        server.kill()
        for path in (tmp_path / "kept").rglob("*aof*"):
            if path.is_file():
                path.unlink()
        server.start()
        assert waiting(pool) == []
        relay(pool)
        assert waiting(pool) == [0, 1, 2, 3, 4]
        relay(pool)
        assert waiting(pool) == [0, 1, 2, 3, 4]
        pool.enqueuer.close()


def test_a_pool_relays_and_old_rows_are_deleted(pool, engine, monkeypatch):
    from dayjob.outbox import relay as module

    monkeypatch.setattr(EngineDatabase, "patience", 0.0)
    monkeypatch.setattr(module, "KEPT_SECONDS", 0.0)
    with engine.begin() as connection:
        pool.ship.using(session=connection).enqueue(1)
    pool.start()
    try:
        wait_until(lambda: rows(engine) == [])
        assert pool.drain(60)
    finally:
        pool.stop()
    assert waiting(pool) == []


@pytest.fixture
def published(namespace, redis_url):
    """Publishes what a relay would have found, and how long ago; what operators then see."""
    keys = Keys(namespace)
    enqueuer = Enqueuer(namespace, redis=redis_url)
    with contextlib.closing(enqueuer), Admin(namespace, redis=redis_url) as admin:

        def publish(unsent: int, age: float, silence: float = 0.0) -> tuple[list[str], list[str], list[str]]:
            enqueuer.run(publish_outbox(keys, unsent, age))
            enqueuer.run(plain("PEXPIRE", keys.outbox, round((KEPT_SECONDS - silence) * 1000)))
            verdict = admin.verdict()
            notes = [one.text for one in verdict.notes if one.kind == "outbox"]
            checks = [f"{one.level}: {one.what}" for one in admin.redis().findings if one.topic == "outbox"]
            return notes, checks, _outbox(verdict, "2m")

        yield publish


@pytest.mark.parametrize(
    ("report", "note", "check", "unhealthy"),
    [
        ((0, 0.0), "", "ok: 0 rows not sent yet, and a relay runs", ""),
        ((2, 4.0), "", "ok: 2 rows not sent yet, and a relay runs", ""),
        ((1, 7200.0), "1 row of the outbox not sent for up to 2.0 h", "error: 1 row not sent, the oldest for 2.0 h",
         "1 row of the outbox not sent, the oldest for 2.0 h"),
        ((0, 0.0, 7200.0), "no relay has read the outbox for 2.0 h, so its rows may wait",
         "error: no relay has read the outbox for 2.0 h; rows may wait to be sent", "no relay has read the outbox for 2.0 h"),
    ],
    ids=["none", "a few", "old", "silent"],
)  # fmt: skip
def test_operators_see_rows_that_are_not_sent_and_a_relay_that_is_silent(
    published, report, note, check, unhealthy
):
    assert published(*report) == ([note] if note else [], [check], [unhealthy] if unhealthy else [])


def test_operators_see_nothing_of_an_outbox_where_there_is_none(namespace, redis_url):
    with Admin(namespace, redis=redis_url) as admin:
        assert [one for one in admin.redis().findings if one.topic == "outbox"] == []
        assert [one for one in admin.verdict().notes if one.kind == "outbox"] == []
        assert admin.scrape().outbox is None


def test_a_relay_reports_what_it_could_not_send_and_sends_the_rest(pool, engine, namespace, redis_url):
    """The key of one queue was written by another program."""
    pool.register("mail", lambda: None)
    keys = Keys(namespace)
    pool.enqueuer.run(plain("SET", keys.queue("mail"), "not a list"))
    with engine.begin() as connection:
        pool.find("mail").using(session=connection).enqueue()
        pool.ship.using(session=connection).enqueue(1)
    with pytest.raises(Rejected):
        relay(pool)
    assert waiting(pool) == [1]
    assert rows(engine) == [("mail", False), ("ship", True)]
    with Admin(namespace, redis=redis_url) as admin:
        assert admin.scrape().outbox.unsent == 1
    pool.enqueuer.run(plain("DEL", keys.queue("mail")))
    relay(pool)
    assert rows(engine) == [("mail", True), ("ship", True)]


def test_once_makes_the_effect_of_a_job_happen_once(pool, engine):
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE paid (n INTEGER)"))

    def pay(job: Job, *, fail: bool) -> None:
        with Session(engine) as session, session.begin():
            job.once(session)
            session.execute(text("INSERT INTO paid VALUES (1)"))
            if fail:
                raise ConnectionError

    job = Job("pay")
    with pytest.raises(ConnectionError):
        pay(job, fail=True)
    pay(job, fail=False)
    with pytest.raises(Discard):
        pay(job, fail=False)
    pay(Job("pay"), fail=False)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM paid")).scalar() == 2


def test_async_sessions(url, engine, namespace, redis_url):
    async_url = url.replace("sqlite://", "sqlite+aiosqlite://")
    # SQLite changes its journal only while nothing else has the file open.
    engine.connect().close()

    async def main() -> None:
        async_engine = create_async_engine(async_url)
        pool = WorkerPool(namespace=namespace, redis=redis_url, outbox=Outbox(async_engine))

        @pool.job
        async def ship(n: int) -> None: ...

        await asyncio.to_thread(pool.outbox.create_tables)
        async with AsyncSession(async_engine) as session:
            async with session.begin():
                await ship.using(session=session).aenqueue(1)
                await pool.async_enqueuer.using(session=session).enqueue_many("ship", [{"n": 2}])
                assert await asyncio.to_thread(waiting, pool) == []
            async with session.begin():
                await ship.using(session=session).aenqueue(3)
                await session.rollback()
            await asyncio.to_thread(wait_until, lambda: all(sent for _, sent in rows(engine)))
            assert sorted(await asyncio.to_thread(waiting, pool)) == [1, 2]
            job = Job("pay")
            async with session.begin():
                await job.aonce(session)
            with pytest.raises(Discard):
                async with session.begin():
                    await job.aonce(session)
        async with async_engine.begin() as connection:
            await ship.using(session=connection).aenqueue(4)
        await asyncio.to_thread(relay, pool)
        assert sorted(await asyncio.to_thread(waiting, pool)) == [1, 2, 4]
        pool.enqueuer.close()
        await pool.async_enqueuer.close()
        await async_engine.dispose()

    asyncio.run(main())


def test_the_relay_connects_to_an_async_engine_as_the_program_does(postgres):
    """With its arguments, such as those of TLS, and with what it does at each new connection, such as asking for a token."""
    url = postgres.database().replace("postgresql://", "postgresql+psycopg://")
    engine = create_async_engine(url, connect_args={"application_name": "shop"})
    asked: list[str] = []

    @event.listens_for(engine.sync_engine, "do_connect")
    def ask_for_token(dialect, record, args, options) -> None:
        asked.append(options["application_name"])

    @event.listens_for(engine.sync_engine, "connect")
    def set_up(connection, record) -> None:
        asked.append("connected")

    def name(execute) -> str:
        return execute("SELECT current_setting('application_name')", {})[0][0][0]

    database = Outbox(engine).database
    assert [database.run(name), database.run(name)] == ["shop", "shop"]
    assert asked == ["shop", "connected"] * 2


def test_psycopg(postgres, namespace, redis_url):
    import psycopg

    address = postgres.database()
    pool = WorkerPool(namespace=namespace, redis=redis_url, outbox=Outbox(address))
    pool.outbox.create_tables()

    @pool.job
    def ship(n: int) -> None: ...

    job = Job("pay")
    with psycopg.connect(address) as connection:
        with connection.transaction():
            ship.using(session=connection).enqueue(1)
            job.once(connection)
        with pytest.raises(KeyError), connection.transaction():
            ship.using(session=connection).enqueue(2)
            raise KeyError
        with pytest.raises(Discard), connection.transaction():
            job.once(connection)
    assert waiting(pool) == []
    pool.outbox.relay_step(pool)()
    assert waiting(pool) == [1]
    pool.enqueuer.close()


@pytest.mark.parametrize("kind", ["psycopg", "async engine"])
def test_a_round_of_the_relay_connects_once(kind, postgres, namespace, redis_url):
    import psycopg

    address, opened = postgres.database(), []

    def connect() -> psycopg.Connection:
        opened.append(kind)
        return psycopg.connect(address)

    target = connect
    if kind == "async engine":
        target = create_async_engine(address.replace("postgresql://", "postgresql+psycopg://"))
        event.listen(target.sync_engine, "connect", lambda *_: opened.append(kind))
    pool = WorkerPool(namespace=namespace, redis=redis_url, outbox=Outbox(target))
    pool.outbox.create_tables()
    opened.clear()
    # The first round also notes the server.
    for _ in range(2):
        assert pool.outbox.relay_step(pool)() > 0
    assert opened == [kind] * 2
    pool.enqueuer.close()


def test_a_testing_block_needs_no_rows_and_a_session_needs_an_outbox(pool, engine, new_pool):
    with testing(pool) as jobs, Session(engine) as session:
        with session.begin():
            pool.ship.using(session=session).enqueue(1)
            assert jobs.enqueued() == []
        jobs.assert_enqueued("ship", n=1)
        with session.begin():
            pool.ship.using(session=session).enqueue(2)
            session.rollback()
        assert len(jobs.enqueued()) == 1
    assert rows(engine) == []
    other = new_pool()

    @other.job
    def mail() -> None: ...

    with pytest.raises(BadOption, match="needs an outbox"), Session(engine) as session:
        mail.using(session=session).enqueue()
    with pytest.raises(BadOption, match="give a Session"):
        pool.ship.using(session=7).enqueue(1)
    with pytest.raises(BadOption, match="an engine of SQLAlchemy"):
        Outbox(7)
    with pytest.raises(BadOption, match="PostgreSQL or SQLite"):
        schema("mysql")
    with pytest.raises(BadOption, match="outbox="):
        WorkerPool(outbox=7)


def test_after_commit_is_right_with_rollbacks_and_savepoints(engine):
    sent: list[str] = []

    def wish(session: Session, name: str) -> None:
        after_commit(session)(lambda: sent.append(name))

    with Session(engine) as session:
        wish(session, "rolled back")
        session.rollback()
        wish(session, "committed")
        assert sent == []
        session.commit()
        assert sent == ["committed"]
        session.commit()
        with session.begin_nested():
            wish(session, "released savepoint")
        with session.begin_nested() as outer:
            with session.begin_nested():
                wish(session, "inside a savepoint that is rolled back")
            wish(session, "in a savepoint that is rolled back")
            outer.rollback()
        wish(session, "after it")
        session.commit()
        assert sent == ["committed", "released savepoint", "after it"]
        with session.begin_nested():
            wish(session, "savepoint of a lost transaction")
        session.rollback()
        wish(session, "closed")
    with Session(engine) as session:
        session.commit()
    assert sent == ["committed", "released savepoint", "after it"]


def test_all_are_sent_at_the_commit_though_one_fails(engine):
    sent: list[int] = []

    def fail() -> None:
        raise ConnectionError

    with Session(engine) as session:
        on_commit = after_commit(session)
        on_commit(fail)
        on_commit(lambda: sent.append(1))
        with pytest.raises(ConnectionError):
            session.commit()
    assert sent == [1]


#: A process that kills itself, or Redis, at the nth call of a function: before it or after it.
PROGRAM = """
    import importlib, os, signal, sys
    from sqlalchemy import create_engine, event, text
    from sqlalchemy.orm import Session
    from dayjob import WorkerPool
    from dayjob.outbox import Outbox

    url, redis, namespace, role, victim, nth, count, pid = sys.argv[1:]
    engine = create_engine(url, connect_args={"timeout": 60} if url.startswith("sqlite") else {})
    if url.startswith("sqlite"):
        @event.listens_for(engine, "connect")
        def set_up(connection, _):
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")

    pool = WorkerPool(namespace=namespace, redis=redis, outbox=Outbox(engine))
    pool.outbox.database.patience = 0.0

    @pool.job
    def ship(n: int) -> None: ...

    calls = 0
    if victim:
        where, _, path = victim.removeprefix("after ").partition(":")
        owner = importlib.import_module(where)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        real = getattr(owner, name)

        def deadly(*args, **kwargs):
            global calls
            calls += 1
            mine = calls
            if mine == int(nth) and not victim.startswith("after "):
                os.kill(int(pid) or os.getpid(), signal.SIGKILL)
            answer = real(*args, **kwargs)
            if mine == int(nth) and victim.startswith("after "):
                os.kill(int(pid) or os.getpid(), signal.SIGKILL)
            return answer

        setattr(owner, name, deadly)

    def write(first):
        with Session(engine) as session, session.begin():
            numbers = range(first, first + 50)
            session.execute(text("INSERT INTO orders (n) VALUES (:n)"), [{"n": n} for n in numbers])
            pool.enqueuer.using(session=session).enqueue_many("ship", [{"n": n} for n in numbers])

    if role == "write":
        with engine.connect() as connection:
            first = connection.execute(text("SELECT COALESCE(MAX(n) + 1, 0) FROM orders")).scalar()
        while first < int(count):
            write(first)
            first += 50
    else:
        step = pool.outbox.relay_step(pool)
        while True:
            step()
            with engine.connect() as connection:
                if not connection.execute(text("SELECT COUNT(*) FROM dayjob_outbox WHERE sent IS NULL")).scalar():
                    break
"""

#: Where a process is killed, and then Redis under another one: the function, and at which of its calls.
STEPS = {
    "write": [
        ("dayjob.outbox.tables:insert", 120),
        ("after dayjob.outbox.tables:insert", 130),
        ("dayjob.enqueue.sender:Sender.drive", 2),
        ("after dayjob.enqueue.sender:Sender.drive", 3),
        ("dayjob.outbox.tables:mark_sent", 2),
        ("after dayjob.outbox.tables:mark_sent", 2),
    ],
    "relay": [
        ("after dayjob.outbox.tables:take_unsent", 1),
        ("dayjob.enqueue.sender:Sender.drive", 7),
        ("after dayjob.enqueue.sender:Sender.drive", 9),
        ("dayjob.outbox.tables:mark_sent", 1),
        ("after dayjob.outbox.tables:mark_sent", 1),
        ("dayjob.outbox.tables:delete_old", 1),
    ],
}
COUNT = 10_000


@pytest.mark.timeout(1800)
def test_ten_thousand_rows_are_stored_once_each_whatever_is_killed(url, engine, namespace, tmp_path):
    """Writers and relays are killed at every step, and Redis under them; a ledger in the database says what must be there."""
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAM))
    with running(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        pool = shop(engine, namespace, server.url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE orders (n INTEGER PRIMARY KEY)"))

        def start(role: str, victim: str = "", nth: int = 0, count: int = COUNT, pid: int = 0):
            words = [url, server.url, namespace, role, victim, str(nth), str(count), str(pid)]
            return subprocess.Popen(
                [sys.executable, str(tmp_path / "program.py"), *words], env={**os.environ}
            )

        for role, steps in STEPS.items():
            for victim, nth in steps:
                if role == "relay":
                    # Rows that no writer will send.
                    assert (
                        start("write", "dayjob.enqueue.sender:Sender.drive", 1).wait(120) == -signal.SIGKILL
                    )
                assert start(role, victim, nth).wait(120) == -signal.SIGKILL, victim
                # What the killed process left is what the next one finds when Redis is killed under it.
                other = start(role, victim, nth, _orders(engine) + 250, server.process.pid)
                assert server.process.wait(120) == -signal.SIGKILL, victim
                server.start()
                other.wait(240)
        # Redis is killed under a writer at work, and under two relays.
        writer = start("write")
        written = _orders(engine) + 500
        wait_until(lambda: _orders(engine) >= written, 120)
        server.kill()
        written = _orders(engine) + 100
        wait_until(lambda: _orders(engine) >= written or writer.poll() is not None, 120)
        server.start()
        relays = [start("relay"), start("relay")]
        wait_until(lambda: len(waiting(pool)) > 1000, 120)
        server.kill()
        server.start()
        assert writer.wait(240) == 0
        for one in relays:
            one.wait(240)
        assert start("relay").wait(240) == 0
        assert _orders(engine) == COUNT
        assert sorted(waiting(pool)) == list(range(COUNT))
        pool.enqueuer.close()


def _orders(engine) -> int:
    with engine.connect() as connection:
        found: int = connection.execute(text("SELECT COUNT(*) FROM orders")).scalar()
    return found
