from __future__ import annotations

import inspect

import pytest
from redis.crc import key_slot

from dayjob.store.keys import Keys


@pytest.mark.parametrize(
    ("namespace", "prefix"), [("w1", "w1:"), ("w1:", "w1:"), ("", ""), ("{shop}", "{shop}:"), ("a:b", "a:b:")]
)
def test_the_prefix_rule_is_that_of_gocraft_work(namespace, prefix):
    keys = Keys(namespace)
    assert keys.prefix == prefix
    assert keys.queue("a") == f"{prefix}jobs:a"
    assert keys.known_jobs == f"{prefix}known_jobs"


def test_the_public_keys_are_those_of_the_wire_contract():
    keys = Keys("w1")
    assert {
        keys.queue("a"), keys.paused("a"), keys.known_jobs, keys.scheduled, keys.retry, keys.dead,
        keys.unique("a", '{"a":1,"b":"\\u003cx\\u003e"}\n'),
    } == {
        "w1:jobs:a", "w1:jobs:a:paused", "w1:known_jobs", "w1:scheduled", "w1:retry", "w1:dead",
        'w1:unique:a:{"a":1,"b":"\\u003cx\\u003e"}\n',
    }  # fmt: skip


def test_a_namespace_with_and_without_its_colon_is_one_keyspace():
    assert Keys("w1").of_name("a") == Keys("w1:").of_name("a")
    assert Keys("w1") == Keys("w1")
    assert hash(Keys("w1")) == hash(Keys("w1"))


def every_key(keys: Keys) -> dict[str, str]:
    """One key of each kind, by the name of the function that builds it."""
    samples = {
        "name": "n", "rest": "r", "pool_id": "p", "slot": "s", "job_id": "i", "minute": 1, "span": 15,
        "deletion": "d", "limit": "l", "part": 0, "kind": "k", "schedule": "c", "receiver": "w", "token": "1:n", "number": 0, "key": "y",
        "batch_id": "b",
        "workflow_id": "w1",
        "mailbox_id": "m",
    }  # fmt: skip
    found = {}
    for name, member in inspect.getmembers(Keys):
        if name.startswith("_") or name in ("of_name", "unique_prefix", "namespace", "prefix"):
            continue
        if isinstance(member, property):
            found[name] = getattr(keys, name)
        elif inspect.isfunction(member):
            wanted = list(inspect.signature(member).parameters)[1:]
            found[name] = member(keys, *(samples[one] for one in wanted))
    return found


def test_no_two_kinds_of_key_are_the_same():
    found = every_key(Keys("w1"))
    assert len(found) > 20
    assert len(set(found.values())) == len(found)


def test_every_key_of_a_tagged_namespace_is_in_one_cluster_slot():
    slots = {key_slot(key.encode()) for key in every_key(Keys("{shop}")).values()}
    assert slots == {key_slot(b"shop")}


def test_every_key_says_what_it_is():
    for name in every_key(Keys("w1")):
        assert inspect.getdoc(getattr(Keys, name)), name
