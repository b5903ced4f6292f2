"""Redis URLs: parses them into addresses, and hides their passwords. No message shows a password."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn
from urllib.parse import quote, unquote

from dayjob.errors import BadOption

ServerKind = Literal["single", "unix", "sentinel", "cluster"]

#: A URL as error messages show one.
EXAMPLE = "redis://host:6379/0"
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*"
_DEFAULT_PORTS = {"single": 6379, "sentinel": 26379, "cluster": 6379}
_SHOWN_OPTIONS = (
    "credentials", "db", "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile",
)  # fmt: skip
_SECRET_OPTIONS = ("sentinel_username", "sentinel_password")
#: Options of the client library that other programs put into a URL which they share. A link has its own values for them.
_IGNORED_OPTIONS = (
    "client_name", "decode_responses", "encoding", "encoding_errors", "health_check_interval", "legacy_responses", "max_connections", "protocol",
    "retry_on_error", "retry_on_timeout", "socket_connect_timeout", "socket_keepalive", "socket_read_size", "socket_timeout",
    "timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed Redis URL. Its text forms hide passwords."""

    kind: ServerKind
    hosts: tuple[tuple[str, int], ...] = ()
    #: The socket, for `unix`.
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    #: The name of the master, for `sentinel`.
    service: str | None = None
    #: The other options of the query string, under the client library's names for them.
    options: Mapping[str, str | bool] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        scheme = "unix" if self.kind == "unix" else "rediss" if self.tls else "redis"
        if self.kind in ("sentinel", "cluster"):
            scheme += f"+{self.kind}"
        # A user name without a password is often a password in the wrong place, so it is hidden.
        shown = quote(self.username or "", safe="") if self.password else ""
        user = f"{shown}:***@" if self.username or self.password else ""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        url = f"{scheme}://{user}{hosts}"
        if self.kind == "unix":
            return f"{url}{quote(self.path or '')}?db={self.db}"
        if self.kind == "cluster":
            return url
        return f"{url}/{quote(self.service, safe='')}/{self.db}" if self.service else f"{url}/{self.db}"

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"


def parse_url(url: str) -> Address:
    """Parse a Redis URL. Raises BadOption."""
    scheme, rest = _split_scheme(url)
    kind, tls = _SCHEMES[scheme]
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    userinfo, _, hostports = authority.rpartition("@")
    username, _, password = userinfo.partition(":")
    db, options = _read_query(query, kind, tls, url)
    socket_path = service = None
    if kind == "unix":
        socket_path = _read_socket(hostports, slash + path, url)
    else:
        path_db, service = _read_path(path, kind, url)
        if db is not None and path_db is not None and db != path_db:
            _bad(url, "names two databases: write the number once")
        db = path_db if db is None else db
    if kind == "cluster" and db:
        _bad(url, "a cluster has database 0 only: leave the number out")
    return Address(
        kind=kind,
        hosts=() if kind == "unix" else _read_hosts(hostports, kind, url),
        path=socket_path,
        db=db or 0,
        username=_decoded(username, url) or None,
        password=_decoded(password, url) or None,
        tls=tls,
        service=service,
        options=options,
    )


def redacted(url: str) -> str:
    """`url` without its password, even if the URL is invalid."""
    scheme, separator, rest = url.partition("://")
    if not re.fullmatch(_SCHEME, scheme):
        scheme, separator, rest = "", "", url
    # Up to the last @, because an unquoted password may contain any of / ? # @.
    userinfo, at, rest = rest.rpartition("@")
    username = userinfo.partition(":")[0] if ":" in userinfo else ""
    head, mark, query = rest.partition("?")
    shown = "&".join(_redacted_option(pair) for pair in query.split("&"))
    # In an invalid URL, an option may be in the place of the path.
    head = re.sub(r"(passw\w*=).*", r"\1***", head, flags=re.DOTALL)
    return f"{scheme}{separator}{f'{username}:***' if at else ''}{at}{head}{mark}{shown if mark else ''}"


def _redacted_option(pair: str) -> str:
    return pair if pair.partition("=")[0] in _SHOWN_OPTIONS else f"{_option_name(pair) or ''}***"


def _option_name(pair: str) -> str | None:
    name, equals, _ = pair.partition("=")
    return f"{name}=" if equals and re.fullmatch(r"[a-z_]{1,40}", name) else None


def _schemes() -> dict[str, tuple[ServerKind, bool]]:
    known: dict[str, tuple[ServerKind, bool]] = {"unix": ("unix", False)}
    for name, tls in (("redis", False), ("rediss", True), ("valkey", False), ("valkeys", True)):
        known |= {
            name: ("single", tls),
            f"{name}+sentinel": ("sentinel", tls),
            f"{name}+cluster": ("cluster", tls),
        }
    return known


_SCHEMES = _schemes()


def _split_scheme(url: str) -> tuple[str, str]:
    if any(character.isspace() or not character.isprintable() for character in url):
        # Also refuses text that cannot be encoded. The URL is not shown, because it may be a password with a line end.
        raise BadOption("the Redis URL has a space, a line end or an unprintable character in it: remove it")
    scheme, separator, rest = url.partition("://")
    if separator and scheme.lower() in _SCHEMES:
        if "#" in rest:
            _bad(url, "a '#' must be written %23")
        return scheme.lower(), rest
    if separator and re.fullmatch(_SCHEME, scheme):
        raise BadOption(f"the Redis URL begins with {scheme}://, which is none of {', '.join(_SCHEMES)}")
    if re.fullmatch(r"[\w.-]+(:\d{1,5})?(/\d{0,5})?", url):
        host, slash, db = url.partition("/")
        port = "" if ":" in host else ":6379"
        raise BadOption(f"{url!r} is no URL: write redis://{host}{port}/{db if slash and db else '0'}")
    if url.startswith("/") and "@" not in url:
        raise BadOption(f"{url!r} is no URL: write unix://{quote(url)}")
    raise BadOption(f"{redacted(url)!r} is no Redis URL: write one like {EXAMPLE}")


def _read_query(
    query: str, kind: ServerKind, tls: bool, url: str
) -> tuple[int | None, dict[str, str | bool]]:
    db: int | None = None
    options: dict[str, str | bool] = {}
    seen: set[str] = set()
    for pair in query.split("&") if query else ():
        name, _, raw = pair.partition("=")
        value = _decoded(raw, url)
        if name in _IGNORED_OPTIONS:
            continue
        if name not in _SHOWN_OPTIONS + _SECRET_OPTIONS:
            known = ", ".join(_SHOWN_OPTIONS + _SECRET_OPTIONS)
            _bad(url, f"has an unknown option{f' {name!r}' if _option_name(pair) else ''} (known: {known})")
        if name in seen or not value:
            _bad(url, f"{name} must be given once, with a value")
        seen.add(name)
        if name.startswith("ssl_") and not tls:
            _bad(url, f"{name} needs a scheme with TLS: write rediss:// instead of redis://")
        if name.startswith("sentinel_") and kind != "sentinel":
            _bad(url, f"{name} is for redis+sentinel:// only")
        if name == "db":
            db = _number(value, url, "db", 99_999)
        else:
            options[name] = _checked(name, value, url)
    return db, options


def _checked(name: str, value: str, url: str) -> str | bool:
    if name == "ssl_cert_reqs" and value not in ("none", "optional", "required"):
        _bad(url, "ssl_cert_reqs is none, optional or required")
    if name == "ssl_check_hostname":
        if value.lower() not in ("true", "false"):
            _bad(url, "ssl_check_hostname is true or false")
        return value.lower() == "true"
    return value


def _read_socket(hostports: str, raw: str, url: str) -> str:
    path = _decoded(raw, url)
    if hostports or len(path) < 2 or "\0" in path:
        _bad(url, "a socket needs an absolute path, and so three slashes: unix:///run/redis.sock")
    return path


def _read_path(path: str, kind: ServerKind, url: str) -> tuple[int | None, str | None]:
    """The database and the sentinel's service in a path."""
    # Errors do not quote the path, because after an unquoted '/' it may be part of a password.
    service: str | None = None
    if kind == "sentinel":
        first, _, path = path.partition("/")
        service = _decoded(first, url)
        if "=" in service:
            _bad(url, "the name of the master has an '=' in it: options come after a '?'")
        if not service:
            _bad(
                url, "the name of the master is missing: redis+sentinel://host1:26379,host2:26379/mymaster/0"
            )
    path = path.removesuffix("/")
    return (_number(path, url, "the database, after the last '/',", 99_999) if path else None), service


def _read_hosts(hostports: str, kind: ServerKind, url: str) -> tuple[tuple[str, int], ...]:
    pieces = hostports.split(",")
    if kind == "single" and len(pieces) > 1:
        _bad(url, "names several hosts: write redis+sentinel://.../mymaster or redis+cluster://...")
    return tuple(_read_host(piece, _DEFAULT_PORTS[kind], url) for piece in pieces)


def _read_host(hostport: str, default_port: int, url: str) -> tuple[str, int]:
    match = re.fullmatch(r"(?:\[([^\[\]]*)\]|([\w.-]*))(?::([^:]*))?", hostport)
    if not match:
        _bad(url, "a host is a name or an address, an IPv6 address is in brackets: redis://[::1]:6379/0")
    v6, name, port = match.groups()
    if v6 is not None:
        try:
            v6 = str(ipaddress.IPv6Address(_decoded(v6, url)))
        except ValueError:
            _bad(url, "what is in brackets is no IPv6 address: redis://[::1]:6379/0")
    host = v6 or name
    if not host:
        _bad(url, "has no host: write redis://localhost:6379/0")
    return host, default_port if port is None else _number(port, url, "the port", 65_535, least=1)


def _number(text: str, url: str, what: str, most: int, *, least: int = 0) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not least <= int(text) <= most:
        _bad(url, f"{what} must be a number from {least} to {most}")
    return int(text)


def _decoded(text: str, url: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        _bad(url, "has a %-escape that is not UTF-8")


def _bad(url: str, why: str) -> NoReturn:
    # More than one @, or one after a slash, usually means that the password was not quoted.
    hint = ""
    if "@" in url.partition("://")[2].partition("/")[2]:
        hint = " (in a user name or password write / as %2F, ? as %3F, # as %23, @ as %40)"
    raise BadOption(f"{redacted(url)}: {why}{hint}")
