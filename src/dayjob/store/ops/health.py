"""The state of the server: INFO, settings and slow log. Managed servers may refuse some of these commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from dayjob.errors import Rejected
from dayjob.store.op import Op
from dayjob.store.scripts import all_names, load
from dayjob.store.steps import Steps, ask

_SECTIONS = ("server", "clients", "memory", "persistence", "stats", "replication", "cluster")
_SETTINGS = (
    "appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy", "maxclients", "timeout", "databases",
    "min-replicas-to-write", "slowlog-log-slower-than", "stop-writes-on-bgsave-error",
)  # fmt: skip
#: How many entries of the slow log are read.
MAX_SLOW = 20


@dataclass(frozen=True, slots=True)
class Slow:
    """A command of the slow log, without its arguments, because these may contain payloads."""

    at: float
    seconds: float
    #: The command, or `script <name>` for a script of dayjob.
    command: str


@dataclass(frozen=True, slots=True)
class Health:
    """The server's INFO, settings and slow log."""

    #: The fields of INFO.
    info: dict[str, str]
    #: The settings that matter to jobs; None if the server refuses to show them.
    config: dict[str, str] | None
    #: The newest entries of its slow log; None if the server refuses to show it.
    slow: tuple[Slow, ...] | None


def health() -> Steps[Health]:
    """Read the server's INFO, settings and slow log."""
    info = yield from read_info()
    try:
        settings: dict[str, str] | None = yield from ask(config())
    except Rejected:
        settings = None
    try:
        slow: tuple[Slow, ...] | None = yield from ask(slow_log())
    except Rejected:
        slow = None
    return Health(info, settings, slow)


def read_info() -> Steps[dict[str, str]]:
    """The fields of INFO. Also works with old servers, which give one section at a time."""
    try:
        return (yield from ask(Op("INFO", (), _SECTIONS, _read_info)))
    except Rejected:
        return (yield from ask(Op("INFO", (), (), _read_info)))


def settings() -> Steps[Health]:
    """The server's INFO and settings, as far as this user may read them."""
    try:
        info = yield from read_info()
    except Rejected:
        info = {}
    try:
        return Health(info, (yield from ask(config())), None)
    except Rejected:
        return Health(info, None, None)


def memory_only() -> Steps[bool]:
    """Whether the server certainly writes nothing to disk, as far as this user may read its settings."""
    try:
        return writes_nothing((yield from ask(config())))
    except Rejected:
        return False


def writes_nothing(settings: dict[str, str] | None) -> bool:
    """Whether a server with these settings writes neither an AOF nor snapshots. False if they are not known."""
    return settings is not None and settings.get("appendonly") == "no" and not settings.get("save", "?")


def eviction_policy() -> Op[str]:
    """The server's maxmemory-policy; "" if it does not show it."""
    return Op("INFO", (), ("memory",), lambda reply: _read_info(reply).get("maxmemory_policy", ""))


def config() -> Op[dict[str, str]]:
    """The settings that matter to jobs."""
    return Op("CONFIG", (), ("GET", *_SETTINGS), _read_config)


def slow_log() -> Op[tuple[Slow, ...]]:
    """The newest entries of the slow log."""
    return Op("SLOWLOG", (), ("GET", MAX_SLOW), lambda reply: tuple(_slow(entry) for entry in reply))


def load_script(name: str) -> Op[None]:
    """Load one of dayjob's scripts into the server."""
    return Op("SCRIPT", (), ("LOAD", load(name).source), lambda _: None)


def type_of(key: str) -> Op[str]:
    """The type of a key; "none" if it does not exist."""
    return Op("TYPE", (key,), (), lambda reply: reply.decode() if isinstance(reply, bytes) else str(reply))


def _read_info(reply: Any) -> dict[str, str]:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line and not line.startswith("#"))
    return {name: value.strip() for name, _, value in pairs}


def _read_config(reply: Any) -> dict[str, str]:
    words = [word.decode("utf-8", "replace") for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _slow(entry: Any) -> Slow:
    words = [word.decode("utf-8", "replace") for word in entry[3][:2]]
    command = words[0].upper() if words else "?"
    if command in ("EVALSHA", "EVAL") and len(words) > 1:
        command = f"script {_scripts().get(words[1], words[1][:12] if command == 'EVALSHA' else '?')}"
    return Slow(float(entry[1]), entry[2] / 1e6, command)


@cache
def _scripts() -> dict[str, str]:
    return {load(name).sha: name for name in all_names()}
