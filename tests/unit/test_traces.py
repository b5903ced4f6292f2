"""The text of an exception is what the standard library writes, whether its frames are kept or not."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

import dayjob
from dayjob import Enqueuer, Job, WorkerPool
from dayjob.testing import testing
from dayjob.worker.running import traces


def _plain():
    raise ValueError("no such order")


def _multiline():
    raise ValueError(
        "one",
        "two",
    )


def _cause():
    try:
        _plain()
    except ValueError as error:
        raise RuntimeError("could not ship") from error


def _context():
    try:
        _plain()
    except ValueError:
        raise RuntimeError("could not ship")  # noqa: B904 - the context is what is tested


def _no_context():
    try:
        _plain()
    except ValueError:
        raise RuntimeError("could not ship") from None


def _group():
    errors = []
    for raises in (_plain, _cause):
        try:
            raises()
        except Exception as error:  # noqa: PERF203
            errors.append(error)
    raise ExceptionGroup("several", errors)


def _notes():
    error = ValueError("no such order")
    error.add_note("order 7")
    raise error


def _suggestion():
    orders = []  # noqa: F841 - the interpreter suggests it
    return ordres  # noqa: F821


def _syntax():
    compile("a = = 1", "shop.py", "exec")


def _repeated(depth=6):
    if depth:
        _repeated(depth - 1)
    _plain()


def _deep(depth=150):
    return _deeper(depth - 1) if depth else _plain()


def _deeper(depth):
    return _deep(depth - 1) if depth else _plain()


def _loop():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


class _OwnError(Exception):
    class Inner(Exception): ...


def _own():
    raise _OwnError.Inner("no such order")


def _silent():
    raise _OwnError


def _key():
    return {}["order"]


def _lines():
    raise ValueError("one\ntwo\n")


class _MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def _mute():
    raise _MuteError


KINDS = [
    _plain,
    _own,
    _silent,
    _key,
    _lines,
    _mute,
    _multiline,
    _cause,
    _context,
    _no_context,
    _group,
    _notes,
    _suggestion,
    _syntax,
    _repeated,
    _deep,
    _loop,
]


@pytest.mark.parametrize("raises", KINDS, ids=lambda fn: fn.__name__.strip("_"))
def test_the_text_is_that_of_the_standard_library(raises):
    for _ in range(2):
        with pytest.raises(BaseException) as info:
            raises()
        error = info.value
        whole = "".join(traceback.format_exception(error))
        assert traces.format_error(error, error.__traceback__) == whole


def test_an_error_that_was_never_raised_has_no_frames():
    error = ValueError("no such order")
    assert traces.format_error(error, None) == "".join(traceback.format_exception(error))


def test_equal_functions_of_two_files_keep_their_own_file_names():
    text = "def fails():\n    raise ValueError('no such order')\n"
    for name in ("one.py", "two.py"):
        space: dict = {}
        exec(compile(text, name, "exec"), space)  # noqa: S102
        with pytest.raises(ValueError) as info:  # noqa: PT011
            space["fails"]()
        assert f'File "{name}", line 2, in fails' in traces.format_error(info.value, info.tb)


def test_no_more_frames_are_kept_than_the_limit(monkeypatch):
    monkeypatch.setattr(traces, "MAX_KEPT_FRAMES", 3)
    for number in range(20):
        space: dict = {}
        text = f"def fails():\n    raise ValueError({number})\n"
        exec(compile(text, f"{number}.py", "exec"), space)  # noqa: S102
        with pytest.raises(ValueError) as info:  # noqa: PT011
            space["fails"]()
        traces.format_error(info.value, info.tb)
        assert len(traces._kept) <= 3


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_frames_of_dayjob_between_a_middleware_and_its_handler_are_left_out(caplog, colour):
    pool = WorkerPool(namespace="shop")

    @pool.middleware
    def surround(job: Job) -> Iterator[None]:
        yield

    def fail() -> None:
        Enqueuer("shop", redis="redis://127.0.0.1:1").enqueue("no such name\n")

    async def afail() -> None:
        fail()

    job = pool.register("fail", fail if colour == "sync" else afail, max_fails=1)
    with testing(pool) as jobs:
        job.enqueue()
        jobs.drain(reraise=False)
    (record,) = caplog.records
    frames = re.findall(r'File "(.*)", line \d+, in (\w+)', record.getMessage())
    names = [name for _, name in frames]
    assert names[: names.index("fail") + 1] == ["surround", *(["afail"] if colour == "async" else []), "fail"]
    # Those in which dayjob raised the error itself stay.
    assert frames[-1][0].startswith(str(Path(dayjob.__file__).parent))


def test_the_line_about_a_retry_names_the_code_of_the_program_and_not_that_of_a_library(caplog):
    pool = WorkerPool(namespace="shop")

    def read() -> None:
        json.loads("{")

    job = pool.register("read", read, max_fails=2)
    with testing(pool) as jobs:
        job.enqueue()
        jobs.drain(reraise=False)
    (record,) = caplog.records
    line = read.__code__.co_firstlineno + 1
    assert f" at {__file__}:{line}, next run in" in record.getMessage()
