"""Renders the verdict, queues, jobs and failures as sheets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from dayjob.admin.detail_views import GroupDetail
from dayjob.admin.views import (
    BrokenEntry,
    BrokenPage,
    Failures,
    JobDetail,
    JobPage,
    JobView,
    Quantiles,
    QueueDetail,
    QueueView,
    Verdict,
)
from dayjob.cli.console import ago, attempt_number, clean, took, when
from dayjob.cli.limits import limits_of
from dayjob.explain.obstacles import ObstacleKind
from dayjob.text import counted, size, span
from dayjob.tui.sheet import Column, Line, Piece, Row, Sheet, Tone, spark

#: A sign for each level, so that nothing depends on colour alone.
SIGNS: dict[str, str] = {"ok": "✓", "notice": "i", "warning": "!", "error": "✖", "could not check": "?"}
TONES: dict[str, Tone] = {
    "ok": "ok",
    "notice": "bold",
    "warning": "warning",
    "error": "error",
    "could not check": "warning",
}
_LABEL = 13


def labelled(label: str, text: object, tone: Tone = "") -> Line:
    """A line with a label."""
    return ((f"{label:<{_LABEL}}", "dim"), (clean(text), tone))


def heading(text: str) -> Line:
    """A heading."""
    return ((text, "bold"),)


BLANK: Line = (("", ""),)


def number(value: int) -> str | Piece:
    """A number; 0 is dimmed."""
    return f"{value:,}" if value else ("0", "dim")


def failing(share: float | None) -> str | Piece:
    """A share of failures."""
    if not share:
        return ""
    return (f"{share:.0%}" if share >= 0.01 else "<1%", "error" if share >= 0.1 else "warning")


# Home.


def home(found: Verdict, waiting: Sequence[float], running: Sequence[float]) -> Sheet:
    """The verdict: a sentence, the number of jobs in each state, and each problem."""
    sizes = found.sizes
    counts = (
        ("waiting", found.waiting), ("running", found.running), ("scheduled", sizes.scheduled), ("retry", sizes.retry),
        ("dead", sizes.dead), ("done", sizes.done), ("broken", sizes.broken),
    )  # fmt: skip
    numbers: list[Piece] = []
    for name, count in counts:
        tone: Tone = "error" if count and name in ("dead", "broken") else "bold" if count else "dim"
        numbers.append((f"{count:,} {name}   " if count >= 0 else f"{name} has a wrong type   ", tone))
    lines: list[Line] = [
        ((f"{SIGNS[found.level]} ", TONES[found.level]), (clean(found.sentence), TONES[found.level])),
        BLANK, tuple(numbers), BLANK,
    ]  # fmt: skip
    for name, series in (("waiting", waiting), ("running", running)):
        if any(series):
            lines.append(((f"{name}  ", "dim"), (spark(series, 48), "ok")))
    rows = [
        Row(
            f"{note.subject} {note.text}",
            (
                (f"{SIGNS[note.level]} {note.level}", TONES[note.level]),
                clean(note.subject or "all"),
                ago(found.now - note.since) + (" or more" if note.or_earlier else "") if note.since else "",
                clean(note.text),
                (clean(note.todo), "dim"),
            ),
            note,
        )
        for note in found.notes
    ]
    columns = (
        Column("LEVEL"), Column("ABOUT", rank=1), Column("SINCE", right=True, rank=2), Column("WHAT", most=200, least=30),
        Column("WHAT TO DO", most=80, rank=3),
    )  # fmt: skip
    if not rows:
        return Sheet(
            (*lines, BLANK, (("Nothing needs your attention. 2 shows the queues, ? all keys.", "dim"),))
        )
    return Sheet((*lines, BLANK), columns, tuple(rows))


# Queues.

_QUEUES = (
    Column("QUEUE"), Column("WAITING", right=True), Column("OLDEST", right=True, rank=1), Column("RUNNING", right=True, rank=2),
    Column("WORKERS", right=True, rank=6), Column("IN/MIN", right=True, rank=5), Column("OUT/MIN", right=True, rank=4), Column("FAILS", right=True, rank=3),
    Column("LIMIT", right=True, rank=7), Column("STATE", most=30),
)  # fmt: skip


def queues(found: Iterable[QueueView]) -> Sheet:
    """Every queue."""
    rows = tuple(_queue(view) for view in found)
    waiting = sum(row.subject.queue.size for row in rows)
    running = sum(row.subject.running for row in rows)
    line = f"{counted(len(rows), 'queue')}, {counted(waiting, 'job')} waiting, {running:,} running"
    return Sheet((((line, "dim"),),), _QUEUES, rows, "No queues. A queue appears with its first job.")


def _queue(view: QueueView) -> Row:
    queue = view.queue
    limit = "" if queue.limit is None else f"{queue.held:,}/{queue.limit:,}"
    return Row(
        queue.name,
        (
            (clean(queue.name), "bold"), number(queue.size), ago(queue.age), number(view.running),
            (view.crew, "warning") if view.stuck else number(view.workers), "" if view.incoming is None else number(round(view.incoming)), number(round(view.out)), failing(view.failing), (limit, "warning" if view.obstacle == "at_limit" else ""), state_of(view),
        ),
        view,
    )  # fmt: skip


def state_of(view: QueueView) -> Piece:
    """What keeps a queue from being fetched, in a word or two."""
    if view.unattended:
        return ("✖ no worker", "error")
    words: dict[ObstacleKind | None, Piece] = {
        "wrong_type": ("✖ wrong type", "error"), "paused": ("! paused", "warning"), "at_limit": ("at its limit", "dim"),
    }  # fmt: skip
    return words.get(view.obstacle, ("", ""))


def queue(found: QueueDetail, page: JobPage) -> Sheet:
    """One queue with its next jobs."""
    view = found.view
    totals = ", ".join(f"{count:,} {name}" for name, count in found.totals.items())
    lines = [
        labelled("waiting", f"{view.queue.size:,}" + (f", the oldest for {ago(view.queue.age)}" if view.queue.age else "")),
        labelled("workers", f"{view.crew} in {counted(len(found.pools), 'pool')}, {view.running:,} running"),
        labelled("per minute", f"{'' if found.incoming_exact else 'about '}{found.incoming:,.1f} in, {view.out:,.1f} out"),
        labelled("last hour", f"waited: {quantiles(found.waits)}; ran: {quantiles(found.runs)}"),
    ]  # fmt: skip
    if view.queue.limit is not None:
        lines.append(labelled("limit", f"{view.queue.held:,} of {view.queue.limit:,} held"))
    lines += [labelled(label, text) for label, text in limits_of(found)]
    if totals:
        lines.append(labelled("all time", totals))
    if view.queue.paused:
        by = f" by {found.paused_by} at {when(found.paused_at)}" if found.paused_by else ""
        lines.append(labelled("paused", f"yes{by}", "warning"))
    sheet = jobs(page)
    return Sheet((*lines, BLANK), sheet.columns, sheet.rows, sheet.empty, sheet.next, found)


def quantiles(found: Quantiles) -> str:
    """Durations as text."""
    if not found.count:
        return "no figures"
    return f"median {took(found.p50)}, p95 {took(found.p95)}, p99 {took(found.p99)}"


# Jobs.

_MOMENTS = {
    "waiting": "WAITS", "scheduled": "DUE IN", "retry": "DUE IN", "dead": "DIED", "done": "KEPT FOR",
}  # fmt: skip


def jobs(page: JobPage) -> Sheet:
    """Jobs in one state."""
    columns = (
        Column("JOB"), Column(_MOMENTS.get(page.state, "WHEN"), right=True, rank=1),
        *((Column("FAILS", right=True, rank=2),) if page.state in ("retry", "dead") else ()),
        Column("SOURCE", rank=3, most=16), Column("SIZE", right=True, rank=5), Column("ID", rank=4),
        Column("ERROR" if page.state in ("retry", "dead") else "ARGUMENTS", most=300, least=36),
    )  # fmt: skip
    rows = tuple(_job(job, page) for job in page.jobs)
    about = [f"{counted(page.total, 'job')} in {page.state}"] if page.state != "waiting" else []
    if page.searched > len(page.jobs):
        about.append(f"{len(page.jobs):,} shown of {page.searched:,} searched")
    elif page.next and page.searched:
        about.append(f"{len(page.jobs):,} shown")
    if page.hidden:
        about.append(f"{page.hidden:,} with hidden arguments")
    if page.sorted_among:
        about.append(f"sorted among the {page.sorted_among:,} searched, {page.left:,} left")
    if page.beyond:
        about.append(f"{page.beyond:,} beyond the first 10,000 cannot be listed")
    line = ", ".join(about)
    empty = (
        f"No match among {counted(page.searched, 'job')}." if page.searched else f"No jobs in {page.state}."
    )
    if page.state == "waiting":
        empty = f"No match among {counted(page.searched, 'job')}." if page.searched else "No jobs wait."
    return Sheet((((line, "dim"),),) if line else (), columns, rows, empty, page.next)


def _job(job: JobView, page: JobPage) -> Row:
    failed: tuple[str | Piece, ...] = (number(job.fails),) if page.state in ("retry", "dead") else ()
    if job.problem:
        remark: Piece = (clean(f"cannot be read: {job.problem}"), "error")
    elif job.error and page.state in ("retry", "dead"):
        remark = (clean(job.error.strip().partition("\n")[0]), "error" if page.state == "dead" else "warning")
    else:
        remark = (arguments(job.args), "")
    source = "" if job.source is None else clean(job.source)
    return Row(
        f"{job.id} {job.at}",
        ((clean(job.name or "(unreadable)"), "bold"), _moment(job, page.now), *failed, source, (size(job.size), "dim"), (clean(job.id), "dim"), remark),
        job,
    )  # fmt: skip


def _moment(job: JobView, now: float) -> str:
    if job.state == "waiting":
        return ago(now - job.due_at) if job.due_at else ""
    if job.at is None:
        return ""
    return f"{span(now - job.at)} ago" if job.at < now else span(job.at - now)


def arguments(args: Any) -> str:
    """Arguments as name=value."""
    if isinstance(args, dict):
        return clean(" ".join(f"{key}={value!r}" for key, value in args.items()))
    return "" if args is None else clean(args)


_FRAME = re.compile(r'^\s*File "(.*?)", line \d+')
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python|<frozen|\\lib\\")


def job(found: JobDetail) -> Sheet:
    """One job: why it is not running, its timeline, arguments and error."""
    job = found.job
    lines: list[Line] = [
        ((clean(job.name), "title"), (f"  {job.state}", _state_tone(job))), BLANK, *(((clean(line), "bold"),) for line in found.sentence.splitlines()), BLANK,
        labelled("id", job.id), labelled("arguments", arguments(job.args) or "none"),
    ]  # fmt: skip
    facts = (
        ("source", job.source), ("enqueued by", job.parent or job.producer), attempt_number(job), ("deaths", job.deaths or None), ("unique key", job.unique_key),
        ("pool", job.pool_id), ("result", job.result),
    )  # fmt: skip
    lines += [labelled(label, value) for label, value in facts if value not in (None, "")]
    lines += [BLANK, heading("Timeline")]
    lines += [((f"{when(event.at)}  ", "dim"), (clean(event.text), "")) for event in found.timeline]
    if job.trace or job.error:
        lines += [BLANK, heading("Error")]
        lines += trace(job.trace or job.error)
    lines += [BLANK, heading("Enqueue one like it"), (("$ ", "dim"), (clean(found.command), ""))]
    lines += [((">>> ", "dim"), (clean(found.python), ""))]
    return Sheet(tuple(lines), subject=job)


def _state_tone(job: JobView) -> Tone:
    return {"dead": "error", "retry": "warning", "running": "ok"}.get(job.state, "dim")  # type: ignore[return-value]


def trace(text: str) -> list[Line]:
    """A traceback; frames of libraries are dimmed."""
    lines: list[Line] = []
    tone: Tone = ""
    for raw in text.rstrip().splitlines():
        shown = "".join(c if c.isprintable() else " " for c in raw.expandtabs(4))
        frame = _FRAME.match(shown)
        if frame:
            tone = "dim" if _LIBRARY.search(frame[1]) else "bold"
        elif not shown.startswith(" "):
            tone = "" if shown.startswith("Traceback") else "error"
        lines.append(((shown, tone),))
    return lines


# Broken entries.

_BROKEN = (
    Column("FOUND", right=True, rank=1), Column("WHERE", rank=2, most=40), Column("WHY", most=80, least=20), Column("BYTES", most=300, least=20),
)  # fmt: skip


def broken(found: BrokenPage) -> Sheet:
    """Entries that could not be read as jobs."""
    rows = tuple(
        Row(one.digest, (when(one.at), clean(one.where), (clean(one.why), "error"), clean(_bytes(one))), one)
        for one in found.entries
    )
    line = counted(found.total, "broken entry", "broken entries")
    return Sheet((((line, "dim"),),), _BROKEN, rows, "No broken entries.")


def broken_entry(one: BrokenEntry) -> Sheet:
    """One of them, whole."""
    lines = [labelled("found", when(one.at)), labelled("where", one.where), labelled("why", one.why, "error")]
    shown = ("".join(c if c.isprintable() else " " for c in row) for row in _bytes(one).splitlines())
    return Sheet((*lines, BLANK, *(((row, ""),) for row in shown)), subject=one)


def _bytes(one: BrokenEntry) -> str:
    return one.payload.decode("utf-8", "replace")


# Failures.

_OF_GROUP = (
    Column("JOB", most=40), Column("STATE"), Column("ATTEMPTS", right=True, rank=2), Column("FAILED", right=True, rank=1),
    Column("ERROR", most=60), Column("ARGUMENTS", most=300, rank=3),
)  # fmt: skip
_FAILURES = (
    Column("COUNT", right=True), Column("JOB"), Column("1 H", right=True, rank=2), Column("24 H", right=True, rank=3), Column("DEAD", right=True, rank=1),
    Column("RETRY", right=True, rank=1), Column("SINCE", right=True, rank=4), Column("LAST", right=True, rank=1), Column("ERROR", most=300, least=34),
)  # fmt: skip


def group(found: GroupDetail) -> Sheet:
    """One group of failures: since when, what was noted, where it failed, and its newest jobs."""
    one, now = found.group, found.now
    first = f"{ago(now - one.first_at)} ago" + ("" if one.first_known else " or earlier")
    lines: list[Line] = [
        ((clean(one.kind), "error"),), BLANK,
        ((f"{counted(one.count, 'job')}: {one.dead:,} dead, {one.retry:,} in retry; the first {first}, the last {ago(now - one.last_at)} ago", "bold"),),
    ]  # fmt: skip
    if one.mark.note:
        lines.append(labelled("note", f"{one.mark.note} ({one.mark.noted_by})"))
    if one.mark.ignored_until:
        lines.append(labelled("ignored", f"until {when(one.mark.ignored_until)} by {one.mark.ignored_by}"))
    for place in found.places:
        where = f"{place.host or 'not known any more'}{f' ({place.tag})' if place.tag else ''}"
        last = f"the last {ago(now - place.last_at)} ago"
        lines.append(labelled("failed on", f"{where}: {counted(place.attempts, 'attempt')}, {last}"))
    lines += [labelled("pool died", pool_id, "warning") for pool_id in found.pools]
    rows = tuple(
        Row(
            job.id,
            (
                (clean(job.id), "bold"), (job.state, _state_tone(job)), number(job.attempts), ago(now - job.failed_at) if job.failed_at else "",
                (clean(job.error.strip().partition("\n")[0]), "error"), arguments(job.args),
            ),
            job,
        )
        for job in found.jobs
    )  # fmt: skip
    return Sheet((*lines, BLANK), _OF_GROUP, rows, "No job of it was read.", subject=one)


def failures(found: Failures, groups: Sequence[Any]) -> Sheet:
    """Jobs in dead and retry by error and job name."""
    rows = tuple(
        Row(
            f"{one.name} {one.kind}",
            (
                number(one.count), (clean(one.name), "bold"), number(one.last_hour), number(one.last_day), number(one.dead), number(one.retry),
                ago(found.now - one.first_at) + ("" if one.first_known else " or more"), ago(found.now - one.last_at), (clean(one.kind), "error"),
            ),
            one,
        )
        for one in groups
    )  # fmt: skip
    kinds = counted(len(found.groups), "kind")
    line = f"{kinds} of failure, {counted(found.searched, 'job')} in dead or retry now"
    if found.searched < found.total:
        line += f", the newest of {found.total:,}"
    empty = (
        "No failure matches the filter." if found.groups else "Nothing has failed: dead and retry are empty."
    )
    lines: list[Line] = [((line, "dim"),)]
    if found.attempts:
        some = ", ".join(
            f'"{clean(one.name)}" {counted(one.last_hour, "time")}' for one in found.attempts[:5]
        )
        more = f" and {counted(len(found.attempts) - 5, 'other job')}" if len(found.attempts) > 5 else ""
        lines.append(
            ((f"failed in the last hour, including attempts that succeeded on retry: {some}{more}", "dim"),)
        )
    return Sheet(tuple(lines), _FAILURES, rows, empty)
