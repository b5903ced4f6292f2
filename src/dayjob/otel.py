"""OpenTelemetry: spans and metrics for enqueues and attempts, and traces that continue from one to the other.

DayjobInstrumentor().instrument()

`opentelemetry-instrument dayjob worker app:pool` does the same by itself.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import Any

from opentelemetry import context, propagate, trace
from opentelemetry.instrumentation.instrumentor import (  # type: ignore[attr-defined]  # it names no exports
    BaseInstrumentor,
)
from opentelemetry.metrics import Histogram, Meter, get_meter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from dayjob import otel_names as names
from dayjob.handlers.periodic import PeriodicJob
from dayjob.handlers.redact import without
from dayjob.instruments import INSTRUMENTS, add_headers, failure_of, secrets_of
from dayjob.job import Job
from dayjob.middleware import FindServer, Outgoing, ServerAddress
from dayjob.text import message_of
from dayjob.version import __version__


class DayjobInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Instruments all pools and enqueuers of this process. Call `instrument()` before pools start.

    Options of `instrument()`: `tracer_provider` and `meter_provider`, by default the global ones; `links_only`: an
    attempt begins a trace of its own that links to the enqueue, instead of continuing the trace of the enqueue.
    """

    _tracing: Tracing | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """What must be installed."""
        return ("dayjob >= 0",)

    def _instrument(self, **kwargs: Any) -> None:
        tracer = trace.get_tracer("dayjob", __version__, kwargs.get("tracer_provider"))
        meter = get_meter("dayjob", __version__, kwargs.get("meter_provider"))
        self._tracing = Tracing(tracer, Measures(meter), links_only=bool(kwargs.get("links_only")))
        INSTRUMENTS.install(self._tracing)

    def _uninstrument(self, **_: Any) -> None:
        if self._tracing is not None:
            self._tracing.on = False
            INSTRUMENTS.remove(self._tracing)
            self._tracing = None


class Measures:
    """The metrics."""

    def __init__(self, meter: Meter) -> None:
        self.sending = _durations(meter, *names.SEND_DURATION)
        self.processing = _durations(meter, *names.PROCESS_DURATION)
        self.waiting = _durations(meter, *names.WAIT_DURATION)
        self.sent = meter.create_counter(*names.SENT_MESSAGES)
        self.consumed = meter.create_counter(*names.CONSUMED_MESSAGES)


class Tracing:
    """The instrument: one span for each enqueue call and one for each attempt."""

    def __init__(self, tracer: trace.Tracer, measures: Measures, *, links_only: bool) -> None:
        self._tracer = tracer
        self._measures = measures
        self._links_only = links_only
        #: Cleared by uninstrument(). Pools that run keep their middlewares.
        self.on = True

    def around_enqueue(self, namespace: str) -> Callable[[Outgoing], Generator[None]]:
        """A span of kind producer, whose context travels with the jobs."""

        def send(outgoing: Outgoing) -> Generator[None]:
            attributes = _attributes(namespace, outgoing.name, names.SEND, outgoing.server)
            if outgoing.count != 1:
                attributes[names.BATCH_COUNT] = outgoing.count
            measured = _measured(attributes)
            name = f"{names.SEND} {outgoing.name}"
            began = time.perf_counter()
            with self._tracer.start_as_current_span(
                name, kind=SpanKind.PRODUCER, attributes=attributes,
                record_exception=False, set_status_on_exception=False,
            ) as span:  # fmt: skip
                found: dict[str, str] = {}
                propagate.inject(found)
                add_headers(outgoing, found)
                try:
                    yield
                except BaseException as error:
                    _record(span, error)
                    measured[names.ERROR_TYPE] = type(error).__name__
                    raise
                finally:
                    self._measures.sending.record(time.perf_counter() - began, measured)
                    self._measures.sent.add(outgoing.count, measured)
                span.set_attributes(_server(outgoing.server))
                if outgoing.count == 1 and outgoing.jobs:
                    span.set_attributes(_message(outgoing.jobs[0]))

        return send

    def around_job(
        self,
        namespace: str,
        periodics: Mapping[str, PeriodicJob],  # noqa: ARG002 - the span has the schedule's name
        find_server: FindServer,
    ) -> Callable[[Job], Generator[None]]:
        """A span of kind consumer, in the trace of the enqueue."""

        def process(job: Job) -> Generator[None]:
            if not self.on:
                yield
                return
            attributes = _attributes(namespace, job.name, names.PROCESS, find_server())
            measured = _measured(attributes)
            self._count(job, measured)
            sender = propagate.extract(job.headers, context.Context(), getter=_HEADERS)
            span = self._start(job, sender, attributes)
            token = context.attach(trace.set_span_in_context(span, sender))
            began = time.perf_counter()
            try:
                yield
            except BaseException as error:
                failed = failure_of(error)
                if failed is not None:
                    _record(span, failed.error, secrets_of(job))
                    measured[names.ERROR_TYPE] = type(failed.error).__name__
                else:
                    # Snoozed, discarded, cancelled or given back.
                    span.add_event(type(error).__name__)
                raise
            finally:
                context.detach(token)
                span.end()
                self._measures.processing.record(time.perf_counter() - began, measured)

        return process

    def on_fail(self, job: Job, error: BaseException) -> None:
        """Nothing: the span has it."""

    def _start(self, job: Job, sender: context.Context, attributes: dict[str, Any]) -> Span:
        attributes |= _message(job)
        attributes[names.ATTEMPT] = job.attempt
        if job.schedule is not None:
            attributes[names.SCHEDULE] = job.schedule
        if job.source is not None:
            attributes[names.SOURCE] = str(job.source)
        enqueued = trace.get_current_span(sender).get_span_context()
        alone = self._links_only or job.schedule is not None
        return self._tracer.start_span(
            f"{names.PROCESS} {job.name}",
            context.Context() if alone else sender,
            SpanKind.CONSUMER,
            attributes,
            [Link(enqueued)] if enqueued.is_valid else None,
        )

    def _count(self, job: Job, measured: Mapping[str, str]) -> None:
        self._measures.consumed.add(1, measured)
        if job.enqueued_at:
            # Clocks of two machines may differ.
            self._measures.waiting.record(max(0.0, time.time() - job.enqueued_at), measured)


class _Headers(Getter[Mapping[str, str]]):
    """Reads headers whatever case a propagator writes them in: those of jobs are in lower case."""

    def get(self, carrier: Mapping[str, str], key: str) -> list[str] | None:
        value = carrier.get(key.lower())
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, str]) -> list[str]:
        return list(carrier)


_HEADERS = _Headers()


def _attributes(
    namespace: str, job_name: str, operation: str, server: ServerAddress | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        names.SYSTEM: names.DAYJOB,
        names.DESTINATION: job_name,
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: operation,
        names.NAMESPACE: namespace,
    }
    return found | _server(server)


def _message(job: Job) -> dict[str, Any]:
    if job.raw_args is None:
        return {names.MESSAGE_ID: job.id}
    return {names.MESSAGE_ID: job.id, names.BODY_SIZE: len(bytes(job.raw_args))}


def _server(server: ServerAddress | None) -> dict[str, Any]:
    if server is None:
        return {}
    if server.port is None:
        return {names.SERVER_ADDRESS: server.host}
    return {names.SERVER_ADDRESS: server.host, names.SERVER_PORT: server.port}


def _measured(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The attributes of metrics: those with few values."""
    return {name: attributes[name] for name in (names.SYSTEM, names.DESTINATION, names.OPERATION_NAME)}


def _record(span: Span, error: BaseException, secrets: Sequence[str] = ()) -> None:
    """Record an exception, without the values of redacted arguments."""
    kind = type(error)
    shown = {
        names.EXCEPTION_TYPE: f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        names.EXCEPTION_MESSAGE: without(message_of(error), secrets),
        names.EXCEPTION_STACKTRACE: without("".join(traceback.format_exception(error)), secrets),
    }
    span.add_event(names.EXCEPTION, shown)
    span.set_attribute(names.ERROR_TYPE, kind.__name__)
    span.set_status(Status(StatusCode.ERROR, without(f"{kind.__name__}: {message_of(error)}", secrets)))


def _durations(meter: Meter, name: str, unit: str, description: str) -> Histogram:
    return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=names.BUCKETS)
