"""Decides which Redis server and which namespace to use, and parses Redis URLs.

Commands, workers and enqueuers use the first of these that is set: the argument of a call or the option of a command, the
variable DAYJOB_REDIS_URL or DAYJOB_NAMESPACE, the pool's argument, `[tool.dayjob]` in ./pyproject.toml, the default.
REDIS_URL, which other programs use too, comes after the pool and before the file.

Only `connect_target` has side effects: it starts the embedded server if that is the target. No message shows a password.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn
from urllib.parse import quote, unquote

from dayjob.errors import BadOption, UsageError
from dayjob.middleware import ServerAddress
from dayjob.names import check_namespace, check_redis
from dayjob.safe_logging import SafeLogger
from dayjob.store.embedded import open_server

logger = SafeLogger("dayjob")

Kind = Literal["single", "unix", "sentinel", "cluster"]

#: The origin of a target that was chosen because no server is configured.
FALLBACK = "nothing was set"

#: The file in the working directory whose [tool.dayjob] holds settings.
FILE = "pyproject.toml"
IN_FILE = f"[tool.dayjob] in {FILE}"
NAMESPACE = "dayjob"

Name = Literal["redis", "namespace"]

_VARIABLES: Mapping[Name, str] = {"redis": "DAYJOB_REDIS_URL", "namespace": "DAYJOB_NAMESPACE"}
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*"
_EXAMPLE = "redis://host:6379/0"
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

#: The (process, folder) pairs for which the fallback was checked, so that each process warns once. A fork is a new process.
_warned: dict[tuple[int, Path], object] = {}


@dataclass(frozen=True, slots=True)
class Target:
    """The server to use, and where that was configured."""

    #: The URL as it was configured; `embedded:<folder>` for the embedded server.
    url: str
    #: "argument", the name of an environment variable, "WorkerPool(redis=...)", IN_FILE, or FALLBACK.
    origin: str
    #: The folder of the embedded server, or None.
    embedded: Path | None = None

    def __repr__(self) -> str:
        return f"Target({redacted(self.url)!r}, origin={self.origin!r})"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed Redis URL. Its text forms hide passwords."""

    kind: Kind
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


def resolve(
    redis: str | None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    *,
    pool: str | None = None,
    file: str | None = None,
) -> Target:
    """The server to use: the first that is configured, in the order above, else the embedded one.

    `redis` is the argument or option, `pool` the pool's URL, `file` the URL in a command's own table of pyproject.toml.
    Each may be `embedded` or `embedded:<folder>` to choose the embedded server. Raises BadOption for an invalid URL, and
    UsageError if no server is configured and the embedded one may not be used.
    """
    environ = os.environ if environ is None else environ
    for value, origin in _named("redis", redis, pool, file, environ, cwd):
        return _target(value, origin, cwd)
    _refuse_fallback(environ)
    folder = (cwd or Path.cwd()) / ".dayjob"
    return Target(f"embedded:{folder}", FALLBACK, folder)


def resolve_namespace(
    namespace: str | None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    *,
    pool: str | None = None,
    file: str | None = None,
) -> str:
    """The namespace to use: the first that is configured, in the same order, else "dayjob". Raises BadOption."""
    environ = os.environ if environ is None else environ
    for value, _ in _named("namespace", namespace, pool, file, environ, cwd):
        return check_namespace(value)
    return NAMESPACE


def pool_redis(redis: str | None) -> str | None:
    """A pool's `redis=`, or None if DAYJOB_REDIS_URL is set, which overrides it."""
    return None if _VARIABLES["redis"] in os.environ else redis


def conflict(
    name: Name,
    pool: str | None,
    *,
    file: str | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> str:
    """A warning if the pool names one value and an environment variable or pyproject.toml another; else ""."""
    environ = os.environ if environ is None else environ
    own = f"WorkerPool({name}=...)"
    named = [found for found in _named(name, None, pool, file, environ, cwd) if found[1] != "REDIS_URL"]
    for value, origin in named[1:]:
        if value != named[0][0] and own in (origin, named[0][1]):
            used, other = (repr(redacted(str(one))) for one in (named[0][0], value))
            return f"using {name} {used} of {named[0][1]}, not {other} of {origin}"
    return ""


def read_file(folder: Path | None = None) -> Mapping[str, Any]:
    """[tool.dayjob] of the folder's pyproject.toml, or an empty table. Raises BadOption."""
    return _table((folder or Path.cwd()) / FILE)


@cache
def _table(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    # Most programs have a pyproject.toml without [tool.dayjob]; a mistake elsewhere in it must not stop dayjob.
    if "tool.dayjob" not in text:
        return {}
    try:
        found = tomllib.loads(text).get("tool", {}).get("dayjob", {})
    except tomllib.TOMLDecodeError as error:
        raise BadOption(f"{FILE} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}


def _named(
    name: Name,
    argument: str | None,
    pool: str | None,
    file: str | None,
    environ: Mapping[str, str],
    cwd: Path | None,
) -> Iterator[tuple[str, str]]:
    """Every configured value of a setting and where it was configured. The first one is used."""
    variable = _VARIABLES[name]
    if argument is not None:
        yield argument, "argument"
    # An empty DAYJOB_NAMESPACE counts as not set, as for other variables; an empty URL is reported as a mistake.
    if environ.get(variable) or (name == "redis" and variable in environ):
        yield environ[variable], variable
    if pool is not None:
        yield pool, f"WorkerPool({name}=...)"
    if name == "redis" and "REDIS_URL" in environ:
        yield environ["REDIS_URL"], "REDIS_URL"
    written = read_file(cwd).get(name) if file is None else file
    if written is not None:
        yield written, IN_FILE


def connect_target(target: Target, *, warned: bool = False) -> str:
    """The URL to connect to. Starts the embedded server if it is the target, and warns if it was not configured.

    `warned` means that another process gives that warning. Raises ServerError if the embedded server cannot be started.
    """
    if target.embedded is None:
        return target.url
    url = open_server(target.embedded)
    mark = object()
    # setdefault is atomic, so that only one of several threads warns.
    first = _warned.setdefault((os.getpid(), target.embedded), mark) is mark
    if target.origin == FALLBACK and first and not warned:
        warn_of_fallback(target.embedded)
    return url


def warn_of_fallback(folder: Path | str) -> None:
    """Warn that the embedded server is used because no server is configured."""
    logger.warning(
        "no Redis is configured: using the embedded server in %s (set DAYJOB_REDIS_URL=%s, or =embedded to silence this warning)",
        folder,
        _EXAMPLE,
    )


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


def server_address(url: str) -> ServerAddress | None:
    """The host and port in a URL, or the path of a socket. None if it names several hosts, or the embedded server."""
    if url.startswith("embedded:"):
        return None
    address = parse_url(url)
    if address.kind == "unix":
        return ServerAddress(str(address.path), None)
    return ServerAddress(*address.hosts[0]) if address.kind == "single" else None


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


def _target(value: str, origin: str, cwd: Path | None) -> Target:
    name = "redis" if origin in ("argument", "WorkerPool(redis=...)") else origin
    check_redis(value, name)
    if not value.strip():
        raise BadOption(f"{name} is set, but empty: give a URL like {_EXAMPLE}, or 'embedded', or unset it")
    word, colon, folder = value.partition(":")
    if word == "embedded":
        try:
            path = (cwd or Path.cwd()) / (Path(folder).expanduser() if folder else ".dayjob")
        except RuntimeError:  # the user has no home directory
            folder = ""
        if "\0" in folder or (colon and not folder):
            raise BadOption(f"{name}={value!r}: write 'embedded', or 'embedded:/some/folder'")
        return Target(f"embedded:{path}", origin, path)
    try:
        parse_url(value)
    except BadOption as error:
        raise BadOption(f"{name}: {error}") from None
    return Target(value, origin)


def show_unannounced(environ: Mapping[str, str] | None = None) -> bool:
    """Whether DAYJOB_SHOW_UNANNOUNCED asks to show arguments of job types that no pool has announced. Raises BadOption."""
    value = (os.environ if environ is None else environ).get("DAYJOB_SHOW_UNANNOUNCED", "")
    if value not in ("", "0", "1"):
        raise BadOption(f"DAYJOB_SHOW_UNANNOUNCED={value!r}: write 1 or 0")
    return value == "1"


def _refuse_fallback(environ: Mapping[str, str]) -> None:
    wish = environ.get("DAYJOB_EMBEDDED", "")
    if wish not in ("", "never"):
        raise BadOption(f"DAYJOB_EMBEDDED={wish!r}: the only value is 'never'")
    if wish == "never":
        why = "DAYJOB_EMBEDDED=never refuses the embedded server"
    elif environ.get("KUBERNETES_SERVICE_HOST"):
        why = "under Kubernetes the embedded server would lose its jobs with the pod"
    else:
        return
    raise UsageError(
        f"no Redis is configured, and {why}.\n"
        f"    Set DAYJOB_REDIS_URL (or REDIS_URL) to a URL like {_EXAMPLE}, or pass redis=...\n"
        "    To use the embedded server on purpose, set DAYJOB_REDIS_URL=embedded:/some/folder"
    )


def _schemes() -> dict[str, tuple[Kind, bool]]:
    known: dict[str, tuple[Kind, bool]] = {"unix": ("unix", False)}
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
    raise BadOption(f"{redacted(url)!r} is no Redis URL: write one like {_EXAMPLE}")


def _read_query(query: str, kind: Kind, tls: bool, url: str) -> tuple[int | None, dict[str, str | bool]]:
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


def _read_path(path: str, kind: Kind, url: str) -> tuple[int | None, str | None]:
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


def _read_hosts(hostports: str, kind: Kind, url: str) -> tuple[tuple[str, int], ...]:
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
