"""Census: where every job of a namespace is, in one read-only look; and a dump of all its keys, to compare."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain

#: Type name as the server says it to the command that reads all of it.
READ = {
    "string": ("GET",),
    "list": ("LRANGE", 0, -1),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "hash": ("HGETALL",),
    "stream": ("XRANGE", "-", "+"),
}


@dataclass
class Census:
    """Every place a job can be in. Queues and broken start with what comes next."""

    queues: dict[str, list[bytes]] = field(default_factory=dict)
    #: Pool id to token to payload; live and condemned pools alike.
    held: dict[str, dict[str, bytes]] = field(default_factory=dict)
    scheduled: dict[bytes, float] = field(default_factory=dict)
    retry: dict[bytes, float] = field(default_factory=dict)
    dead: dict[bytes, float] = field(default_factory=dict)
    done: dict[bytes, float] = field(default_factory=dict)
    broken: list[bytes] = field(default_factory=list)
    #: Part of a deletion to the jobs in it, as they were.
    bin: dict[str, list[bytes]] = field(default_factory=dict)
    #: Unique key to its value.
    unique: dict[str, bytes] = field(default_factory=dict)
    #: Job name to the members of its limit's set.
    held_sets: dict[str, set[str]] = field(default_factory=dict)
    #: Keys of a wrong type to the type they have.
    wrong: dict[str, str] = field(default_factory=dict)

    @property
    def places(self) -> Counter[bytes]:
        """How often each payload is stored, anywhere."""
        found: Counter[bytes] = Counter()
        for queue in self.queues.values():
            found.update(queue)
        for part in self.bin.values():
            found.update(part)
        for attempts in self.held.values():
            found.update(attempts.values())
        for some in (self.scheduled, self.retry, self.dead, self.done, self.broken):
            found.update(list(some))
        return found

    @property
    def jobs(self) -> int:
        """How many jobs there are, kept ones included."""
        return self.places.total()


def census(keys: Keys, link: Link) -> Census:
    """Look at every job of the namespace. Not atomic: for tests whose pools stand still."""
    found = Census()
    for key, (kind, value) in dump(keys, link).items():
        place, _, rest = key.partition(":")
        if place == "jobs" and ":" not in rest:
            _put(found, key, kind, "list", found.queues, rest, lambda v: v[::-1], value)
        elif place == "pool" and rest.endswith(":held"):
            _put(found, key, kind, "hash", found.held, rest.removesuffix(":held"), _texts, value)
        elif place == "held":
            _put(found, key, kind, "set", found.held_sets, rest, lambda v: {m.decode() for m in v}, value)
        elif place == "unique":
            _put(found, key, kind, "string", found.unique, keys.prefix + key, lambda v: v, value)
        elif key in ("scheduled", "retry", "dead", "done"):
            _put(found, key, kind, "zset", found.__dict__, key, lambda v: v, value)
        elif place == "bin" and rest:
            _put(found, key, kind, "list", found.bin, rest, lambda v: [_binned(one) for one in v], value)
        elif key == "broken":
            _put(found, key, kind, "list", found.__dict__, key, lambda v: v, value)
    return found


def _put(
    found: Census, key: str, kind: str, right: str, into: dict[str, Any], name: str, read: Any, value: Any
) -> None:
    if kind == right:
        into[name] = read(value)
    else:
        found.wrong[key] = kind


def _binned(entry: bytes) -> bytes:
    """A job of the bin without its header and the value of its unique key."""
    head, _, rest = entry.partition(b"\n")
    return rest[json.loads(head)["holder"] :]


def _texts(fields: dict[bytes, bytes]) -> dict[str, bytes]:
    return {token.decode(): payload for token, payload in fields.items()}


def dump(keys: Keys, link: Link) -> dict[str, tuple[str, Any]]:
    """Every key of the namespace, its prefix cut off, with its type and all that it holds."""
    names: set[bytes] = set()
    cursor: Any = 0
    while True:
        cursor, page = link.run(plain("SCAN", cursor, "MATCH", keys.prefix + "*", "COUNT", 1000))
        names.update(page)
        if int(cursor) == 0:
            break
    ordered = sorted(names)
    kinds = (
        [kind.decode() for kind in link.run_many([plain("TYPE", name) for name in ordered])]
        if ordered
        else []
    )
    # A key may expire between two looks.
    there = [(name, kind) for name, kind in zip(ordered, kinds, strict=True) if kind != "none"]
    reads = [plain(READ[kind][0], name, *READ[kind][1:]) for name, kind in there]
    replies = link.run_many(reads) if reads else []
    return {
        name.decode().removeprefix(keys.prefix): (kind, _value(kind, reply))
        for (name, kind), reply in zip(there, replies, strict=True)
    }


def _value(kind: str, reply: Any) -> Any:
    if kind == "set":
        return set(reply)
    if kind == "zset":
        return dict(zip(reply[::2], map(float, reply[1::2]), strict=True))
    if kind == "hash":
        return dict(zip(reply[::2], reply[1::2], strict=True))
    return reply
