"""The names that `dayjob.otel` uses, in one place.

The semantic conventions for messaging are not stable yet. These are the names as of version 1.43; a new version of the
conventions changes this file only.
"""

from __future__ import annotations

#: Attributes of the conventions.
SYSTEM = "messaging.system"
DESTINATION = "messaging.destination.name"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
MESSAGE_ID = "messaging.message.id"
BODY_SIZE = "messaging.message.body.size"
BATCH_COUNT = "messaging.batch.message_count"
ERROR_TYPE = "error.type"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"

#: The event of a span for an exception, and its attributes.
EXCEPTION = "exception"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"

#: Attributes of our own.
NAMESPACE = "dayjob.namespace"
ATTEMPT = "dayjob.attempt"
SCHEDULE = "dayjob.schedule"
SOURCE = "dayjob.source"

#: The value of SYSTEM, and those of both attributes of an operation.
DAYJOB = "dayjob"
SEND = "send"
PROCESS = "process"

#: Metrics of the conventions: name, unit and description.
SEND_DURATION = (
    "messaging.client.operation.duration", "s", "Duration of messaging operation initiated by a producer or consumer client.",
)  # fmt: skip
SENT_MESSAGES = (
    "messaging.client.sent.messages", "{message}", "Number of messages producer attempted to send to the broker.",
)  # fmt: skip
CONSUMED_MESSAGES = (
    "messaging.client.consumed.messages", "{message}", "Number of messages that were delivered to the application.",
)  # fmt: skip
PROCESS_DURATION = ("messaging.process.duration", "s", "Duration of processing operation.")

#: Metric of our own.
WAIT_DURATION = ("dayjob.wait.duration", "s", "How long jobs waited since they were enqueued or became due.")

#: Bounds of the buckets of durations, in seconds, as the conventions advise.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
