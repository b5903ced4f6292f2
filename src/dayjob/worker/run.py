"""The life of one attempt, in named steps: open, call, judge, report. Both colours share all but the call."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import time
import traceback
from collections.abc import Callable
from contextvars import Context as Variables
from typing import Any

import msgspec

from dayjob import retry
from dayjob.errors import DayjobError, JobTimeout
from dayjob.job import Job, running
from dayjob.middleware import SKIPPED
from dayjob.options import Hook
from dayjob.store import codec
from dayjob.store.keys import Keys
from dayjob.store.ops.consume import Entry
from dayjob.worker.attempt import Attempt, Settlement

logger = logging.getLogger("dayjob.job")

#: Milliseconds for which the error of a dead job is kept where its result would be.
KEEP_ERROR = 86_400_000


class Abandon(BaseException):
    """Raised inside a handler whose attempt is over: the pool stopped, or it was timed out and would not end."""


class Runner:
    """Runs attempts of one pool and says how each ended."""

    def __init__(
        self,
        keys: Keys,
        pool_id: Callable[[], str],
        context: type,
        redis_now: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._keys = keys
        self._pool_id = pool_id
        self._context = context
        self._now = redis_now
        self._rng = rng

    def run(self, attempt: Attempt) -> Settlement:
        """Run a sync attempt on this thread, to its settlement."""
        try:
            if attempt.wire.expires and self._expired(attempt):
                return self._discard(attempt, "expired before it could start")
            # Fresh variables, so that nothing leaks from job to job on this thread.
            result = Variables().run(self._call, attempt)
        except BaseException as error:  # whatever a handler raises ends its attempt and nothing else
            return self._failed(attempt, error)
        if attempt.lane.plain and not attempt.wire.unique_until:
            return None
        return self._done(attempt, result)

    async def arun(self, attempt: Attempt) -> Settlement:
        """Run an async attempt in this task, to its settlement."""
        try:
            if attempt.wire.expires and self._expired(attempt):
                return self._discard(attempt, "expired before it could start")
            running.set(attempt)
            lane = attempt.lane
            if lane.options.timeout is not None:
                result = await self._limited(attempt)
            elif lane.direct is not None:
                result = await lane.direct(attempt.wire.args)
            else:
                result = await lane.call(self._context(), attempt.open())
        except BaseException as error:  # whatever a handler raises ends its attempt and nothing else
            return self._failed(attempt, error)
        if lane.plain and not attempt.wire.unique_until:
            return None
        return self._done(attempt, result)

    def give_up(self, attempt: Attempt, error: BaseException) -> Settlement:
        """The settlement of an attempt whose thread does not end."""
        return self._failed(attempt, error)

    def _expired(self, attempt: Attempt) -> bool:
        return self._now() * 1000 > attempt.wire.expires

    def _discard(self, attempt: Attempt, why: str) -> Settlement:
        self._hook(attempt.lane.options.on_discard, attempt.open(), why)
        return self._end(attempt, Entry("drop", attempt.name, attempt.token))

    def _call(self, attempt: Attempt) -> Any:
        running.set(attempt)
        lane = attempt.lane
        if lane.direct is not None:
            result = lane.direct(attempt.wire.args)
        else:
            result = lane.call(self._context(), attempt.open())
        if result is not None and inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise DayjobError(
                f"{attempt.name} is a plain function but returned something to await; make it `async def`, "
                "or return a value"
            )
        return result

    async def _limited(self, attempt: Attempt) -> Any:
        timeout = attempt.lane.options.timeout
        try:
            async with asyncio.timeout(timeout) as limit:
                return await attempt.lane.call(self._context(), attempt.open())
        except TimeoutError:
            if limit.expired():
                attempt.timed_out = True
                raise JobTimeout(f"{attempt.name} ran longer than its timeout of {timeout:g} s") from None
            raise

    def _done(self, attempt: Attempt, result: Any) -> Settlement:
        options = attempt.lane.options
        if options.on_done is not None and result is not SKIPPED:
            self._hook(options.on_done, attempt.open())
        if options.keep is None and not (attempt.wire.unique_key and self._until_done(attempt)):
            return None
        if options.keep is None:
            return self._end(attempt, None)
        try:
            return self._keep(attempt, result, options.keep)
        except codec.Broken as why:
            return self._failed(attempt, DayjobError(str(why)))

    def _keep(self, attempt: Attempt, result: Any, seconds: float) -> Settlement:
        value = None if result is SKIPPED else result
        try:
            answer = msgspec.json.encode({"result": value})
        except (TypeError, ValueError, RecursionError) as error:
            problem = DayjobError(f"{attempt.name}: its result cannot be kept as JSON: {error}")
            return self._failed(attempt, problem)
        changes: dict[str, Any] = {
            "attempt": self._place(attempt),
            "done_at": int(self._now() * 1000),
            "ran": round(time.monotonic() - attempt.started_at, 6),
        }
        entry = Entry(
            "keep", attempt.name, attempt.token, codec.rewrite(attempt.payload, changes), int(seconds * 1000),
            self._keys.result(attempt.wire.id), answer,
        )  # fmt: skip
        return self._end(attempt, entry)

    def _failed(self, attempt: Attempt, error: BaseException) -> Settlement:
        """Judge an exception: retry, snooze, discard, dead. Bytes that cannot be written again go to broken."""
        try:
            return self._judge(attempt, error)
        except codec.Broken as why:
            where = self._keys.queue(attempt.name)
            entry = codec.broken_entry(attempt.payload, at=self._now(), where=where, why=str(why))
            return [Entry("broken", attempt.name, attempt.token, entry)]

    def _judge(self, attempt: Attempt, error: BaseException) -> Settlement:
        lane, wire = attempt.lane, attempt.wire
        options = lane.options
        if isinstance(error, Abandon | asyncio.CancelledError) and not attempt.timed_out:
            if attempt.cancelled:
                error = DayjobError("cancelled while it ran")
            elif lane.stopping or attempt.lost:
                return [Entry("back", attempt.name, attempt.token)]
        if (
            attempt.timed_out
            and isinstance(error, Abandon | asyncio.CancelledError | JobTimeout)
            and not str(error)
        ):
            error = JobTimeout(f"{attempt.name} ran longer than its timeout of {options.timeout or 0:g} s")
        job = attempt.open()
        decision = retry.decide(options, error, wire.fails, self._rng)
        if attempt.cancelled:
            decision = retry.Decision("dead", None, True, "cancelled")
        secrets = _secrets(job, options.redact)
        message, trace = (_redacted(text, secrets) for text in _explain(error))
        changes: dict[str, Any] = {"attempt": self._place(attempt), "at": int(self._now() * 1000)}
        if decision.counts:
            changes |= {
                "fails": wire.fails + 1, "err": message, "failed_at": int(self._now()), "trace": trace,
            }  # fmt: skip
            job.fails, job.error = wire.fails + 1, message
        if lane.options.unique_until == "done" and wire.unique_key and not wire.unique_until:
            changes["unique_until"] = "done"
        self._tell(attempt, decision, message, error)
        name, token = attempt.name, attempt.token
        if decision.kind == "snooze":
            changes["snoozes"] = wire.snoozes + 1
            delay = max(0, round((decision.after or 0) * 1000))
            return [Entry("snooze", name, token, codec.rewrite(attempt.payload, changes), delay)]
        if decision.counts and options.on_fail is not None:
            self._hook(options.on_fail, job, error)
        if decision.kind == "retry":
            delay = max(0, round((decision.after or 0) * 1000))
            return [Entry("retry", name, token, codec.rewrite(attempt.payload, changes), delay)]
        if decision.kind in ("discard", "drop"):
            self._hook(options.on_discard, job, decision.why or message)
            return self._end(attempt, Entry("drop", name, token, b"", int(decision.counts)))
        self._hook(options.on_dead, job, error)
        if not decision.counts:
            changes |= {"err": message, "failed_at": int(self._now()), "trace": trace}
        result_key, answer = "", b""
        if options.keep is not None:
            result_key = self._keys.result(wire.id)
            answer = msgspec.json.encode({"error": message})
        return self._end(
            attempt,
            Entry(
                "dead",
                name,
                token,
                codec.rewrite(attempt.payload, changes),
                int(decision.counts),
                result_key,
                answer,
            ),
        )

    def _end(self, attempt: Attempt, entry: Entry | None) -> Settlement:
        """The entries that end a job for good: its unique key goes with it."""
        entries: list[Entry] = []
        wire = attempt.wire
        if wire.unique_key.startswith(self._keys.unique_prefix):
            entries.append(Entry("free", attempt.name, attempt.token, key=wire.unique_key, value=wire.id))
        if entry is not None:
            entries.append(entry)
        elif entries:
            # A plain completion that only has a key to release.
            entries.append(Entry("done", attempt.name, attempt.token))
        return entries or None

    @staticmethod
    def _until_done(attempt: Attempt) -> bool:
        return attempt.wire.unique_until == "done" or attempt.lane.options.unique_until == "done"

    def _place(self, attempt: Attempt) -> str:
        return f"{self._pool_id()}/{attempt.token}"

    def _tell(self, attempt: Attempt, decision: retry.Decision, message: str, error: BaseException) -> None:
        extra = {"job_id": attempt.wire.id, "job_name": attempt.name, "attempt": attempt.wire.fails + 1}
        if decision.kind == "retry":
            text = "job=%s id=%s failed (%s), next run in %.1f s"
            logger.warning(text, attempt.name, attempt.wire.id, message, decision.after or 0, extra=extra)
        elif decision.kind == "dead":
            # A traceback would show what the message hides.
            bare = isinstance(error, DayjobError) or attempt.lane.options.redact
            logger.error(
                "job=%s id=%s is dead (%s)", attempt.name, attempt.wire.id, message,
                extra=extra, exc_info=None if bare else (type(error), error, error.__traceback__),
            )  # fmt: skip
        else:
            logger.info(
                "job=%s id=%s %s (%s)", attempt.name, attempt.wire.id, decision.kind, message, extra=extra
            )

    @staticmethod
    def _hook(hook: Hook | None, *args: Any) -> None:
        if hook is None:
            return
        try:
            hook(*args)
        except Exception:  # a hook must not change the fate of its job
            logger.exception("hook %s failed", getattr(hook, "__qualname__", hook))


def _explain(error: BaseException) -> tuple[str, str]:
    """Message and traceback as they are stored. Hostile exceptions whose str() raises are survived."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be shown)"
    kind = type(error).__name__
    message = codec.cut(f"{kind}: {text}" if text else kind)
    try:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception:
        trace = message
    return message, codec.cut(trace)


def _secrets(job: Job, redact: tuple[str, ...]) -> list[str]:
    """The values that no stored or logged text may show."""
    if not redact:
        return []
    try:
        found = [job.args[key] for key in redact if key in job.args]
    except codec.UNREADABLE:
        return []
    return sorted(
        {str(value) for value in found if value not in (None, "", True, False)}, key=len, reverse=True
    )


def _redacted(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return text
