"""Sentry: what arrives at a transport, in both trace lifecycles; over two processes too."""

from __future__ import annotations

import json
import logging
import threading

import pytest
import sentry_sdk
from sentry_sdk.transport import Transport

from dayjob import BadOption, Discard, Retry, Snooze
from dayjob.instruments import INSTRUMENTS
from dayjob.sentry import _INSTRUMENT, DayjobIntegration, monitor_config, monitor_slug
from server import wait_until
from workers import WorkerCommand, reported_by


class Captured(Transport):
    """Keeps what the SDK would send."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[str, dict]] = []

    def capture_envelope(self, envelope) -> None:
        for item in envelope.items:
            payload = item.payload.json
            if payload is None:
                payload = json.loads(item.payload.get_bytes())
            self.items.append((item.type, payload))

    def of(self, kind: str) -> list[dict]:
        sentry_sdk.flush()
        return [payload for found, payload in self.items if found == kind]

    def errors(self) -> list[dict]:
        return [event for event in self.of("event") if event.get("exception") or event.get("logentry")]

    def spans(self, op: str) -> list[dict]:
        """Streamed spans of one op, as name to value."""
        found = []
        for batch in self.of("span"):
            for span in batch["items"]:
                attributes = {name: one["value"] for name, one in span["attributes"].items()}
                if attributes.get("sentry.op") == op:
                    found.append({**span, "attributes": attributes})
        return found


@pytest.fixture
def sentry():
    """Initialise the SDK with a transport that keeps everything."""

    def init(*, traces: bool = True, sdk: dict | None = None, **options) -> Captured:
        captured = Captured()
        sentry_sdk.init(
            dsn="http://key@127.0.0.1:1/1", transport=captured, traces_sample_rate=1.0 if traces else None,
            integrations=[DayjobIntegration(**options)], auto_enabling_integrations=False, **(sdk or {}),
        )  # fmt: skip
        INSTRUMENTS.install(_INSTRUMENT)
        return captured

    yield init
    sentry_sdk.get_client().close()
    sentry_sdk.init()
    # The SDK sets an integration up once for each process; other tests run without.
    INSTRUMENTS.remove(_INSTRUMENT)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_attempt_is_a_transaction_in_the_trace_of_its_enqueue(sentry, new_pool, colour):
    captured = sentry()
    pool = new_pool()

    def plain(order: int) -> None: ...

    async def on_loop(order: int) -> None: ...

    charge = pool.register("charge", plain if colour == "sync" else on_loop)
    pool.start()
    with sentry_sdk.start_transaction(name="POST /checkout", op="http.server"):
        job = charge.enqueue(7)
    assert pool.drain(60)
    wait_until(lambda: len(captured.of("transaction")) == 2)
    request, attempt = sorted(captured.of("transaction"), key=lambda one: one["transaction"] == "charge")
    (publish,) = request["spans"]
    (process,) = attempt["spans"]
    assert publish["op"] == "queue.publish"
    assert publish["data"]["messaging.message.id"] == job.id
    assert publish["data"]["messaging.destination.name"] == "charge"
    trace = attempt["contexts"]["trace"]
    assert trace["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert trace["parent_span_id"] == publish["span_id"]
    assert (trace["op"], trace["origin"], trace["status"]) == ("queue.task.dayjob", "auto.queue.dayjob", "ok")
    assert attempt["transaction_info"] == {"source": "task"}
    assert process["op"] == "queue.process"
    data = process["data"]
    assert data["messaging.message.id"] == job.id
    assert data["messaging.message.retry.count"] == 0
    assert data["messaging.message.body.size"] == len(b'{"order":7}')
    assert 0 <= data["messaging.message.receive.latency"] < 60_000
    assert data["messaging.system"] == "dayjob"


def test_spans_are_streamed_in_the_new_trace_lifecycle(sentry, new_pool):
    captured = sentry(sdk={"trace_lifecycle": "stream"})
    pool = new_pool()
    charge = pool.register("charge", lambda: None)

    @pool.job(max_fails=1)
    def broken() -> None:
        raise ValueError("no")

    pool.start()
    with sentry_sdk.traces.start_span(name="POST /checkout", parent_span=None):
        job = charge.enqueue()
        broken.enqueue()
    # Without a span around it an enqueue is no trace of its own.
    charge.enqueue()
    assert pool.drain(60)
    wait_until(lambda: len(captured.spans("queue.task.dayjob")) == 3)
    (publish,) = [one for one in captured.spans("queue.publish") if one["name"] == "charge"]
    (segment,) = [
        one for one in captured.spans("queue.task.dayjob") if one.get("parent_span_id") == publish["span_id"]
    ]
    assert segment["trace_id"] == publish["trace_id"]
    assert publish["attributes"]["messaging.message.id"] == job.id
    (process,) = [
        one for one in captured.spans("queue.process") if one.get("parent_span_id") == segment["span_id"]
    ]
    assert process["attributes"]["messaging.message.id"] == job.id
    by_name = {one["name"]: one["status"] for one in captured.spans("queue.task.dayjob")}
    assert by_name == {"charge": "ok", "broken": "error"}
    (error,) = captured.errors()
    assert error["exception"]["values"][0]["type"] == "ValueError"


def test_an_error_is_reported_once_by_its_exception_and_with_its_job(sentry, new_pool):
    captured = sentry(sdk={"data_collection": {"queues": True}})
    pool = new_pool()
    # Not as one literal, because reports show lines of the source.
    pin = "".join(("9876", "5431"))  # noqa: FLY002 - the reason is above

    @pool.job(max_fails=1, redact=["pin"])
    def charge(order: int, pin: str) -> None:
        note = f"pin {pin}"
        raise ValueError(f"order {order}: {note} refused")

    pool.start()
    with sentry_sdk.start_transaction(name="POST /checkout", op="http.server"):
        sentry_sdk.set_tag("of", "the request")
        job = charge.using(source="acme").enqueue(7, pin)
    assert pool.drain(60)
    (event,) = captured.errors()
    (error,) = event["exception"]["values"]
    assert error["type"] == "ValueError"
    assert error["mechanism"] == {"type": "dayjob", "handled": False}
    assert error["stacktrace"]["frames"][-1]["function"] == "charge"
    assert [frame["in_app"] for frame in error["stacktrace"]["frames"]][-2:] == [False, True]
    assert event["transaction"] == "charge"
    assert event["tags"]["dayjob.job"] == "charge"
    assert "of" not in event["tags"]
    about = event["contexts"]["dayjob"]
    assert (about["id"], about["attempt"], about["source"]) == (job.id, 1, "acme")
    assert about["args"]["order"] == 7
    assert pin not in json.dumps(captured.items)
    transactions = {one["transaction"]: one["contexts"]["trace"] for one in captured.of("transaction")}
    assert transactions["charge"]["status"] == "internal_error"
    assert event["contexts"]["trace"]["trace_id"] == transactions["POST /checkout"]["trace_id"]


def test_arguments_are_left_out_unless_the_program_sends_such_data(sentry, new_pool):
    captured = sentry()
    pool = new_pool()

    @pool.job(max_fails=1)
    def charge(order: int) -> None:
        raise ValueError

    pool.start()
    charge.enqueue(7)
    assert pool.drain(60)
    (event,) = captured.errors()
    assert "args" not in event["contexts"]["dayjob"]


@pytest.mark.parametrize(("report", "count"), [("each", 2), ("last", 1)])
def test_each_failed_attempt_or_only_the_last_is_reported(sentry, new_pool, report, count):
    captured = sentry(report=report)
    pool = new_pool()

    @pool.job(max_fails=2)
    def charge() -> None:
        raise Retry("once more", after=0)

    pool.start()
    charge.enqueue()
    wait_until(lambda: pool.drain(1) and len(captured.of("transaction")) == 2)
    assert len(captured.errors()) == count


class Gone(Exception):
    pass


@pytest.mark.parametrize("raised", [Snooze(after=3600), Discard("no need"), Gone()], ids=str)
def test_what_counts_no_failure_is_not_reported(sentry, new_pool, raised):
    captured = sentry()
    pool = new_pool()

    @pool.job(discard_on=[Gone])
    def charge() -> None:
        raise raised

    pool.start()
    charge.enqueue()
    assert pool.drain(60)
    wait_until(lambda: captured.of("transaction"))
    assert not captured.errors()
    assert captured.of("transaction")[0]["contexts"]["trace"]["status"] == "ok"


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_timeout_is_reported_once_and_shows_where_the_handler_was(sentry, new_pool, colour):
    captured = sentry()
    pool = new_pool()

    def hang() -> None:
        pause = threading.Event()
        while True:
            pause.wait(0.01)

    async def ahang() -> None:
        import asyncio

        await asyncio.Event().wait()

    job = pool.register("hang", hang if colour == "sync" else ahang, timeout=0.1, max_fails=1)
    pool.start()
    job.enqueue()
    assert pool.drain(60)
    (event,) = captured.errors()
    error = event["exception"]["values"][-1]
    assert error["type"] == "JobTimeout"
    assert any(frame["function"] in ("hang", "ahang") for frame in error["stacktrace"]["frames"])
    assert event["contexts"]["dayjob"]["name"] == "hang"


def test_a_result_that_cannot_be_kept_is_reported(sentry, new_pool):
    captured = sentry()
    pool = new_pool(max_result=1024)

    @pool.job(keep=60, max_fails=1)
    def large() -> str:
        return "x" * 5000

    pool.start()
    large.enqueue()
    assert pool.drain(60)
    (event,) = captured.errors()
    assert event["exception"]["values"][-1]["type"] == "TooLarge"


def test_other_log_lines_of_the_program_are_still_reported(sentry, new_pool):
    captured = sentry()
    pool = new_pool()

    @pool.job
    def charge() -> None:
        logging.getLogger("shop").error("out of stock")

    pool.start()
    charge.enqueue()
    assert pool.drain(60)
    (event,) = captured.errors()
    assert event["logentry"]["message"] == "out of stock"
    assert event["contexts"]["dayjob"]["name"] == "charge"


@pytest.mark.parametrize(("ok", "last"), [(True, "ok"), (False, "error")])
def test_a_job_of_a_schedule_checks_in(sentry, new_pool, ok, last):
    captured = sentry(monitor_schedules=True)
    pool = new_pool()

    @pool.job(max_fails=1)
    def report() -> None:
        if not ok:
            raise ValueError

    pool.periodic("@every 720h", report, name="nightly")
    pool.periodic("* * * * * *", report, name="each-second")
    pool.start()
    # A tick of the schedule that cannot be monitored, and one of the other as its leader would enqueue it.
    wait_until(lambda: captured.of("transaction"))
    assert not captured.of("check_in")
    pool.stop()
    with_tick(pool, "nightly")
    pool.start()
    wait_until(lambda: len(captured.of("check_in")) == 2)
    begin, end = captured.of("check_in")
    assert (begin["monitor_slug"], begin["status"]) == ("nightly", "in_progress")
    assert begin["monitor_config"]["schedule"] == {"type": "interval", "value": 30, "unit": "day"}
    assert (end["status"], end["check_in_id"]) == (last, begin["check_in_id"])
    assert end["duration"] >= 0


def with_tick(pool, schedule: str) -> None:
    """Enqueue a job as a tick of that schedule does."""
    from dayjob.job import new_id
    from dayjob.store.keys import Keys
    from dayjob.store.op import plain

    text = {"name": "report", "id": new_id(), "t": 1, "args": {}, "periodic": schedule, "tick": 60}
    pool.enqueuer.run(plain("LPUSH", Keys(pool.namespace).queue("report"), json.dumps(text)))


@pytest.mark.parametrize(
    ("spec", "timezone", "schedule", "zone"),
    [
        ("0 9 * * 1-5", "Europe/Paris", {"type": "crontab", "value": "0 9 * * 1-5"}, "Europe/Paris"),
        ("0 */5 * * * *", None, {"type": "crontab", "value": "*/5 * * * *"}, "UTC"),
        ("0 9 * * MON-FRI", None, {"type": "crontab", "value": "0 9 * * MON-FRI"}, "UTC"),
        ("@every 2h", None, {"type": "interval", "value": 2, "unit": "hour"}, "UTC"),
        ("@every 90s", None, None, None),
        ("*/30 * * * * *", None, None, None),
        ("0 0 L * *", None, None, None),
        ("0 0 * * 1#2", None, None, None),
    ],
)
def test_a_schedule_becomes_a_monitor_if_sentry_can_express_it(new_pool, spec, timezone, schedule, zone):
    pool = new_pool()
    job = pool.register("report", lambda: None)
    found = monitor_config(pool.periodic(spec, job, timezone=timezone))
    assert found == (None if schedule is None else {"schedule": schedule, "timezone": zone})


def test_the_slug_of_a_monitor_is_what_sentry_allows_and_differs_for_each_schedule(new_pool):
    pool = new_pool()
    job = pool.register("mail.report", lambda: None)
    specs = ["0 * * * *", "* 0 * * *", "@hourly"]
    slugs = [monitor_slug(pool.periodic(spec, job)) for spec in specs]
    assert len(set(slugs)) == 3
    assert all(
        len(slug) <= 50 and set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for slug in slugs
    )


def test_a_wrong_option_is_refused():
    with pytest.raises(BadOption, match="'each' or 'last'"):
        DayjobIntegration(report="never")


PROGRAM = """
    import json, os
    import sentry_sdk
    from sentry_sdk.transport import Transport
    from dayjob import WorkerPool
    from dayjob.sentry import DayjobIntegration

    class ToFile(Transport):
        def capture_envelope(self, envelope):
            with open(os.environ["REPORTS"], "a") as out:
                for item in envelope.items:
                    out.write(json.dumps([item.type, item.payload.json]) + "\\n")

    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1", transport=ToFile(), traces_sample_rate=1.0, integrations=[DayjobIntegration()],
        auto_enabling_integrations=False,
    )
    pool = WorkerPool()

    @pool.job(max_fails=1)
    def charge(order: int) -> None:
        raise ValueError("refused")

    if __name__ == "__main__":
        with sentry_sdk.start_transaction(name="POST /checkout", op="http.server"):
            charge.enqueue(7)
"""


def test_one_trace_leads_from_a_producer_process_into_a_worker_process(tmp_path, redis_url, namespace):
    items = reported_by(WorkerCommand(tmp_path, redis_url, namespace), PROGRAM, 3)
    found = {payload["transaction"]: payload for kind, payload in items if kind == "transaction"}
    (error,) = [payload for kind, payload in items if kind == "event"]
    traces = {one["contexts"]["trace"]["trace_id"] for one in (*found.values(), error)}
    assert len(traces) == 1
    (publish,) = found["POST /checkout"]["spans"]
    assert found["charge"]["contexts"]["trace"]["parent_span_id"] == publish["span_id"]
    assert error["exception"]["values"][0]["value"] == "refused"
