"""Monitor: what the server was told to do during a block, the commands of scripts included."""

from __future__ import annotations

import codecs
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dayjob.store.link import Link
from dayjob.store.op import plain

_LINE = re.compile(rb"\+[\d.]+ \[\d+ ([^\]]*)\] (.*)\r\n")
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"')


@dataclass
class Heard:
    """The commands of one block: those that clients sent, and those that scripts called."""

    by_clients: list[list[bytes]] = field(default_factory=list)
    by_scripts: list[list[bytes]] = field(default_factory=list)


@contextmanager
def monitor(port: int, link: Link) -> Iterator[Heard]:
    """Listen to everything the server does, until the block ends."""
    heard, mark = Heard(), secrets.token_hex(8).encode()
    with socket.create_connection(("127.0.0.1", port), 60) as sock, sock.makefile("rb") as lines:
        sock.sendall(b"MONITOR\r\n")
        assert lines.readline() == b"+OK\r\n"
        yield heard
        link.run(plain("ECHO", mark))
        for line in lines:
            found = _LINE.fullmatch(line)
            assert found, line
            words = [codecs.escape_decode(word)[0] for word in _WORD.findall(found.group(2))]
            if mark in words:
                break
            (heard.by_scripts if found.group(1) == b"lua" else heard.by_clients).append(words)
