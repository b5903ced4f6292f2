"""A small FastAPI app: an order enqueues a job in the transaction that stores it, and the console is at /ops/jobs.

pip install 'dayjob[web,sqlalchemy,server]' fastapi 'sqlalchemy[asyncio]' aiosqlite
uvicorn app:app
dayjob worker app:pool
curl -X POST http://127.0.0.1:8000/orders/7

SHOP_DATABASE_URL names another database, such as postgresql+psycopg://shop@localhost/shop.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from fastapi import FastAPI, HTTPException, Request
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from dayjob import WorkerPool
from dayjob.outbox import Outbox
from dayjob.starlette import console, lifespan

engine = create_async_engine(os.environ.get("SHOP_DATABASE_URL", "sqlite+aiosqlite:///shop.db"))
outbox = Outbox(engine)
pool = WorkerPool(namespace="fastapi-shop", outbox=outbox)


@pool.job(keep=3600)
async def confirm(order: int) -> str:
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("UPDATE orders SET confirmed = 1 WHERE id = :id"), {"id": order})
    return f"order {order} is confirmed"


@asynccontextmanager
async def tables(_: FastAPI) -> AsyncIterator[None]:
    """A real app has migrations; `dayjob.outbox.schema(...)` returns the statements for them."""
    await asyncio.to_thread(outbox.create_tables)
    async with engine.begin() as connection:
        await connection.execute(
            text("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, confirmed INTEGER)")
        )
    yield
    await engine.dispose()


def role(request: Request) -> Literal["viewer", "operator"] | None:
    """Who may use the console. A real app asks its login."""
    return "operator" if request.headers.get("x-user") == "ada" else None


app = FastAPI(lifespan=lifespan(pool, run="SHOP_RUNS_WORKERS" in os.environ, inner=tables))
app.mount("/ops/jobs", console(pool, role=role))


@app.post("/orders/{order}")
async def place(order: int) -> dict[str, str]:
    try:
        async with AsyncSession(engine) as session, session.begin():
            # If the order cannot be stored, its job never existed.
            job = await confirm.using(session=session).aenqueue(order)
            await session.execute(text("INSERT INTO orders VALUES (:id, 0)"), {"id": order})
    except IntegrityError:
        raise HTTPException(409, "this order was placed before") from None
    return {"job": job.id}


@app.get("/jobs/{job}")
async def answer(job: str) -> dict[str, str]:
    return {"result": await confirm.aresult(job, timeout=20)}
