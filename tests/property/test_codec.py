from __future__ import annotations

import json
from decimal import Decimal

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dayjob.store import codec

TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
ARGS = st.dictionaries(TEXT, JSON, max_size=5)
STYLES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])


@given(ARGS, STYLES, st.booleans(), st.integers(0, 2**40), TEXT)
def test_a_rewrite_leaves_the_bytes_of_the_arguments_alone(args, separators, ascii_only, t, error):
    raw = json.dumps(args, separators=separators, ensure_ascii=ascii_only).encode()
    payload = codec.write(codec.quoted("a"), "i", 1.5, raw)
    changed = codec.rewrite(payload, {"t": t, "err": error, "fails": 1})
    again = codec.rewrite(changed, {"t": 0, "err": None})
    for found in (payload, changed, again):
        assert bytes(codec.read(found).args) == raw
    assert codec.read(changed).err == error


@given(ARGS)
def test_a_handler_gets_the_arguments_that_were_sent(args):
    payload = codec.write(codec.quoted("a"), "i", 1.5, json.dumps(args).encode())
    assert codec.job_of(codec.read(payload)).args == args


@given(st.integers())
def test_integers_are_written_as_go_writes_them(value):
    assert codec.go_json(value) == str(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(12345678901234567890.0)
@example(1.2345678901234568e-05)
@example(1e21)
@example(9.999999999999999e20)
@example(1e-6)
@example(9.999999999999999e-07)
@example(5e-324)
def test_floats_are_written_as_go_writes_them(value):
    """Shortest digits that read back; a plain decimal from 1e-6 up to 1e21, else an exponent without leading zeros."""
    text = codec.go_json(value)
    assert float(text) == value
    mantissa, e, exponent = text.partition("e")
    plain = value == 0 or 1e-6 <= abs(value) < 1e21
    assert bool(e) is not plain
    if e:
        assert exponent[0] in "+-"
        assert not exponent[1:].startswith("0")
        assert len(mantissa.lstrip("-").partition(".")[0]) == 1
    shortest = Decimal(repr(value))
    assert Decimal(text) == shortest
    assert not (plain and "." in text and text.endswith("0"))


@given(TEXT)
def test_strings_are_written_as_go_writes_them(text):
    written = codec.go_json(text)
    assert json.loads(written) == text
    assert not set(written[1:-1]) & {*"<>&\u2028\u2029", *map(chr, range(32))}
    for char in "é€😀/\x7f":
        assert (char in written) is (char in text)


@given(st.dictionaries(TEXT, st.integers(), max_size=8))
def test_keys_are_in_the_order_of_their_bytes(value):
    written = json.loads(codec.go_json(value), object_pairs_hook=list)
    keys = [key for key, _ in written]
    assert keys == sorted(value, key=str.encode)


def survives(payload: bytes) -> None:
    """Reading either says Broken or gives what can be run, rewritten and read again."""
    try:
        wire = codec.read(payload)
    except codec.Broken:
        return
    codec.job_of(wire)
    changed = codec.read(codec.rewrite(payload, {"fails": wire.fails + 1, "err": "no", "attempt": "p/1:a"}))
    assert bytes(changed.args) == bytes(wire.args)
    assert (changed.name, changed.id) == (wire.name, wire.id)


FIELDS = [
    "name",
    "id",
    "t",
    "args",
    "unique",
    "unique_key",
    "fails",
    "err",
    "failed_at",
    "at",
    "source",
    "deaths",
]


@given(st.binary(max_size=200))
def test_no_bytes_make_reading_fail_otherwise_than_as_broken(payload):
    survives(payload)


@given(st.dictionaries(st.sampled_from([*FIELDS, "x"]), JSON, max_size=8), TEXT)
def test_no_json_object_makes_reading_fail_otherwise_than_as_broken(fields, name):
    survives(json.dumps({"name": name, **fields}).encode())


@settings(max_examples=300)
@given(st.data())
@example(None)
def test_no_damage_to_a_payload_makes_reading_fail_otherwise_than_as_broken(data):
    payload = bytearray(
        b'{"name":"a","id":"0123","t":1794767036,"args":{"x":[1,"\\u003c",{"y":null}]},"unique":true,"unique_key":"k","at":1794767036123}'
    )
    if data is None:
        survives(bytes(payload))
        return
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        how = data.draw(st.sampled_from(["set", "cut", "double", "insert"]))
        if how == "set":
            payload[at] = data.draw(st.integers(0, 255))
        elif how == "insert":
            payload[at:at] = data.draw(
                st.sampled_from([b"\xff", b"0" * 400, b"{", b'"', b"\\", b"\x00", b"e9"])
            )
        elif how == "double":
            payload[at:at] = payload[: at + 1]
        elif len(payload) > 1:
            del payload[at:]
            payload = payload or bytearray(b"{")
    survives(bytes(payload))
