"""How connections to the server are opened, by sync and async links alike."""

from __future__ import annotations

import inspect
import socket
from typing import Any

from redis.connection import AbstractConnection

from dayjob.store.credentials import login
from dayjob.store.urls import Address

#: Seconds to wait for a connection, and for the answer to a command that does not block.
ANSWER_SECONDS = 5.0

#: Keeps the client library from sending its name and version on every connection. Newer versions have one option for it.
SILENT: dict[str, Any] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(AbstractConnection.__init__).parameters
    else {"lib_name": None, "lib_version": None}
)


def connection_options(address: Address, timeout: float, name: str) -> dict[str, Any]:
    """The options of sync and async connections."""
    return {
        "db": address.db,
        **login(address),
        "socket_timeout": timeout,
        "socket_connect_timeout": min(ANSWER_SECONDS, timeout),
        "protocol": 2,
        "client_name": name,
        **SILENT,
        **tls_options(address),
    }


def tls_options(address: Address) -> dict[str, Any]:
    """The TLS options of a URL, for sync and async connections."""
    if not address.tls:
        return {}
    options = {key: value for key, value in address.options.items() if key.startswith("ssl_")}
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = str(options["ssl_check_hostname"]).lower() in ("1", "true", "yes")
    return options


def keepalive() -> dict[int, int]:
    """TCP options that detect a lost peer within about half a minute."""
    wanted = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 20_000))
    return {getattr(socket, option): value for option, value in wanted if hasattr(socket, option)}
