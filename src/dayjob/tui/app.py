"""Top: the terminal program. It reads only the visible view, about once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key, Resize

from dayjob.admin import verbs
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.metrics import SPANS
from dayjob.admin.views import BulkProgress
from dayjob.cli.console import clean
from dayjob.errors import DayjobError, StoreError
from dayjob.text import counted
from dayjob.tui import actions, views
from dayjob.tui.actions import Action
from dayjob.tui.bars import Bar, head_line, key_line, tab_line
from dayjob.tui.dialogs import Confirm, EntryBox, FilterBox, Help, Typed
from dayjob.tui.row_filters import checked
from dayjob.tui.sheet import Piece, Sheet, Tone, flowing
from dayjob.tui.table import Body, Spot, drawn
from dayjob.tui.view import ReadOptions, View, nowhere

#: The keys of the first tabs, in their order. Tabs beyond them have none; the arrow keys reach every tab.
KEYS = "1234567890-="


def lines_of(text: str) -> str:
    """A question of several lines, each without control characters."""
    return "\n".join(map(clean, text.splitlines()))


@dataclass(slots=True)
class OpenView:
    """A view with its filter and page, and the position in it."""

    view: View
    options: ReadOptions = field(default_factory=ReadOptions)
    spot: Spot = field(default_factory=Spot)
    #: The cursors of the previous pages.
    before: list[str] = field(default_factory=list)
    #: The last data that was read; None before the first read.
    sheet: Sheet | None = None

    def turn(self, options: ReadOptions) -> None:
        """Change the filter or page, and start at the top."""
        self.options, self.spot, self.sheet = options, Spot(), None


class Top(App[None]):
    """The live view of one namespace."""

    CSS = "Screen { layout: vertical; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("tab", "turn(1)", show=False, priority=True),
        Binding("shift+tab", "turn(-1)", show=False, priority=True),
    ]

    def __init__(self, admin: AsyncAdmin, where: str, *, tab: int = 0, every: float = 1.0) -> None:
        super().__init__(ansi_color=True)
        self._admin = admin
        self._where = where
        self._every = every
        self._tabs = [OpenView(view) for view in views.tabs()]
        self._tab = tab
        #: The views that were opened from the tab, each from the one before.
        self._opened: list[OpenView] = []
        self._read_at = 0.0
        self._away = ""
        self._message: Piece = ("", "")
        self._body = Body()

    # The screen.

    def compose(self) -> ComposeResult:
        """Head, tabs, body, message, keys."""
        yield Bar("head")
        yield Bar("tabs")
        yield self._body
        yield Bar("message")
        yield Bar("keys")

    def on_mount(self) -> None:
        """Start reading."""
        self._body.focus()
        self._look()

    async def on_unmount(self) -> None:
        """Close the connections."""
        await self._admin.close()

    def on_resize(self, _: Resize) -> None:
        """Redraw the bars; the body redraws itself."""
        self.call_after_refresh(self._draw)

    @property
    def _here(self) -> OpenView:
        return self._opened[-1] if self._opened else self._tabs[self._tab]

    # Reading.

    def _look(self) -> None:
        """Read the visible view, now and repeatedly."""
        place = self._here
        self._body.show(place.spot, place.sheet or Sheet(((("reading ...", "dim"),),)))
        self._draw()
        self.run_worker(self._watch(place), group="read", exclusive=True)

    async def _watch(self, place: OpenView) -> None:
        while True:
            await self._read(place)
            await asyncio.sleep(self._every)

    async def _read(self, place: OpenView) -> None:
        try:
            place.sheet = await place.view.read(self._admin, place.options)
        except StoreError as error:
            # The old data stays on the screen, with its age.
            self._away = clean(str(error).partition("\n")[0])
        except DayjobError as error:
            place.sheet = Sheet((((clean(error), "error"),),))
        else:
            self._read_at = time.time()
            if self._away:
                self._away, self._message = "", ("Redis answers again.", "ok")
        if place.sheet is not None and place is self._here:
            self._body.show(place.spot, place.sheet)
        self._draw()

    # Keys.

    def on_key(self, event: Key) -> None:
        """Handle a key; dialogs have their own keys."""
        if len(self.screen_stack) > 1:
            return
        event.stop()
        name = event.character if event.character and event.character.isprintable() else event.key
        moves: dict[str, Callable[[], object]] = {
            "down": lambda: self._body.move(1), "j": lambda: self._body.move(1), "up": lambda: self._body.move(-1), "k": lambda: self._body.move(-1),
            "pagedown": lambda: self._body.page(1), "pageup": lambda: self._body.page(-1), "home": lambda: self._body.move(-(10**9)), "g": lambda: self._body.move(-(10**9)),
            "end": lambda: self._body.move(10**9), "G": lambda: self._body.move(10**9), "left": lambda: self.action_turn(-1), "right": lambda: self.action_turn(1),
            "enter": self._open, "escape": self._back, "backspace": self._back, "/": self._ask_filter, ">": self._next_page, "<": self._last_page, "?": self._help,
            "q": self.exit, " ": self._mark, "h": self._turn_hours, "o": self._next_sort, "O": self._reverse_sort,
        }  # fmt: skip
        if name in KEYS:
            self._show_tab(KEYS.index(name))
        elif name in moves:
            moves[name]()
        else:
            self._action(name)
        self._draw()

    def action_turn(self, by: int) -> None:
        """Go to the next tab."""
        if len(self.screen_stack) == 1:
            self._show_tab((self._tab + by) % len(self._tabs))

    def _show_tab(self, number: int) -> None:
        if number < len(self._tabs):
            self._tab, self._opened, self._message = number, [], ("", "")
            self._look()

    def _open(self) -> None:
        subject = self._body.row.subject if self._body.row else None
        self._show(self._here.view.opens(subject) if subject is not None else None)

    def _show(self, view: View | None) -> None:
        if view is None:
            return
        for number, place in enumerate(self._tabs):
            if place.view is view:
                self._show_tab(number)
                return
        self._opened.append(OpenView(view))
        self._look()

    def _back(self) -> None:
        if self._opened:
            self._opened.pop()
            self._look()
        elif self._here.options.where:
            self._filter("")

    def _mark(self) -> None:
        if self._here.view.marks:
            self._body.mark()

    # Filter and pages.

    def _ask_filter(self) -> None:
        view = self._here.view
        if not view.conditions:
            self._say(f"{view.title} has no filter.", "dim")
            return
        box = FilterBox(
            self._here.options.where, view.conditions, lambda text: checked(text, view.conditions)
        )
        self.push_screen(box, self._filter)

    def _filter(self, where: str | None) -> None:
        if where is not None:
            self._here.turn(replace(self._here.options, where=where, after=""))
            self._here.before.clear()
            self._look()

    def _next_page(self) -> None:
        place = self._here
        if place.sheet is not None and place.sheet.next:
            place.before.append(place.options.after)
            place.turn(replace(place.options, after=place.sheet.next))
            self._look()

    def _last_page(self) -> None:
        place = self._here
        if place.before:
            place.turn(replace(place.options, after=place.before.pop()))
            self._look()

    def _next_sort(self) -> None:
        """Sort by the next column."""
        columns = self._here.view.columns
        if columns is not None:
            self._sort(columns.next(self._here.options.sort))

    def _reverse_sort(self) -> None:
        """Sort by the same column in the other direction."""
        columns = self._here.view.columns
        if columns is not None:
            column, falling = columns.read(self._here.options.sort)
            self._sort(column if falling else f"-{column}")

    def _sort(self, sort: str) -> None:
        self._here.turn(replace(self._here.options, sort=sort, after=""))
        self._here.before.clear()
        self._look()

    def _turn_hours(self) -> None:
        place = self._here
        if place.view.spans:
            hours = list(SPANS)
            place.turn(
                replace(place.options, hours=hours[(hours.index(place.options.hours) + 1) % len(hours)])
            )
            self._look()

    # Actions.

    def _action(self, name: str) -> None:
        """Ask for confirmation of the action of a key, if it applies to the row under the cursor."""
        other = self._here.view.other
        if other is not None and name == other[0]:
            self._show(next(filter(None, map(other[2], self._subjects())), None))
            return
        if name == verbs.row("deletion", "undo").key:
            self.run_worker(self._ask_undo(), group="actions")
            return
        waves = verbs.row("all_jobs", "retry_in_waves")
        if name == waves.key and self._here.view.state in waves.states:
            where = self._here.options.where
            which = f" matching {where}" if where else ""
            self._ask(
                f"{waves.label} all dead jobs{which}?\n{waves.effect}", "", actions.retry_in_waves, where
            )
            return
        for action in self._here.view.actions:
            if name == action.key and self._body.marked and action.verb is not None:
                self._ask_marked(action)
                return
            if name == action.key:
                for subject in self._subjects():
                    if action.question(subject):
                        self._ask_one(action, subject)
                        return
            if name == action.key.upper() and self._can_all(action):
                self.run_worker(self._ask_all(action), group="actions")
                return

    def _subjects(self) -> Iterator[Any]:
        if self._body.row is not None:
            yield self._body.row.subject
        if self._body.sheet.subject is not None:
            yield self._body.sheet.subject

    def _can_all(self, action: Action) -> bool:
        state = self._here.view.state
        return state is not None and action.verb is not None and state in verbs.row("job", action.verb).bulk

    def _ask_one(self, action: Action, subject: Any) -> None:
        if action.entry is None:
            self._ask(action.question(subject), action.typed(subject), action.do, subject)
            return

        def entered(given: str | None) -> None:
            if given is not None:
                self.run_worker(self._do(action.do, subject, given), group="actions")

        self.push_screen(EntryBox(lines_of(action.question(subject)), action.entry(subject)), entered)

    def _ask(self, question: str, word: str, do: actions.Do, subject: Any) -> None:
        dialog = Typed(lines_of(question), word) if word else Confirm(lines_of(question))

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._do(do, subject), group="actions")

        self.push_screen(dialog, answered)

    async def _ask_undo(self) -> None:
        try:
            question, deletion = await actions.undo_question(self._admin)
        except DayjobError as error:
            self._say(clean(error), "error")
            return
        if deletion is None:
            self._say(clean(question), "dim")
        else:
            self._ask(question, "", actions.undo, deletion)

    def _ask_marked(self, action: Action) -> None:
        verb = action.verb
        if verb is None:
            return
        jobs = [row.subject for row in self._body.marked]

        async def do(admin: AsyncAdmin, _: Any, __: actions.Report, ___: str) -> str:
            done = await admin.selection(verb, [job.seen if job.id else job for job in jobs])
            changed = sum(one.done for one in done)
            refused = next((f" {one.subject}: {one.message}" for one in done if not one.done), "")
            hint = f" {actions.UNDO_HINT}" if any(one.undo for one in done) else ""
            return f"{counted(len(done), 'job')}: {changed:,} changed.{refused}{hint}"

        row = verbs.row("job", verb)
        self._ask(f"{row.label} {counted(len(jobs), 'marked job')}?\n{row.effect}", "", do, None)

    async def _ask_all(self, action: Action) -> None:
        """Count first, so that the question has the number."""
        place, verb, state = self._here, action.verb, self._here.view.state
        if verb is None or state is None:
            return
        where = place.options.where
        try:
            count = await self._admin.count(state, where=where)
        except DayjobError as error:
            self._say(clean(error), "error")
            return
        if not count.matched and count.complete:
            self._say("No job matches; nothing was changed.", "dim")
            return
        number = (
            counted(count.matched, "job") if count.complete else f"at least {counted(count.matched, 'job')}"
        )
        which = f" matching {where}" if where else ""

        async def do(admin: AsyncAdmin, _: Any, report: actions.Report, __: str) -> str:
            return actions.result_of(await admin.apply(verb, state, where=where, progress=report))

        row = verbs.row("job", verb)
        self._ask(f"{row.label} {number} in {state}{which}?\n{row.effect}", "", do, None)

    async def _do(self, do: actions.Do, subject: Any, given: str = "") -> None:
        try:
            self._say(clean(await do(self._admin, subject, self._report, given)), "ok")
        except DayjobError as error:
            self._say(clean(str(error).partition("\n")[0]), "error")
        self._body.spot.marks.clear()
        self._look()

    def _report(self, progress: BulkProgress) -> None:
        share = progress.searched / max(1, progress.total)
        words = progress.message or "..."
        self._say(f"{progress.changed:,} of {progress.total:,} ({share:.0%}) {words}", "dim")

    # The bars.

    def _say(self, text: str, tone: Tone) -> None:
        self._message = (text, tone)
        self._draw()

    def _draw(self) -> None:
        if not self.is_running or not self.screen_stack:
            return
        bars = {bar.id: bar for bar in self.screen_stack[0].query(Bar)}
        width = self.size.width
        moment = time.strftime("%H:%M:%S", time.localtime(self._read_at)) if self._read_at else ""
        right: Piece = ("✖ Redis does not answer", "error") if self._away else (moment, "dim")
        bars["head"].show(head_line(width, self._admin.namespace, self._where, right))
        titles = [f"{KEYS[i : i + 1]} {place.view.title}".lstrip() for i, place in enumerate(self._tabs)]
        bars["tabs"].show(tab_line(width, titles, self._tab))
        bars["message"].show(*self._message_lines(width))
        bars["keys"].show(key_line(width, self._keys(), [("?", "help"), ("q", "quit")]))

    def _message_lines(self, width: int) -> list[list[Segment]]:
        """The position, the filter and the last message, in as many lines as fit."""
        place = self._here
        pieces: list[Piece] = []
        if self._opened:
            trail = " > ".join([self._tabs[self._tab].view.title, *(one.view.title for one in self._opened)])
            pieces.append((f"{clean(trail)}  ", "bold"))
        if self._body.spot.marks:
            pieces.append((f"{len(self._body.spot.marks)} marked  ", "warning"))
        if place.before:
            pieces.append((f"page {len(place.before) + 1}  ", "bold"))
        if place.options.where:
            pieces.append((f"filter {clean(place.options.where)}  ", "warning"))
        if place.options.sort:
            pieces.append((f"sorted by {place.options.sort}  ", "bold"))
        if self._away:
            since = time.strftime("%H:%M:%S", time.localtime(self._read_at)) if self._read_at else ""
            shown = f" Last update: {since}." if since else ""
            pieces.append((f"✖ Redis does not answer; trying again.{shown} {self._away}", "error"))
        else:
            pieces.append(self._message)
        most = max(1, min(4, self.size.height // 4))
        return [drawn(line) for line in flowing(pieces, max(1, width - 1))[:most]]

    def _keys(self) -> Iterator[tuple[str, str]]:
        """The keys that have an effect now, most important first."""
        place = self._here
        row = self._body.row
        if self._opened:
            yield "esc", "back"
        if row is not None and place.view.opens is not nowhere:
            yield "enter", "open"
        for action in place.view.actions:
            if any(action.question(subject) for subject in self._subjects()):
                yield action.key, action.label
        if place.view.other is not None and any(self._subjects()):
            yield place.view.other[:2]
        if place.view.conditions:
            yield "/", "filter"
        if place.view.columns is not None:
            yield "o", f"sort: {place.options.sort or place.view.columns.default}"
        if place.view.spans:
            yield "h", f"{place.options.hours} h"
        if place.sheet is not None and place.sheet.next:
            yield ">", "next page"
        if place.before:
            yield "<", "page before"
        if place.view.marks and row is not None:
            yield "space", "mark"
        waves = verbs.row("all_jobs", "retry_in_waves")
        if row is not None and place.view.state in waves.states:
            yield waves.key, waves.label.lower()
        for action in place.view.actions:
            if row is not None and self._can_all(action):
                yield action.key.upper(), f"{action.label} all"
        yield "←→", "tabs"

    def _help(self) -> None:
        here = self._here.view
        on_rows = [(action.key, action.label) for action in here.actions]
        on_all = [
            (action.key.upper(), f"{action.label}: all jobs that match the filter")
            for action in here.actions
            if self._can_all(action)
        ]
        parts = [
            ("Moving", [("↑ ↓ j k", "row by row"), ("PgUp PgDn", "screen by screen"), ("g G", "first and last row"), ("> <", "next page, previous page"), ("enter", "open the row under the cursor"), ("esc", "back; clear the filter")]),
            ("Tabs", [("1 to =", "one of them"), ("← → tab", "the one beside")]),
            ("Looking", [("/", "filter: name=mail error~Timeout args.user_id=7 age>1h"), ("o O", "sort by the next column, in the other direction"), ("h", "hours, on Metrics"), ("?", "this help"), ("q", "quit")]),
            ("Acting", [(verbs.row("deletion", "undo").key, "undo your last deletion")]),
        ]  # fmt: skip
        if here.other is not None:
            on_rows.append(here.other[:2])
        if on_rows:
            marks = [("space", "mark a row, to act on several")] if here.marks else []
            parts.append((f"Actions on {here.title}, each with a confirmation", [*on_rows, *marks, *on_all]))
        self.push_screen(Help(parts))
