"""Sentry: errors of jobs, traces from the enqueue through the attempts, and check-ins of schedules.

sentry_sdk.init(dsn=..., traces_sample_rate=0.1, integrations=[DayjobIntegration()])
"""

from __future__ import annotations

import contextlib
import re
import time
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Literal

import sentry_sdk
from sentry_sdk.api import continue_trace
from sentry_sdk.consts import OP, SPANDATA, SPANSTATUS
from sentry_sdk.crons import MonitorStatus, capture_checkin
from sentry_sdk.integrations import Integration
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import should_send_default_pii
from sentry_sdk.tracing import TransactionSource
from sentry_sdk.tracing_utils import has_span_streaming_enabled
from sentry_sdk.utils import event_from_exception, has_data_collection_enabled

from dayjob import cron, retry
from dayjob.errors import BadOption, JobTimeout
from dayjob.handlers.periodic import PeriodicJob
from dayjob.handlers.redact import is_hidden, shown, without
from dayjob.instruments import INSTRUMENTS, add_headers, failure_of, secrets_of
from dayjob.job import Job, running
from dayjob.middleware import FindServer, Outgoing

ORIGIN = "auto.queue.dayjob"
TASK_OP = "queue.task.dayjob"
#: What Sentry allows as the slug of a monitor.
_SLUG = re.compile(r"[a-z0-9_-]{1,50}")
#: Fields that cron readers agree on.
_FIELD = re.compile(r"[\d*,/-]+|[A-Za-z]{3}(-[A-Za-z]{3})?(,[A-Za-z]{3}(-[A-Za-z]{3})?)*")
#: The units of a schedule by interval, in seconds.
_UNITS = (("day", 86_400), ("hour", 3600), ("minute", 60))
#: Set on an exception that was reported where it was raised, so that it is not reported again.
_REPORTED = "__dayjob_reported__"

Report = Literal["each", "last"]


class DayjobIntegration(Integration):
    """Reports jobs of all pools of the process to Sentry. Pass it to `sentry_sdk.init` before pools start.

    `report`: "each" reports every failed attempt, "last" only those after which a job is not retried. With
    `monitor_schedules`, jobs of `pool.periodic` send check-ins, and Sentry creates a monitor for each schedule.
    Raises BadOption.
    """

    identifier = "dayjob"
    origin = ORIGIN

    def __init__(self, *, report: Report = "each", monitor_schedules: bool = False) -> None:
        if report not in ("each", "last"):
            raise BadOption(f"DayjobIntegration: report={report!r}: write 'each' or 'last'")
        self.report = report
        self.monitor_schedules = monitor_schedules

    @staticmethod
    def setup_once() -> None:
        """Install it; the SDK calls this once for each process."""
        # The log line about a failed attempt would be a second report of it.
        ignore_logger("dayjob.job")
        INSTRUMENTS.install(_INSTRUMENT)


class SentryInstrument:
    """The instrument. It does nothing while no client with the integration is active."""

    def around_enqueue(self, namespace: str) -> Callable[[Outgoing], Generator[None]]:  # noqa: ARG002
        """A span `queue.publish` in the current transaction, whose trace travels with the jobs."""

        def send(outgoing: Outgoing) -> Generator[None]:
            if _integration() is None:
                yield
                return
            with _publish_span(outgoing) as note:
                scope = sentry_sdk.get_current_scope()
                add_headers(outgoing, dict(scope.iter_trace_propagation_headers()))
                yield
                if len(outgoing.jobs) == 1:
                    note(SPANDATA.MESSAGING_MESSAGE_ID, outgoing.jobs[0].id)

        return send

    def around_job(
        self,
        namespace: str,
        periodics: Mapping[str, PeriodicJob],
        find_server: FindServer,  # noqa: ARG002 - Sentry has no field for it
    ) -> Callable[[Job], Generator[None]]:
        """A transaction for each attempt, in the trace of the enqueue, with a span `queue.process`."""

        def process(job: Job) -> Generator[None]:
            integration = _integration()
            if integration is None:
                yield
                return
            raised: BaseException | None = None
            monitor = CheckIn.of(job, periodics) if integration.monitor_schedules else None
            with _job_scope(job, namespace), _transaction(job) as set_status:
                failed = None
                try:
                    yield
                except BaseException as error:
                    # Kept out of the SDK's own blocks, for which every exception is an error.
                    raised, failed = error, failure_of(error)
                if failed is not None:
                    set_status(ok=False)
                    if not isinstance(failed.error, JobTimeout):
                        _capture(failed.error, integration, last=failed.last)
                else:
                    set_status(ok=True)
            if monitor is not None:
                monitor.end(ok=failed is None)
            if raised is not None:
                raise raised

        return process

    def on_fail(self, job: Job, error: BaseException) -> None:
        """Report what no exception of the handler was: a timeout, or a result that cannot be kept."""
        integration, attempt = _integration(), running.get()
        if integration is None or attempt is None or getattr(error, _REPORTED, False):
            return
        with _job_scope(job, ""):
            sentry_sdk.get_isolation_scope().generate_propagation_context(dict(job.headers))
            last = retry.is_last(attempt.options, error, job.fails - 1)
            _capture(error, integration, last=last)


_INSTRUMENT = SentryInstrument()


def _integration() -> DayjobIntegration | None:
    return sentry_sdk.get_client().get_integration(DayjobIntegration)


def _streams() -> bool:
    return has_span_streaming_enabled(sentry_sdk.get_client().options)


def _capture(error: BaseException, integration: DayjobIntegration, *, last: bool) -> None:
    """Report an exception, once, unless the job is retried and only last failures are reported."""
    if last or integration.report == "each":
        options = sentry_sdk.get_client().options
        event, hint = event_from_exception(
            error, client_options=options, mechanism={"type": "dayjob", "handled": False}
        )
        sentry_sdk.capture_event(event, hint=hint)
    # An exception of a class without attributes is reported by the SDK's own check for repeats only.
    with contextlib.suppress(AttributeError):
        setattr(error, _REPORTED, True)


@contextlib.contextmanager
def _job_scope(job: Job, namespace: str) -> Iterator[None]:
    """A scope of the job's own: nothing of the program that runs the pool reaches its reports."""
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_transaction_name(job.name, source=TransactionSource.TASK)
        scope.set_tag("dayjob.job", job.name)
        if namespace:
            scope.set_tag("dayjob.namespace", namespace)
        scope.add_event_processor(lambda event, _hint: _described(event, job))
        yield


@contextlib.contextmanager
def _publish_span(outgoing: Outgoing) -> Iterator[Callable[[str, Any], None]]:
    """The span of an enqueue call; yields a function that adds to it."""
    data = {SPANDATA.MESSAGING_SYSTEM: "dayjob", SPANDATA.MESSAGING_DESTINATION_NAME: outgoing.name}
    if not _streams():
        with sentry_sdk.start_span(op=OP.QUEUE_PUBLISH, name=outgoing.name, origin=ORIGIN) as span:
            for name, value in data.items():
                span.set_data(name, value)
            yield span.set_data
        return
    if sentry_sdk.get_current_scope().streamed_span is None:
        # Without a span around it, it would be a trace of its own.
        yield lambda _name, _value: None
        return
    attributes: Any = {"sentry.op": OP.QUEUE_PUBLISH, "sentry.origin": ORIGIN, **data}
    with sentry_sdk.traces.start_span(name=outgoing.name, attributes=attributes) as streamed:
        yield streamed.set_attribute


@contextlib.contextmanager
def _transaction(job: Job) -> Iterator[Callable[..., None]]:
    """The transaction of an attempt, and in it the span `queue.process`; yields a function that sets their status."""
    data = _process_data(job)
    if _streams():
        sentry_sdk.traces.continue_trace(dict(job.headers))
        task: Any = {"sentry.op": TASK_OP, "sentry.origin": ORIGIN, "sentry.segment.name.source": "task"}
        inner = {"sentry.op": OP.QUEUE_PROCESS, "sentry.origin": ORIGIN, **data}
        with (
            sentry_sdk.traces.start_span(name=job.name, attributes=task, parent_span=None) as segment,
            sentry_sdk.traces.start_span(name=job.name, attributes=inner) as streamed,
        ):

            def set_streamed(*, ok: bool) -> None:
                segment.status = streamed.status = "ok" if ok else "error"

            yield set_streamed
        return
    whole = continue_trace(
        dict(job.headers), op=TASK_OP, name=job.name, source=TransactionSource.TASK, origin=ORIGIN
    )
    with (
        sentry_sdk.start_transaction(whole) as transaction,
        sentry_sdk.start_span(op=OP.QUEUE_PROCESS, name=job.name, origin=ORIGIN) as span,
    ):
        for name, value in data.items():
            span.set_data(name, value)

        def set_status(*, ok: bool) -> None:
            status = SPANSTATUS.OK if ok else SPANSTATUS.INTERNAL_ERROR
            transaction.set_status(status)
            span.set_status(status)

        yield set_status


def _process_data(job: Job) -> dict[str, Any]:
    data: dict[str, Any] = {
        SPANDATA.MESSAGING_SYSTEM: "dayjob",
        SPANDATA.MESSAGING_DESTINATION_NAME: job.name,
        SPANDATA.MESSAGING_MESSAGE_ID: job.id,
        SPANDATA.MESSAGING_MESSAGE_RETRY_COUNT: job.attempt - 1,
    }
    if job.raw_args is not None:
        data["messaging.message.body.size"] = len(bytes(job.raw_args))
    if job.enqueued_at:
        # In milliseconds. Clocks of two machines may differ.
        data[SPANDATA.MESSAGING_MESSAGE_RECEIVE_LATENCY] = max(0.0, time.time() - job.enqueued_at) * 1000
    return data


# What a report shows of a job.


def _described(event: Any, job: Job) -> Any:
    """Add the job to an event, and take the values of its redacted arguments out."""
    about: dict[str, Any] = {"id": job.id, "name": job.name, "attempt": job.attempt}
    if job.source is not None:
        about["source"] = job.source
    if _may_send_arguments():
        about["args"] = shown(job.args, job.redact)
    event.setdefault("contexts", {})["dayjob"] = about
    secrets = secrets_of(job)
    for error in (event.get("exception") or {}).get("values") or ():
        if isinstance(error.get("value"), str):
            error["value"] = without(error["value"], secrets)
        for frame in (error.get("stacktrace") or {}).get("frames") or ():
            if str(frame.get("module")).startswith("dayjob."):
                # Sentry groups by the frames of the program.
                frame["in_app"] = False
            _hide_variables(frame, job, secrets)
    return event


def _hide_variables(frame: dict[str, Any], job: Job, secrets: list[str]) -> None:
    variables = frame.get("vars")
    if not isinstance(variables, dict):
        return
    for name, value in variables.items():
        if is_hidden(name, job.redact):
            variables[name] = "[redacted]"
        elif secrets and without(str(value), secrets) != str(value):
            variables[name] = without(str(value), secrets)


def _may_send_arguments() -> bool:
    options = sentry_sdk.get_client().options
    if has_data_collection_enabled(options):
        return bool(options["data_collection"]["queues"])
    return should_send_default_pii()


# Check-ins of schedules.


class CheckIn:
    """The check-ins of one attempt of a periodic job: in progress, then how it ended."""

    def __init__(self, slug: str, config: Any) -> None:
        self._slug = slug
        self._config = config
        self._began = time.monotonic()
        self._id = capture_checkin(monitor_slug=slug, status=MonitorStatus.IN_PROGRESS, monitor_config=config)

    @classmethod
    def of(cls, job: Job, periodics: Mapping[str, PeriodicJob]) -> CheckIn | None:
        """Begin, if the job is of a schedule that Sentry can express."""
        periodic = None if job.schedule is None else periodics.get(job.schedule)
        config = None if periodic is None else monitor_config(periodic)
        return None if periodic is None or config is None else cls(monitor_slug(periodic), config)

    def end(self, *, ok: bool) -> None:
        """Report how the attempt ended."""
        capture_checkin(
            monitor_slug=self._slug,
            check_in_id=self._id,
            status=MonitorStatus.OK if ok else MonitorStatus.ERROR,
            duration=time.monotonic() - self._began,
            monitor_config=self._config,
        )


def monitor_slug(periodic: PeriodicJob) -> str:
    """The name of the schedule's monitor: that of the schedule, with what Sentry does not allow replaced."""
    if _SLUG.fullmatch(periodic.name):
        return periodic.name
    plain = re.sub(r"[^a-z0-9_-]+", "-", periodic.name.lower()).strip("-")
    # Two schedules may differ only in what is replaced or cut.
    return f"{plain[:41]}-{zlib.crc32(periodic.name.encode()):08x}".lstrip("-")


def monitor_config(periodic: PeriodicJob) -> dict[str, Any] | None:
    """The schedule as Sentry writes it; None if it cannot: below a minute, or with `L`, `W` or `#`."""
    schedule = cron.parse(periodic.spec, periodic.timezone)
    if schedule.spec.startswith("@every"):
        # Its ticks are the multiples of its duration.
        period = schedule.next_after(0) or 0
        fits = next(((period // size, unit) for unit, size in _UNITS if period % size == 0), None)
        if fits is None:
            return None
        return {"schedule": {"type": "interval", "value": fits[0], "unit": fits[1]}, "timezone": "UTC"}
    fields = schedule.spec.split()
    if len(fields) == 6 and fields[0] == "0":
        fields = fields[1:]
    if len(fields) != 1 and (len(fields) != 5 or not all(map(_FIELD.fullmatch, fields))):
        return None
    return {"schedule": {"type": "crontab", "value": " ".join(fields)}, "timezone": schedule.timezone}
