"""The data folder of an embedded server: its files, and whether this user may trust them.

A folder may come from another person: with a cloned repository, in an archive, on a shared disk. So its content does not
decide which program runs, no symbolic link in it is followed, and a folder that this user's dayjob did not create is
refused until the user accepts it. `server.mark` holds a random token; the same token is kept under the user's home.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import shlex
import stat
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from dayjob.errors import ServerError, UntrustedFolder

if sys.platform != "win32":
    import fcntl

#: Not $TMPDIR, because that may differ between processes that must find the same socket.
RUNTIME = Path("/tmp")  # noqa: S108 - the directory created in it is private and checked
#: Files of the data folder are read up to this size.
_MAX_FILE_BYTES = 1 << 16
_TOKEN = re.compile(rb"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """The content of `server.json`: which server last wrote this folder's data. Older versions may not be able to read it."""

    server: str
    version: str
    binary: str
    pid: int
    socket: str


@dataclass(frozen=True, slots=True)
class DataFolder:
    """A data folder, and the paths of the socket and of the files that dayjob keeps in it."""

    folder: Path
    socket: Path

    @classmethod
    def of(cls, folder: Path) -> DataFolder:
        refuse_platform(sys.platform)
        real = Path(os.path.realpath(folder))
        # Hashed, because on macOS the path of a socket may have at most 103 bytes.
        digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:20]
        return cls(real, RUNTIME / f"dayjob-{os.geteuid()}" / f"{digest}.sock")

    @property
    def lock(self) -> Path:
        return self.folder / "server.lock"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def mark(self) -> Path:
        return self.folder / "server.mark"

    @property
    def pid(self) -> int | None:
        """The pid that the server wrote to its pid file. It is stale unless the lock is held."""
        try:
            return int(_read_file(self.folder / "server.pid"))
        except (OSError, ValueError):
            return None

    @property
    def record(self) -> ServerRecord | None:
        try:
            return msgspec.json.decode(_read_file(self.folder / "server.json"), type=ServerRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def write_record(self, record: ServerRecord) -> None:
        # Renaming is atomic, so that no reader sees half of the file.
        new = self.folder / f"server.json.{uuid.uuid4().hex}"
        new.write_bytes(msgspec.json.format(msgspec.json.encode(record)) + b"\n")
        new.replace(self.folder / "server.json")


def trust_folder(folder: Path) -> None:
    """Accept a folder that this user's dayjob did not create, so that its data may be served. Raises ServerError."""
    place = DataFolder.of(folder)
    with in_words(place):
        if place.folder.is_dir():
            _refuse_links(place)
            descriptor = open_file(place.mark, os.O_RDWR | os.O_CREAT)
            with os.fdopen(descriptor, "r+b") as mark:
                fcntl.flock(mark, fcntl.LOCK_EX)
                if not _is_known(mark.read(_MAX_FILE_BYTES)):
                    _write_mark(mark, place)


def refuse_platform(platform: str) -> None:
    """Raise ServerError on a platform without an embedded server."""
    if platform == "win32":
        raise ServerError(
            "the embedded server does not run on Windows.\n"
            "    Run dayjob in WSL, or name a server: DAYJOB_REDIS_URL=redis://host:6379/0"
        )


def private_directory(directory: Path) -> None:
    """Create `directory` for sockets, accessible to its owner only. Raises ServerError if it belongs to another user."""
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ServerError(
            f"{directory} must be a directory of user {os.geteuid()} with mode 700, or others could reach the server "
            f"(it is of user {found.st_uid}, {stat.filemode(found.st_mode)}).\n"
            f"    Check what is in it, then remove it: rm -r {directory}"
        )


@contextlib.contextmanager
def in_words(place: DataFolder) -> Iterator[None]:
    """Turn an OSError into a ServerError that explains it."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        if isinstance(error, PermissionError) and (owner := _other_owner(place)):
            raise ServerError(
                f"{place.folder} belongs to {owner}, and so does its server: you may not read it{where}.\n"
                f"    Run this as {owner}, or name a folder of your own"
            ) from error
        raise ServerError(
            f"{place.folder}: cannot be used for the embedded server: {error.strerror or error}{where}\n"
            "    Name a folder that can be written, redis='embedded:/some/folder', or a server, "
            "DAYJOB_REDIS_URL=redis://host:6379/0"
        ) from error


def _other_owner(place: DataFolder) -> str:
    """The other user who owns the folder, or the nearest parent folder that can be read; "" if it is this user."""
    import pwd  # noqa: PLC0415 - POSIX only, and rarely needed

    for path in (place.lock, place.folder, *place.folder.parents):
        try:
            owner = path.stat().st_uid
        except PermissionError:
            continue
        except OSError:
            return ""
        try:
            return "" if owner == os.geteuid() else f"user {pwd.getpwuid(owner).pw_name}"
        except KeyError:
            return f"user {owner}"
    return ""


def prepare(place: DataFolder, *, linked: bool) -> None:
    """Create the folder, and refuse one that cannot be trusted. Raises ServerError, UntrustedFolder and OSError."""
    private_directory(place.socket.parent)
    if linked and not _is_marked(place):
        raise UntrustedFolder(_why_untrusted(place, "is reached through a symbolic link"), place.folder)
    made = not place.folder.is_dir()
    place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_marked(place) and not _mark_empty(place):
        raise UntrustedFolder(_why_untrusted(place, "was not made by your dayjob"), place.folder)
    if made:
        (place.folder / ".gitignore").write_text("*\n")
    _refuse_links(place)


def _is_marked(place: DataFolder) -> bool:
    """Whether this user's dayjob created the folder, or the user accepted it."""
    try:
        descriptor = open_file(place.mark, os.O_RDONLY)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor, "rb") as mark:
        fcntl.flock(mark, fcntl.LOCK_SH)
        return _is_known(mark.read(_MAX_FILE_BYTES))


def _mark_empty(place: DataFolder) -> bool:
    """Mark a folder that is empty; False for any other.

    The mark is the first file in a folder, and is read and written under its own lock: of several processes that open
    a new folder at once, one marks it and the others wait for the mark.
    """
    if set(place.folder.iterdir()) - {place.mark}:
        return _is_marked(place)
    with os.fdopen(open_file(place.mark, os.O_RDWR | os.O_CREAT), "r+b") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        token = mark.read(_MAX_FILE_BYTES)
        if not token and set(place.folder.iterdir()) == {place.mark}:
            _write_mark(mark, place)
            return True
    return _is_known(token)


def _write_mark(mark: BinaryIO, place: DataFolder) -> None:
    token = secrets.token_hex(16)
    marks = _marks()
    try:
        marks.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Written before the folder's own copy, so that no process finds a mark without its token.
        (marks / token).write_bytes(os.fsencode(place.folder) + b"\n")
    except OSError as error:
        raise ServerError(
            f"{marks}: cannot be written ({error.strerror or error}). dayjob keeps there which data folders it made.\n"
            "    Set XDG_STATE_HOME to a folder that this user can write and that is kept."
        ) from error
    mark.seek(0)
    mark.truncate()
    mark.write(token.encode())
    mark.flush()


def _is_known(token: bytes) -> bool:
    # Not Path.is_file, which raises if another user's home may not be read.
    return _TOKEN.fullmatch(token) is not None and os.path.isfile(_marks() / token.decode())  # noqa: PTH113


def _marks() -> Path:
    """The folder where this user's dayjob keeps the tokens of the data folders that it created."""
    named = os.environ.get("XDG_STATE_HOME", "")
    try:
        base = Path(named) if Path(named).is_absolute() else Path.home() / ".local" / "state"
    except RuntimeError:
        raise ServerError(
            "This user has no home directory, and dayjob keeps there which data folders it made.\n"
            "    Set XDG_STATE_HOME to a folder that this user can write and that is kept."
        ) from None
    return base / "dayjob" / "folders"


def _why_untrusted(place: DataFolder, why: str) -> str:
    command = f"dayjob server start --folder {shlex.quote(str(place.folder))} --trust"
    return (
        f"{place.folder} {why}, so its data may be another person's. Nothing was started.\n"
        f"    If you know where the folder comes from, accept it once: {command}\n"
        "    Otherwise remove the folder, or name a server: DAYJOB_REDIS_URL=redis://host:6379/0"
    )


def _refuse_links(place: DataFolder) -> None:
    """Refuse symbolic links in the folder, because the server would overwrite the files that they point to."""
    for folder in (place.folder, place.folder / "appendonlydir"):
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as files:
            for file in files:
                if file.is_symlink():
                    raise ServerError(
                        f"{file.path} is a symbolic link, which could overwrite another file.\n"
                        "    Look at where it points, then remove it."
                    )


def open_file(path: Path, flags: int) -> int:
    """Open a regular file of a data folder. Raises OSError, for a symbolic link too."""
    # Non-blocking, because opening a pipe would wait for its other end.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def _read_file(path: Path) -> bytes:
    with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read(_MAX_FILE_BYTES)
