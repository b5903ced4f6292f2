from __future__ import annotations

import pytest

from census import Census, census, dump
from pools import Pool, fill


@pytest.fixture
def look(keys, link):
    """Where every job is: look().queues."""

    def found() -> Census:
        return census(keys, link)

    return found


@pytest.fixture
def everything(keys, link):
    """Every key of the namespace with what it holds, to compare before and after."""
    return lambda: dump(keys, link)


@pytest.fixture
def put(keys, link):
    """Enqueue payloads: put("mail", "1", "2")."""
    return lambda name, *payloads: fill(keys, link, name, *payloads)


@pytest.fixture
def new_pool(keys, link):
    """Register another pool."""
    return lambda **options: Pool(keys, link, **options)


@pytest.fixture
def pool(new_pool) -> Pool:
    """One registered pool."""
    return new_pool(pool_id="p1", names=["a", "b"])


@pytest.fixture
def now(call):
    """Redis time in seconds."""

    def found() -> float:
        seconds, micros = call("TIME")
        return int(seconds) + int(micros) / 1e6

    return found


@pytest.fixture
def totals(call, keys):
    """The exact totals, without those that are absent."""

    def found() -> dict[str, int]:
        flat = call("HGETALL", keys.totals)
        return {field.decode(): int(value) for field, value in zip(flat[::2], flat[1::2], strict=True)}

    return found
