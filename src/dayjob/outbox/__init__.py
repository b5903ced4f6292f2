"""The transactional outbox: an enqueue inside a database transaction is a row of it, and is sent after the commit.

pool = WorkerPool(outbox=Outbox(engine))
with Session(engine) as session, session.begin():
    ship.using(session=session).enqueue(7)
"""

from __future__ import annotations

from dayjob.outbox.outbox import Outbox
from dayjob.outbox.tables import schema

__all__ = ["Outbox", "schema"]
