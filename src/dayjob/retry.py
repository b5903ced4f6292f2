"""Decides what happens after a failed attempt: whether the job is retried and when, snoozed, discarded, or dead.

Pure: the decision is an outcome, and the caller passes in the random generator. `exponential` and `constant` create
backoffs for the `backoff` option of a job type.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from dayjob.errors import BadOption, Dead, Discard, GiveBack, Retry, Signal, Snooze, Throttled
from dayjob.option_checks import Seconds, seconds
from dayjob.options import Backoff, BackoffByError, JobOptions
from dayjob.outcome import Died, Dropped, ErrorOutcome, GivenBack, HeldBack, Retried, Snoozed

#: Ten years, in seconds. A longer delay is taken for a mistake.
MAX_SECONDS = 3653 * 86_400.0


#: A job whose process crashed MAX_DEATHS times is dead. From SUSPECT crashes on it is a suspect, and its pool starts one
#: suspect at a time, so that the next crash can be attributed to the right job.
MAX_DEATHS = 3
SUSPECT = MAX_DEATHS - 1


class Delay(NamedTuple):
    """Seconds to wait, and a note if the backoff or signal gave an invalid delay."""

    seconds: float
    note: str | None = None


def gocraft(fails: int, rng: random.Random) -> float:
    """Seconds to wait after the nth failure, as in gocraft/work: n**4 + 15 + [0, 30) * (n + 1)."""
    return fails**4 + 15 + rng.random() * 30 * (fails + 1)


#: The old name, which programs may still import.
ancestor = gocraft


def exponential(base: float = 1.0, factor: float = 2.0, cap: float = 3600.0, jitter: bool = True) -> Backoff:
    """A backoff of base, base * factor, base * factor**2, ... seconds, never above `cap`.

    With `jitter`, each delay is a random value between half of that and all of it, so that jobs that failed
    together are not retried together. Raises BadOption.
    """
    for name, value in (("base", base), ("factor", factor), ("cap", cap)):
        low = 1.0 if name == "factor" else 0.0
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= MAX_SECONDS:
            raise BadOption(f"exponential({name}={value!r}): give a number from {low:g} to {MAX_SECONDS:g}")

    def backoff(fails: int) -> float:
        try:
            wait = min(cap, base * factor ** max(fails - 1, 0))
        except OverflowError:
            wait = cap
        return wait * random.uniform(0.5, 1.0) if jitter else wait

    return backoff


def constant(wait: Seconds) -> Backoff:
    """A backoff that always waits the same number of seconds. Raises BadOption."""
    fixed = seconds(wait, "constant(seconds)")
    if not 0 <= fixed <= MAX_SECONDS:
        raise BadOption(f"constant({wait!r}): give seconds from 0 to {MAX_SECONDS:g}")
    return lambda _fails: fixed


def backoff_for(
    backoff: Backoff | Seconds | BackoffByError | None, error: BaseException
) -> Backoff | Seconds | None:
    """The backoff for this error. In a dict, that of the error's own class or else of its nearest base class."""
    if not isinstance(backoff, Mapping):
        return backoff
    return next((backoff[kind] for kind in type(error).__mro__ if kind in backoff), None)


def delay(backoff: Backoff | Seconds | None, fails: int, rng: random.Random) -> Delay:
    """Seconds to wait after the nth failure, from a job type's `backoff`.

    If the backoff raises or returns an invalid number of seconds, the default backoff is used instead and the result
    has a note. A mistake in a backoff must not break the attempt.
    """
    usual = min(gocraft(fails, rng), MAX_SECONDS)
    if backoff is None:
        return Delay(usual)
    try:
        asked = backoff(fails) if callable(backoff) else backoff
        wait = _sensible(asked)
        problem = f"gave {_shown(asked)}, not seconds from 0 to ten years"
    except (Exception, SystemExit) as error:  # the user's function may raise anything
        wait, problem = None, f"raised {type(error).__name__}"
    if wait is None:
        return Delay(usual, f"backoff {problem}; the default was used")
    return Delay(wait)


def decide(
    options: JobOptions, exception: BaseException, fails_before: int, rng: random.Random
) -> ErrorOutcome:
    """Decide about an attempt that ended with `exception`, for a job that had failed `fails_before` times before.

    Signals come first, then `discard_on`, `retry_on` and `max_fails`. `skip_dead` drops a job that these options would
    send to dead; the signal `Dead` still sends it there.
    """
    fails = fails_before + 1
    if isinstance(exception, Snooze):
        wait, note = _asked(exception, options, fails, rng)
        return Snoozed(wait, _why(exception, "snoozed", note))
    if isinstance(exception, Throttled):
        return _throttled(options, exception, fails, rng)
    if isinstance(exception, GiveBack):
        return GivenBack(why=_why(exception, "given back"))
    if isinstance(exception, Discard):
        return Dropped(counts_failure=False, why=_why(exception, "discarded"))
    if isinstance(exception, Dead):
        return Died(counts_failure=True, why=_why(exception, "sent to dead"))
    if not isinstance(exception, Retry):
        kind = type(exception).__name__
        if isinstance(exception, options.discard_on):
            return Dropped(counts_failure=False, why=f"{kind} is in discard_on")
        if options.retry_on is not None and not isinstance(exception, options.retry_on):
            return _end(options, f"{kind} is not in retry_on")
    count = f"fail {fails} of {options.max_fails}"
    if fails >= options.max_fails:
        return _end(options, _why(exception, count))
    wait, note = _asked(exception, options, fails, rng)
    return Retried(wait, _why(exception, count, note))


def counts_failure(options: JobOptions, exception: BaseException) -> bool:
    """Whether an attempt that ended with `exception` counts as failed. `decide` chooses what happens to the job."""
    if isinstance(exception, Signal):
        return isinstance(exception, Retry | Dead)
    return not isinstance(exception, options.discard_on)


def is_last(options: JobOptions, exception: BaseException, fails_before: int) -> bool:
    """Whether a failure by `exception` is the last one of its job, which had failed `fails_before` times before."""
    if isinstance(exception, Dead) or fails_before + 1 >= options.max_fails:
        return True
    retried = options.retry_on is None or isinstance(exception, (Retry, *options.retry_on))
    return not retried


def _throttled(
    options: JobOptions, exception: Throttled, fails: int, rng: random.Random
) -> HeldBack | Snoozed:
    """Hold the limits that the signal names. The job is snoozed instead if its job type has no such limit."""
    wait, note = _asked(exception, options, fails, rng)
    asked = exception.limit
    held = tuple(one.name for one in options.limits if asked is None or asked in (one, one.name, one.kind))
    if held and note is None:
        return HeldBack(held, wait, _why(exception, "throttled"))
    if not held:
        lacks = (
            "has no rate limit" if asked is None else f"has no limit {_shown(getattr(asked, 'name', asked))}"
        )
        note = "; ".join(filter(None, (note, f"its job type {lacks}, so the job was snoozed")))
    return Snoozed(wait, _why(exception, "throttled", note))


def _end(options: JobOptions, why: str) -> Dropped | Died:
    return Dropped(counts_failure=True, why=why) if options.skip_dead else Died(counts_failure=True, why=why)


def _asked(exception: BaseException, options: JobOptions, fails: int, rng: random.Random) -> Delay:
    """The delay that a signal asks for, or else the job type's backoff."""
    after = getattr(exception, "after", None) if isinstance(exception, Retry | Snooze | Throttled) else None
    backoff = backoff_for(options.backoff, exception)
    if after is None:
        return delay(backoff, fails, rng)
    wait = _sensible(after)
    if wait is not None:
        return Delay(wait)
    name = type(exception).__name__
    wait, note = delay(backoff, fails, rng)
    wrong = f"{name}(after={_shown(after)}) is not seconds from 0 to ten years; the backoff was used"
    return Delay(wait, "; ".join(filter(None, (wrong, note))))


def _sensible(value: Any) -> float | None:
    """`value` in seconds if it is a valid delay, or None."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MAX_SECONDS else None


def _why(exception: BaseException, outcome: str, note: str | None = None) -> str:
    reason = getattr(exception, "why", "") if isinstance(exception, Signal) else ""
    reason = reason if isinstance(reason, str) else _shown(reason)
    return "; ".join(filter(None, (outcome + (f": {reason}" if reason else ""), note)))


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # the user's repr may raise anything, and a message must not break the attempt
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:57] + "..."
