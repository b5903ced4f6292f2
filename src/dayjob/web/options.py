"""WebOptions: who may view the console, who may act, and where it is served. Checked when it is created."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request

from dayjob.errors import BadOption

#: A viewer sees everything; an operator may also act.
Role = Literal["viewer", "operator"]
RoleOf = Callable[[Request], Role | Awaitable[Role | None] | None]
UserOf = Callable[[Request], str | None]


@dataclass(frozen=True, slots=True)
class WebOptions:
    """How the console is served.

    Without `password`, `token` and `role` only this machine may use it; other clients are refused.
    """

    #: Refuse every change, whoever is signed in.
    read_only: bool = False
    #: For HTTP Basic authentication. Any user name is accepted, and the audit records it.
    password: str | None = field(default=None, repr=False)
    #: For `Authorization: Bearer ...`.
    token: str | None = field(default=None, repr=False)
    #: A function of the request that returns the role instead, if your program knows its users; may be async.
    role: RoleOf | None = None
    #: A function of the request that returns the user name for the audit; only with `role`.
    user: UserOf | None = None
    #: Host names to which the console answers, besides localhost; "*" for any. None: any name if a sign-in is required,
    #: else only this machine's names.
    allow_hosts: Collection[str] | None = None
    #: The path under which a proxy serves this app, such as "/ops/jobs". Not needed for a mount.
    base_path: str = ""
    #: Shown in the titles of the pages.
    title: str = "dayjob"

    def __post_init__(self) -> None:
        if self.role is not None and (self.password is not None or self.token is not None):
            raise BadOption("role= cannot be combined with password= and token=: leave them out")
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
        """Whether a sign-in is required."""
        return self.password is not None or self.token is not None or self.role is not None
