"""OpenTelemetry: spans, metrics and traces, with the SDK's own exporters; over two processes too."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from dayjob import Discard, Enqueuer, Job, Snooze, Unavailable
from dayjob.instruments import INSTRUMENTS
from dayjob.otel import DayjobInstrumentor
from dayjob.store.urls import parse_url
from dayjob.testing import testing
from server import wait_until
from workers import WorkerCommand, reported_by


class Telemetry:
    """What was exported."""

    def __init__(self) -> None:
        self.spans_exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.spans_exporter))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader])
        self.tracer = self.tracer_provider.get_tracer("test")

    def spans(self, name: str) -> list:
        return [span for span in self.spans_exporter.get_finished_spans() if span.name == name]

    def span(self, name: str):
        (found,) = self.spans(name)
        return found

    def points(self) -> dict[str, list]:
        data = self.reader.get_metrics_data()
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
def instrumented():
    """Instrument this process; DayjobInstrumentor is one object for each process."""
    made = DayjobInstrumentor()

    def instrument(**options) -> Telemetry:
        telemetry = Telemetry()
        made.instrument(
            tracer_provider=telemetry.tracer_provider, meter_provider=telemetry.meter_provider, **options
        )
        return telemetry

    yield instrument
    if made.is_instrumented_by_opentelemetry:
        made.uninstrument()
    assert not INSTRUMENTS.installed


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_attempt_continues_the_trace_of_its_enqueue_and_links_to_it(
    instrumented, new_pool, namespace, redis_url, colour
):
    telemetry = instrumented()
    pool = new_pool()
    inside: list[int] = []

    def note() -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        with telemetry.tracer.start_as_current_span("inner"):
            pass

    async def anote() -> None:
        note()

    charge = pool.register("charge", note if colour == "sync" else anote)
    pool.start()
    with telemetry.tracer.start_as_current_span("POST /checkout") as request:
        job = charge.using(source=4).enqueue()
    assert pool.drain(60)
    wait_until(lambda: telemetry.spans("process charge"))
    send, process, inner = map(telemetry.span, ("send charge", "process charge", "inner"))
    assert send.kind is SpanKind.PRODUCER
    assert send.parent.span_id == request.get_span_context().span_id
    assert process.kind is SpanKind.CONSUMER
    assert process.parent.span_id == send.context.span_id
    assert process.context.trace_id == send.context.trace_id == request.get_span_context().trace_id
    assert [link.context.span_id for link in process.links] == [send.context.span_id]
    assert inner.parent.span_id == process.context.span_id
    assert inside == [process.context.span_id]
    address = parse_url(redis_url)
    server = {"server.address": address.hosts[0][0], "server.port": address.hosts[0][1]}
    assert dict(send.attributes) == {
        "messaging.system": "dayjob",
        "messaging.destination.name": "charge",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.id": job.id,
        "messaging.message.body.size": 2,
        "dayjob.namespace": namespace,
        **server,
    }
    assert dict(process.attributes) == {
        "messaging.system": "dayjob",
        "messaging.destination.name": "charge",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": job.id,
        "messaging.message.body.size": 2,
        "dayjob.namespace": namespace,
        **server,
        "dayjob.attempt": 1,
        "dayjob.source": "4",
    }
    assert process.status.status_code is StatusCode.UNSET


def test_with_links_only_an_attempt_begins_a_trace_that_links_to_the_enqueue(instrumented, new_pool):
    telemetry = instrumented(links_only=True)
    pool = new_pool()
    job = pool.register("charge", lambda: None)
    pool.start()
    job.enqueue()
    assert pool.drain(60)
    send, process = telemetry.span("send charge"), telemetry.span("process charge")
    assert process.parent is None
    assert process.context.trace_id != send.context.trace_id
    assert [link.context.span_id for link in process.links] == [send.context.span_id]


def test_a_failure_is_an_error_with_its_exception_and_without_secrets(instrumented, new_pool):
    telemetry = instrumented()
    pool = new_pool()

    @pool.job(max_fails=1, redact=["pin"])
    def charge(pin: str) -> None:
        raise ValueError(f"the bank refused {pin}")

    pool.start()
    charge.enqueue("98765431")
    assert pool.drain(60)
    process = telemetry.span("process charge")
    assert process.status.status_code is StatusCode.ERROR
    assert process.attributes["error.type"] == "ValueError"
    (event,) = process.events
    assert event.name == "exception"
    assert event.attributes["exception.type"] == "ValueError"
    assert "the bank refused" in event.attributes["exception.message"]
    assert "in charge" in event.attributes["exception.stacktrace"]
    assert "98765431" not in process.to_json()


class Gone(Exception):
    pass


@pytest.mark.parametrize(
    ("raised", "event"), [(Snooze(after=3600), "Snooze"), (Discard("no need"), "Discard"), (Gone(), "Gone")]
)
def test_what_counts_no_failure_is_an_event_and_no_error(instrumented, new_pool, raised, event):
    telemetry = instrumented()
    pool = new_pool()

    @pool.job(discard_on=[Gone])
    def charge() -> None:
        raise raised

    pool.start()
    charge.enqueue()
    assert pool.drain(60)
    wait_until(lambda: telemetry.spans("process charge"))
    process = telemetry.span("process charge")
    assert process.status.status_code is StatusCode.UNSET
    assert [one.name for one in process.events] == [event]
    assert "error.type" not in process.attributes


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_timeout_is_an_error(instrumented, new_pool, colour):
    telemetry = instrumented()
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
    process = telemetry.span("process hang")
    assert process.attributes["error.type"] == "JobTimeout"


def test_a_bulk_call_is_one_span_with_the_number_of_its_jobs(instrumented, new_pool):
    telemetry = instrumented()
    pool = new_pool()
    pool.register("charge", lambda: None)
    jobs = pool.enqueuer.enqueue_many("charge", [{}] * 3)
    send = telemetry.span("send charge")
    assert send.attributes["messaging.batch.message_count"] == 3
    assert len({job.headers["traceparent"] for job in jobs}) == 1


def test_an_enqueue_that_fails_is_an_error(instrumented, namespace):
    telemetry = instrumented()
    enqueuer = Enqueuer(namespace, redis="redis://127.0.0.1:1", timeout=0.1)
    with pytest.raises(Unavailable):
        enqueuer.enqueue("charge")
    send = telemetry.span("send charge")
    assert send.status.status_code is StatusCode.ERROR
    assert send.attributes["error.type"] == "Unavailable"
    (point,) = telemetry.points()["messaging.client.sent.messages"]
    assert point.attributes["error.type"] == "Unavailable"


def test_metrics_count_and_measure_what_is_sent_and_processed(instrumented, new_pool):
    telemetry = instrumented()
    pool = new_pool()

    @pool.job(max_fails=1)
    def charge(ok: bool) -> None:
        if not ok:
            raise ValueError

    pool.start()
    charge.enqueue(True)
    charge.enqueue(False)
    assert pool.drain(60)
    points = telemetry.points()
    assert set(points) == {
        "messaging.client.operation.duration",
        "messaging.client.sent.messages",
        "messaging.client.consumed.messages",
        "messaging.process.duration",
        "dayjob.wait.duration",
    }
    (sent,) = points["messaging.client.sent.messages"]
    assert sent.value == 2
    by_error = {one.attributes.get("error.type"): one for one in points["messaging.process.duration"]}
    assert {error: one.count for error, one in by_error.items()} == {None: 1, "ValueError": 1}
    assert by_error[None].explicit_bounds[0] == 0.005


def test_baggage_travels_and_what_is_too_large_never_keeps_a_job_from_being_enqueued(instrumented, new_pool):
    instrumented()
    pool = new_pool()
    seen: list[object] = []

    @pool.job
    def charge() -> None:
        seen.append(baggage.get_baggage("tenant"))

    pool.start()
    # The propagator itself drops entries above 4,096 bytes, and more than 8,192 altogether.
    for value in ("acme", "x" * 3_000):
        first = baggage.set_baggage("tenant", value)
        token = context.attach(baggage.set_baggage("more", value, first))
        job = charge.enqueue()
        context.detach(token)
        assert "traceparent" in job.headers
        assert pool.drain(60)
    assert seen == ["acme", None]


def test_uninstrument_ends_spans_also_in_a_pool_that_runs(instrumented, new_pool):
    telemetry = instrumented()
    pool = new_pool()
    job = pool.register("charge", lambda: None)
    pool.start()
    DayjobInstrumentor().uninstrument()
    assert not job.enqueue().headers
    assert pool.drain(60)
    assert not telemetry.spans_exporter.get_finished_spans()


def test_jobs_in_a_testing_block_have_spans_too(instrumented, new_pool):
    telemetry = instrumented()
    pool = new_pool()

    @pool.job
    def charge(job: Job) -> None:
        assert job.headers["traceparent"]

    with testing(pool) as jobs:
        charge.enqueue()
        assert jobs.drain() == 1
    assert telemetry.span("process charge").parent.span_id == telemetry.span("send charge").context.span_id


AUTOMATIC = """
import dayjob
dayjob.Enqueuer().enqueue("charge")
"""


def test_a_program_that_says_nothing_of_it_is_instrumented_by_opentelemetry_instrument(
    tmp_path, redis_url, namespace
):
    (tmp_path / "producer.py").write_text(AUTOMATIC)
    environ = {
        **os.environ, "DAYJOB_REDIS_URL": redis_url, "DAYJOB_NAMESPACE": namespace,
        "OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none",
    }  # fmt: skip
    command = [str(Path(sys.executable).with_name("opentelemetry-instrument")), sys.executable, "producer.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, check=True, timeout=240, capture_output=True, text=True
    )
    assert '"name": "send charge"' in done.stdout, done.stderr


PROGRAM = """
    import os, sys
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
    from dayjob import WorkerPool
    from dayjob.otel import DayjobInstrumentor

    provider = TracerProvider()
    out = open(os.environ["REPORTS"], "a", buffering=1)
    exporter = ConsoleSpanExporter(out=out, formatter=lambda span: span.to_json(indent=None) + "\\n")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    DayjobInstrumentor().instrument()

    pool = WorkerPool()

    @pool.job(backoff=0)
    def charge(order: int) -> None:
        with trace.get_tracer("shop").start_as_current_span("ask the bank"):
            pass

    if __name__ == "__main__":
        with trace.get_tracer("shop").start_as_current_span("POST /checkout"):
            charge.enqueue(7)
"""


def test_one_trace_leads_from_a_producer_process_into_a_worker_process(tmp_path, redis_url, namespace):
    reports = reported_by(WorkerCommand(tmp_path, redis_url, namespace), PROGRAM, 4)
    found = {span["name"]: span for span in reports}
    assert len({span["context"]["trace_id"] for span in found.values()}) == 1
    parents = {name: span["parent_id"] for name, span in found.items()}
    assert parents["POST /checkout"] is None
    chain = ["POST /checkout", "send charge", "process charge", "ask the bank"]
    for outer, inner in zip(chain, chain[1:], strict=False):
        assert parents[inner] == found[outer]["context"]["span_id"]
