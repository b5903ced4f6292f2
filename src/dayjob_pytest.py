"""The pytest plugin of dayjob: fixtures that keep jobs in memory, or run them on a server of their own.

A module of its own beside the package, so that pytest loads nothing of dayjob until a test uses a fixture.
"""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from dayjob import WorkerPool
    from dayjob.testing import FakeClock, Jobs
    from dayjob.testing.guard import EnqueueGuard

MARKER = (
    "dayjob(pool, inline, twice, limits, at, guard): settings of the fixtures of dayjob for this test: "
    "pool='app.jobs:pool', inline=True, twice=True, limits=True, at='2026-01-01T00:00:00+00:00', guard=False"
)
_SETTINGS = ("pool", "inline", "twice", "limits", "at", "guard")
#: Attributes of a pool that are made at first use.
_MADE = ("enqueuer", "async_enqueuer")
_guards: dict[int, EnqueueGuard] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings in an ini file."""
    parser.addini(
        "dayjob_pool", "The pool that the fixtures of dayjob use, such as app.jobs:pool.", default=""
    )
    parser.addini(
        "dayjob_guard", "Refuse enqueues in tests that would reach a real server.", type="bool", default=False
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and begin to refuse enqueues if asked for."""
    config.addinivalue_line("markers", MARKER)
    if config.getini("dayjob_guard"):
        _guard().install()


def pytest_unconfigure(config: pytest.Config) -> None:  # noqa: ARG001 - the name of the argument is pytest's
    """End what was begun."""
    guard = _guards.pop(os.getpid(), None)
    if guard is not None:
        guard.remove()


def _guard() -> EnqueueGuard:
    from dayjob.testing.guard import EnqueueGuard  # noqa: PLC0415 - loads the worker

    return _guards.setdefault(os.getpid(), EnqueueGuard())


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings of the markers of a test, the nearest one first."""
    found: dict[str, Any] = {}
    for marker in request.node.iter_markers("dayjob"):
        unknown = set(marker.kwargs) - set(_SETTINGS)
        if marker.args or unknown:
            what = ", ".join(sorted(unknown)) or f"{len(marker.args)} values without a name"
            _refuse(f"@pytest.mark.dayjob: {what}: it takes {', '.join(_SETTINGS)}, each by its name")
        found = {**marker.kwargs, **found}
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    """Lift the guard for a test that is marked so, and its fixtures."""
    marker = item.get_closest_marker("dayjob")
    guard = _guards.get(os.getpid())
    if guard is None or marker is None or marker.kwargs.get("guard", True):
        return (yield)
    guard.lifted = True
    try:
        return (yield)
    finally:
        guard.lifted = False


@pytest.fixture
def dayjob_pool(request: pytest.FixtureRequest) -> WorkerPool[Any]:
    """The pool that `jobs`, `jobs_inline` and `real_pool` use. Override it, or set `dayjob_pool` in the ini file."""
    where = _settings(request).get("pool") or request.config.getini("dayjob_pool")
    if not isinstance(where, str):
        return where  # type: ignore[no-any-return]  # the pool itself
    module, _, name = where.partition(":")
    if not module or not name:
        _refuse(
            "dayjob does not know your pool: write dayjob_pool = app.jobs:pool into the ini file of pytest, "
            "or override the fixture dayjob_pool"
        )
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        _refuse(
            f"dayjob_pool = {where}: there is no module {error.name!r}. If it is in the folder of the ini file, write pythonpath = . there"
        )
    if not hasattr(found, name):
        _refuse(f"dayjob_pool = {where}: the module has no {name!r}")
    return getattr(found, name)  # type: ignore[no-any-return]  # whatever it is, testing() checks it


def _refuse(problem: str) -> NoReturn:
    """End the test with one sentence: a traceback would show the inside of pytest only."""
    pytest.fail(problem, pytrace=False)


@pytest.fixture
def dayjob_clock(request: pytest.FixtureRequest) -> FakeClock:
    """The clock of `jobs` and `jobs_inline`. It stands still at the time of the marker's `at`, if that is given."""
    from datetime import datetime  # noqa: PLC0415 - nothing is loaded before it is used

    from dayjob.testing import FakeClock  # noqa: PLC0415 - as above

    at = _settings(request).get("at")
    return FakeClock(datetime.fromisoformat(at) if isinstance(at, str) else at)


def _block(pool: WorkerPool[Any], clock: FakeClock, settings: dict[str, Any], *, inline: bool) -> Jobs:
    from dayjob.testing import testing  # noqa: PLC0415 - as above

    return testing(
        pool,
        inline=settings.get("inline", inline),
        clock=clock,
        limits=settings.get("limits", False),
        twice=settings.get("twice", False),
    )


@pytest.fixture
def jobs(
    request: pytest.FixtureRequest, dayjob_pool: WorkerPool[Any], dayjob_clock: FakeClock
) -> Iterator[Jobs]:
    """The jobs that the test enqueues, in memory. Nothing runs until `jobs.drain()`."""
    with _block(dayjob_pool, dayjob_clock, _settings(request), inline=False) as block:
        yield block


@pytest.fixture
def jobs_inline(
    request: pytest.FixtureRequest, dayjob_pool: WorkerPool[Any], dayjob_clock: FakeClock
) -> Iterator[Jobs]:
    """The jobs that the test enqueues, in memory. Each runs before its enqueue returns."""
    with _block(dayjob_pool, dayjob_clock, _settings(request), inline=True) as block:
        yield block


@pytest.fixture(scope="session")
def dayjob_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server that the tests of this process share; it is started for them and stopped at the end."""
    from dayjob.store.embedded import open_server, stop_server  # noqa: PLC0415 - as above

    folder = Path(tmp_path_factory.mktemp("dayjob")) / "server"
    url = open_server(folder)
    yield url
    stop_server(folder)


@pytest.fixture
def real_pool(
    dayjob_pool: WorkerPool[Any], dayjob_server: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkerPool[Any]]:
    """The pool, started, on a real server and in a namespace of its own. It is stopped after the test."""
    namespace = f"test-{secrets.token_hex(6)}"
    monkeypatch.setenv("DAYJOB_REDIS_URL", dayjob_server)
    monkeypatch.setenv("DAYJOB_NAMESPACE", namespace)
    guard = _guards.get(os.getpid())
    if guard is not None:
        guard.allowed.add(namespace)
    # Enqueuers that are connected elsewhere are put back afterwards.
    before = {name: vars(dayjob_pool).pop(name) for name in _MADE if name in vars(dayjob_pool)}
    close: Callable[[], None] | None = None
    try:
        dayjob_pool.start()
        close = dayjob_pool.enqueuer.close
        yield dayjob_pool
    finally:
        dayjob_pool.stop(timeout=5)
        if close is not None:
            close()
        for name in _MADE:
            vars(dayjob_pool).pop(name, None)
        vars(dayjob_pool).update(before)
