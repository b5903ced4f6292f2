"""A job as a row of a transaction, and an effect that happens once: `python examples/outbox.py`."""

import tempfile
import threading
from pathlib import Path

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from dayjob import Job, WorkerPool
from dayjob.outbox import Outbox

engine = create_engine(f"sqlite:///{Path(tempfile.mkdtemp(), 'shop.db')}")
outbox = Outbox(engine)
pool = WorkerPool(namespace="example-outbox", concurrency=1, outbox=outbox)
ended = threading.Event()


def was_paid(job: Job, why: str) -> None:
    print(f"attempt {job.attempt} of order {job.get_int('order')}: {why}")
    ended.set()


@pool.job(backoff=0, on_discard=was_paid)
def pay(job: Job, order: int) -> None:
    with Session(engine) as session, session.begin():
        job.once(session)
        session.execute(text("INSERT INTO payments VALUES (:order)"), {"order": order})
    # A crash here, after the commit, would make the job run again.
    raise ConnectionError("the answer of the database was lost")


def place(order: int) -> None:
    """Store an order and its job, both or neither."""
    with Session(engine) as session, session.begin():
        session.execute(text("INSERT INTO orders VALUES (:order)"), {"order": order})
        pay.using(session=session).enqueue(order)
        if order == 2:
            raise ValueError("order 2 has no address")


def main() -> None:
    outbox.create_tables()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (id INTEGER)"))
        connection.execute(text("CREATE TABLE payments (id INTEGER)"))
    for order in (1, 2):
        try:
            place(order)
        except ValueError as error:
            print(error)
    with pool:
        ended.wait(timeout=20)
    with engine.connect() as connection:
        print("payments:", connection.execute(text("SELECT id FROM payments")).scalars().all())
    engine.dispose()


if __name__ == "__main__":
    main()
