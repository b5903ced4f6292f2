"""Dialogs: a confirmation, a name to type, a text to enter, the filter, and the help."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from dayjob.admin.filters import KEYS
from dayjob.errors import BadOption

_BOX = """
    align: center middle;
    & > Vertical, & > VerticalScroll {
        width: 76; max-width: 100%; height: auto; max-height: 100%;
        border: round ansi_bright_black; padding: 0 1; background: ansi_default;
    }
    & Static { width: 100%; background: ansi_default; }
    & Input, & Input:focus { border: none; height: 1; padding: 0; background: ansi_default; color: ansi_default; }
    & .dim { text-style: dim; }
    & .error { color: ansi_red; }
"""


class Confirm(ModalScreen[bool]):
    """Asks for confirmation: y for yes; n, escape or q for no."""

    DEFAULT_CSS = f"Confirm {{ {_BOX} }}"

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Static("")
            yield Static("y yes   n no", classes="dim", markup=False)

    def on_key(self, event: Key) -> None:
        event.stop()
        if event.character in ("y", "Y"):
            self.dismiss(True)
        elif event.character in ("n", "N", "q") or event.key in ("escape", "ctrl+c"):
            self.dismiss(False)


class Typed(ModalScreen[bool]):
    """Asks the operator to type a word, for actions that cannot be undone."""

    DEFAULT_CSS = f"Typed {{ {_BOX} }}"

    def __init__(self, question: str, word: str) -> None:
        super().__init__()
        self._question = question
        self._word = word

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Static(f"Type {self._word} and press enter; esc cancels.", classes="dim", markup=False)
            yield Input()
            yield Static("", classes="error", id="problem", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() == self._word:
            self.dismiss(True)
        else:
            self.query_one("#problem", Static).update(f"That is not {self._word}; nothing was changed.")

    def on_key(self, event: Key) -> None:
        if event.key in ("escape", "ctrl+c"):
            event.stop()
            self.dismiss(False)


class EntryBox(ModalScreen[str | None]):
    """Asks for a text, which may be empty; None if it is left."""

    DEFAULT_CSS = f"EntryBox {{ {_BOX} }}"

    def __init__(self, question: str, text: str) -> None:
        super().__init__()
        self._question = question
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Input(self._text)
            yield Static("enter does it   esc leaves everything as it is", classes="dim", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def on_key(self, event: Key) -> None:
        if event.key in ("escape", "ctrl+c"):
            event.stop()
            self.dismiss(None)


class FilterBox(ModalScreen[str | None]):
    """Asks for a filter. An invalid filter is explained, and can be corrected."""

    DEFAULT_CSS = f"FilterBox {{ {_BOX} }}"

    def __init__(self, where: str, conditions: Sequence[str], check: Callable[[str], object]) -> None:
        super().__init__()
        self._where = where
        self._conditions = conditions
        self._check = check

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(
                "Show only rows that match all conditions; an empty filter shows all rows.", markup=False
            )
            yield Static(
                "  ".join(KEYS[key].example for key in self._conditions), classes="dim", markup=False
            )
            yield Input(self._where)
            yield Static("", classes="error", id="problem", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        try:
            self._check(event.value)
        except BadOption as error:
            self.query_one("#problem", Static).update(str(error))
        else:
            self.dismiss(event.value.strip())

    def on_key(self, event: Key) -> None:
        if event.key in ("escape", "ctrl+c"):
            event.stop()
            self.dismiss(None)


class Help(ModalScreen[None]):
    """Every key, by purpose."""

    DEFAULT_CSS = f"Help {{ {_BOX} }}"

    def __init__(self, parts: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
        super().__init__()
        self._parts = parts

    def compose(self) -> ComposeResult:
        wide = max(cell_len(key) for _, keys in self._parts for key, _ in keys) + 2
        with VerticalScroll():
            for title, keys in self._parts:
                yield Static(title, markup=False)
                text = "\n".join(f"  {key:<{wide}}{what}" for key, what in keys)
                yield Static(text, classes="dim", markup=False)

    def on_key(self, event: Key) -> None:
        scroll = self.query_one(VerticalScroll)
        if event.key in ("down", "j", "pagedown", "space"):
            scroll.scroll_relative(y=1 if event.key in ("down", "j") else 8, animate=False)
        elif event.key in ("up", "k", "pageup"):
            scroll.scroll_relative(y=-1 if event.key in ("up", "k") else -8, animate=False)
        else:
            self.dismiss(None)
        event.stop()
