# pyright: strict, reportUnnecessaryTypeIgnoreComment=true, reportUnusedCoroutine=false
"""What a type checker makes of the public face: right calls have these types, wrong calls are errors.

Never run. An ignore comment marks an error that must be there: both checkers report one that is not needed.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from dayjob.enqueue.workflows import Node, Workflow
from dayjob.handlers.registry import JobType
from dayjob.handlers.signature import NoContext
from dayjob.job import Job, StopReason
from dayjob.pool import WorkerPool

NOW = datetime.now(UTC)


class Base:
    tenant: str = ""


@dataclass
class Context(Base):
    customer: int | None = None


@dataclass
class Address:
    street: str


pool = WorkerPool(Context, concurrency=15, namespace="shop", lease=timedelta(seconds=30))
bare = WorkerPool(redis="embedded")

assert_type(pool, WorkerPool[Context])
assert_type(bare, WorkerPool[NoContext])

WorkerPool(Context, concurency=15)  # type: ignore[call-overload]
WorkerPool(Context, concurrency="15")  # type: ignore[call-overload]
WorkerPool(Context())  # type: ignore[call-overload]


# Every order that is injected, with and without parentheses.


@pool.job
def both(ctx: Context, job: Job, user_id: int, email: str = "") -> str:
    return f"{ctx.customer}{job.id}{user_id}{email}"


@pool.job("the.job", priority=4, max_fails=1, timeout=timedelta(minutes=5))
def job_only(job: Job, user_id: int) -> None:
    job.checkin(str(user_id))
    assert_type(job.stop_reason, StopReason | None)


@pool.job(max_concurrency=1)
def context_only(ctx: Context, user_id: int) -> list[int]:
    return [ctx.customer or user_id]


@pool.job
def base_of_context(ctx: Base, user_id: int) -> str:
    return ctx.tenant * user_id


@pool.job()
def neither(user_id: int, *, address: Address | None = None) -> None: ...


@pool.job
def nothing() -> None: ...


@bare.job
def without_context(job: Job, user_id: int) -> int:
    return user_id + job.fails


@pool.job
async def coloured(ctx: Context, user_id: int) -> str:
    return str(user_id + (ctx.customer or 0))


@pool.job
def any_arguments(job: Job, /, **args: Any) -> None: ...


assert_type(both.enqueue(7), Job)
assert_type(both.enqueue(7, "a@b.c"), Job)
assert_type(both.enqueue(user_id=7, email="a@b.c"), Job)
assert_type(both.enqueue_in(300, user_id=7), Job)
assert_type(both.enqueue_in(timedelta(minutes=5), 7), Job)
assert_type(both.enqueue_at(NOW, user_id=7), Job)
assert_type(both.enqueue_unique(user_id=7), Job | None)
assert_type(both.enqueue_unique_in(300, user_id=7), Job | None)
assert_type(both.enqueue_unique_at(NOW, user_id=7), Job | None)
assert_type(both.using(source=42, id="w-7").enqueue(user_id=7), Job)
assert_type(both.using(source=None).using(expires=60).enqueue_unique(7), Job | None)
assert_type(both.result("id"), str)
assert_type(both.call(user_id=7), str)
assert_type(both.call(user_id=7, timeout=10), str)
for item, text in both.map([{"user_id": 7}], ordered=False, timeout=10):
    assert_type(item, Mapping[str, Any])
    assert_type(text, str)
assert_type(both(Context(), Job("both"), user_id=7), str)
assert_type(both(Context(), Job("both"), 7, "a@b.c"), str)

assert_type(job_only.enqueue(user_id=7), Job)
assert_type(context_only.enqueue(user_id=7), Job)
assert_type(context_only.result(Job("context_only"), timeout=5), list[int])
assert_type(base_of_context.enqueue(user_id=7), Job)
assert_type(base_of_context(Context(), 7), str)
assert_type(neither.enqueue(user_id=7, address=Address("here")), Job)
assert_type(nothing.enqueue(), Job)
assert_type(without_context.enqueue(user_id=7), Job)
assert_type(without_context(Job("without_context"), 7), int)
assert_type(any_arguments.enqueue(user_id=7, text="x"), Job)

both.enqueue()  # type: ignore[call-arg]
both.enqueue(user=7)  # type: ignore[call-arg]
both.enqueue(user_id="7")  # type: ignore[arg-type]
both.enqueue("7")  # type: ignore[arg-type]
both.enqueue(7, "a@b.c", 3)  # type: ignore[call-arg]
both.enqueue(user_id=7, email=None)  # type: ignore[arg-type]
both.enqueue(Context(), Job("both"), 7)  # type: ignore[call-arg, arg-type]
both.enqueue_in(user_id=7)  # type: ignore[call-arg]
both.enqueue_in("300", user_id=7)  # type: ignore[arg-type]
both.enqueue_at(300, user_id=7)  # type: ignore[arg-type]
both.enqueue_unique(user=7)  # type: ignore[call-arg]
both.call(user=7)  # type: ignore[call-overload]
both.call(user_id="7")  # type: ignore[call-overload]
both.map([7])  # type: ignore[list-item]
both.using(sources=42)  # type: ignore[call-arg]
both.using(unique_for="1h")  # type: ignore[arg-type]
both.using(source=42).enqueue(user=7)  # type: ignore[call-arg]
both(Context(), user_id=7)  # type: ignore[call-arg]
both(Job("both"), Context(), 7)  # type: ignore[arg-type]
job_only.enqueue()  # type: ignore[call-arg]
job_only.enqueue(job=Job("x"), user_id=7)  # type: ignore[call-arg]
context_only.enqueue(user_id=None)  # type: ignore[arg-type]
base_of_context.enqueue(ctx=Context(), user_id=7)  # type: ignore[call-arg]
neither.enqueue(7, Address("here"))  # type: ignore[call-arg]
neither.enqueue(user_id=7, address="here")  # type: ignore[arg-type]
nothing.enqueue(user_id=7)  # type: ignore[call-arg]
without_context.enqueue(job=Job("x"), user_id=7)  # type: ignore[call-arg]
any_arguments.enqueue(7)  # type: ignore[call-arg]


async def in_async_code() -> None:
    assert_type(await both.aenqueue(user_id=7), Job)
    assert_type(await both.aenqueue_in(300, 7), Job)
    assert_type(await both.aenqueue_at(NOW, 7), Job)
    assert_type(await both.aenqueue_unique(7), Job | None)
    assert_type(await both.aenqueue_unique_in(300, 7), Job | None)
    assert_type(await both.aenqueue_unique_at(NOW, 7), Job | None)
    assert_type(await both.aresult("id", 5), str)
    assert_type(await coloured.aenqueue(user_id=7), Job)
    assert_type(await coloured.aresult("id"), str)
    assert_type(await both.acall(user_id=7), str)
    assert_type(await both.acall(user_id=7, timeout=5), str)
    assert_type(await coloured.acall(user_id=7), str)
    assert_type(await coloured.acall(user_id=7, timeout=5), str)
    async for _, text in coloured.amap([{"user_id": 7}]):
        assert_type(text, str)
    await both.acall(user=7)  # type: ignore[call-overload]
    assert_type(await coloured(Context(), user_id=7), str)
    await both.aenqueue(user=7)  # type: ignore[call-arg]
    await coloured.aenqueue(user_id="7")  # type: ignore[arg-type]
    await coloured(user_id=7)  # type: ignore[call-arg]


assert_type(coloured.result("id"), str)


# A first parameter that may be anything is not checked, and never refused.


@pool.job
def first_any(ctx: Any, user_id: int) -> int:
    return user_id


@pool.job
def second_any(ctx: Context, payload: Any, more: int = 0) -> int:
    return more


@pool.job("untyped", priority=2)
def untyped(payload, more=None):  # type: ignore[no-untyped-def]
    ...


assert_type(first_any.enqueue(user_id=7), Job)
assert_type(first_any.enqueue({"a": 1}, 7), Job)
assert_type(second_any.enqueue(payload={"a": 1}), Job)
assert_type(untyped.enqueue(payload=1), Job)


# Functions from anywhere, with their own types.


def export(ctx: Context, path: str, rows: int = 10) -> dict[str, int]:
    return {path: rows, "customer": ctx.customer or 0}


async def fetch(url: str) -> bytes:
    return url.encode()


class Mailer:
    def send(self, to: str) -> None: ...


exported = pool.register("export", export, max_concurrency=1, timeout=3600)
fetched = pool.register("fetch", fetch)
sent = pool.register("send", Mailer().send)
partial = pool.register("partial", functools.partial(export, rows=3))
again = pool.register("again", exported)

assert_type(exported.enqueue("a.csv"), Job)
assert_type(exported.result("id"), dict[str, int])
assert_type(fetched.enqueue(url="x"), Job)
assert_type(fetched.result("id"), bytes)
assert_type(sent.enqueue(to="a@b.c"), Job)
assert_type(partial.enqueue(path="a.csv"), Job)
assert_type(again.enqueue(path="a.csv"), Job)

exported.enqueue(7)  # type: ignore[arg-type]
exported.enqueue("a.csv", row=1)  # type: ignore[call-arg]
sent.enqueue(too="a@b.c")  # type: ignore[call-arg]
pool.register("export", export, max_concurency=1)  # type: ignore[call-overload]
pool.register(export, "export")  # type: ignore[call-overload]
pool.job(priority="high")  # type: ignore[call-overload]
pool.job(prioriti=1)  # type: ignore[call-overload]
pool.job("x", 7)  # type: ignore[call-overload]


# Middleware and lifespans stay what they were; schedules take job types and names.


@pool.middleware
def trace(ctx: Context, job: Job) -> Iterator[None]:
    yield


@pool.middleware(only="async")
async def atrace(job: Job) -> AsyncIterator[None]:
    yield


@pool.middleware
def around(ctx: Context, job: Job, call_next: Callable[[], Any]) -> Any:
    return call_next()


@pool.lifespan
def models() -> Iterator[None]:
    yield


assert_type(trace(Context(), Job("x")), Iterator[None])
assert_type(models(), Iterator[None])
pool.middleware(only="threads")  # type: ignore[call-overload]

pool.periodic("0 9 * * 1-5", coloured, {"user_id": 1}, timezone="Europe/Paris", missed="one")
pool.periodic("@every 5m", "nothing", name="often")
pool.periodic("0 9 * * *", coloured, missed="none")  # type: ignore[arg-type]
pool.periodic("0 9 * * *", export)  # type: ignore[arg-type]

with pool as started:
    assert_type(started, WorkerPool[Context])
    assert_type(started.find("both"), JobType[..., ..., Any])
    assert_type(started.drain(5), bool)


# Workflows: nodes have the result of their handler, and mypy and pyright check where it is passed.


@pool.job
def load(url: str) -> list[int]:
    return [len(url)]


@pool.job
async def add_up(numbers: list[int]) -> int:
    return sum(numbers)


@pool.job
def show(total: int) -> None: ...


flow = pool.workflow("numbers", source="acme")
loaded = flow.add(load, url="x")
added = flow.add(add_up, numbers=loaded.result)
assert_type(loaded, Node[list[int]])
assert_type(added, Node[int])
flow.add(show, total=added.result)
flow.add(add_up, numbers=[added.result, added.result])
assert_type(flow.add(load, url="x", on_failure="continue"), Node[list[int] | None])
assert_type(flow.add(show, total=1, after=[loaded]), Node[None])
assert_type(flow.add(show, total=1, on_failure_of=[loaded]), Node[None])
assert_type(flow.result(added), int | None)
flow.add(show, total=loaded.result)  # type: ignore[call-overload]
flow.add(add_up, numbers=added.result)  # type: ignore[call-overload]
flow.add(show, totl=added.result)  # type: ignore[call-overload]

chain = load.then(add_up).then(show)
assert_type(chain.enqueue(url="x"), Workflow)
chain.enqueue(url=1)  # type: ignore[arg-type]
load.then(add_up).then(load)  # type: ignore[arg-type]
load.then(show)  # type: ignore[arg-type]
