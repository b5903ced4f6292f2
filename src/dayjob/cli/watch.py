"""`dayjob watch`: posts to webhooks and Slack when something goes wrong, and when it is over."""

from __future__ import annotations

import os
import signal
import sys
import threading
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import msgspec

from dayjob.admin import alerts as alert_steps
from dayjob.admin.alert_rules import AlertRules, read_rules
from dayjob.admin.alerts import Alert, AlertLog
from dayjob.admin.client import Admin
from dayjob.cli import console, logs
from dayjob.cli.alert_watcher import RENEW_SECONDS, AlertWatcher, Courier
from dayjob.cli.receivers import TIMEOUT_SECONDS, Receiver, check_url
from dayjob.errors import BadOption, UsageError
from dayjob.job import new_id
from dayjob.store.ops import inspect
from dayjob.store.steps import ask

#: The variable with the secret that signs messages to webhooks.
SECRET = "DAYJOB_WATCH_SECRET"  # noqa: S105 - its name
#: How many receivers there may be.
MAX_RECEIVERS = 20


@click.command(epilog="Example: dayjob watch --webhook https://alerts.example.com/jobs --rules alerts.toml")
@click.option(
    "--webhook", multiple=True, metavar="URL", help="Post alerts to this address as JSON; may be repeated."
)
@click.option(
    "--slack",
    multiple=True,
    metavar="URL",
    help="Post alerts to this incoming webhook of Slack; may be repeated.",
)
@click.option(
    "--rules",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A TOML file with rules; see the guide to alerts.",
)
@click.option("--once", is_flag=True, help="Check once, deliver the alerts, and exit; for cron.")
@click.option("--dry-run", is_flag=True, help="Print what would be posted. Nothing is posted or remembered.")
@click.option("--test", "test", is_flag=True, help="Post one test message to every receiver, and exit.")
@console.options
def watch(
    webhook: tuple[str, ...],
    slack: tuple[str, ...],
    rules: Path | None,
    once: bool,
    dry_run: bool,
    test: bool,
    redis: str | None,
    namespace: str,
    as_json: bool,
) -> None:
    """Post when the verdict changes, jobs fail in a new way, a schedule is missed or a queue is late.

    Start it beside the workers, more than once if you like: one watcher leads, and another takes over when it stops.
    What was posted is kept in Redis, so restarts repeat nothing. DAYJOB_WATCH_SECRET signs messages to webhooks.
    --json prints each alert as a line of JSON.
    """
    found = _rules(rules)
    receivers = _receivers(webhook, slack)
    if not receivers and not dry_run:
        raise UsageError(
            "there is no receiver.\n    Give --webhook URL or --slack URL, or see what would be posted with --dry-run."
        )
    logs.set_up(form="text")
    with console.opened(redis, namespace) as admin:
        if test:
            sys.exit(_test(admin, found, receivers))
        if dry_run:
            _dry_run(admin, found, once=once, as_json=as_json)
        elif once:
            sys.exit(_once(admin, found, receivers, as_json=as_json))
        else:
            _watch(admin, found, receivers, as_json=as_json)


def _rules(path: Path | None) -> AlertRules:
    if path is None:
        return AlertRules()
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"--rules {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadOption(f"--rules {path} is not TOML: {error}") from None
    return read_rules(table, str(path))


def _receivers(webhooks: Sequence[str], slacks: Sequence[str]) -> list[Receiver]:
    secret = os.environ.get(SECRET, "")
    found = [
        *(Receiver("webhook", check_url(url, "--webhook"), secret) for url in webhooks),
        *(Receiver("slack", check_url(url, "--slack")) for url in slacks),
    ]
    if len(found) > MAX_RECEIVERS:
        raise BadOption(f"{len(found)} receivers: there may be {MAX_RECEIVERS}")
    return list({one.id: one for one in found}.values())


def _print(alerts: Sequence[Alert], *, as_json: bool) -> None:
    for alert in alerts:
        if as_json:
            click.echo(msgspec.json.encode(alert))
        else:
            click.echo(console.clean(f"{alert.state} {alert.level} {alert.kind}: {alert.text}"))


def _test(admin: Admin, rules: AlertRules, receivers: Sequence[Receiver]) -> int:
    """Post a test message to each receiver; 1 if one did not accept it."""
    now = admin._walk(ask(inspect.now()))
    alert = Alert(
        new_id(), "test", "firing", "notice", admin.namespace, "", "This is a test message of dayjob watch.", now, now, rules.console,
    )  # fmt: skip
    failed = 0
    for receiver in receivers:
        done = receiver.deliver(alert)
        failed += done.outcome != "accepted"
        click.echo(
            f"{receiver.label}: {'accepted' if done.outcome == 'accepted' else f'not accepted, {done.why}'}"
        )
    return 1 if failed else 0


def _dry_run(admin: Admin, rules: AlertRules, *, once: bool, as_json: bool) -> None:
    """Print what a watcher that has never looked before would post, groups of failures included."""
    memory = {alert_steps.BEGUN: b"1"}
    log = AlertLog(replace(rules, settle=0.0) if once else rules, admin.namespace)
    end = _ended()
    while True:
        now, found = admin._walk(alert_steps.conditions(admin._session, rules))
        for change in log.changes(now, found, dict(memory)):
            memory[change.key] = change.after
            if not change.after:
                del memory[change.key]
            if change.alert is not None:
                _print([change.alert], as_json=as_json)
        if once or end.wait(rules.every):
            return


def _once(admin: Admin, rules: AlertRules, receivers: Sequence[Receiver], *, as_json: bool) -> int:
    """Look once without waiting for a change to last, and deliver; 1 if a message is left."""
    watcher = AlertWatcher(admin, replace(rules, settle=0.0), receivers)
    _print(watcher.step(), as_json=as_json)
    left = 0
    if watcher.leads:
        for receiver in receivers:
            courier = Courier(admin, receiver, watcher)
            while (done := courier.deliver_next()) == "settled":
                pass
            left += done == "failed"
        watcher.give_up()
    return 1 if left else 0


def _watch(admin: Admin, rules: AlertRules, receivers: Sequence[Receiver], *, as_json: bool) -> None:
    watcher = AlertWatcher(admin, rules, receivers)
    couriers = [Courier(admin, receiver, watcher) for receiver in receivers]

    def direct(alert: Alert) -> None:
        _print([alert], as_json=as_json)
        for courier in couriers:
            courier.direct.append(alert)
            courier.wake()

    watcher.direct = direct
    end = _ended()
    for courier in couriers:
        courier.start()
    click.echo(f"Watching {admin.namespace} every {rules.every:g} s  (Ctrl-C stops it)", err=True)
    try:
        while True:
            posted = watcher.step()
            _print(posted, as_json=as_json)
            if posted:
                for courier in couriers:
                    courier.wake()
            if end.wait(min(RENEW_SECONDS, rules.every)):
                break
    finally:
        for courier in couriers:
            courier.stop()
        for courier in couriers:
            # So that a message which is under way is not posted again by the next leader.
            courier.join(timeout=1.5 * TIMEOUT_SECONDS)
        watcher.give_up()


def _ended() -> threading.Event:
    """Set when Ctrl-C or TERM asks this process to end."""
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    return end
