"""Traces: the text of an exception as the standard library writes it, without formatting the same frame twice.

The standard library reads the source file's status and parses the line again for every frame of every exception. Jobs that
fail mostly fail at the same few lines, so the text of a frame is kept by its code and its place in the code.
"""

from __future__ import annotations

import traceback
from types import CodeType, TracebackType
from typing import Any

#: How many frames are kept. When there are more, all are forgotten.
MAX_KEPT_FRAMES = 2000
#: A traceback with more frames is left to the standard library, which shortens recursions.
MAX_FRAMES = 100

#: The text of a frame by the id of its code and the place in it. The code is kept too, so that its id is not used again.
_kept: dict[tuple[int, int], tuple[CodeType, str]] = {}


class _Frames(list[str]):
    """Frames as text, in place of a StackSummary."""

    def format(self, **_options: Any) -> list[str]:
        """The texts. The options are for colours."""
        return self


def format_error(error: BaseException, trace: TracebackType | None) -> str:
    """What `traceback.format_exception` returns as lines, as one text."""
    # `limit=0` reads no frame, and still finds the causes, the notes and the suggestions.
    found = traceback.TracebackException(type(error), error, trace, limit=0, compact=True)
    if not _add_frames(found, error, trace):
        found = traceback.TracebackException(type(error), error, trace, compact=True)
    return "".join(found.format())


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
    """The text of each frame; None if there are many, or if one is repeated."""
    texts: list[str] = []
    while trace is not None:
        text = _text(trace)
        if len(texts) == MAX_FRAMES or (texts and texts[-1] == text):
            return None
        texts.append(text)
        trace = trace.tb_next
    return texts


def _text(trace: TracebackType) -> str:
    code = trace.tb_frame.f_code
    kept = _kept.get((id(code), trace.tb_lasti))
    if kept is None:
        if len(_kept) >= MAX_KEPT_FRAMES:
            _kept.clear()
        kept = code, "".join(traceback.extract_tb(trace, limit=1).format())
        _kept[id(code), trace.tb_lasti] = kept
    return kept[1]
