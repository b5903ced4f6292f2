"""EnqueueGuard: refuses enqueues that would reach a real server in a test."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

from dayjob.errors import NotReady
from dayjob.handlers.periodic import PeriodicJob
from dayjob.instruments import INSTRUMENTS
from dayjob.job import Job
from dayjob.middleware import FindServer, Outgoing
from dayjob.testing import jobs


class EnqueueGuard:
    """While installed, an enqueue outside of a testing block raises NotReady. An instrument of the process."""

    def __init__(self) -> None:
        #: Namespaces whose jobs may reach a server.
        self.allowed: set[str] = set()
        #: Whether all may.
        self.lifted = False

    def install(self) -> None:
        """Begin."""
        INSTRUMENTS.install(self)

    def remove(self) -> None:
        """End."""
        INSTRUMENTS.remove(self)

    def around_enqueue(self, namespace: str) -> Callable[[Outgoing], Generator[None]]:
        """Refuse an enqueue, unless a testing block of its namespace is open."""

        def check(outgoing: Outgoing) -> Generator[None]:
            if not (self.lifted or namespace in self.allowed or jobs.catches(namespace)):
                raise NotReady(
                    f"{outgoing.name!r} was enqueued in a test, and would reach a real server.\n"
                    "    Use the fixture jobs, a block of dayjob.testing or the fixture real_pool; "
                    "or allow it with @pytest.mark.dayjob(guard=False)"
                )
            yield

        return check

    def around_job(
        self,
        namespace: str,  # noqa: ARG002
        periodics: Mapping[str, PeriodicJob],  # noqa: ARG002
        find_server: FindServer,  # noqa: ARG002
    ) -> Callable[[Job], Generator[None]]:
        """Nothing around jobs."""

        def run(job: Job) -> Generator[None]:  # noqa: ARG001
            yield

        return run

    def on_fail(self, job: Job, error: BaseException) -> None:
        """Nothing."""
