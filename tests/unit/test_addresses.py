# ruff: noqa: S105, S106 - the passwords here open nothing
from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dayjob import Admin, AsyncAdmin, AsyncEnqueuer, Enqueuer, WorkerPool
from dayjob.errors import BadOption, UsageError
from dayjob.store.addresses import (
    FALLBACK,
    IN_FILE,
    Target,
    conflict,
    resolve,
    resolve_namespace,
)
from dayjob.store.link import server_finder
from dayjob.store.urls import Address, parse_url, redacted

HERE = Path("/srv/shop")


LEVELS = {
    "redis": ("argument", "DAYJOB_REDIS_URL", "WorkerPool(redis=...)", "REDIS_URL", IN_FILE),
    "namespace": ("argument", "DAYJOB_NAMESPACE", "WorkerPool(namespace=...)", IN_FILE),
}


def levels_of(name, chosen, tmp_path):
    """Values for the chosen levels of a setting, each of its own, as `resolve` takes them."""
    values = {
        level: f"redis://host{number}" if name == "redis" else f"n{number}"
        for number, level in enumerate(chosen)
    }
    if IN_FILE in values:
        (tmp_path / "pyproject.toml").write_text(f'[tool.dayjob]\n{name} = "{values[IN_FILE]}"\n')
    environ = {level: value for level, value in values.items() if level.isupper()}
    return values, environ, values.get("argument"), values.get(f"WorkerPool({name}=...)")


@pytest.mark.parametrize("name", LEVELS)
def test_argument_variable_pool_file_and_default_count_in_this_order_in_every_combination(name, tmp_path):
    levels = LEVELS[name]
    for number, chosen in enumerate(itertools.product([True, False], repeat=len(levels))):
        here = tmp_path / str(number)
        here.mkdir()
        there = [level for level, is_there in zip(levels, chosen, strict=True) if is_there]
        values, environ, argument, pool = levels_of(name, there, here)
        if name == "redis":
            found = resolve(argument, environ, here, pool=pool)
            expected = (values[there[0]], there[0]) if there else (f"embedded:{here}/.dayjob", FALLBACK)
            assert (found.url, found.origin) == expected
        else:
            found = resolve_namespace(argument, environ, here, pool=pool)
            assert found == (values[there[0]] if there else "dayjob")


@pytest.mark.parametrize(
    ("chosen", "line"),
    [
        (("DAYJOB_NAMESPACE", "WorkerPool(namespace=...)"), "using namespace 'n0' of DAYJOB_NAMESPACE, not 'n1' of WorkerPool(namespace=...)"),
        (("WorkerPool(namespace=...)", IN_FILE), f"using namespace 'n0' of WorkerPool(namespace=...), not 'n1' of {IN_FILE}"),
        (("DAYJOB_NAMESPACE", IN_FILE), ""),
        (("WorkerPool(namespace=...)",), ""),
        ((), ""),
    ],
)  # fmt: skip
def test_a_pool_that_disagrees_with_a_variable_or_the_file_gives_one_line_that_names_both(
    chosen, line, tmp_path
):
    _, environ, _, pool = levels_of("namespace", chosen, tmp_path)
    assert conflict("namespace", pool, environ=environ, cwd=tmp_path) == line


def test_the_line_about_two_servers_shows_no_password():
    line = conflict("redis", "redis://:geheim@a", environ={"DAYJOB_REDIS_URL": "redis://:geheim@b"}, cwd=HERE)
    assert (
        line
        == "using redis 'redis://:***@b' of DAYJOB_REDIS_URL, not 'redis://:***@a' of WorkerPool(redis=...)"
    )


def test_a_pool_and_its_enqueuer_agree_on_server_and_namespace(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    pool = WorkerPool(namespace="shop", redis="redis://pool")
    assert (pool.namespace, pool.enqueuer.namespace) == ("shop", "shop")
    monkeypatch.setenv("DAYJOB_NAMESPACE", "staging")
    monkeypatch.setenv("DAYJOB_REDIS_URL", "redis://staging")
    del pool.__dict__["enqueuer"]
    assert (pool.namespace, pool.enqueuer.namespace) == ("staging", "staging")
    assert str(pool.enqueuer.sender.links.resolve()) == "redis://staging:6379/0"
    named = Enqueuer("mine", redis="redis://mine")
    assert (named.namespace, str(named.sender.links.resolve())) == ("mine", "redis://mine:6379/0")


@pytest.mark.parametrize("make", [Admin, AsyncAdmin, Enqueuer, AsyncEnqueuer])
def test_whoever_gets_no_namespace_takes_the_configured_one(make, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DAYJOB_NAMESPACE", raising=False)
    assert make().namespace == "dayjob"
    monkeypatch.setenv("DAYJOB_NAMESPACE", "staging")
    assert (make().namespace, make("mine").namespace) == ("staging", "mine")


def test_the_argument_wins_over_both_variables():
    environ = {"DAYJOB_REDIS_URL": "redis://b", "REDIS_URL": "redis://c"}
    assert resolve("redis://a", environ, HERE) == Target("redis://a", "argument", None)


def test_dayjob_redis_url_wins_over_redis_url():
    environ = {"DAYJOB_REDIS_URL": "redis://b", "REDIS_URL": "redis://c"}
    assert resolve(None, environ, HERE) == Target("redis://b", "DAYJOB_REDIS_URL", None)


def test_redis_url_is_used_when_nothing_else_is_said():
    assert resolve(None, {"REDIS_URL": "redis://c"}, HERE) == Target("redis://c", "REDIS_URL", None)


def test_with_nothing_said_the_embedded_server_of_the_working_directory_is_meant():
    target = resolve(None, {}, HERE)
    assert (target.origin, target.embedded) == (FALLBACK, HERE / ".dayjob")


def test_the_environment_and_working_directory_of_the_process_are_the_default(monkeypatch, tmp_path):
    monkeypatch.setenv("DAYJOB_REDIS_URL", "redis://from-environment")
    monkeypatch.chdir(tmp_path)
    assert resolve(None).url == "redis://from-environment"
    assert resolve("embedded").embedded == tmp_path / ".dayjob"


@pytest.mark.parametrize(
    ("value", "folder"),
    [
        ("embedded", HERE / ".dayjob"),
        ("embedded:/some/folder", Path("/some/folder")),
        ("embedded:data", HERE / "data"),
        ("embedded:~/jobs", Path("~/jobs").expanduser()),
    ],
)
def test_the_embedded_server_can_be_asked_for_on_purpose(value, folder):
    assert resolve(value, {}, HERE).embedded == folder
    assert resolve(value, {}, HERE).origin == "argument"
    assert resolve(None, {"DAYJOB_REDIS_URL": value}, HERE).embedded == folder


@pytest.mark.parametrize(
    "environ",
    [{"DAYJOB_EMBEDDED": "never"}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}],
    ids=["never", "kubernetes"],
)
def test_the_fallback_can_be_refused_and_says_what_to_set(environ):
    with pytest.raises(UsageError) as caught:
        resolve(None, environ, HERE)
    message = str(caught.value)
    assert "DAYJOB_REDIS_URL" in message
    assert "redis://host:6379/0" in message
    assert len(message.splitlines()) <= 4


@pytest.mark.parametrize("value", ["embedded", "redis://a"])
def test_what_was_asked_for_is_not_refused_where_the_fallback_is(value):
    environ = {"DAYJOB_EMBEDDED": "never", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert resolve(value, environ, HERE).origin == "argument"


@pytest.mark.parametrize(
    ("redis", "environ", "says"),
    [
        ("", {}, "redis is set, but empty"),
        (None, {"DAYJOB_REDIS_URL": " "}, "DAYJOB_REDIS_URL is set, but empty"),
        (None, {"REDIS_URL": ""}, "REDIS_URL is set, but empty"),
        (
            None,
            {"REDIS_URL": "localhost"},
            "REDIS_URL: 'localhost' is no URL: write redis://localhost:6379/0",
        ),
        (None, {"DAYJOB_EMBEDDED": "nevr"}, "DAYJOB_EMBEDDED='nevr'"),
        ("embedded:", {}, "'embedded:/some/folder'"),
        ("embedded:~no-such-user-here/x", {}, "'embedded:/some/folder'"),
        ("embedded:\0", {}, "'embedded:/some/folder'"),
        (6379, {}, "redis is of type int: give a URL"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_an_error_that_names_it(redis, environ, says):
    with pytest.raises(BadOption) as caught:
        resolve(redis, environ, HERE)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", Address("single", (("localhost", 6379),))),
        ("redis://localhost/", Address("single", (("localhost", 6379),))),
        ("REDIS://cache_1.internal:7000/3", Address("single", (("cache_1.internal", 7000),), db=3)),
        ("redis://h?db=4", Address("single", (("h", 6379),), db=4)),
        ("redis://h/4?db=4", Address("single", (("h", 6379),), db=4)),
        ("redis://:pw@h", Address("single", (("h", 6379),), password="pw")),
        ("redis://me@h", Address("single", (("h", 6379),), username="me")),
        ("redis://m%3Ae:p%40%2Fw%25@h", Address("single", (("h", 6379),), username="m:e", password="p@/w%")),
        ("redis://me:p@w@h", Address("single", (("h", 6379),), username="me", password="p@w")),
        ("redis://me:p+w:x@h", Address("single", (("h", 6379),), username="me", password="p+w:x")),
        ("redis://[::1]", Address("single", (("::1", 6379),))),
        ("redis://u:p@[2001:db8::7]:7000/1", Address("single", (("2001:db8::7", 7000),), None, 1, "u", "p")),
        ("rediss://h:6380", Address("single", (("h", 6380),), tls=True)),
        ("valkey://h", Address("single", (("h", 6379),))),
        ("valkeys://h", Address("single", (("h", 6379),), tls=True)),
        ("unix:///run/redis.sock", Address("unix", path="/run/redis.sock")),
        ("unix:///run/my%20dir/s?db=2", Address("unix", path="/run/my dir/s", db=2)),
        ("unix:///run/a@b", Address("unix", path="/run/a@b")),
        ("unix://me:pw@/run/s", Address("unix", path="/run/s", username="me", password="pw")),
        (
            "redis+sentinel://h1:26379,h2/mymaster/2",
            Address("sentinel", (("h1", 26379), ("h2", 26379)), db=2, service="mymaster"),
        ),
        ("redis+sentinel://h1/my%2Fmaster", Address("sentinel", (("h1", 26379),), service="my/master")),
        ("rediss+sentinel://[::1]:5/m/", Address("sentinel", (("::1", 5),), tls=True, service="m")),
        (
            "redis+sentinel://u:p@h/m?sentinel_username=su&sentinel_password=s%26p",
            Address(
                "sentinel", (("h", 26379),), None, 0, "u", "p", False, "m",
                {"sentinel_username": "su", "sentinel_password": "s&p"},
            ),
        ),
        ("redis+cluster://h1:7000,h2:7001", Address("cluster", (("h1", 7000), ("h2", 7001)))),
        ("rediss+cluster://:pw@h1/0", Address("cluster", (("h1", 6379),), password="pw", tls=True)),
        (
            "rediss://h?ssl_ca_certs=/ca%20s.pem&ssl_cert_reqs=none&ssl_check_hostname=False&ssl_certfile=c&ssl_keyfile=k",
            Address(
                "single", (("h", 6379),), tls=True,
                options={
                    "ssl_ca_certs": "/ca s.pem",
                    "ssl_cert_reqs": "none",
                    "ssl_check_hostname": False,
                    "ssl_certfile": "c",
                    "ssl_keyfile": "k",
                },
            ),
        ),
    ],
)  # fmt: skip
def test_every_form_of_url_is_understood(url, address):
    assert parse_url(url) == address


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("localhost", "write redis://localhost:6379/0"),
        ("host:6379", "write redis://host:6379/0"),
        ("10.0.0.1:7000/3", "write redis://10.0.0.1:7000/3"),
        ("/run/redis.sock", "write unix:///run/redis.sock"),
        ("redis:/host", "write one like redis://host:6379/0"),
        ("", "write one like"),
        ("http://h", "begins with http://"),
        ("redis://h\n", "line end"),
        ("redis:// h", "a space"),
        ("redis://", "has no host: write redis://localhost:6379/0"),
        ("redis:///0", "has no host"),
        ("redis://:6379", "has no host"),
        ("redis://h1,h2", "redis+sentinel://"),
        ("redis+cluster://h1,,h2", "has no host"),
        ("redis://::1:6379", "in brackets"),
        ("redis://fe80::1", "in brackets"),
        ("redis://[::g]", "no IPv6 address"),
        ("redis://[::1]x", "in brackets"),
        ("redis://h%41", "a host is a name"),
        ("redis://h:", "the port must be a number from 1 to 65535"),
        ("redis://h:0", "the port must be"),
        ("redis://h:65536", "the port must be"),
        ("redis://h:" + "9" * 5000, "the port must be"),
        ("redis://h:٣", "the port must be"),
        ("redis://h/x", "the database"),
        ("redis://h/-1", "the database"),
        ("redis://h/0/1", "the database"),
        ("redis://h/1?db=2", "two databases"),
        ("redis://h?db=", "db must be given once"),
        ("redis://h?db=1&db=1", "db must be given once"),
        ("redis://h?db=x", "db must be a number"),
        ("redis://h?patience=3", "unknown option 'patience' (known: credentials, db, ssl_ca_certs"),
        ("redis://h?ssl_ca_certs=x", "write rediss://"),
        ("rediss://h?ssl_cert_reqs=maybe", "none, optional or required"),
        ("rediss://h?ssl_check_hostname=1", "true or false"),
        ("redis://h?sentinel_password=x", "redis+sentinel:// only"),
        ("redis+sentinel://h", "the name of the master is missing"),
        ("redis+sentinel://h//0", "the name of the master is missing"),
        ("redis+sentinel://h/m/x", "the database"),
        ("redis+cluster://h/1", "database 0 only"),
        ("redis+cluster://h?db=1", "database 0 only"),
        ("unix://run/redis.sock", "three slashes"),
        ("unix://", "three slashes"),
        ("unix:///", "three slashes"),
        ("unix:///a%00b", "three slashes"),
        ("redis://h#1", "%23"),
        ("redis://:%ff@h", "not UTF-8"),
    ],
)
def test_a_url_that_cannot_be_read_is_an_error_that_says_what_to_write(url, says):
    with pytest.raises(BadOption) as caught:
        parse_url(url)
    assert says in str(caught.value)


SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://me:{SECRET}@h/0",
        f"unix://me:{SECRET}@/run/s",
        f"redis+sentinel://h/m/0?sentinel_password={SECRET}",
        f"redis://me:{SECRET}@h:x",
        f"redis://me:{SECRET}@h?timeout=3",
        f"redis://me:{SECRET}/{SECRET}@h",
        f"redis://me:12/{SECRET}@h",
        f"redis://me:12?{SECRET}@h",
        f"redis://me:12?{SECRET}={SECRET}@h",
        f"redis://me:a#{SECRET}@h",
        f"redis://me:{SECRET}@h\n",
        f"redis+sentinel://h/m?sentinel_password=a&{SECRET}",
        f"redis://h?password={SECRET}",
        f"me:{SECRET}@h:6379",
        f"me:{SECRET}://x@h:6379",
        f"/{SECRET}@h",
        f"http://me:{SECRET}@h",
    ],
)
def test_no_message_and_no_repr_shows_a_password(url):
    assert SECRET not in redacted(url)
    assert SECRET not in repr(Target(url, "argument"))
    assert SECRET not in what_is_said_of(url)


def what_is_said_of(url):
    try:
        address = parse_url(url)
    except BadOption as error:
        return str(error)
    return f"{address} {address!r}"


def test_a_user_without_a_password_may_be_a_password_and_is_not_shown():
    assert redacted(f"redis://{SECRET}@h:6379/0") == "redis://:***@h:6379/0"
    assert str(parse_url(f"redis://{SECRET}@h:6379/0")) == "redis://:***@h:6379/0"


def test_a_redacted_url_keeps_what_a_person_needs():
    assert redacted("rediss://me:pw@h:1/2?ssl_keyfile=k&x=y") == "rediss://me:***@h:1/2?ssl_keyfile=k&x=***"
    assert redacted("redis://h:6379/0") == "redis://h:6379/0"


def test_an_address_shows_itself_as_a_url():
    assert (
        str(parse_url("valkeys+sentinel://u:p@h1,[::1]:7/m/2"))
        == "rediss+sentinel://u:***@h1:26379,[::1]:7/m/2"
    )
    assert repr(parse_url("unix:///a%20b?db=1")) == "Address('unix:///a%20b?db=1')"
    assert str(parse_url("redis+cluster://h")) == "redis+cluster://h:6379"


def test_an_address_can_be_a_key_and_travel_to_another_process():
    address = parse_url("rediss://u:p@h?ssl_cert_reqs=none")
    assert {address: 1}[pickle.loads(pickle.dumps(address))] == 1  # noqa: S301


PIECES = st.sampled_from(
    ["redis", "rediss", "unix", "+sentinel", "+cluster", "://", ":", "/", "@", "?", "&", "=", "#", "[", "]", "%", "%ff",
     "%00", ",", "h", "::1", "6379", "0", "db=1", "ssl_cert_reqs=none", "sentinel_password=x", "m", ".", "\ud800"]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(PIECES, max_size=14).map("".join)))
@example("redis://[::1%25eth0]")
@example("redis://[" + "1" * 5000 + "]")
@example("redis://\u2100.test")
def test_whatever_the_text_it_is_understood_or_refused_in_words(url):
    redacted(url)
    try:
        address = parse_url(url)
    except BadOption:
        return
    assert bool(address.path) == (address.kind == "unix") != bool(address.hosts)
    assert all(host and 0 < port < 65536 for host, port in address.hosts)


@given(username=st.text(min_size=1), password=st.text(min_size=1))
def test_a_quoted_user_and_password_come_back_as_they_were(username, password):
    try:
        url = f"redis://{quote(username, safe='')}:{quote(password, safe='')}@h"
    except UnicodeEncodeError:
        return
    address = parse_url(url)
    assert (address.username, address.password) == (username, password)


@pytest.mark.parametrize(
    "query",
    [
        "protocol=3",
        "socket_timeout=5&health_check_interval=30",
        "client_name=x&decode_responses=True",
        "max_connections=10",
    ],
)
def test_options_of_the_client_library_in_a_shared_url_are_accepted_and_change_nothing(query):
    assert parse_url(f"redis://h:1/2?{query}") == parse_url("redis://h:1/2")


def test_every_option_of_the_client_library_is_known_except_those_that_make_tls_stricter():
    from redis.connection import URL_QUERY_ARGUMENT_PARSERS

    from dayjob.store.urls import _IGNORED_OPTIONS, _SECRET_OPTIONS, _SHOWN_OPTIONS

    unknown = set(URL_QUERY_ARGUMENT_PARSERS) - {*_IGNORED_OPTIONS, *_SECRET_OPTIONS, *_SHOWN_OPTIONS}
    assert not [name for name in unknown if not name.startswith("ssl_")]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("rediss://user:secret@cache.example:6380/2", ("cache.example", 6380)),
        ("redis://[::1]", ("::1", 6379)),
        ("unix:///run/valkey.sock?db=1", ("/run/valkey.sock", None)),
        ("redis+sentinel://a:1,b:2/main/0", None),
        ("redis+cluster://a:1,b:2", None),
        ("embedded:/srv/shop/.dayjob", None),
    ],
)
def test_the_address_of_a_server_is_one_host_or_a_socket_or_not_known_yet(url, found):
    assert server_finder(url, "shop:known_jobs")() == found
