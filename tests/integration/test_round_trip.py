"""The table of types: what goes in as an argument comes back as a result, on a real pool."""

# No `from __future__ import annotations`: the handlers here are annotated with types that are variables.

import enum
import ipaddress
import json
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from zoneinfo import ZoneInfo

import attrs
import msgspec
import numpy as np
import pydantic
import pytest

from dayjob import BadArguments, BadOption, BadSignature, Codec, DayjobError, Enqueuer, JobFailed, WorkerPool
from dayjob.testing import testing


class Size(enum.Enum):
    SMALL = "s"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Address:
    street: str
    moved: date | None = None


@attrs.define
class Point:
    x: int
    y: float = 0.5


class Shape(msgspec.Struct, tag=True):
    side: int


class Pair(NamedTuple):
    left: int
    right: str


class Options(TypedDict):
    deep: bool


class Item(pydantic.BaseModel):
    user_id: int = pydantic.Field(alias="userId")
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    tricks: list[str] = []


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)


MONEY = Codec(Money, lambda money: money.cents, Money)

TYPES: list[tuple[Any, Any]] = [
    (bool, True),
    (int, 2**53 + 1),
    (float, 0.1),
    (str, "ä€"),
    (int | None, None),
    (list[int], [1, 2]),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (dict[int, str], {1: "a"}),
    (int | str, "7"),
    (Literal["a", "b"], "b"),
    (Size, Size.SMALL),
    (Level, Level.HIGH),
    (datetime, datetime(2026, 3, 1, 12, tzinfo=UTC)),
    (date, date(2026, 3, 1)),
    (time, time(12, 30)),
    (timedelta, timedelta(hours=1, microseconds=3)),
    (Decimal, Decimal("1.50")),
    (uuid.UUID, uuid.UUID(int=7)),
    (bytes, b"\xff\x00"),
    (Path, Path("/srv/a b")),
    (PurePosixPath, PurePosixPath("a/b")),
    (ipaddress.IPv4Address, ipaddress.IPv4Address("10.0.0.1")),
    (ipaddress.IPv6Network, ipaddress.IPv6Network("fd00::/8")),
    (ZoneInfo, ZoneInfo("Europe/Paris")),
    (Address, Address("Main", date(2026, 1, 2))),
    (list[Address], [Address("Main")]),
    (Point, Point(1)),
    (Shape, Shape(3)),
    (Pair, Pair(1, "b")),
    (Options, {"deep": True}),
    (Item, Item(userId=7)),
    (dict[str, Item], {"a": Item(userId=7)}),
    (Cat | Dog, Dog(tricks=["sit"])),
    (list[Cat | Dog], [Cat(), Dog()]),
    (Annotated[int, pydantic.Field(ge=1)], 1),
    (pydantic.HttpUrl, pydantic.HttpUrl("https://example.org/a")),
    (Money, Money(150)),
    (list[Money], [Money(1)]),
    (dict[str, Money], {"tip": Money(5)}),
]


def test_what_goes_in_as_an_argument_comes_back_as_a_result(new_pool):
    pool = new_pool(codecs=[MONEY])
    got: dict[str, Any] = {}
    job_types = []
    for number, (kind, _) in enumerate(TYPES):

        def echo(value: kind) -> kind:
            return value

        job_types.append(pool.register(f"echo{number}", echo, keep=60, max_fails=1))
    with pool:
        jobs = [job_type.enqueue(value) for job_type, (_, value) in zip(job_types, TYPES, strict=True)]
        for job_type, job in zip(job_types, jobs, strict=True):
            got[job_type.name] = job_type.result(job, 60)
    for number, (kind, value) in enumerate(TYPES):
        result = got[f"echo{number}"]
        # Zones are the same only while Python's cache of them is not emptied.
        assert (kind, str(result) if kind is ZoneInfo else result) == (
            kind,
            str(value) if kind is ZoneInfo else value,
        )
        assert type(result) is type(value)


ROW = re.compile(r"^\| `(.+)` \| `(.+)` \| `(.+)` \|$", re.MULTILINE)
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "types.md"


def rows_of_the_page() -> list[tuple[str, str, str]]:
    """The rows of the table of types: annotation, value and JSON, each as text."""
    text = PAGE.read_text("utf-8").replace("\\|", "\x00")
    return [tuple(part.replace("\x00", "|") for part in row) for row in ROW.findall(text)]


def test_each_row_of_the_page_on_types_is_true_both_ways(new_pool):
    names = {
        **globals(), "UUID": uuid.UUID, "IPv4Address": ipaddress.IPv4Address, "IPv6Network": ipaddress.IPv6Network,
        "Field": pydantic.Field, "HttpUrl": pydantic.HttpUrl,
    }  # fmt: skip
    rows = rows_of_the_page()
    assert len(rows) >= 37
    pool = new_pool(codecs=[MONEY])
    tried = []
    for number, (annotation, text, stored) in enumerate(rows):
        kind, value = eval(annotation, names), eval(text, names)  # noqa: S307 - our own page

        def echo(value: kind) -> kind:
            return value

        tried.append((pool.register(f"row{number}", echo, keep=60, max_fails=1), value, stored))
    with pool:
        jobs = [job_type.enqueue(value) for job_type, value, _ in tried]
        for job, (job_type, value, stored) in zip(jobs, tried, strict=True):
            assert json.loads(bytes(job.raw_args)) == {"value": json.loads(stored)}
            result = job_type.result(job, 60)
            assert result == value
            assert type(result) is type(value)


class Safe(str):
    """Like Django's SafeString: its __str__ returns itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


class Count(int):
    __slots__ = ()


@pytest.mark.parametrize(
    ("kind", "value", "arrives"),
    [
        (str, Safe("<b>"), "<b>"),
        (Any, {"a": [Safe("x")]}, {"a": ["x"]}),
        (int, Count(7), 7),
        (int, np.int64(7), 7),
        (float, np.float32(0.5), 0.5),
        (bool, np.bool_(True), True),
        (list[int], [np.int16(3)], [3]),
    ],
)
def test_objects_of_subclasses_and_numpy_scalars_arrive_as_the_plain_value(kind, value, arrives):
    pool = WorkerPool()
    seen = []

    @pool.job
    def take(value: kind) -> None:
        seen.append(value)

    with testing(pool) as jobs:
        take.enqueue(value)
        jobs.drain()
    assert seen == [arrives]


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Annotated[int, pydantic.Field(ge=1)], 0, "greater than or equal to 1"),
        (pydantic.HttpUrl, "no url", "valid URL"),
        (Cat | Dog, {"kind": "cow"}, "'one'"),
        (pydantic.SecretStr, pydantic.SecretStr("hunter2"), "would arrive changed"),
        (Path, 7, "Path"),
        (ZoneInfo, "Europe/Nowhere", "Nowhere"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_enqueue(kind, value, words):
    pool = WorkerPool()

    @pool.job
    def take(one: kind) -> None: ...

    with testing(pool) as jobs, pytest.raises(BadArguments) as refused:
        take.enqueue(value)
    assert words in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert jobs.queued == []


def test_a_result_that_cannot_be_kept_is_refused_at_registration():
    pool = WorkerPool()

    def opens() -> Money:
        return Money(1)

    with pytest.raises(BadSignature, match="Money cannot travel as JSON") as refused:
        pool.register("opens", opens, keep=60)
    assert "give WorkerPool a codec" in str(refused.value)
    pool.register("opens", opens)  # what it returns is not kept


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr | None = None


class Logins(pydantic.BaseModel):
    by_host: dict[str, list[Login]]
    parent: "Logins | None" = None


class Shown(pydantic.BaseModel):
    """Its password is written by the program itself."""

    password: pydantic.SecretStr

    @pydantic.field_serializer("password", when_used="json")
    def write(self, value: pydantic.SecretStr) -> str:
        return value.get_secret_value()


@dataclass
class Session:
    login: Login


@pytest.mark.parametrize(
    ("kind", "secret"),
    [
        (Login, "SecretStr"),
        (Login | None, "SecretStr"),
        (Logins, "SecretStr"),
        (list[Session], "SecretStr"),
        (pydantic.SecretStr, "SecretStr"),
        (dict[str, pydantic.SecretBytes], "SecretBytes"),
        (Login | Cat, "SecretStr"),
    ],
)
def test_a_result_that_would_be_written_as_asterisks_is_refused_at_registration(kind, secret):
    pool = WorkerPool()

    def login() -> kind: ...

    with pytest.raises(BadSignature, match=f"cannot be kept: pydantic writes a {secret} as asterisks"):
        pool.register("login", login, keep=60)
    pool.register("login", login)  # what it returns is not kept


def test_a_secret_that_the_program_writes_itself_is_kept():
    pool = WorkerPool()

    @pool.job(keep=60)
    def login() -> Shown:
        return Shown(password=pydantic.SecretStr("hunter2"))

    with testing(pool) as jobs:
        job = login.enqueue()
        jobs.drain()
        assert login.result(job, 0).password.get_secret_value() == "hunter2"


class Account(pydantic.BaseModel):
    user: str


class Admin(Account):
    level: int = 1


def test_a_result_that_would_arrive_changed_fails_its_attempt():
    pool = WorkerPool()

    @pool.job(keep=60, max_fails=1)
    def find() -> Account:
        return Admin(user="ada")

    with testing(pool) as jobs:
        job = find.enqueue()
        jobs.drain(reraise=False)
        with pytest.raises(JobFailed, match="Admin would arrive as Account"):
            find.result(job, 0)


def test_a_stored_result_of_another_type_is_an_error_that_shows_the_way():
    pool = WorkerPool()

    @pool.job(keep=60)
    def number() -> int:
        return "seven"  # type: ignore[return-value]

    with testing(pool) as jobs:
        job = number.enqueue()
        jobs.drain()
        with pytest.raises(DayjobError, match="the stored result does not fit int"):
            number.result(job, 0)
        assert pool.enqueuer.result(job, 0) == "seven"


def test_a_return_type_may_be_defined_after_the_job():
    pool = WorkerPool()

    @pool.job(keep=60)
    def make() -> "Later":
        return Later(1)

    @dataclass
    class Later:
        n: int

    with testing(pool) as jobs:
        job = make.enqueue()
        jobs.drain()
        assert make.result(job, 0) == Later(1)


@pytest.mark.parametrize("codec", [Money, (Money, int, int)])
def test_a_wrong_codec_is_refused(codec):
    with pytest.raises(BadOption, match="is no Codec"):
        WorkerPool(codecs=[codec])
    with pytest.raises(BadOption, match="must be a class"):
        Codec("Money", int, int)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="must be functions"):
        Codec(Money, 1, 2)  # type: ignore[arg-type]


def test_a_program_without_job_code_sends_paths_and_addresses_as_text():
    enqueuer = Enqueuer("shop", redis="redis://127.0.0.1:1")
    with testing(enqueuer) as jobs:
        enqueuer.enqueue("scan", path=Path("/srv"), host=ipaddress.IPv4Address("10.0.0.1"))
    assert jobs.enqueued("scan")[0].args == {"path": "/srv", "host": "10.0.0.1"}
