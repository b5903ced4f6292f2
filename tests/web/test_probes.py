from __future__ import annotations

from server import running, wait_until
from web.conftest import running_console


def test_the_process_is_healthy_and_ready(console):
    assert console.get("/healthz").text == "ok\n"
    assert console.get("/readyz").text == "ok\n"


def test_without_redis_the_process_is_healthy_but_not_ready_and_heals_by_itself(tmp_path, namespace):
    with running(tmp_path) as server, running_console(server.url, namespace) as console:
        assert console.get("/readyz").status_code == 200
        server.kill()
        assert console.get("/healthz").status_code == 200
        answer = console.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "Redis does not answer\n")
        server.start()
        wait_until(lambda: console.get("/readyz").status_code == 200)
