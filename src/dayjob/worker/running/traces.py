"""Traces: the text of an exception as the standard library writes it, without formatting the same frame twice.

The standard library reads the source file's status and parses the line again for every frame of every exception. Jobs that
fail mostly fail at the same few lines, so the text of a frame is kept by its code and its place in the code.
"""

from __future__ import annotations

import os
import traceback
from types import CodeType, TracebackType
from typing import Any

#: How many frames are kept. When there are more, all are forgotten.
MAX_KEPT_FRAMES = 2000
#: A traceback with more frames is left to the standard library, which shortens recursions.
MAX_FRAMES = 100

#: The standard library adds to the text of these: suggestions, the line that cannot be parsed, the errors of a group.
_SPECIAL = (AttributeError, ImportError, NameError, SyntaxError, BaseExceptionGroup)

#: Files of this package that call handlers. Their frames are left out of tracebacks where they lead to code of the program.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep  # noqa: PTH120
OURS = tuple(
    _PACKAGE + part
    for part in (
        f"worker{os.sep}",
        f"handlers{os.sep}",
        f"django{os.sep}",
        "middleware.py",
        "otel.py",
        "sentry.py",
        "flask.py",
    )
)

#: The text of a frame, and whether its file is one of OURS, by the id of its code and the place in it. The code is kept too, so
#: that its id is not used again.
_kept: dict[tuple[int, int], tuple[CodeType, str, bool]] = {}


class _Frames(list[str]):
    """Frames as text, in place of a StackSummary."""

    def format(self, **_options: Any) -> list[str]:
        """The texts. The options are for colours."""
        return self


def format_error(error: BaseException, trace: TracebackType | None) -> str:
    """What `traceback.format_exception` returns as lines, as one text, without the frames between the program's own."""
    simple = _simple(error, trace)
    if simple is not None:
        return simple
    # `limit=0` reads no frame, and still finds the causes, the notes and the suggestions.
    found = traceback.TracebackException(type(error), error, trace, limit=0, compact=True)
    if not _add_frames(found, error, trace):
        found = traceback.TracebackException(type(error), error, trace, compact=True)
    return "".join(found.format())


def _simple(error: BaseException, trace: TracebackType | None) -> str | None:
    """The text of an error without causes, notes and suggestions; None for others. Most errors of jobs are such."""
    if error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__):
        return None
    if isinstance(error, _SPECIAL) or trace is None or getattr(error, "__notes__", None) is not None:
        return None
    frames = _texts(trace)
    if frames is None:
        return None
    kind = type(error)
    try:
        text = str(error)
    except BaseException:  # the standard library has a text for it
        return None
    module = "" if kind.__module__ in ("__main__", "builtins") else f"{kind.__module__}."
    last = f"{module}{kind.__qualname__}{text and ': '}{text}"
    return f"Traceback (most recent call last):\n{''.join(frames)}{last}\n"


def _add_frames(found: Any, error: BaseException, trace: TracebackType | None) -> bool:
    """Give `found`, and the exceptions that it names, their frames. False if the standard library must do it."""
    waiting: list[tuple[Any, BaseException, TracebackType | None]] = [(found, error, trace)]
    for one, raised, frames in waiting:
        texts = _texts(frames)
        if texts is None:
            return False
        one.stack = _Frames(texts)
        named = [(one.__cause__, raised.__cause__), (one.__context__, raised.__context__)]
        if isinstance(raised, BaseExceptionGroup):
            named += zip(one.exceptions, raised.exceptions, strict=True)
        # What stands twice in a chain is found once.
        waiting += [(inner, cause, cause.__traceback__) for inner, cause in named if inner and cause]
    return True


def _texts(trace: TracebackType | None) -> list[str] | None:
    """The text of each frame, without those of OURS that lead to others; None if there are many, or if one is repeated."""
    texts: list[str] = []
    ours: list[str] = []
    number, last = 0, ""
    while trace is not None:
        text, is_ours = _text(trace)
        if number == MAX_FRAMES or text == last:
            return None
        number, last = number + 1, text
        if is_ours:
            ours.append(text)
        else:
            texts.append(text)
            ours.clear()
        trace = trace.tb_next
    return texts + ours


def _text(trace: TracebackType) -> tuple[str, bool]:
    code = trace.tb_frame.f_code
    kept = _kept.get((id(code), trace.tb_lasti))
    if kept is None:
        if len(_kept) >= MAX_KEPT_FRAMES:
            _kept.clear()
        text = "".join(traceback.extract_tb(trace, limit=1).format())
        kept = code, text, code.co_filename.startswith(OURS)
        _kept[id(code), trace.tb_lasti] = kept
    return kept[1:]
