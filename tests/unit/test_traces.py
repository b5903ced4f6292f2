"""The text of an exception is what the standard library writes, whether its frames are kept or not."""

from __future__ import annotations

import traceback

import pytest

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


KINDS = [
    _plain,
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
