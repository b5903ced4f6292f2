"""Decides which Redis server and which namespace to use.

Commands, workers and enqueuers use the first of these that is set: the argument of a call or the option of a command, the
variable DAYJOB_REDIS_URL or DAYJOB_NAMESPACE, the pool's argument, `[tool.dayjob]` in ./pyproject.toml, the default.
REDIS_URL, which other programs use too, comes after the pool and before the file.

Only `connect_target` has side effects: it starts the embedded server if that is the target. No message shows a password.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from dayjob.errors import BadOption, UsageError
from dayjob.names import check_namespace, check_redis
from dayjob.safe_logging import SafeLogger
from dayjob.store.embedded import open_server
from dayjob.store.urls import EXAMPLE, parse_url, redacted

logger = SafeLogger("dayjob")

#: The origin of a target that was chosen because no server is configured.
FALLBACK = "the default"

#: The file in the working directory whose [tool.dayjob] holds settings.
FILE = "pyproject.toml"
IN_FILE = f"[tool.dayjob] in {FILE}"
NAMESPACE = "dayjob"

Name = Literal["redis", "namespace"]

_VARIABLES: Mapping[Name, str] = {"redis": "DAYJOB_REDIS_URL", "namespace": "DAYJOB_NAMESPACE"}
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
        EXAMPLE,
    )


def _target(value: str, origin: str, cwd: Path | None) -> Target:
    name = "redis" if origin in ("argument", "WorkerPool(redis=...)") else origin
    check_redis(value, name)
    if not value.strip():
        raise BadOption(f"{name} is set, but empty: give a URL like {EXAMPLE}, or 'embedded', or unset it")
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
        f"    Set DAYJOB_REDIS_URL (or REDIS_URL) to a URL like {EXAMPLE}, or pass redis=...\n"
        "    To use the embedded server on purpose, set DAYJOB_REDIS_URL=embedded:/some/folder"
    )
