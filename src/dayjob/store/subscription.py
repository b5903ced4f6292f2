"""Subscription: a connection that receives what is published on one channel."""

from __future__ import annotations

from dayjob.store.link import Link
from dayjob.store.op import plain


class Subscription(Link):
    """One connection to the server that receives messages. Only one thread may use it at a time."""

    def subscribe(self, channel: str) -> None:
        """Connect and subscribe. Raises StoreError."""
        self.run(plain("SUBSCRIBE", channel))

    def receive(self, seconds: float) -> bytes | None:
        """The next message; None if there is none within `seconds`. Raises StoreError if the connection is lost."""
        with self._asking():
            # Not _open(), which would open a new connection that is not subscribed.
            if not self._connection.can_read(timeout=seconds):
                return None
            kind, *_, content = self._connection.read_response()
        return content if kind == b"message" else b""

    def test(self) -> None:
        """Send a request whose answer is received as an empty message, if the connection is alive. Raises StoreError."""
        with self._asking():
            self._connection.send_command("PING", check_health=False)
