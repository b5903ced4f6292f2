"""Log records name their job, under the configuration of the program: standard library, JSON lines and structlog."""

from __future__ import annotations

import io
import json
import logging
import logging.config
from contextvars import ContextVar
from functools import partial

import pytest
import structlog

from dayjob import Enqueuer, Job, WorkerPool
from dayjob.errors import BadOption
from dayjob.logging import JobFilter, JSONLines, add_job, set_record_factory
from server import wait_until
from workers import WorkerCommand

FORMAT = "%(job_name)s/%(job_id)s/%(attempt)s/%(source)s/%(request_id)s %(name)s %(message)s"


@pytest.fixture
def lines():
    """A handler of the root logger with JobFilter; what it wrote, line by line."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobFilter(headers=["request-id"]))
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield lambda: stream.getvalue().splitlines()
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def record_factory():
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


def shop(pool: WorkerPool) -> None:
    log = logging.getLogger("shop")

    @pool.job(max_fails=1)
    def plain(n: int) -> None:
        log.info("plain %d", n)
        raise ValueError("broken")

    @pool.job
    async def on_loop(n: int) -> None:
        log.info("async %d", n)


@pytest.mark.parametrize("name", ["plain", "on_loop"])
def test_a_filter_names_the_job_in_every_record_and_a_dash_elsewhere(new_pool, lines, name):
    pool = new_pool()
    shop(pool)
    pool.start()
    job = pool.enqueuer.using(source="acme", headers={"request-id": "r7"}).enqueue(name, n=3)
    assert pool.drain(60)
    about = f"{name}/{job.id}/1/acme/r7 shop"
    assert len([line for line in lines() if line.startswith(about)]) == 1
    assert any(line.startswith("-/-/-/-/- dayjob.worker") for line in lines())


def test_the_line_about_a_dead_job_names_it_under_a_record_factory_too(new_pool, record_factory, caplog):
    set_record_factory(headers=["request-id"])
    caplog.set_level(logging.INFO)
    pool = new_pool()
    shop(pool)
    pool.start()
    job = pool.enqueuer.using(headers={"request-id": "r7"}).enqueue("plain", n=3)
    assert pool.drain(60)
    (dead,) = [record for record in caplog.records if "is dead" in record.getMessage()]
    assert (dead.job_name, dead.job_id, dead.attempt, dead.request_id) == ("plain", job.id, 1, "r7")
    assert dead.error_kind == "ValueError"
    (own,) = [record for record in caplog.records if record.name == "shop"]
    assert (own.job_id, own.request_id, own.source) == (job.id, "r7", "-")
    assert logging.makeLogRecord({"name": "x"}).name == "x"


def test_the_line_about_a_failed_attempt_has_the_kind_and_the_message_of_its_error(new_pool, caplog):
    pool = new_pool()
    shop(pool)
    pool.start()
    pool.enqueuer.enqueue("plain", n=3)
    assert pool.drain(60)
    (dead,) = [record for record in caplog.records if "is dead" in record.getMessage()]
    assert (dead.error_kind, dead.error_message) == ("ValueError", "ValueError: broken")


def test_hooks_of_sync_and_async_jobs_know_the_job_that_ended(new_pool):
    from dayjob import current_job

    known: dict[str, object] = {}
    pool = new_pool()

    @pool.on_done
    def done(job: Job) -> None:
        known[job.name] = current_job()

    @pool.job
    def plain() -> None: ...

    @pool.job
    async def on_loop() -> None: ...

    pool.start()
    ids = {job.enqueue().id for job in (plain, on_loop)}
    assert pool.drain(60)
    assert {job.id for job in known.values()} == ids
    assert current_job() is None


def test_json_lines_have_the_job_the_extra_fields_the_exception_and_the_stack(new_pool):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JSONLines(headers=["request-id", "api-token"]))
    log = logging.getLogger("shop.json")
    log.addHandler(handler)
    pool = new_pool()

    @pool.job
    def pay(order: int) -> None:
        log.warning("paid", extra={"order": order, "lines": [1, {"a": 2}], "level": "mine"}, stack_info=True)
        try:
            raise OSError("no network")
        except OSError:
            log.exception("failed")

    pool.start()
    headers = {"request-id": "r7", "api-token": "s3cret"}
    job = pay.using(source=5, headers=headers).enqueue(7)
    assert pool.drain(60)
    log.removeHandler(handler)
    paid, failed = map(json.loads, stream.getvalue().splitlines())
    assert paid["order"] == 7
    assert paid["lines"] == [1, {"a": 2}]
    assert (paid["level"], paid["extra_level"]) == ("warning", "mine")
    assert "test_job_logging.py" in paid["stack"]
    assert failed["traceback"].endswith("OSError: no network")
    for line in (paid, failed):
        assert (line["job_name"], line["job_id"], line["attempt"], line["source"]) == ("pay", job.id, 1, 5)
        assert line["request_id"] == "r7"
    assert "s3cret" not in stream.getvalue()


def test_json_lines_and_the_filter_together_show_each_field_once():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobFilter(headers="request-id"))
    handler.setFormatter(JSONLines())
    log = logging.getLogger("shop.both")
    log.addHandler(handler)
    log.warning("outside")
    log.removeHandler(handler)
    line = json.loads(stream.getvalue())
    assert not {"job_id", "attempt", "source", "request_id"} & set(line)


def test_a_structlog_processor_adds_the_job_and_keeps_what_is_bound(new_pool):
    stream = io.StringIO()
    log = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[partial(add_job, headers=["request-id"]), structlog.processors.JSONRenderer()],
    )
    pool = new_pool()

    @pool.job
    async def pay(order: int) -> None:
        log.info("paid", order=order)
        log.bind(source="own").info("bound")

    pool.start()
    log.info("outside")
    job = pay.using(source="acme", headers={"request-id": "r-1", "other": "x"}).enqueue(7)
    assert pool.drain(60)
    outside, paid, bound = map(json.loads, stream.getvalue().splitlines())
    assert "job_id" not in outside
    assert paid == {
        "event": "paid", "order": 7, "job_name": "pay", "job_id": job.id, "attempt": 1, "source": "acme", "request_id": "r-1",
    }  # fmt: skip
    assert bound["source"] == "own"


def test_a_context_variable_travels_with_jobs_and_with_the_jobs_they_enqueue(new_pool):
    request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
    tenant: ContextVar[int] = ContextVar("tenant")
    seen: list[tuple[str, str | None, int | None]] = []
    pool = new_pool()
    pool.carry(request_id)
    pool.carry(tenant, name="x-tenant", parse=int)

    @pool.job
    def first() -> None:
        seen.append(("first", request_id.get(), tenant.get(None)))
        second.enqueue()

    @pool.job
    async def second() -> None:
        seen.append(("second", request_id.get(), tenant.get(None)))

    pool.start()
    second.enqueue()
    wait_until(lambda: len(seen) == 1)
    before = request_id.set("r7"), tenant.set(4)
    job = first.enqueue()
    own = second.using(headers={"request_id": "own"}).enqueue()
    request_id.reset(before[0])
    tenant.reset(before[1])
    assert pool.drain(60)
    assert dict(job.headers) == {"request_id": "r7", "x-tenant": "4"}
    assert own.headers["request_id"] == "own"
    assert seen[0] == ("second", None, None)
    assert sorted(seen[1:]) == [("first", "r7", 4), ("second", "own", 4), ("second", "r7", 4)]


def test_what_cannot_be_carried_is_refused(new_pool):
    pool = new_pool()
    with pytest.raises(BadOption, match="no context variable"):
        pool.carry("request_id")
    with pytest.raises(BadOption, match="is no name"):
        pool.carry(ContextVar("a name"))
    assert not pool.middlewares
    assert not pool.enqueue_hooks


CONFIGURED = """
import logging, logging.config
logging.config.dictConfig({{
    "version": 1, {keep}
    "filters": {{"job": {{"()": "dayjob.logging.JobFilter", "headers": ["request-id"]}}}},
    "formatters": {{"plain": {{"format": "[%(job_name)s %(job_id)s %(request_id)s] %(message)s"}}}},
    "handlers": {{"h": {{"class": "logging.StreamHandler", "filters": ["job"], "formatter": "plain"}}}},
    "root": {{"handlers": ["h"], "level": "INFO"}},
}})
from dayjob import WorkerPool
pool = WorkerPool()
log = logging.getLogger("app")

@pool.job(max_fails=1)
def boom() -> None:
    log.info("at work")
    raise ValueError("broken")
"""


@pytest.mark.parametrize("keep", ["", '"disable_existing_loggers": False,'])
def test_a_worker_under_the_programs_own_configuration_logs_each_death_with_its_job(
    tmp_path, redis_url, namespace, keep
):
    worker = WorkerCommand(tmp_path, redis_url, namespace)
    worker.write(CONFIGURED.format(keep=keep))
    try:
        worker.started()
        job = Enqueuer(namespace, redis=redis_url).using(headers={"request-id": "r7"}).enqueue("boom")
        worker.wait_for_log("is dead (ValueError: broken)")
        assert f"[boom {job.id} r7] at work" in worker.log
        assert f"[boom {job.id} r7] job=boom id={job.id} is dead" in worker.log
    finally:
        worker.close()
