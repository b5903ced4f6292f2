from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from dayjob.store import codec

GOLDEN = Path(__file__).parent.parent / "golden"


def rows(*names: str) -> list:
    found = []
    for name in names:
        for row in json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))["rows"]:
            found.append(pytest.param(row, id=f"{name}: {row.get('what') or row['json']}"))
    return found


@pytest.mark.parametrize("row", rows("go_enqueued", "go_failed", "go_cjson"))
def test_what_go_writes_is_read(row):
    wire = codec.read(row["payload"].encode(), row["reads"]["name"])
    assert {key: getattr(wire, key) for key in row["reads"]} == row["reads"]
    assert codec.job_of(wire).args == row["args"]


@pytest.mark.parametrize("row", rows("go_enqueued", "go_failed", "go_cjson", "dayjob"))
def test_a_rewrite_keeps_every_byte_of_the_arguments(row):
    payload = row["payload"].encode()
    changed = codec.rewrite(payload, {"fails": 3, "err": "no", "t": 1794767999})
    assert bytes(codec.read(changed).args) == bytes(codec.read(payload).args)
    assert codec.read(changed).fails == 3
    assert codec.read(changed).t == 1794767999


def test_a_rewrite_keeps_fields_that_nobody_knows_and_their_order():
    payload = b'{"name":"a","x":1.50,"id":"i","t":1,"args":{"b":[ ]},"Y":{"z":"\\u003c"}}'
    assert codec.rewrite(payload, {"t": 2, "fails": 1}) == (
        b'{"name":"a","x":1.50,"id":"i","t":2,"args":{"b":[ ]},"Y":{"z":"\\u003c"},"fails":1}'
    )


def test_a_rewrite_drops_what_is_set_to_none():
    payload = b'{"name":"a","id":"i","t":1,"args":null,"fails":2,"err":"no"}'
    assert codec.rewrite(payload, {"fails": None, "err": None, "deaths": None}) == (
        b'{"name":"a","id":"i","t":1,"args":null}'
    )


@pytest.mark.parametrize("row", rows("dayjob"))
def test_what_is_written_has_gos_fields_first_in_gos_order(row):
    args = json.dumps(row["args"], separators=(",", ":")).encode()
    written = codec.write(
        codec.quoted("a"), "0123456789abcdef01234567", 1794767036.1234, args, row["extras"] or None
    )
    assert written.decode() == row["payload"]


def test_times_are_whole_numbers():
    written = json.loads(codec.write(b'"a"', "i", 1794767036.9999, b"{}"))
    assert (written["t"], written["at"]) == (1794767036, 1794767036999)
    assert type(written["t"]) is int


@pytest.mark.parametrize("row", rows("go_json"))
def test_json_for_unique_keys_is_what_go_writes(row):
    assert codec.go_json(row["value"]) == row["json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), {"a": [float("nan")]}])
def test_no_json_is_made_of_what_is_none(value):
    with pytest.raises(ValueError, match="is not JSON"):
        codec.go_json(value)


BROKEN = [
    b"", b" ", b"x", b"1", b"null", b"[]", b'"a"', b"{}", b'{"name":1}', b'{"name":null}', b'{"name":"a"', b'{"name":"a"}}',
    b'{"name":"a","args":[]}', b'{"name":"a","args":1}', b'{"name":"a","args":"x"}', b'{"name":"a","t":"1"}',
    b'{"name":"a","t":true}', b'{"name":"a","t":1e400}', b'{"name":"a","fails":1.5}', b'{"name":"a","id":1}',
    b'{"name":"\xff"}', b'{"name":"a","args":{"x":}}', b'{"name":"a","source":[1]}', b"\x00", b"\xef\xbb\xbf{}",
    b'{"name":"a","args":{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    b'{"name":"a","args":{},"\xff":1}',
    b'{"name":"a","args":{},"t":1' + b"0" * 400 + b"}",
    b'{"name":"a","args":{},"at":1' + b"0" * 400 + b"}",
    b'{"name":"a","args":{},"expires":1' + b"0" * 400 + b"}",
]  # fmt: skip


@pytest.mark.parametrize("payload", BROKEN, ids=lambda payload: repr(payload[:40]))
def test_what_is_no_job_is_broken_and_says_why(payload):
    with pytest.raises(codec.Broken) as caught:
        codec.read(payload)
    assert str(caught.value)


def test_a_job_in_the_queue_of_another_name_is_broken():
    with pytest.raises(codec.Broken, match="a job named 'b' in the queue of 'a'"):
        codec.read(b'{"name":"b","args":{}}', "a")


def test_broken_bytes_are_kept_behind_a_header_line():
    header, _, kept = codec.broken_entry(b"\x00\nbytes", at=1.5, where="w:jobs:a", why="no\nline").partition(
        b"\n"
    )
    assert kept == b"\x00\nbytes"
    assert json.loads(header) == {"at": 1500, "where": "w:jobs:a", "why": "no\nline"}


def test_a_long_error_is_cut_in_the_middle():
    cut = codec.cut("first" + "x" * 20_000 + "last")
    assert len(cut.encode()) <= codec.MAX_ERROR
    assert cut.startswith("first")
    assert cut.endswith("last")


def test_the_last_failed_attempts_are_remembered_by_the_first_line_of_their_error():
    payload = b'{"name":"a","id":"1","t":1,"args":{}}'
    for n in range(1, 15):
        wire = codec.read(payload)
        past = codec.remember(
            wire, attempt=n, at=100.7 + n, ran=0.12345, error=f"E{n}: " + "x" * 500 + "\nmore"
        )
        payload = codec.rewrite(payload, {"past": past})
    found = codec.past(codec.read(payload))
    assert [one.attempt for one in found] == list(range(5, 15))
    assert (found[-1].at, found[-1].ran) == (114.7, 0.123)
    assert found[-1].error == ("E14: " + "x" * 500)[:200]


@pytest.mark.parametrize(
    "past", ["null", "7", '"x"', "[7]", "[[1]]", '[[-1,2,3,"x"]]', '[["1",2,3,"x"]]', "{}"]
)
def test_a_past_that_nobody_can_read_is_none_and_the_job_stays_one(past):
    wire = codec.read(b'{"name":"a","id":"1","t":1,"args":{},"past":%b}' % past.encode())
    assert codec.past(wire) == []
    assert len(codec.remember(wire, attempt=1, at=1.0, ran=1.0, error="x")) == 1


def test_an_error_with_lone_surrogates_can_be_stored():
    assert msgspec.json.encode(codec.cut("bad \ud800 text"))


def test_a_cut_never_leaves_half_a_character():
    for length in range(codec.MAX_ERROR - 8, codec.MAX_ERROR + 8):
        codec.cut("\u20ac" * length).encode()
        codec.cut("a" * (length % 7) + "\U0001f600" * length).encode()


def test_a_job_enqueued_by_others_has_their_whole_second():
    job = codec.job_of(codec.read(b'{"name":"a","id":"i","t":1794767036,"args":null}'))
    assert job.enqueued_at == 1794767036.0
    assert job.args == {}


def test_our_own_jobs_have_milliseconds():
    payload = codec.write(b'"a"', "i", 1794767036.123, b"{}", {"source": 7, "expires": 1794767099500})
    job = codec.job_of(codec.read(payload))
    assert (job.enqueued_at, job.source, job.expires_at) == (1794767036.123, 7, 1794767099.5)


def test_a_job_that_another_program_requeued_counts_from_then():
    """Go's requeuer renews `t` and knows nothing of `at`."""
    ours = codec.write(b'"a"', "id", 1700000000.25, b"{}")
    requeued = codec.rewrite(ours, {"t": 1700003600})
    assert codec.job_of(codec.read(requeued)).enqueued_at == 1700003600.0


@pytest.mark.parametrize(
    "payload",
    [
        b'{"name":"a","x":{"args":{}},"args":[1]}',
        b'{"name":"a","args":{},"args":[1]}',
    ],
)
def test_arguments_in_another_object_do_not_count(payload):
    with pytest.raises(codec.Broken, match="not an object"):
        codec.read(payload, "a")
