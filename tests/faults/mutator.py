"""A seeded mutator: bytes that were a job, a number or a name once, and what hostile or clumsy hands make of them.

DAYJOB_FUZZ multiplies how many inputs the fuzz tests try; the seed is DAYJOB_FUZZ_SEED, else the same each time.
"""

from __future__ import annotations

import json
import os
import pickle
import random
from typing import Any

#: How many times as many inputs as usual.
TIMES = int(os.environ.get("DAYJOB_FUZZ", "1"))
SEED = int(os.environ.get("DAYJOB_FUZZ_SEED", "20"))


class Bomb:
    """What runs a program when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/dayjob-fuzz-executed",)


#: What has broken parsers before, and what other formats look like.
NASTY = (
    b"", b"\x00", b"null", b"[]", b"{}", b"true", b"0", b'""', b"NaN", b"1e400", b"-", b"\xff\xfe", b"\xed\xa0\x80", b"[" * 5000,
    b'{"a":' * 3000, b"\xef\xbb\xbf{}", b"{'name': 'a'}", b"!!python/object/apply:os.system ['true']", b"*3\r\n$3\r\nDEL\r\n",
    b"__import__('os').system('true')", pickle.dumps(Bomb()), pickle.dumps(Bomb(), 0), b"\x80\x04\x95", b"{}\n{}", b'{"name":"a"',
    b'{"name":"a","args":[1]}', b'{"name":"a","args":"x"}', b'{"name":"","args":{}}', b'{"name":null}', b'{"name":"a","t":1e308}',
    b'{"name":"a","fails":-1}', b'{"name":"a","fails":99999999999999999999}', b'{"name":"a","id":7}', b'{"name":"a","id":"\\ud800"}',
    b'{"name":"a","name":"b","args":{}}', b'{"name":"a:paused","args":{}}', b'{"name":"../../etc","args":{}}',
    b'{"name":"a","args":{"n":1e400}}', b'{"name":"a","unique":true,"unique_key":"other:key","args":{}}', b" " * 9000,
)  # fmt: skip
#: Values for fields, as JSON.
VALUES = (
    b"null", b"true", b"-1", b"0", b"1.5", b"1e308", b"1e400", b"9223372036854775808", b"-9223372036854775809", b'""', b'"\\u0000"',
    b'"\\ud800"', b'"a"', b"[]", b"{}", b"[[[[[[]]]]]]", b'"<script>alert(1)</script>"', b'"\\u001b[2J"', b'"%s%n{0}{{}}"', b'"' + b"x" * 3000 + b'"',
)  # fmt: skip
FIELDS = (
    "name", "id", "t", "args", "unique", "unique_key", "fails", "err", "failed_at", "at", "source", "deaths", "snoozes", "unique_until",
    "expires", "attempt", "trace", "x",
)  # fmt: skip


def job(name: str, job_id: str, **fields: Any) -> bytes:
    """A good payload."""
    return json.dumps({"name": name, "id": job_id, "t": 1_700_000_000, "args": {"n": 1}, **fields}).encode()


def hostile(chance: random.Random, sample: bytes) -> bytes:
    """One input: often the sample with something wrong in it, sometimes nothing like it."""
    draw = chance.random()
    if draw < 0.2:
        return chance.choice(NASTY)
    if draw < 0.3:
        return chance.randbytes(chance.randrange(1, 60))
    if draw < 0.6:
        return _with_field(chance, sample)
    found = bytearray(sample)
    for _ in range(chance.randrange(1, 5)):
        _damage(chance, found)
    return bytes(found)


def _with_field(chance: random.Random, sample: bytes) -> bytes:
    """The sample with one field more, or the same field twice, of any value."""
    field, value = chance.choice(FIELDS), chance.choice(VALUES)
    return sample[:-1] + b',"' + field.encode() + b'":' + value + b"}"


def _damage(chance: random.Random, found: bytearray) -> None:
    at = chance.randrange(len(found) + 1)
    to = min(len(found), at + chance.randrange(1, 9))
    match chance.randrange(6):
        case 0 if at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        case 1:
            del found[at:to]
        case 2:
            found[at:at] = chance.randbytes(chance.randrange(1, 5))
        case 3:
            found[at:at] = found[at:to] * chance.randrange(1, 4)
        case 4:
            del found[at:]
        case _:
            found[at:to] = chance.choice(VALUES)
