from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from dayjob import Admin, Enqueuer
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from postgres import Postgres, running_postgres
from server import Server, running

# Where the embedded server's folders are remembered: not in the home of whoever runs the tests.
if "DAYJOB_TEST_STATE" not in os.environ:
    state = tempfile.TemporaryDirectory(prefix="dayjob-state-")
    os.environ["DAYJOB_TEST_STATE"] = os.environ["XDG_STATE_HOME"] = state.name

# The same examples in every run, so that a rare one refuses no change that has nothing to do with it. A campaign draws others.
settings.register_profile(
    "dayjob",
    derandomize=os.environ.get("DAYJOB_PROOF") != "full",
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("dayjob")


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Server:
    """One real server for all tests of this process; each test has a namespace of its own."""
    # Snapshots, as most servers make them: one that keeps nothing is a thing to be warned of.
    with running(tmp_path_factory.mktemp("server"), "--save", "3600 1") as found:
        yield found


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    """One real PostgreSQL for all tests of this process; each test has a database of its own."""
    with running_postgres() as found:
        yield found


@pytest.fixture
def redis_url(server: Server) -> str:
    return server.url


@pytest.fixture
def namespace() -> str:
    return "t" + secrets.token_hex(6)


@pytest.fixture
def keys(namespace: str) -> Keys:
    return Keys(namespace)


@pytest.fixture
def link(redis_url: str, keys: Keys) -> Link:
    found = Link(addresses.parse_url(redis_url), tag=keys.known_jobs, name="test")
    yield found
    found.close()


@pytest.fixture
def admin(redis_url: str, namespace: str) -> Iterator[Admin]:
    """Ada, an operator."""
    with Admin(namespace, redis=redis_url, actor="ada") as found:
        yield found


@pytest.fixture
def enqueuer(redis_url: str, namespace: str) -> Iterator[Enqueuer]:
    found = Enqueuer(namespace, redis=redis_url)
    yield found
    found.close()


@pytest.fixture
def call(link: Link):
    """Send a plain command: call("LLEN", key)."""
    from dayjob.store.op import plain

    return lambda *words: link.run(plain(*words))
