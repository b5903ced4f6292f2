"""What is registered on a started pool is refused in words: it would have no effect."""

from __future__ import annotations

import threading

import pytest

from dayjob.errors import NotReady


@pytest.fixture
def pool(new_pool):
    pool = new_pool(concurrency=2)
    pool.register("first", lambda: None)
    return pool


def ways(pool):
    """Every way to register something."""

    def late() -> None: ...

    def around(job):
        yield

    def life():
        yield

    return {
        "job 'late'": lambda: pool.job(late),
        "job 'named'": lambda: pool.job("named")(late),
        "job 'registered'": lambda: pool.register("registered", late),
        "periodic '@every 1s'": lambda: pool.periodic("@every 1s", "first"),
        "middleware 'around'": lambda: pool.middleware(around),
        "lifespan 'life'": lambda: pool.lifespan(life),
    }


def test_a_started_pool_refuses_what_comes_too_late_and_says_what_to_do(pool):
    pool.start()
    for what, register in ways(pool).items():
        with pytest.raises(NotReady) as refused:
            register()
        assert str(refused.value).startswith(f"{what}: the pool is started")
        assert "before start()" in str(refused.value)
        assert "stop()" in str(refused.value)
    assert len(pool.registry) == 1
    assert (pool.periodics, pool.middlewares, pool.lifespans) == ({}, [], [])


def test_after_stop_it_is_accepted_and_runs_after_the_next_start(pool):
    pool.start()
    pool.stop()
    for register in ways(pool).values():
        register()
    ran = threading.Event()
    pool.register("wanted", ran.set)
    with pool:
        pool.enqueuer.enqueue("wanted")
        assert ran.wait(60)


def test_a_lifespan_is_too_late_as_well(pool):
    refused = []

    @pool.lifespan
    def life():
        with pytest.raises(NotReady) as error:
            pool.register("late", lambda: None)
        refused.append(str(error.value))
        yield

    with pool:
        assert "job 'late'" in refused[0]


def test_a_handler_is_too_late_as_well(pool):
    refused = threading.Event()

    @pool.job
    def register_another() -> None:
        try:
            pool.register("late", lambda: None)
        except NotReady:
            refused.set()

    with pool:
        register_another.enqueue()
        assert refused.wait(60)


def test_a_start_that_failed_leaves_the_pool_open(pool):
    @pool.lifespan
    def fails():
        raise RuntimeError("no")
        yield

    with pytest.raises(RuntimeError):
        pool.start()
    pool.register("late", lambda: None)
