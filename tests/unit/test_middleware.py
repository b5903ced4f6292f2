"""Middleware around both colours, and what is refused at registration."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from dayjob.errors import BadOption, BadSignature
from dayjob.job import Job
from dayjob.middleware import SKIPPED, Lifespan, Middleware, compose_async, compose_sync
from dayjob.pool import WorkerPool


@dataclass
class Context:
    seen: list[str] = field(default_factory=list)


JOB = Job("mail", {"to": "a"})


def run(colour: str, middlewares: list[Any], body: Callable[[Context], Any], ctx: Context) -> Any:
    """Run `body` as a job of that colour with the middlewares around it."""
    kept = [one if isinstance(one, Middleware) else Middleware(one, context=Context) for one in middlewares]
    if colour == "sync":
        return compose_sync(kept, lambda ctx, job: body(ctx))(ctx, JOB)

    async def handler(ctx, job):
        await asyncio.sleep(0)
        return body(ctx)

    return asyncio.run(compose_async(kept, handler)(ctx, JOB))


@pytest.fixture(params=["sync", "async"])
def colour(request):
    return request.param


@pytest.fixture
def ctx():
    return Context()


def refusal(kind: type[Exception], call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def named(name: str) -> Callable[[Context], Iterator[None]]:
    def wrap(ctx: Context) -> Iterator[None]:
        ctx.seen.append(f"{name} in")
        yield
        ctx.seen.append(f"{name} out")

    return wrap


def work(ctx: Context) -> int:
    ctx.seen.append("job")
    return 7


def fail(ctx: Context) -> int:
    raise KeyError("gone")


class TestOneYield:
    def test_the_first_is_outermost_around_both_colours(self, colour, ctx):
        assert run(colour, [named("a"), named("b")], work, ctx) == 7
        assert ctx.seen == ["a in", "b in", "job", "b out", "a out"]

    def test_without_any_the_handler_is_itself(self):
        assert compose_sync([], work) is work
        assert compose_async([Middleware(named("a"), "sync", Context)], work) is work
        assert compose_sync([Middleware(named("a"), "async", Context)], work) is work

    def test_each_gets_what_it_asks_for(self, colour, ctx):
        def nothing() -> Iterator[None]:
            ctx.seen.append("nothing")
            yield

        def context(ctx: Context) -> Iterator[None]:
            ctx.seen.append("context")
            yield

        def job(job: Job) -> Iterator[None]:
            ctx.seen.append(job.name)
            yield

        def both(c: Context, j: Job) -> Iterator[None]:
            c.seen.append(f"both {j.name}")
            yield

        def bare(c, j):
            c.seen.append(f"bare {j.name}")
            yield

        def bare_job(job):
            ctx.seen.append(f"bare {job.id == JOB.id}")
            yield

        assert run(colour, [nothing, context, job, both, bare, bare_job], lambda _: 1, ctx) == 1
        assert ctx.seen == ["nothing", "context", "mail", "both mail", "bare mail", "bare True"]

    def test_a_return_before_the_yield_skips_the_job_and_what_is_inside(self, colour, ctx):
        def skip(ctx: Context) -> Iterator[None]:
            if ctx.seen:
                return
            yield

        assert run(colour, [named("a"), skip, named("b")], work, ctx) is SKIPPED
        assert ctx.seen == ["a in", "a out"]

    def test_an_error_passes_through_every_middleware(self, colour, ctx):
        def cleanup(ctx: Context) -> Iterator[None]:
            try:
                yield
            finally:
                ctx.seen.append("cleanup")

        with pytest.raises(KeyError, match="gone"):
            run(colour, [cleanup, named("a"), cleanup], fail, ctx)
        assert ctx.seen == ["a in", "cleanup", "cleanup"]

    def test_an_error_that_is_caught_counts_as_done(self, colour, ctx):
        def catch() -> Iterator[None]:
            try:
                yield
            except KeyError:
                ctx.seen.append("caught")

        assert run(colour, [named("a"), catch], fail, ctx) is None
        assert ctx.seen == ["a in", "caught", "a out"]

    def test_an_error_can_be_replaced(self, colour, ctx):
        def replace() -> Iterator[None]:
            try:
                yield
            except KeyError as error:
                raise ValueError("better") from error

        with pytest.raises(ValueError, match="better") as caught:
            run(colour, [replace], fail, ctx)
        assert isinstance(caught.value.__cause__, KeyError)

    def test_an_error_before_the_yield_means_the_job_does_not_run(self, colour, ctx):
        def broken() -> Iterator[None]:
            raise OSError("no tracer")
            yield

        with pytest.raises(OSError, match="no tracer"):
            run(colour, [broken], work, ctx)
        assert ctx.seen == []

    def test_the_yield_gives_what_the_job_returned(self, colour, ctx):
        def look(ctx: Context):
            result = yield
            ctx.seen.append(f"result {result}")

        assert run(colour, [look], work, ctx) == 7
        assert ctx.seen == ["job", "result 7"]

    @pytest.mark.parametrize("body", [work, fail])
    def test_a_second_yield_is_an_error_in_words(self, colour, ctx, body):
        def twice() -> Iterator[None]:
            try:
                yield
            except KeyError:
                pass
            try:
                yield
            finally:
                ctx.seen.append("closed")

        text = refusal(BadSignature, run, colour, [twice], body, ctx)
        assert text.startswith("twice()    tests/unit/test_middleware.py:")
        assert "has one 'yield'; this one came to a second" in text
        assert ctx.seen[-1] == "closed"

    def test_a_stop_iteration_of_a_sync_job_stays_one(self, ctx):
        def stop(ctx: Context):
            raise StopIteration("the end")

        with pytest.raises(StopIteration, match="the end"):
            run("sync", [named("a")], stop, ctx)

    def test_a_middleware_sees_more_than_exceptions(self, colour, ctx):
        def watch(ctx: Context) -> Iterator[None]:
            try:
                yield
            except BaseException as error:
                ctx.seen.append(type(error).__name__)
                raise

        def leave(ctx: Context):
            raise GeneratorExit

        with pytest.raises(GeneratorExit):
            run(colour, [watch], leave, ctx)
        assert ctx.seen == ["GeneratorExit"]

    def test_cancelling_an_async_job_runs_what_is_after_the_yield(self, ctx):
        def cleanup(ctx: Context) -> Iterator[None]:
            try:
                yield
            finally:
                ctx.seen.append("cleanup")

        async def main():
            started = asyncio.Event()

            async def handler(ctx, job):
                started.set()
                await asyncio.Event().wait()

            call = compose_async([Middleware(cleanup, None, Context)], handler)
            task = asyncio.ensure_future(call(ctx, JOB))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert ctx.seen == ["cleanup"]


class TestAsyncOnes:
    def only_async(self, fn: Any) -> Middleware:
        return Middleware(fn, "async", Context)

    def test_an_async_generator_wraps_async_jobs_only(self, ctx):
        async def wrap(ctx: Context, job: Job) -> AsyncIterator[None]:
            await asyncio.sleep(0)
            ctx.seen.append("in")
            result = yield
            await asyncio.sleep(0)
            ctx.seen.append(f"out {result}")

        kept = self.only_async(wrap)
        assert run("async", [kept, named("a")], work, ctx) == 7
        assert ctx.seen == ["in", "a in", "job", "a out", "out 7"]
        assert compose_sync([kept], work) is work

    def test_it_needs_to_say_so(self):
        async def wrap(ctx: Context) -> AsyncIterator[None]:
            yield

        for only in (None, "sync"):
            text = refusal(BadSignature, Middleware, wrap, only, Context)
            assert "write @pool.middleware(only='async')" in text

    def test_it_skips_catches_replaces_and_lets_through(self, ctx):
        async def skip() -> AsyncIterator[None]:
            return
            yield

        async def catch() -> AsyncIterator[None]:
            try:
                yield
            except KeyError:
                ctx.seen.append("caught")

        async def replace() -> AsyncIterator[None]:
            try:
                yield
            except KeyError as error:
                raise ValueError("better") from error

        async def through() -> AsyncIterator[None]:
            yield

        assert run("async", [self.only_async(skip)], work, ctx) is SKIPPED
        assert run("async", [self.only_async(catch)], fail, ctx) is None
        with pytest.raises(ValueError, match="better"):
            run("async", [self.only_async(replace)], fail, ctx)
        with pytest.raises(KeyError):
            run("async", [self.only_async(through)], fail, ctx)
        assert ctx.seen == ["caught"]

    @pytest.mark.parametrize("body", [work, fail])
    def test_a_second_yield_is_an_error_in_words(self, ctx, body):
        async def twice() -> AsyncIterator[None]:
            try:
                yield
            except KeyError:
                pass
            yield

        assert "came to a second" in refusal(BadSignature, run, "async", [self.only_async(twice)], body, ctx)

    def test_a_stop_async_iteration_stays_one(self, ctx):
        async def through() -> AsyncIterator[None]:
            yield

        def stop(ctx: Context):
            raise StopAsyncIteration("the end")

        with pytest.raises(StopAsyncIteration, match="the end"):
            run("async", [self.only_async(through)], stop, ctx)


class TestCallNext:
    def test_a_plain_one_wraps_sync_jobs_only(self, ctx):
        def wrap(ctx: Context, job: Job, call_next: Callable[[], Any]) -> Any:
            ctx.seen.append("in")
            return call_next() + 1

        kept = Middleware(wrap, None, Context)
        assert kept.only == "sync"
        assert run("sync", [kept], work, ctx) == 8
        assert ctx.seen == ["in", "job"]
        assert compose_async([kept], work) is work
        assert "can wrap sync jobs only" in refusal(BadSignature, Middleware, wrap, "async", Context)

    def test_an_async_one_wraps_async_jobs_only(self, ctx):
        async def wrap(ctx, job, call_next):
            ctx.seen.append(job.name)
            return await call_next() + 1

        kept = Middleware(wrap, None, Context)
        assert kept.only == "async"
        assert run("async", [kept], work, ctx) == 8
        assert ctx.seen == ["mail", "job"]
        assert "can wrap async jobs only" in refusal(BadSignature, Middleware, wrap, "sync", Context)

    def test_it_may_ask_for_less(self, ctx):
        def job_only(job: Job, call_next):
            ctx.seen.append(job.name)
            return call_next()

        def neither(call_next):
            return call_next()

        assert run("sync", [job_only, neither], work, ctx) == 7
        assert ctx.seen == ["mail", "job"]

    def test_not_calling_it_skips_the_job(self, ctx):
        def skip(call_next):
            return "ignored"

        async def askip(call_next):
            return "ignored"

        assert run("sync", [skip], work, ctx) is SKIPPED
        assert run("async", [askip], work, ctx) is SKIPPED
        assert ctx.seen == []


class TestBadMiddleware:
    def test_without_a_yield_it_is_refused(self):
        def forgot(ctx: Context, job: Job): ...

        async def aforgot(ctx: Context, job: Job): ...

        @contextmanager
        def managed(ctx: Context) -> Iterator[None]:
            yield

        for fn in (forgot, aforgot, managed):
            assert "a middleware has one 'yield'" in refusal(BadSignature, Middleware, fn, None, Context)

    def test_what_it_cannot_be_given_is_refused(self):
        def order(job: Job, ctx: Context):
            yield

        def more(ctx, job, more):
            yield

        def argument(user_id: int):
            yield

        def keyword(ctx: Context, *, job: Job):
            yield

        for fn in (order, more, argument):
            text = refusal(BadSignature, Middleware, fn, None, Context)
            assert "takes the context, then the job, and may leave out either: (ctx, job)" in text
        assert "called by position" in refusal(BadSignature, Middleware, keyword, None, Context)

    def test_only_is_one_of_two_words(self):
        assert "write 'sync' or 'async'" in refusal(BadOption, Middleware, named("a"), "threads", Context)

    def test_a_type_that_never_comes_is_told_when_it_is_needed(self, ctx):
        def wrap(ctx: Missing):  # noqa: F821
            yield

        kept = Middleware(wrap, None, Context)
        assert "name 'Missing' is not defined" in refusal(BadSignature, compose_sync, [kept], work)

    def test_objects_and_partials_will_do(self, colour, ctx):
        class Wrap:
            def __call__(self, ctx: Context) -> Iterator[None]:
                ctx.seen.append("object")
                yield

        def wrap(name: str, ctx: Context) -> Iterator[None]:
            ctx.seen.append(name)
            yield

        assert run(colour, [Wrap(), functools.partial(wrap, "partial")], work, ctx) == 7
        assert ctx.seen == ["object", "partial", "job"]


class TestOnAPool:
    def test_the_decorator_keeps_the_function_and_the_order(self):
        pool = WorkerPool(Context)

        @pool.middleware
        def one(ctx: Context) -> Iterator[None]:
            yield

        @pool.middleware(only="async")
        async def two(ctx: Context) -> AsyncIterator[None]:
            yield

        assert [kept.fn for kept in pool.middlewares] == [one, two]
        assert [kept.only for kept in pool.middlewares] == [None, "async"]

    def test_a_missing_type_is_found_by_check(self):
        pool = WorkerPool(Context)

        @pool.middleware
        def one(ctx: Missing) -> Iterator[None]:  # noqa: F821
            yield

        (problem,) = pool.check()
        assert "does not exist" in str(problem)

    def test_a_lifespan_is_kept_and_wraps_once(self):
        pool = WorkerPool()
        seen = []

        @pool.lifespan
        def one() -> Iterator[None]:
            seen.append("in")
            yield
            seen.append("out")

        @pool.lifespan
        async def two() -> AsyncIterator[None]:
            seen.append("async in")
            yield
            seen.append("async out")

        async def live():
            async with pool.lifespans[1].aaround():
                seen.append("alive")

        with pool.lifespans[0].around():
            asyncio.run(live())
        assert seen == ["in", "async in", "alive", "async out", "out"]
        assert [kept.is_async for kept in pool.lifespans] == [False, True]

    def test_a_lifespan_has_a_yield_and_no_parameters(self):
        def without(): ...

        def with_context(ctx):
            yield

        assert "a lifespan has one 'yield'" in refusal(BadSignature, Lifespan, without)
        assert "takes no parameters" in refusal(BadSignature, Lifespan, with_context)
