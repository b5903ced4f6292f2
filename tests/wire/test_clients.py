"""The clients in other languages: their own tests on the server of this run, and real pools that run what they enqueue.

A language that is not installed is skipped, in words; with CI=true that is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from dayjob import Job, WorkerPool
from dayjob.store import codec
from dayjob.version import __version__
from proxy import Proxy, proxied, reply
from server import Server, free_port, running, wait_until

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "clients"

#: A compiler on a busy machine, with nothing in its cache.
SLOW = 600


@dataclass(frozen=True)
class Client:
    """One client: how it is tested, and how its example is run."""

    language: str
    folder: str
    #: Succeeds where the language and what the client needs of it are there.
    probe: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]
    example: tuple[str, ...]
    #: How often its Redis library sends a request before it gives up.
    tries: int
    environ: dict[str, str] = field(default_factory=dict)
    #: Options in the address of the server.
    query: str = ""

    @property
    def path(self) -> Path:
        return CLIENTS / self.folder

    def run(self, *command: str, **environ: str) -> str:
        """Run a command in the client's folder; what it printed. Fails with all that it said."""
        done = subprocess.run(
            command, cwd=self.path, env=os.environ | self.environ | environ, timeout=SLOW, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}"
        return done.stdout


RUBY = Client(
    "Ruby", "ruby", ("ruby", "-rredis", "-rminitest", "-e", "exit"),
    tests=(("ruby", "-w", "-Ilib", "test/test_dayjob.rb"),),
    example=("ruby", "-w", "-Ilib", "example.rb"), tries=2,
)  # fmt: skip
GO = Client(
    "Go", "go", ("go", "version"),
    tests=(("go", "vet", "./..."), ("go", "test", "-count=1", "./...")),
    example=("{built}",), tries=4, query="?dial_timeout=60s&read_timeout=60s&write_timeout=60s",
)  # fmt: skip
JS = Client(
    "JavaScript", "js", ("node", "--input-type=module", "-e", 'import "redis"; import "ioredis"'),
    tests=(("npm", "test"), ("npm", "run", "types")),
    example=("node", "example.js"), tries=1,
)  # fmt: skip
#: ioredis sends again until it has an answer, twenty times and more.
JS_IOREDIS = Client(
    "JavaScript", "js", JS.probe, tests=(), example=JS.example, tries=21, environ={"LIBRARY": "ioredis"}
)
ALL = [
    pytest.param(RUBY, id="ruby"),
    pytest.param(GO, id="go"),
    pytest.param(JS, id="js"),
    pytest.param(JS_IOREDIS, id="js-ioredis"),
]
PUT = (CLIENTS / "put.lua").read_text("utf-8")

pytestmark = pytest.mark.timeout(SLOW)


@cache
def works(probe: tuple[str, ...], folder: Path) -> bool:
    """Whether a language is there. Asked once: some take seconds to start on a busy machine."""
    if shutil.which(probe[0]) is None:
        return False
    return subprocess.run(probe, cwd=folder, capture_output=True, check=False).returncode == 0


def need(client: Client) -> None:
    """Skip where the language is missing; fail where everything must run."""
    if not works(client.probe, client.path):
        said = f"{client.language}, or what its client needs, is not installed: run scripts/languages.py"
        if os.environ.get("CI") == "true":
            pytest.fail(said)
        pytest.skip(said)


@pytest.fixture(scope="session")
def example(tmp_path_factory) -> Callable[..., str]:
    """Run the example of a client; what it printed. Go's is built once."""
    built: list[str] = []

    def run(client: Client, url: str, namespace: str) -> str:
        if client is GO and not built:
            binary = tmp_path_factory.mktemp("go") / "example"
            GO.run("go", "build", "-o", str(binary), "./example")
            built.append(str(binary))
        command = [word.format(built=built and built[0]) for word in client.example]
        return client.run(*command, REDIS_URL=url + client.query, NAMESPACE=namespace)

    return run


@pytest.mark.parametrize("client", [param for param in ALL if param.values[0].tests])
def test_the_tests_of_a_client_pass_on_the_server_of_this_run(client: Client, redis_url: str) -> None:
    need(client)
    for command in client.tests:
        client.run(*command, REDIS_URL=redis_url + client.query)


def test_every_client_carries_the_script_word_for_word() -> None:
    for file in ("ruby/lib/dayjob.rb", "go/dayjob.go", "js/dayjob.js"):
        assert (CLIENTS / file).read_text("utf-8").count(PUT) == 1, file


def test_every_client_has_the_version_of_dayjob() -> None:
    said = {
        "ruby/lib/dayjob.rb": r'VERSION = "(.+)"',
        "js/package.json": r'"version": "(.+)"',
        "js/package-lock.json": r'"version": "(.+)"',
        "go/README.md": r"-require=dayjob@v([\d.]+) ",
    }
    found = {file: re.search(wanted, (CLIENTS / file).read_text("utf-8"))[1] for file, wanted in said.items()}
    assert found == dict.fromkeys(said, __version__)


def redis_now(call) -> float:
    seconds, micros = call("TIME")
    return int(seconds) + int(micros) / 1e6


class Watches:
    """The job type that the examples enqueue for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jobs: dict[int, Job] = {}
        self.runs = 0

    def create_watch(self, job: Job, user_id: int) -> None:
        with self.lock:
            self.jobs[user_id] = job
            self.runs += 1


@pytest.fixture
def watches() -> Watches:
    return Watches()


@pytest.fixture
def new_pool(watches):
    """A pool that runs what the examples enqueue."""
    made: list[WorkerPool[Any]] = []

    def make(url: str, namespace: str) -> WorkerPool[Any]:
        pool: WorkerPool[Any] = WorkerPool(namespace=namespace, redis=url, concurrency=4)
        pool.register("create_watch", watches.create_watch)
        made.append(pool)
        return pool

    yield make
    for pool in made:
        pool.stop(timeout=0)
        pool.enqueuer.close()


@pytest.mark.parametrize("client", ALL)
def test_what_a_client_enqueues_is_run_by_a_real_pool(
    client, example, redis_url, namespace, call, keys, new_pool, watches
):
    need(client)
    before = redis_now(call)
    said = example(client, redis_url, namespace)
    after = redis_now(call)
    assert "a duplicate" in said
    assert "no answer" not in said
    with new_pool(redis_url, namespace) as pool:
        wait_until(lambda: watches.runs >= 10)
        assert pool.drain(60)
    assert watches.runs == 10
    assert sorted(watches.jobs) == list(range(1, 11))
    assert f"stored {watches.jobs[1].id}" in said
    assert watches.jobs[7].source == "acme"
    assert watches.jobs[10].id == "watch-10"
    assert before - 0.001 <= watches.jobs[10].expires_at - 3600 <= after
    assert [watches.jobs[user].unique_key is not None for user in (3, 4, 5, 6)] == [False, True, True, True]
    assert call("EXISTS", keys.broken, keys.dead, keys.retry, keys.scheduled) == 0
    for user in (4, 5, 6):
        assert call("EXISTS", watches.jobs[user].unique_key) == 0


@pytest.mark.parametrize("client", ALL)
def test_a_client_wakes_a_pool_that_sleeps(client, example, redis_url, namespace, new_pool, watches):
    need(client)
    with new_pool(redis_url, namespace) as pool:
        assert pool.drain(60)
        example(client, redis_url, namespace)
        wait_until(lambda: set(watches.jobs) == set(range(1, 11)))
        assert pool.drain(60)


@pytest.mark.parametrize("client", [param for param in ALL if param.values[0].tries > 1])
def test_a_request_that_the_library_sends_again_is_stored_once(
    client, example, server, namespace, call, keys
):
    """Every answer but the last is lost: what the Redis library sends again finds the job stored."""
    need(client)
    lost = min(client.tries - 1, 3)
    with proxied(server.port) as proxy:
        said = lose_answers(proxy, lost, call, lambda: example(client, proxy.url, namespace))
        assert len([words for words in proxy.requests if b'"user_id":1}' in words[-1]]) == lost + 1
    assert "no answer" not in said
    assert users(call, keys) == [1, 4, 7, 8, 9, 10]


@pytest.mark.parametrize("client", [param for param in ALL if param.values[0] is not JS_IOREDIS])
def test_after_lost_answers_a_client_says_unknown_and_its_repeat_stores_nothing_more(
    client, example, server, namespace, call, keys
):
    need(client)
    with proxied(server.port) as proxy:
        said = lose_answers(proxy, client.tries, call, lambda: example(client, proxy.url, namespace))
    assert "no answer; asking again" in said
    assert users(call, keys) == [1, 4, 7, 8, 9, 10]
    [first, *_] = [
        codec.read(payload) for payload in reversed(call("LRANGE", keys.queue("create_watch"), 0, -1))
    ]
    assert f"stored {first.id}" in said


def lose_answers(proxy: Proxy, count: int, call, do: Callable[[], str]) -> str:
    """Lose so many answers to the script, which the server knows already: each of them was done."""
    call("SCRIPT", "LOAD", PUT)
    proxy.next(*[reply(0)] * count)
    said = do()
    assert proxy.pending == 0
    return said


def users(call, keys) -> list[int]:
    """Whom the jobs that wait are for, the next first."""
    waiting = reversed(call("LRANGE", keys.queue("create_watch"), 0, -1))
    return [codec.job_of(codec.read(payload)).args["user_id"] for payload in waiting]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of one node, which refuses requests whose keys are not in one slot."""
    folder = tmp_path_factory.mktemp("cluster")
    with running(folder, "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as found:
        with Redis(port=found.port) as node:
            node.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            wait_until(lambda: node.cluster("INFO")["cluster_state"] == "ok")
        yield found


@pytest.mark.parametrize("client", ALL)
def test_with_a_hash_tag_every_request_stays_in_one_slot(
    client, example, cluster: Server, namespace, new_pool, watches
):
    need(client)
    example(client, cluster.url, f"{{{namespace}}}")
    with new_pool(cluster.url, f"{{{namespace}}}"):
        wait_until(lambda: watches.runs >= 10)
    assert sorted(watches.jobs) == list(range(1, 11))


def test_a_missing_language_is_said_and_fails_where_everything_must_run(monkeypatch) -> None:
    nowhere = Client("Elvish", "ruby", ("elvish-of-no-machine",), (), (), 1)
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="Elvish, or what its client needs, is not installed"):
        need(nowhere)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=r"run scripts/languages.py"):
        need(nowhere)
