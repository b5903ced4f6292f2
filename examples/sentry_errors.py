"""Errors of jobs in Sentry, with their job. Prints what it would send; a program gives a dsn instead of a transport."""

import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from dayjob import WorkerPool
from dayjob.sentry import DayjobIntegration

pool = WorkerPool(namespace="sentry-errors")


class Printer(Transport):
    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            error = event["exception"]["values"][-1]
            job = event["contexts"]["dayjob"]
            print(f"{error['type']} in {job['name']}: {error['value']}")


@pool.job(max_fails=1)
def charge(order: int) -> None:
    raise ValueError(f"order {order} was refused")


def main() -> None:
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1",
        transport=Printer(),
        traces_sample_rate=1.0,
        integrations=[DayjobIntegration()],
        auto_enabling_integrations=False,
    )
    with pool:
        with sentry_sdk.start_transaction(name="POST /checkout", op="http.server"):
            charge.enqueue(7)
        pool.drain()
    sentry_sdk.flush()


if __name__ == "__main__":
    main()
