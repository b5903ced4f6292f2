"""The doctor: each finding on a real server, or on what servers of other kinds say of themselves."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import time

import msgspec
import pytest

from dayjob.admin import doctor, server_checks
from dayjob.errors import Unavailable
from dayjob.store import addresses
from dayjob.store.keys import Keys
from dayjob.store.link import Link, walk
from dayjob.store.ops.health import Health
from server import running, wait_until


@pytest.fixture
def examine(link, keys):
    """What the doctor finds, by topic."""

    def look(through=link, clock=time.time):
        return {finding.topic: finding for finding in walk(through, doctor.examine(keys, clock))}

    return look


def told(config=None, **info):
    return Health({name: str(value) for name, value in info.items()}, config, None)


# On a real server.


def test_a_server_without_persistence_is_an_error_and_the_rest_is_fine(tmp_path, examine, keys):
    with running(tmp_path) as server:
        link = Link(addresses.parse_url(server.url), tag=keys.known_jobs)
        found = examine(link)
        link.close()
    assert found["persistence"].level == "error"
    assert "loses every job" in found["persistence"].what
    assert "appendonly yes" in found["persistence"].todo
    for topic in (
        "server",
        "eviction",
        "role",
        "clock",
        "memory",
        "clients",
        "cluster",
        "scripts",
        "keys",
        "broken",
        "due",
    ):
        assert found[topic].level == "ok", found[topic]
    assert found["pools"].level == "warning"


def test_an_append_only_log_is_fine(tmp_path, keys):
    with running(tmp_path, "--appendonly", "yes") as server:
        link = Link(addresses.parse_url(server.url), tag=keys.known_jobs)
        found = {one.topic: one for one in walk(link, doctor.examine(keys, time.time))}
        link.close()
    assert found["persistence"].level == "ok"
    assert "everysec" in found["persistence"].what


def test_eviction_is_an_error_in_words(examine, call):
    call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        finding = examine()["eviction"]
    finally:
        call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert finding.level == "error"
    assert "allkeys-lru" in finding.what
    assert "noeviction" in finding.todo


def test_a_server_that_refuses_config_is_examined_by_what_it_tells(redis_url, keys, call, examine):
    call("ACL", "SETUSER", "guest", "on", ">word", "~*", "+@all", "-config", "-slowlog")
    guest = Link(addresses.parse_url(redis_url.replace("//", "//guest:word@")), tag=keys.known_jobs)
    try:
        found = examine(guest)
    finally:
        guest.close()
        call("ACL", "DELUSER", "guest")
    assert found["eviction"].level == "ok"
    assert found["persistence"].level == "warning"
    assert found["scripts"].level == "ok"


def test_a_user_who_may_not_load_scripts_is_an_error(redis_url, keys, call, examine):
    call("ACL", "SETUSER", "guest", "on", ">word", "~*", "+@all", "-script|load")
    guest = Link(addresses.parse_url(redis_url.replace("//", "//guest:word@")), tag=keys.known_jobs)
    try:
        finding = examine(guest)["scripts"]
    finally:
        guest.close()
        call("ACL", "DELUSER", "guest")
    assert finding.level == "error"
    assert "SCRIPT LOAD" in finding.todo


def test_what_the_server_refuses_to_show_is_said_and_does_not_stop_the_rest(redis_url, keys, call, examine):
    call("ACL", "SETUSER", "guest", "on", ">word", "~*", "+@all", "-type")
    guest = Link(addresses.parse_url(redis_url.replace("//", "//guest:word@")), tag=keys.known_jobs)
    try:
        found = examine(guest)
    finally:
        guest.close()
        call("ACL", "DELUSER", "guest")
    assert found["keys"].level == "could not check"
    assert found["broken"].level == "ok"


@pytest.mark.parametrize("denied", [("-info",), ("-info", "-config")])
def test_a_user_who_may_not_use_info_gets_the_other_checks(redis_url, namespace, call, denied):
    call("ACL", "SETUSER", "guest", "on", ">word", "~*", "+@all", *denied)
    try:
        url = redis_url.replace("//", "//guest:word@")
        words = [sys.executable, "-m", "dayjob", "doctor", "--redis", url, "--namespace", namespace, "--json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    finally:
        call("ACL", "DELUSER", "guest")
    found = {one["topic"]: one for one in msgspec.json.decode(done.stdout)}
    assert found["server"]["level"] == "could not check"
    assert "INFO is refused" in found["server"]["what"]
    assert found["server"]["todo"] == "allow it: ACL SETUSER <user> +info"
    unsure = "could not check"
    assert found["eviction"]["level"] == (unsure if "-config" in denied else "ok")
    assert found["persistence"]["level"] == (unsure if "-config" in denied else "warning")
    assert {"clock", "scripts", "keys", "broken"} <= set(found)
    assert not {"role", "memory", "clients", "cluster"} & set(found)


def test_a_replica_is_an_error(tmp_path, server, keys):
    with running(tmp_path, "--replicaof", "127.0.0.1", str(server.port)) as replica:
        link = Link(addresses.parse_url(replica.url), tag=keys.known_jobs)

        def role():
            # While it takes over the master's data it may answer nothing at all.
            with contextlib.suppress(Unavailable):
                return next(one for one in walk(link, doctor.examine(keys, time.time)) if one.topic == "role")

        finding = wait_until(role)
        link.close()
    assert finding.level == "error"
    assert "replica of 127.0.0.1" in finding.what


def test_a_clock_that_is_off_is_a_warning(examine):
    assert "ahead of" in examine(clock=lambda: time.time() - 30)["clock"].what
    finding = examine(clock=lambda: time.time() + 90)["clock"]
    assert finding.level == "warning"
    # The time of the question counts half.
    assert re.search(r" (8[5-9]|9[0-5]) s behind", finding.what)


def test_keys_of_a_wrong_type_are_named(examine, call, keys):
    call("SADD", keys.known_jobs, "mail")
    call("SET", keys.queue("mail"), "text")
    call("SET", keys.dead, "text")
    finding = examine()["keys"]
    assert finding.level == "error"
    assert f"{keys.queue('mail')} is a string, not a list" in finding.what
    assert f"{keys.dead} is a string, not a zset" in finding.what


def test_known_jobs_itself_may_be_wrong(examine, call, keys):
    call("SET", keys.known_jobs, "text")
    found = examine()
    assert "not a set" in found["keys"].what
    assert found["queues"].level == "could not check"


def test_broken_entries_are_a_warning(examine, call, keys):
    call("RPUSH", keys.broken, b'{"at":1,"where":"x","why":"no JSON"}\nbytes')
    finding = examine()["broken"]
    assert finding.level == "warning"
    assert "1 entry could not be read, the oldest: no JSON" in finding.what


def test_jobs_that_nobody_moves_when_they_are_due_are_an_error(examine, call, keys):
    call("ZADD", keys.retry, time.time() - 60, b'{"name":"a","id":"1","t":1,"args":null}')
    finding = examine()["due"]
    assert finding.level == "error"
    assert keys.retry in finding.what


def test_go_pools_without_limits_are_named_and_dead_ones_are_not(examine, call, keys):
    (second, _) = call("TIME")
    call("SADD", keys.known_jobs, "mail")
    for name, beat in (("one", second), ("dead", 1), ("odd", "x")):
        call("SADD", keys.gocraft_pools, name)
        call(
            "HSET", keys.gocraft_pool(name), "heartbeat_at", beat, "host", name, "pid", 7, "job_names", "mail"
        )
    found = examine()["gocraft"]
    assert (found.level, found.what) == (
        "ok",
        "gocraft/work also runs here (one/7), has all names, and none of them has a limit",
    )


def test_a_pool_with_limits_starts_though_the_list_of_go_pools_cannot_be_read(new_pool, call, keys, examine):
    call("SET", keys.gocraft_pools, "not a set")
    pool = new_pool()
    pool.register("mail", lambda: None, max_concurrency=1)
    with pool:
        pool.enqueuer.enqueue("mail")
        assert pool.drain(60)
    assert examine()["gocraft"].level == "could not check"


def test_a_pool_that_stays_condemned_is_an_error(examine, call, keys):
    call("ZADD", keys.condemned, time.time() - 300, "p1")
    call("HSET", keys.held("p1"), "1:a", "x")
    finding = examine()["condemned"]
    assert finding.level == "error"
    assert "not swept for 5 min, with 1 attempt" in finding.what


def test_a_running_pool_leads_and_its_names_are_known(examine, keys, new_pool, call):
    pool = new_pool(beat=0.3)
    pool.register("known", lambda: None)
    pool.start()
    wait_until(
        lambda: (
            call("EXISTS", keys.leader)
            and call("EXISTS", *[keys.pool(one.decode()) for one in call("ZRANGE", keys.pools, 0, -1)])
        )
    )
    wait_until(lambda: (found := examine())["pools"].level == found["leader"].level == "ok")
    call("SADD", keys.known_jobs, "misspelt")
    call("LPUSH", keys.queue("misspelt"), "x")
    finding = examine()["queues"]
    assert finding.level == "warning"
    assert "no live pool has misspelt (1 job)" in finding.what


def test_live_pools_without_a_leader_are_a_warning(examine, call, keys):
    call("ZADD", keys.pools, (time.time() + 60) * 1000, "p1", (time.time() + 60) * 1000, "p2")
    for pool_id, version in (("p1", "1.0"), ("p2", "2.0")):
        call("SET", keys.pool(pool_id), msgspec.json.encode({"id": pool_id, "version": version, "names": []}))
    found = examine()
    assert found["leader"].level == "warning"
    assert "1.0, 2.0" in found["versions"].what


# On what other servers say.


@pytest.mark.parametrize(
    ("info", "level", "what"),
    [
        ({"redis_version": "7.0.15"}, "ok", "Redis 7.0.15"),
        ({"redis_version": "6.2.1"}, "error", "Redis 6.2.1 is too old"),
        (
            {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.0.1"},
            "ok",
            "Valkey 8.0.1",
        ),
        ({"redis_version": "7.4.0", "dragonfly_version": "df-v1.20"}, "warning", "Dragonfly df-v1.20"),
        ({}, "could not check", "does not report"),
    ],
)
def test_the_kind_and_version_of_the_server(info, level, what):
    finding = server_checks.check_version(info)
    assert finding.level == level
    assert what in finding.what


@pytest.mark.parametrize(
    ("config", "info", "levels"),
    [
        ({"appendonly": "yes", "appendfsync": "always", "save": ""}, {}, ["ok"]),
        ({"appendonly": "yes", "appendfsync": "no", "save": ""}, {}, ["warning"]),
        ({"appendonly": "no", "save": "3600 1"}, {}, ["warning"]),
        ({"appendonly": "no", "save": ""}, {}, ["error"]),
        (None, {"aof_enabled": 1}, ["ok"]),
        (None, {"aof_enabled": 0}, ["warning"]),
        ({"appendonly": "yes", "appendfsync": "everysec"}, {"aof_last_write_status": "err"}, ["error", "ok"]),
    ],
)
def test_what_is_on_disk(config, info, levels):
    assert [finding.level for finding in server_checks.check_persistence(told(config, **info))] == levels


@pytest.mark.parametrize(("used", "level"), [(10, "ok"), (85, "warning"), (97, "error")])
def test_memory_against_its_limit(used, level):
    assert server_checks.check_memory(told({"maxmemory": "100"}, used_memory=used)).level == level
    assert server_checks.check_memory(told(None, used_memory=used, maxmemory=100)).level == level
    assert server_checks.check_memory(told(None, used_memory=used, maxmemory=0)).level == "ok"


def test_connections_against_their_limit():
    assert server_checks.check_clients(told({"maxclients": "10"}, connected_clients=9)).level == "warning"
    assert server_checks.check_clients(told(None, connected_clients=9, maxclients=100)).level == "ok"
    assert server_checks.check_clients(told()).level == "could not check"


def test_a_replica_out_of_step_is_a_warning():
    replica = "ip=10.0.0.2,port=6379,state={},offset=1,lag=2"
    good = server_checks.check_role({"role": "master", "slave0": replica.format("online")})
    assert good.level == "ok"
    assert "lag 2 s" in good.what
    bad = server_checks.check_role({"role": "master", "slave0": replica.format("wait_bgsave")})
    assert bad.level == "warning"
    assert "10.0.0.2:6379 is wait_bgsave" in bad.what


def test_a_namespace_in_a_cluster_needs_a_hash_tag():
    assert server_checks.check_cluster({"cluster_enabled": "1"}, Keys("shop")).level == "error"
    assert "{shop}" in server_checks.check_cluster({"cluster_enabled": "1"}, Keys("shop")).todo
    assert server_checks.check_cluster({"cluster_enabled": "1"}, Keys("{shop}")).level == "ok"
    assert server_checks.check_cluster({"cluster_enabled": "0"}, Keys("shop")).level == "ok"
