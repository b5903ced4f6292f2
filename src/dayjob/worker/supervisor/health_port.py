"""HealthPort: answers probes over HTTP in the parent of `dayjob worker`, from what it knows. No probe asks Redis."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dayjob.errors import UsageError
from dayjob.worker.supervisor.condition import ParentCondition

#: Seconds that a client may take to send its request.
PATIENCE_SECONDS = 5.0


class HealthPort:
    """Serves /healthz, /readyz and /metrics on a thread."""

    def __init__(self, port: int, condition: Callable[[], ParentCondition], host: str = "") -> None:
        try:
            # All interfaces: probes come from outside of a container.
            self._server = ThreadingHTTPServer((host, port), _handler(condition))
        except OSError as error:
            raise UsageError(f"--health-port {port}: {error.strerror or error}") from None
        self._server.daemon_threads = True
        #: The port, also if any free one was asked for.
        self.port: int = self._server.server_address[1]

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, name="dayjob-health", daemon=True).start()


def _handler(condition: Callable[[], ParentCondition]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_SECONDS
        server_version = "dayjob"
        sys_version = ""

        def do_GET(self) -> None:
            now = condition()
            if self.path == "/healthz":
                self._answer(200 if now.healthy else 503, f"{now}\n")
            elif self.path == "/readyz":
                self._answer(200 if now.ready else 503, f"{now}\n")
            elif self.path == "/metrics":
                self._answer(200, _metrics(now))
            else:
                self._answer(404, "this port answers /healthz, /readyz and /metrics\n")

        do_HEAD = do_GET  # noqa: N815 - the name is that of the method

        def _answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Nothing: a probe every few seconds is no news."""

    return Handler


def _metrics(now: ParentCondition) -> str:
    """The condition of this host for Prometheus. What all pools did is in the metrics of the console."""
    rows = (
        ("dayjob_worker_processes_wanted", "Worker processes that should run here.", now.wanted),
        ("dayjob_worker_processes_started", "Worker processes that run here and have started.", now.started),
        ("dayjob_worker_ready", "1 while all worker processes here fetch jobs.", int(now.ready)),
    )
    return "".join(
        f"# HELP {name} {text}\n# TYPE {name} gauge\n{name} {value}\n" for name, text, value in rows
    )
