"""WebOptions: who may look at the console, who may act, and where it is served. Checked once, when it is made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request

from dayjob.errors import BadOption

#: A viewer sees everything, an operator acts as well.
Role = Literal["viewer", "operator"]
RoleOf = Callable[[Request], Role | Awaitable[Role | None] | None]
UserOf = Callable[[Request], str | None]


@dataclass(frozen=True, slots=True)
class WebOptions:
    """How the console is served.

    Without `password`, `token` and `role` only this machine may use it: other clients are refused, in words.
    """

    #: Nothing can be changed through this app, whoever asks.
    read_only: bool = False
    #: For HTTP Basic authentication; any user name goes with it and is what the audit shows.
    password: str | None = field(default=None, repr=False)
    #: For `Authorization: Bearer ...`.
    token: str | None = field(default=None, repr=False)
    #: Decides by the request instead, where the program around this app knows its users; may be async.
    role: RoleOf | None = None
    #: The name that the audit shows for a request; beside `role`.
    user: UserOf | None = None
    #: Names under which the console may be addressed, beside localhost; "*" for any. None: any where somebody must
    #: sign in, else this machine's own.
    allow_hosts: Collection[str] | None = None
    #: The path that a proxy in front serves this app under, like "/ops/jobs"; a mount says so by itself.
    base_path: str = ""
    #: Shown in the pages' titles.
    title: str = "dayjob"

    def __post_init__(self) -> None:
        if self.role is not None and (self.password is not None or self.token is not None):
            raise BadOption("role= decides alone who may do what: leave out password= and token=")
        for option in ("password", "token"):
            value = getattr(self, option)
            if value is not None and not value.strip():
                raise BadOption(f"{option}= is empty: give one, or leave it out")
        if self.base_path and (not self.base_path.startswith("/") or self.base_path.endswith("/")):
            raise BadOption(
                f"base_path={self.base_path!r}: begin with a slash and end without, like '/ops/jobs'"
            )
        if isinstance(self.allow_hosts, str):
            raise BadOption(
                f"allow_hosts={self.allow_hosts!r}: give a list of names, like ['jobs.example.com']"
            )

    @property
    def closed(self) -> bool:
        """Whether somebody must sign in."""
        return self.password is not None or self.token is not None or self.role is not None
