"""Alert watcher: looks at a namespace every few seconds and posts what changed. One of several watchers leads."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from dayjob.admin import alerts as alert_steps
from dayjob.admin.alert_rules import AlertRules
from dayjob.admin.alerts import Alert, AlertLog
from dayjob.admin.client import Admin
from dayjob.cli.receivers import Receiver
from dayjob.errors import StoreError
from dayjob.job import new_id
from dayjob.store import codec
from dayjob.store.ops import alerts
from dayjob.store.steps import ask
from dayjob.text import span

log = logging.getLogger("dayjob.watch")

#: Seconds for which a watcher leads without renewing: after so long another takes over from one that crashed.
TERM_SECONDS = 20.0
#: Seconds between two renewals, and between two looks of a courier for messages.
RENEW_SECONDS = 5.0
#: The pause after the first failed request to a receiver; it doubles up to the second number.
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
#: Seconds after which a message that no request delivered is given up.
MAX_AGE_SECONDS = 86_400.0
#: Seconds without an answer of Redis after which the watcher posts that itself.
AWAY_SECONDS = 60.0


class AlertWatcher:
    """Leads or waits to lead; looks, and keeps what is new for the receivers."""

    def __init__(self, admin: Admin, rules: AlertRules, receivers: Sequence[Receiver]) -> None:
        self.id = new_id()
        self.leads = False
        #: Whether it led when Redis last answered.
        self._led = False
        self._admin = admin
        self._rules = rules
        self._receivers = [one.id for one in receivers]
        self._log = AlertLog(rules, admin.namespace)
        self._look_at = 0.0
        #: When Redis last answered, by this machine, and whether it was posted that it does not.
        self._answered_at = time.monotonic()
        self._posted_away = False
        #: Gets messages that cannot go through Redis.
        self.direct: Callable[[Alert], None] = lambda _: None

    def step(self) -> list[Alert]:
        """Renew the lease; look if it is time to. Returns what was posted."""
        try:
            posted = self._step()
        except StoreError as error:
            self._away(error)
            return []
        self._back()
        return posted

    def _step(self) -> list[Alert]:
        leads = self._admin._walk(
            ask(alerts.lead_watch(self._admin._session.keys, self.id, term=TERM_SECONDS))
        )
        if leads != self._led:
            log.info(
                "This watcher leads."
                if leads
                else "Another watcher leads. This one takes over if that one stops."
            )
        self.leads = self._led = leads
        if not leads or time.monotonic() < self._look_at:
            return []
        self._look_at = time.monotonic() + self._rules.every
        return self.look()

    def look(self) -> list[Alert]:
        """Look once, and keep what is new for the receivers."""
        session = self._admin._session
        now, found = self._admin._walk(alert_steps.conditions(session, self._rules))
        stored = self._admin._walk(ask(alerts.states(session.keys)))
        changes = self._log.changes(now, found, stored)
        posted = self._admin._walk(alert_steps.post(session, self._receivers, changes))
        for alert in posted:
            log.info("%s: %s", alert.state, alert.text)
        return posted

    def give_up(self) -> None:
        """Let another watcher lead at once."""
        self.leads = False
        try:
            self._admin._walk(ask(alerts.lead_watch(self._admin._session.keys, self.id, term=0)))
        except StoreError as error:
            log.info("The lease could not be given up (%s); it ends within %s.", error, span(TERM_SECONDS))

    # Redis itself.

    def _away(self, error: StoreError) -> None:
        # Its lease may end: another watcher may lead when Redis is back.
        self.leads = False
        for_seconds = time.monotonic() - self._answered_at
        log.warning("Redis does not answer: %s", str(error).partition("\n")[0])
        if self._led and not self._posted_away and for_seconds > AWAY_SECONDS:
            self._posted_away = True
            self.direct(self._own("firing", f"Redis has not answered the watcher for {span(for_seconds)}."))

    def _back(self) -> None:
        if self._posted_away:
            self._posted_away = False
            gone = span(time.monotonic() - self._answered_at)
            self.direct(self._own("resolved", f"Redis answers the watcher again, after {gone}."))
        self._answered_at = time.monotonic()

    def _own(self, state: str, text: str) -> Alert:
        firing = state == "firing"
        return Alert(
            new_id(), "redis", "firing" if firing else "resolved", "error" if firing else "ok", self._admin.namespace, "", text,
            time.time(), time.time(), self._rules.console,
        )  # fmt: skip


class Courier:
    """Delivers the messages of one receiver, oldest first, while its watcher leads. Runs in a thread of its own."""

    def __init__(self, admin: Admin, receiver: Receiver, watcher: AlertWatcher) -> None:
        self.receiver = receiver
        self._admin = admin
        self._watcher = watcher
        #: Messages that do not come from Redis.
        self.direct: collections.deque[Alert] = collections.deque(maxlen=20)
        self._wake = threading.Event()
        self._end = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name=f"courier {receiver.id}", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def wake(self) -> None:
        """There may be something to deliver."""
        self._wake.set()

    def stop(self) -> None:
        """End after the request that is under way."""
        self._end.set()
        self._wake.set()

    def join(self, timeout: float) -> None:
        """Wait until it has ended."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._end.is_set():
            self._wake.clear()
            try:
                done = self.deliver_next()
            except StoreError:
                # The watcher reports that Redis does not answer.
                done = "idle"
            if done == "idle":
                self._wake.wait(RENEW_SECONDS)
            elif self._failures:
                # A failing receiver is not asked sooner because there is more for it.
                self._end.wait(self._pause())

    def deliver_next(self) -> Literal["idle", "settled", "failed"]:
        """Try to deliver the oldest message. Settled means that it needs no further request."""
        if self.direct:
            if not self._tried(self.direct[0]):
                return "failed"
            self.direct.popleft()
            return "settled"
        if not self._watcher.leads:
            return "idle"
        keys = self._admin._session.keys
        raw = self._admin._walk(ask(alerts.next_message(keys, self.receiver.id)))
        if raw is None:
            return "idle"
        try:
            alert = msgspec.json.decode(raw, type=Alert)
        except codec.UNREADABLE:
            log.warning("A message for %s cannot be read, and is dropped.", self.receiver.label)
            alert = None
        if alert is not None and not self._tried(alert):
            return "failed"
        self._admin._walk(ask(alerts.drop_message(keys, self.receiver.id, raw)))
        return "settled"

    def _tried(self, alert: Alert) -> bool:
        """Whether this message needs no further request: it was accepted, refused for good, or is too old."""
        done = self.receiver.deliver(alert)
        if done.outcome == "accepted":
            self._failures = 0
            return True
        self._failures += 1
        old = time.time() - alert.at > MAX_AGE_SECONDS
        given_up = done.outcome == "refused" or old
        log.warning(
            "%s did not accept alert %s: %s. %s", self.receiver.label, alert.id, done.why,
            "It is not sent again." if given_up else f"The next try is in {self._pause():g} s.",
        )  # fmt: skip
        return given_up

    def _pause(self) -> float:
        return min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (min(self._failures, 10) - 1))
