"""What is sent is what arrives, or the enqueue is refused: models, dataclasses and arguments without a type."""

# No `from __future__ import annotations`: the handlers here are annotated with types that are variables.

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest

from dayjob import Job
from dayjob.errors import BadArguments


class Plain(pydantic.BaseModel):
    n: int
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    price: Decimal = Decimal("1.50")


class Aliased(pydantic.BaseModel):
    user_id: int = pydantic.Field(alias="userId")


class Computed(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    n: int

    @pydantic.computed_field
    @property
    def double(self) -> int:
        return self.n * 2


class WithJson(pydantic.BaseModel):
    data: pydantic.Json[dict[str, int]]


class Nested(pydantic.BaseModel):
    one: Aliased
    many: list[Computed]


class Secret(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


class Child(Plain):
    more: str = "more"


MODELS = [
    Plain(n=1),
    Aliased(userId=7),
    Computed(n=3),
    WithJson(data='{"a": 1}'),
    Nested(one=Aliased(userId=1), many=[Computed(n=1), Computed(n=2)]),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_a_model_arrives_as_it_was_sent_and_comes_back_as_a_result(new_pool, model):
    pool = new_pool()
    kind = type(model)
    seen: list[Any] = []

    @pool.job(keep=60, max_fails=1)
    def take(one: kind, many: list[kind]) -> kind:
        seen.extend((one, *many))
        return one

    with pool:
        job = take.enqueue(model, [model, model])
        result = take.result(job, 60)
    assert seen == [model] * 3
    assert kind.model_validate(result) == model


def test_a_secret_that_would_arrive_as_asterisks_is_refused_and_not_shown(new_pool, keys, call):
    pool = new_pool()

    @pool.job
    def login(one: Secret) -> None: ...

    @pool.job
    def logins(many: list[Secret]) -> None: ...

    @pool.job
    def untyped(one) -> None: ...

    secret = Secret(user="ada", password="hunter2")
    for enqueue in (
        lambda: login.enqueue(secret),
        lambda: logins.enqueue([secret]),
        lambda: untyped.enqueue(secret),
    ):
        with pytest.raises(BadArguments, match="Secret would arrive changed in password") as caught:
            enqueue()
        assert "hunter2" not in str(caught.value)
    assert call("KEYS", f"{keys.prefix}jobs:*") == []


def test_a_model_that_would_lose_fields_is_refused(new_pool):
    pool = new_pool()

    @pool.job
    def take(one: Plain) -> None: ...

    with pytest.raises(BadArguments, match="Child would arrive as Plain: annotate it as Child"):
        take.enqueue(Child(n=1))


@dataclass
class Person:
    name: str
    age: int = 0


class Address(TypedDict):
    street: str


class Shape(msgspec.Struct, tag=True, rename="camel"):
    side_length: int


def test_a_result_that_is_a_dataclass_or_a_struct_is_kept(new_pool):
    pool = new_pool()

    @pool.job(keep=60, max_fails=1)
    def people() -> list[Person]:
        return [Person("ada", 36)]

    with pool:
        assert people.result(people.enqueue(), 60) == [Person("ada", 36)]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Person, {"name": "ada", "agee": 36}, "Person has no field 'agee', only name, age"),
        (list[Person], [{"name": "ada", "x": 1}], "Person has no field 'x'"),
        (Address, {"street": "x", "town": "y"}, "there is no field 'town' in its type"),
        (Shape, {"type": "Shape", "sideLength": 1, "x": 2}, "Shape has no field 'x'"),
    ],
)
def test_a_dict_with_fields_that_its_type_does_not_have_is_refused(new_pool, kind, value, text):
    pool = new_pool()

    @pool.job
    def take(one: kind) -> None: ...

    with pytest.raises(BadArguments, match=text):
        take.enqueue(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Person, {"name": "ada"}),
        (Person, Person("ada", 36)),
        (Address, {"street": "x"}),
        (Shape, {"type": "Shape", "sideLength": 1}),
        (Shape, Shape(1)),
        (dict[int, str], {1: "a"}),
        (dict[int, Any], {1: {"a": [1]}}),
        (bytes, b"\xff"),
        (list[bytes], [b"a"]),
        (Any, {"a": [1, 2.5, None, True, {"b": "c"}]}),
        (Any, (1, 2)),
        (Any, {"at": datetime(2026, 1, 1, tzinfo=UTC), "price": Decimal("1.5")}),
        (Any, {1, 2}),
        (Any, Plain(n=1)),
        (Any, Person("ada")),
    ],
)
def test_what_shows_at_the_other_end_is_taken(new_pool, kind, value):
    pool = new_pool()

    @pool.job
    def take(one: kind) -> None: ...

    assert take.enqueue(value).id


def one_without_a_type(one): ...


def any_of_them(**args): ...


def the_job_alone(job: Job): ...


@pytest.mark.parametrize("handler", [one_without_a_type, any_of_them, the_job_alone])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"abc", "argument 'one': bytes would arrive as text: annotate it as bytes"),
        ({"deep": [b"abc"]}, "argument 'one': bytes would arrive as text"),
        ({1: 2}, r"argument 'one': the key 1 would arrive as text: annotate it, as dict\[int, ...\]"),
        ({"deep": [{1: 2}]}, "the key 1 would arrive as text"),
    ],
)
def test_without_a_type_what_would_change_on_its_way_is_refused(new_pool, handler, value, text, call, keys):
    pool = new_pool()
    pool.register("a", handler)
    with pytest.raises(BadArguments, match=text):
        pool.enqueuer.enqueue("a", one=value)
    assert call("EXISTS", keys.queue("a")) == 0


def test_a_redacted_argument_that_would_change_is_not_shown(new_pool):
    pool = new_pool()

    @pool.job(redact=["one"])
    def take(one) -> None: ...

    with pytest.raises(BadArguments, match="argument 'one': it would arrive as something else") as caught:
        take.enqueue({4111: "y"})
    assert "4111" not in str(caught.value)
