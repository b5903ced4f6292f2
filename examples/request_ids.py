"""Log lines as JSON that name their job, and the ID of the request that enqueued it."""

import json
import logging
import sys
from contextvars import ContextVar

from dayjob import WorkerPool
from dayjob.logging import JSONLines

request_id: ContextVar[str | None] = ContextVar("request-id", default=None)

pool = WorkerPool(namespace="request-ids")
pool.carry(request_id)

log = logging.getLogger("shop")


class Lines(logging.Handler):
    """Keeps the lines, to show a few fields of each at the end. A program would write them to stderr."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JSONLines(headers=["request-id"]))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pool.job
def charge(order: int) -> None:
    log.info("charging", extra={"order": order})
    receipt.enqueue(order)


@pool.job
async def receipt(order: int) -> None:
    log.info("sending the receipt", extra={"order": order})


def main() -> None:
    handler = Lines()
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    with pool:
        for order, request in ((1, "r-81"), (2, "r-82")):
            # A web framework would set it for each request.
            request_id.set(request)
            charge.enqueue(order)
        pool.drain()
    for line in map(json.loads, handler.lines):
        if line["logger"] == "shop":
            sys.stdout.write(
                f"{line['request_id']} {line['job_name']} order {line['order']}: {line['message']}\n"
            )


if __name__ == "__main__":
    main()
