"""Job types as the fleet knows them: what pools announce, what consoles check with it, and what they hide because of it."""

from __future__ import annotations

import asyncio
import enum
import threading
from datetime import datetime
from typing import Any, Literal

import msgspec
import pytest

from dayjob import Admin, AsyncAdmin, Job
from dayjob.admin.filters import Filter
from dayjob.errors import BadArguments
from dayjob.handlers.describe import MAX_BYTES, Described, describe, misfit
from dayjob.handlers.redact import HIDDEN, secrets_in, shown, veiled, without
from dayjob.store import codec
from dayjob.store.link import walk
from dayjob.store.ops import job_types
from dayjob.worker.chores.recorder import Recorder
from server import wait_until

SECRET = "4111-1111-topsecret"
HUSH = 'quo"ted é secret'


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


def mail(
    to: str,
    copies: int = 1,
    size: Size = Size.SMALL,
    mode: Literal["now", "later"] | None = None,
    at: datetime | None = None,
    share: float = 0.5,
    loud: bool = False,
    tags: list[str] | None = None,
    card: str = "default-card",
) -> None:
    """Send a mail.

    And nothing more.
    """


# What is announced.


def test_a_pool_announces_its_job_types_when_it_starts(admin, new_pool, look):
    pool = new_pool()
    pool.register(
        "mail", mail, priority=3, max_fails=7, timeout=30, redact=["card"], keep=60, unique_until="done"
    )

    @pool.job
    async def anything(job: Job) -> None: ...

    pool.start()
    known = {one.name: one for one in admin.job_types()}
    assert set(known) == {"mail", "anything"}
    one = known["mail"]
    assert (one.doc, one.colour, one.priority, one.max_fails) == ("Send a mail.", "sync", 3, 7)
    assert (one.timeout, one.keep, one.unique_until, one.redact) == (30, 60, "done", ("card",))
    assert not one.open
    assert abs(one.announced_at - look.now()) < 60
    by_name = {argument.name: argument for argument in one.arguments}
    assert [argument.name for argument in one.arguments if argument.required] == ["to"]
    kinds = {name: (argument.kind, argument.type, argument.default) for name, argument in by_name.items()}
    assert kinds == {
        "to": ("text", "str", None), "copies": ("integer", "int", 1), "size": ("choice", "Size", "s"),
        "mode": ("choice", "Literal['now', 'later'] | None", None), "at": ("text", "datetime | None", None),
        "share": ("number", "float", 0.5), "loud": ("boolean", "bool", False),
        "tags": ("json", "list[str] | None", None), "card": ("text", "str", None),
    }  # fmt: skip
    assert by_name["size"].choices == ("s", "l")
    assert (by_name["mode"].choices, by_name["mode"].nullable) == (("later", "now"), True)
    assert by_name["card"].hidden
    assert "default-card" not in repr(one)
    assert (known["anything"].colour, known["anything"].open) == ("async", True)
    assert admin.job_type("mail") == one
    assert admin.job_type("nothing") is None


def test_what_did_not_change_is_not_written_again(new_pool, call, keys):
    first = new_pool()
    first.register("mail", mail)
    first.start()
    call("HSET", keys.job_types, "mail|at", int(call("TIME")[0]) - 1000)
    before = call("HGETALL", keys.job_types)
    second = new_pool()
    second.register("mail", mail)
    second.start()
    assert call("HGETALL", keys.job_types) == before
    third = new_pool()
    third.register("mail", mail, priority=9)
    third.start()
    assert call("HGETALL", keys.job_types) != before


def test_a_pool_starts_where_job_types_cannot_be_announced_and_says_so(new_pool, call, keys, caplog, look):
    call("SET", keys.job_types, "x")
    pool = new_pool()
    ran = threading.Event()

    @pool.job
    def work() -> None:
        ran.set()

    pool.start()
    work.enqueue()
    assert ran.wait(60)
    assert "consoles cannot show the job types of this pool" in caplog.text


def test_old_ones_are_forgotten_by_the_leader(keys, link, call, look):
    link.run(job_types.announce(keys, [Described("old"), Described("new")]))
    call("HSET", keys.job_types, "old|at", int(look.now()) - 31 * 86_400)
    assert Recorder(keys, link).forget_types() == 1
    assert [one.described.name for one in walk(link, job_types.every(keys))] == ["new"]


def test_a_description_is_of_a_bounded_size_and_still_says_what_is_hidden(new_pool):
    pool = new_pool()
    names = [f"argument_number_{n}_with_a_long_name_that_goes_on_and_on" for n in range(150)]
    scope: dict[str, Any] = {}
    exec(f"def wide({', '.join(f'{name}: int = 0' for name in [*names, 'card'])}): ...", scope)  # noqa: S102
    said = describe(pool.register("wide", scope["wide"], redact=["card"]))
    assert len(msgspec.json.encode(said)) <= MAX_BYTES
    assert said.redact == ("card",)
    assert misfit(said, {names[140]: 1}) == ""


# What is checked.


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"to": "a"}, ""),
        ({"to": "a", "copies": 2, "mode": None, "tags": ["x"], "share": 1, "at": "2030-01-01T00:00:00Z"}, ""),
        ({}, "missing argument 'to'"),
        ({"too": "a"}, "got an unexpected argument 'too'. Did you mean 'to'?"),
        ({"to": 7}, "argument 'to': expected text, got int"),
        ({"to": None}, "argument 'to': must not be null"),
        ({"to": "a", "copies": True}, "argument 'copies': expected a whole number, got bool"),
        ({"to": "a", "copies": 1.5}, "argument 'copies': expected a whole number, got float"),
        ({"to": "a", "loud": 1}, "argument 'loud': expected true or false, got int"),
        ({"to": "a", "size": "xl"}, "argument 'size': expected one of s, l"),
    ],
)
def test_arguments_are_checked_without_the_program(new_pool, args, problem):
    said = describe(new_pool().register("mail", mail))
    assert misfit(said, args) == problem


def test_admin_refuses_arguments_that_do_not_fit_what_was_announced(admin, new_pool, look):
    pool = new_pool()
    pool.register("mail", mail)
    pool.start()
    pool.stop()
    with pytest.raises(
        BadArguments, match=r"mail: missing argument 'to'\n    mail\(to: str, copies: int = 1"
    ):
        admin.enqueue("mail", {"copies": 2})
    assert look.queue("mail") == []
    assert admin.enqueue("mail", {"copies": 2}, check=False).done
    assert admin.enqueue("mail", {"to": "ada"}).done
    assert admin.enqueue("unheard_of", {"any": "thing"}).done
    assert len(look.queue("mail")) == 2


# What is hidden.


def hidden_everywhere(found):
    text = repr(found)
    for secret in (SECRET, HUSH, codec.quoted(HUSH).decode()[1:-1]):
        assert secret not in text, text
    return text


@pytest.fixture
def strewn(new_pool, keys, call, look, link, enqueuer):
    """Jobs with secrets in every place, written by somebody who knew nothing of what is hidden."""
    link.run(job_types.announce(keys, [Described("pay", redact=("card",)), Described("other")]))
    args = msgspec.json.encode({"card": {"number": SECRET}, "deep": [{"password": HUSH}], "n": 7})
    now = look.now()

    def job(job_id, **extras):
        return codec.write(codec.quoted("pay"), job_id, now - 5, args, extras)

    error = f"ValueError: bad card {SECRET} and {HUSH!r} 123"
    failed = {"fails": 1, "err": error, "trace": f"Traceback\n  {SECRET}\n{error}", "failed_at": int(now)}
    call("SADD", keys.known_jobs, "pay")
    call("LPUSH", keys.queue("pay"), job("w"))
    call("ZADD", keys.scheduled, now + 60, job("s"))
    call("ZADD", keys.retry, now + 60, job("r", **failed))
    unique = f'{keys.unique_prefix}pay:{{"card":{{"number":"{SECRET}"}}}}'
    call("ZADD", keys.dead, int(now), job("d", unique_key=unique, **failed))
    call("ZADD", keys.done, now + 60, job("k", done_at=int(now * 1000), ran=0.25))
    call("SET", keys.result("k"), msgspec.json.encode({"result": {"echo": SECRET, "token": "t", "n": 7}}))
    call("RPUSH", keys.broken, codec.broken_entry(job("b")[:-20] + b"\xff", at=now, where="x", why="y"))
    call("HSET", keys.periodic, "tick", "1", "tick|is", msgspec.json.encode(
        {"job": "pay", "spec": "* * * * *", "args": msgspec.Raw(args)}
    ))  # fmt: skip
    return job


def test_what_a_job_type_hides_is_hidden_in_every_view(admin, strewn):
    for state in ("scheduled", "retry", "dead", "done"):
        (job,) = admin.jobs(state).jobs
        assert job.args == {"card": HIDDEN, "deep": [{"password": HIDDEN}], "n": 7}
        hidden_everywhere(job)
    hidden_everywhere(admin.jobs("waiting", name="pay"))
    hidden_everywhere(admin.queue("pay"))
    assert HIDDEN in admin.jobs("dead").jobs[0].error
    assert HIDDEN in admin.jobs("dead").jobs[0].trace
    assert HIDDEN in admin.jobs("dead").jobs[0].unique_key
    for job_id in "wsrdk":
        hidden_everywhere(admin.job(job_id))
        hidden_everywhere(admin.explain(job_id))
    kept = admin.job("k").job
    assert kept.result == {"echo": HIDDEN, "token": HIDDEN, "n": 7}
    assert (kept.ran, kept.done_at is not None) == (0.25, True)
    hidden_everywhere(admin.failures())
    hidden_everywhere(admin.periodic())
    (entry,) = admin.broken().entries
    assert SECRET.encode() not in entry.payload
    assert admin.delete_broken(entry).done


def test_what_was_seen_can_still_be_acted_upon(admin, strewn, look):
    assert admin.retry(admin.jobs("dead").jobs[0]).done
    assert admin.delete(admin.jobs("done").jobs[0]).done
    assert admin.run_now(admin.jobs("scheduled").jobs[0].seen).done
    # Nothing of what is stored was touched.
    assert {job["args"]["card"]["number"] for job in look.queue("pay")} == {SECRET}


def test_a_filter_cannot_feel_for_what_is_hidden(admin, strewn):
    assert admin.count("dead", where=f"error~{SECRET}").matched == 0
    assert admin.count("dead", where="error~redacted").matched == 1
    group = next(group for group in admin.failures().groups if group.dead)
    assert SECRET not in group.kind
    assert admin.jobs("dead", where=Filter.of(kind=group.kind)).jobs
    assert admin.count("dead", where=f"error~{SECRET[:6]}").matched == 0


def test_what_one_console_hides_is_hidden_too(namespace, redis_url, strewn):
    with Admin(namespace, redis=redis_url, hide=["n"]) as admin:
        assert admin.jobs("dead").jobs[0].args["n"] == HIDDEN
        assert admin.periodic()[0].args["n"] == HIDDEN
        one = Admin(namespace, redis=redis_url).job_type("pay")
        assert one is not None


def test_what_a_worker_runs_is_shown_as_this_console_may_show_it(namespace, redis_url, new_pool, admin):
    pool = new_pool(beat=0.2)
    gate = threading.Event()

    @pool.job(redact=["card"])
    def pay(job: Job, card: str, n: int) -> None:
        job.checkin(f"paying with {card}")
        gate.wait(60)

    pool.start()
    pay.enqueue(card=SECRET, n=7)
    try:
        wait_until(lambda: any(one.worker.checkin for one in admin.busy()))
        with Admin(namespace, redis=redis_url, hide=["n"]) as strict:
            (one,) = strict.busy()
            assert one.args == {"card": HIDDEN, "n": HIDDEN}
            assert one.worker.checkin == f"paying with {HIDDEN}"
            hidden_everywhere(strict.pools())
    finally:
        gate.set()


def test_where_job_types_cannot_be_read_everything_is_hidden(admin, strewn, call, keys):
    call("DEL", keys.job_types)
    call("SET", keys.job_types, "x")
    (job,) = admin.jobs("dead").jobs
    assert (job.args, job.error, job.trace) == (HIDDEN, HIDDEN, HIDDEN)
    hidden_everywhere(admin.failures())
    hidden_everywhere(admin.periodic())
    assert admin.enqueue("pay", {"n": 1}).done


def test_errors_are_stored_and_logged_without_what_is_hidden(new_pool, look, caplog):
    """By the names that the job type gives, and by names that look like secrets, at any depth."""
    pool = new_pool()

    @pool.job(max_fails=1, redact=["card"])
    def pay(card: str, login: dict[str, str]) -> None:
        raise ValueError(f"{card} and {login['password']} do not go together")

    pool.start()
    pay.enqueue(card=SECRET, login={"password": HUSH})
    (dead,) = wait_until(look.dead)
    assert dead["err"] == f"ValueError: {HIDDEN} and {HIDDEN} do not go together"
    assert SECRET not in dead["trace"] + caplog.text
    assert HUSH not in dead["trace"] + caplog.text


async def _async_view(namespace, redis_url):
    async with AsyncAdmin(namespace, redis=redis_url) as admin:
        return await admin.job_types(), await admin.jobs("dead")


def test_async_admin_has_the_same(namespace, redis_url, strewn):
    types, dead = asyncio.run(_async_view(namespace, redis_url))
    assert [one.name for one in types] == ["other", "pay"]
    hidden_everywhere(dead)


# The pure parts.


def test_secrets_are_found_at_any_depth_and_in_every_spelling():
    found = secrets_in(
        {"a": {"token": ["x\ny", 12]}, "card": {"deep": {"n": 12345}}, "plain": "zzz"}, ["card"]
    )
    assert set(found) == {"x\ny", "x\\ny", "12345"}
    assert without("so x\ny and 'x\\ny' and 12345", found) == f"so {HIDDEN} and '{HIDDEN}' and {HIDDEN}"
    assert shown({"text": "a 12345 b"}, secrets=["12345"]) == {"text": f"a {HIDDEN} b"}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"password": "a\\"b", "n": 1', b'{"password": "[redacted]", "n": 1'),
        (b'{"a":{"token":12,"card":[1,2', b'{"a":{"token":"[redacted]","card":"[redacted]"'),
        (b'{"secret":"cut off', b'{"secret":"[redacted]"'),
        (b'{"password":', b'{"password":"[redacted]"'),
        (b"no json at all", b"no json at all"),
    ],
)
def test_bytes_that_are_no_json_lose_what_looks_like_a_secret(raw, expected):
    assert veiled(raw, {"card"}) == expected
