"""One trace from a request through the job that it enqueued. A program would send the spans to its collector."""

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dayjob import WorkerPool
from dayjob.otel import DayjobInstrumentor

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
DayjobInstrumentor().instrument()

tracer = trace.get_tracer("shop")
pool = WorkerPool(namespace="opentelemetry-trace")


@pool.job
def charge(order: int) -> None:
    with tracer.start_as_current_span("ask the bank"):
        print("charging order", order)


def show(found: list[ReadableSpan], parent: int | None = None, depth: int = 0) -> None:
    for span in found:
        if (span.parent.span_id if span.parent else None) == parent:
            print("  " * depth + span.name)
            show(found, span.context.span_id, depth + 1)


def main() -> None:
    with pool:
        with tracer.start_as_current_span("POST /checkout"):
            charge.enqueue(7)
        pool.drain()
    show(list(spans.get_finished_spans()))


if __name__ == "__main__":
    main()
