"""What operators see and do about rate limits: Admin, commands and the sentence of explain."""

from __future__ import annotations

import os

import pytest

from commands import run_command
from dayjob import BadOption, Rate, Window
from dayjob.cli.limits import limits as command
from dayjob.limits import Limit
from dayjob.store.ops import rates
from pools import fill
from rates import RatedPool, limit_name

HOUR = 3600


@pytest.fixture
def stripe(keys, link):
    """A pool whose names a and b share a limit, and have two waiting jobs each."""
    kinds = {"stripe": Rate(2, per=HOUR)}
    fill(keys, link, "a", *(f'{{"name":"a","id":"a{n}","t":1,"args":{{}}}}' for n in range(3)))
    fill(keys, link, "b", '{"name":"b","id":"b0","t":1,"args":{}}')
    return RatedPool(keys, link, {name: limit_name(keys, link, name, kinds) for name in ("a", "b")})


def test_a_limit_shows_what_it_allows_uses_and_keeps_back(admin, stripe):
    (before,) = admin.limits()
    assert (before.allows, before.used, before.most, before.wait, before.waiting) == (
        "2 per hour",
        0,
        2,
        0.0,
        4,
    )
    assert before.queues == ("a", "b")
    assert len(stripe.start("a")) == 2
    after = admin.limit_of("stripe")
    assert (after.used, after.waiting) == (2, 2)
    assert 1700 < after.wait <= 1800.1


def test_operators_set_lift_restore_reset_and_hold_a_limit_and_the_audit_has_it(admin, stripe):
    stripe.start("a")
    assert admin.set_rate("stripe", 100, burst=3).message == "100 per hour, burst 3."
    assert len(stripe.start("a")) == 1
    assert admin.limit_of("stripe").by_operator
    assert admin.lift_limit("stripe").done
    assert admin.limit_of("stripe").allows == "lifted"
    assert admin.restore_limit("stripe").message == "As the code declares it: 2 per hour."
    assert admin.reset_limit("stripe").done
    assert admin.limit_of("stripe").used == 0
    assert admin.hold_limit("stripe", 30).message == "Held for 30 s."
    assert 0 < admin.limit_of("stripe").held_for <= 30.1
    assert stripe.start("b") == []
    subjects = {(line.actor, line.action, line.subject) for line in admin.audit()}
    assert ("ada", "hold limit", "limit stripe") in subjects
    assert len(subjects) == 5


def test_what_cannot_be_is_refused(admin, stripe, keys, link):
    with pytest.raises(BadOption, match="no rate limit 'strip'. Did you mean 'stripe'"):
        admin.reset_limit("strip")
    with pytest.raises(BadOption, match="give a whole number"):
        admin.set_rate("stripe", 0)
    with pytest.raises(BadOption, match="from 0.001 to a year"):
        admin.hold_limit("stripe", -1)
    link.run(rates.declare(keys, Limit("w", Window(5, per=1))))
    with pytest.raises(BadOption, match="which has no burst"):
        admin.set_rate("w", 5, burst=2)
    limit_name(keys, link, "dear", {"tokens": Rate(100)}, cost=50)
    with pytest.raises(BadOption, match="must be at least that"):
        admin.set_rate("tokens", 10)


def test_a_command_names_the_limit_that_was_meant(stripe, namespace, redis_url, tmp_path):
    words = ("limits", "hold", "strip", "5", "--namespace", namespace, "--redis", redis_url)
    answer = run_command(words, cwd=tmp_path, env=os.environ)
    assert answer.returncode == 2
    assert "no rate limit 'strip'. Did you mean 'stripe'" in answer.stderr


def test_explain_names_the_limit_that_a_job_waits_for(admin, stripe, keys, call):
    stripe.start("a")
    call("SET", keys.pool(stripe.id), '{"id":"p","names":["a","b"],"concurrency":5}')
    said = admin.explain("b0")
    assert said.startswith("Waits for the limit stripe: 2 per hour, next slot in ")
    assert said.endswith(", it is the next.")
    assert admin.job("b0").kind == "rate_limited"
    admin.hold_limit("stripe", 7200)
    assert "the limit stripe: held for another" in admin.explain("b0")


def test_the_commands_list_show_set_hold_and_reset(stripe, namespace, redis_url):
    from click.testing import CliRunner

    def run(*words: str) -> str:
        answer = CliRunner().invoke(command, [*words, "--namespace", namespace, "--redis", redis_url])
        assert answer.exit_code == 0, answer.output
        return answer.output

    assert "2 per hour" in run("ls")
    assert "0 of 2" in run("show", "stripe")
    assert "5 in" not in run("set", "stripe", "5", "--per", "60")
    assert "5 per minute" in run("ls")
    run("hold", "stripe", "60")
    assert "held" in run("ls")
    run("reset", "stripe")
    run("set", "stripe", "none")
    assert "lifted" in run("ls")
    run("set", "stripe", "code")
    assert "2 per hour" in run("show", "stripe")
