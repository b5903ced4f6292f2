"""Job types: what a handler asks for, how arguments travel, and what mistakes look like."""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from enum import Enum
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dayjob.enqueue.enqueuer import Enqueuer
from dayjob.errors import BadArguments, BadOption, BadSignature, NotReady, UnknownJob, UsageError
from dayjob.handlers.redact import is_hidden
from dayjob.handlers.registry import JobType, Registry, encode_unchecked
from dayjob.handlers.signature import Function
from dayjob.job import Job
from dayjob.options import EnqueueOptions
from dayjob.pool import WorkerPool

HERE = "tests/unit/test_registry.py"


class Base:
    pass


@dataclass
class Context(Base):
    customer: int | None = None


@dataclass
class Address:
    street: str
    number: int = 0


class Line(TypedDict):
    sku: str
    amount: int


class Point(NamedTuple):
    x: int
    y: int


class Colour(Enum):
    RED = "red"


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


class Model:
    """The shape of a pydantic model."""

    def __init__(self, street: str) -> None:
        self.street = street

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and other.street == self.street

    __hash__ = None

    @classmethod
    def model_validate(cls, value: Any) -> Model:
        if not isinstance(value, dict) or "street" not in value:
            raise ValueError(f"no street in {value}")
        return cls(value["street"])

    def model_dump(self, *, mode: str, by_alias: bool, round_trip: bool) -> dict[str, str]:
        assert mode == "json"
        return {"street": self.street}


class Recorder:
    """An enqueuer that keeps what it is given; the real one needs a server."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, EnqueueOptions]] = []
        self.answer: Job | None = Job("answer")
        self.sender = self

    def submit(self, name: str, args: bytes, how: EnqueueOptions) -> Job | None:
        self.sent.append((name, args, how))
        return self.answer

    def result(self, id: str, timeout: float | None) -> Any:
        return f"{id} {timeout}"


class AsyncRecorder(Recorder):
    async def submit(self, name: str, args: bytes, how: EnqueueOptions) -> Job | None:
        return super().submit(name, args, how)

    async def result(self, id: str, timeout: float | None) -> Any:  # noqa: ASYNC109
        return super().result(id, timeout)


def job_type(fn: Any, name: str = "", context: type = Context, **settings: Any) -> JobType[..., ..., Any]:
    pool = WorkerPool(context)
    return pool.register(name or getattr(fn, "__name__", "handler"), fn, **settings)


def refusal(kind: type[Exception], call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def create_watch(ctx: Context, job: Job, user_id: int, email: str = "") -> str:
    return f"{user_id} {email}"


WATCH_LINE = create_watch.__code__.co_firstlineno
WHERE = f'    create_watch(user_id: int, email: str = "")    {HERE}:{WATCH_LINE}'


class TestWhatAHandlerAsksFor:
    @pytest.mark.parametrize(
        ("fn", "context", "job"),
        [
            (lambda: None, False, False),
            (create_watch, True, True),
        ],
    )
    def test_context_and_job_are_injected_only_where_asked(self, fn, context, job):
        found = job_type(fn, "x")
        assert (found.wants_context, found.wants_job) == (context, job)

    def test_a_base_of_the_context_is_the_context(self):
        def f(ctx: Base, user_id: int): ...

        assert job_type(f).wants_context

    def test_an_unrelated_class_object_and_any_are_arguments(self):
        def f(value: Any, other: object): ...

        found = job_type(f)
        assert not found.wants_context
        assert found.signature == "f(value: Any, other: object)"

    def test_a_job_that_may_be_none_is_still_the_job(self):
        def f(job: Optional[Job], user_id: int): ...  # noqa: UP045

        def g(ctx: Annotated[Context, "x"], job: Job | None = None): ...

        assert job_type(f).wants_job
        assert job_type(g).wants_context

    def test_a_class_that_only_looks_like_the_context_is_not_it(self):
        def f(key: Hashable): ...

        assert "Hashable cannot travel as JSON" in refusal(BadSignature, job_type, f)

    def test_it_is_still_a_plain_function(self):
        found = job_type(create_watch)
        assert found(Context(), Job("create_watch"), user_id=7, email="x") == "7 x"
        assert found.__name__ == "create_watch"
        assert found.fn is create_watch

    def test_location_and_signature_are_as_errors_show_them(self):
        found = job_type(create_watch)
        assert found.signature == 'create_watch(user_id: int, email: str = "")'
        assert found.location == f"{HERE}:{WATCH_LINE}"

    def test_the_colour_is_seen_through_partials_objects_and_methods(self):
        async def f(user_id: int): ...

        class Awaited:
            async def __call__(self, user_id: int): ...

            async def method(self, user_id: int): ...

            @staticmethod
            async def static(user_id: int): ...

        class Plain:
            def __call__(self, user_id: int): ...

        wrapped = functools.partial(functools.partial(f), user_id=1)
        for call in (f, wrapped, Awaited(), functools.partial(Awaited()), Awaited().method, Awaited.static):
            assert job_type(call, "x").is_async
        assert job_type(Awaited.__dict__["static"], "x").is_async
        for call in (Plain(), functools.partial(create_watch), create_watch):
            assert not job_type(call, "x").is_async

    def test_objects_and_partials_have_the_signature_of_what_runs(self):
        class Send:
            def __call__(self, ctx: Context, to: str): ...

        found = job_type(Send(), "send")
        assert found.signature == "Send(to: str)"
        assert found.wants_context
        found = job_type(functools.partial(create_watch, email="x"), "watch")
        assert found.call_args(b'{"user_id":7}') == ((7,), {"email": "x"})


class TestBadSignatures:
    def test_a_wrong_order_shows_the_right_one(self):
        def f3(job: Job, ctx: Context, user_id: int): ...

        assert refusal(BadSignature, job_type, f3) == (
            f"f3(job: Job, ctx: Context, user_id: int)    {HERE}:{f3.__code__.co_firstlineno}\n"
            "    context, then job, then the arguments: f3(ctx: Context, job: Job, user_id: int)"
        )

    def test_an_argument_before_the_context_is_a_wrong_order(self):
        def f(user_id: int, ctx: Context): ...

        def g(user_id: int, *, job: Job): ...

        def h(user_id: int, /, job: Job | None = None): ...

        assert refusal(BadSignature, job_type, f).endswith("the arguments: f(ctx: Context, user_id: int)")
        assert refusal(BadSignature, job_type, g).endswith("the arguments: g(job: Job, user_id: int)")
        assert refusal(BadSignature, job_type, h).endswith(
            "the arguments: h(job: Job | None, user_id: int, /)"
        )

    def test_a_job_that_is_keyword_only_is_a_wrong_order(self):
        def f(*, job: Job): ...

        assert refusal(BadSignature, job_type, f).endswith("the arguments: f(job: Job)")

    def test_a_context_that_the_pool_does_not_have_is_explained(self):
        text = refusal(BadSignature, WorkerPool().register, "watch", create_watch)
        assert (
            "ctx: Context is not the context of this pool, which has none: write WorkerPool(Context)" in text
        )

        def f(ctx: Context, user_id: int): ...

        text = refusal(BadArguments, WorkerPool().register("f", f).encode, (), {"user_id": 7})
        assert "missing argument 'ctx'; ctx: Context is not the context of this pool" in text

    def test_the_job_twice_is_refused(self):
        def f(job: Job, other: Job): ...

        assert "asks for the job more than once" in refusal(BadSignature, job_type, f)

    def test_star_args_are_refused_with_what_to_write(self):
        def f(job: Job, *rest: int): ...

        assert "write f(job: Job, **rest: int)" in refusal(BadSignature, job_type, f)

    def test_a_method_without_its_object_is_refused(self):
        class Mailer:
            def send(self, to: str): ...

        assert "a plain method cannot be called without its object" in refusal(
            BadSignature, job_type, Mailer.send
        )

    def test_a_generator_is_refused(self):
        def f():
            yield

        async def g():
            yield

        assert "a job cannot yield" in refusal(BadSignature, job_type, f)
        assert "a job cannot yield" in refusal(BadSignature, job_type, g)

    def test_a_type_that_json_cannot_carry_is_refused_at_any_depth(self):
        class Plain: ...

        def f(rows: list[dict[str, Plain]]): ...

        f.__annotations__["rows"] = list[dict[str, Plain]]
        text = refusal(BadSignature, job_type, f)
        assert text.startswith("f(rows: list[dict[str, Plain]])    ")
        assert "rows: Plain cannot travel as JSON. Send an id or plain values" in text

    def test_a_union_that_json_cannot_tell_apart_is_refused(self):
        def f(rows: list[int] | set[str]): ...

        assert "rows: list[int] | set[str] cannot be read from JSON" in refusal(BadSignature, job_type, f)

    def test_what_is_no_type_is_refused(self):
        def f(rows: "3 +"): ...  # noqa: F722

        assert "rows: " in refusal(BadSignature, job_type, f)
        assert "is no type" in refusal(BadSignature, job_type, f)

    def test_a_builtin_without_a_signature_is_refused(self):
        assert "wrap it in a function" in refusal(BadSignature, job_type, dict.update, "x")

    def test_signature_errors_are_type_errors(self):
        assert issubclass(BadSignature, TypeError)
        assert issubclass(BadArguments, TypeError)
        assert issubclass(UnknownJob, LookupError)


class TestTypesThatComeLater:
    def test_a_type_is_looked_up_at_first_use(self):
        def f(ctx: Context, watch: Watch): ...  # noqa: F821

        found = job_type(f)
        assert not found.resolved
        globals()["Watch"] = Address
        try:
            assert found.encode((), {"watch": Address("here")}) == b'{"watch":{"street":"here","number":0}}'
            assert found.wants_context
        finally:
            del globals()["Watch"]
        assert found.call_args(b'{"watch":{"street":"x"}}') == ((Address("x"),), {})

    def test_a_type_that_never_comes_is_named(self):
        def f(ctx: Context, watch: Missing): ...  # noqa: F821

        found = job_type(f)
        for use in (lambda: found.encode((), {}), lambda: found.call_args(b"{}"), lambda: found.wants_job):
            text = refusal(BadSignature, use)
            assert text.startswith(f"f(ctx: Context, watch: Missing)    {HERE}:")
            assert "watch: Missing does not exist (name 'Missing' is not defined)" in text

    def test_resolve_all_tells_everything_that_is_missing(self):
        pool = WorkerPool()

        @pool.job
        def one(a: Missing): ...  # noqa: F821

        @pool.job
        def two(a: int): ...

        @pool.job
        def three(a: sys.Missing): ...

        assert [str(error).partition("(")[0] for error in pool.registry.resolve_all()] == ["one", "three"]

    def test_job_and_context_need_no_import_at_run_time(self):
        namespace: dict[str, Any] = {"__name__": "elsewhere"}
        code = compile(
            "from __future__ import annotations\ndef f(ctx: Context, job: Job, user_id: int) -> Nowhere: ...",
            "elsewhere.py",
            "exec",
        )
        exec(code, namespace)  # noqa: S102
        found = job_type(namespace["f"])
        assert found.wants_context
        assert found.wants_job
        assert found.location == "elsewhere.py:2"

    def test_the_modules_own_job_comes_before_ours(self):
        namespace: dict[str, Any] = {"__name__": "elsewhere"}
        code = "from __future__ import annotations\nJob = int\ndef f(job: Job) -> None: ..."
        exec(code, namespace)  # noqa: S102
        found = job_type(namespace["f"])
        assert not found.wants_job
        assert found.encode((), {"job": 3}) == b'{"job":3}'

    def test_a_local_type_is_found_in_the_closure(self):
        @dataclass
        class Local:
            x: int

        def f(value: Local):
            return Local

        assert job_type(f).call_args(b'{"value":{"x":1}}') == ((Local(1),), {})

    def test_a_dataclass_whose_field_type_comes_later_waits(self):
        @dataclass
        class Outer:
            inner: "Inner"  # noqa: F821, UP037

        def f(outer):
            return None

        f.__annotations__["outer"] = Outer
        found = job_type(f)
        assert not found.resolved
        assert "not complete: name 'Inner' is not defined" in refusal(BadSignature, found.encode, (), {})


class TestEncode:
    @pytest.mark.parametrize(
        ("args", "kwargs", "raw"),
        [
            ((), {"user_id": 7}, b'{"user_id":7}'),
            ((7,), {}, b'{"user_id":7}'),
            ((7, "x"), {}, b'{"user_id":7,"email":"x"}'),
            ((7,), {"email": "x"}, b'{"user_id":7,"email":"x"}'),
            ((), {"email": "x", "user_id": 7}, b'{"email":"x","user_id":7}'),
        ],
    )
    def test_only_what_was_given_is_sent(self, args, kwargs, raw):
        assert job_type(create_watch).encode(args, kwargs) == raw

    @pytest.mark.parametrize(
        ("args", "kwargs", "problem"),
        [
            ((), {"user": 7}, "got an unexpected argument 'user'. Did you mean 'user_id'?"),
            ((), {"user_id": 7, "colour": 1}, "got an unexpected argument 'colour'"),
            ((), {}, "missing argument 'user_id'"),
            ((1, "x", 3), {}, "takes 2 arguments by position, got 3"),
            ((1,), {"user_id": 2}, "got the argument 'user_id' twice"),
            ((), {"user_id": "7"}, "argument 'user_id': expected int, got str"),
            ((), {"user_id": 7.0}, "argument 'user_id': expected int, got float"),
            ((), {"user_id": True}, "argument 'user_id': expected int, got bool"),
            ((), {"user_id": None}, "argument 'user_id': expected int, got null"),
            ((), {"user_id": float("nan")}, "argument 'user_id' has nan, which JSON cannot carry"),
            ((), {"user_id": 7, "email": b"x"}, "argument 'email': expected str, got bytes"),
            (
                (),
                {"user_id": object()},
                "argument 'user_id' cannot travel as JSON: there is no JSON for the type object",
            ),
            ((), {"user_id": 7, "email": "\ud800"}, "argument 'email' has half a character"),
        ],
    )
    def test_a_mistake_names_the_argument_and_shows_the_signature(self, args, kwargs, problem):
        text = refusal(BadArguments, job_type(create_watch).encode, args, kwargs)
        first, second = text.split("\n")
        assert first.startswith(f"create_watch: {problem}")
        assert second == WHERE

    def test_the_error_is_exactly_as_designed(self):
        assert refusal(BadArguments, job_type(create_watch).encode, (), {"user": 7}) == (
            f"create_watch: got an unexpected argument 'user'. Did you mean 'user_id'?\n{WHERE}"
        )

    def test_a_path_inside_an_argument_is_shown(self):
        def f(lines: list[Line]): ...

        text = refusal(BadArguments, job_type(f).encode, (), {"lines": [{"sku": "a", "amount": "2"}]})
        assert "argument 'lines[0].amount': expected int, got str" in text

    @pytest.mark.parametrize(
        "value",
        [float("nan"), float("inf"), [1, float("-inf")], {"a": (float("nan"),)}, Address("x", float("nan"))],
    )
    def test_numbers_that_json_cannot_carry_are_refused_at_any_depth(self, value):
        def f(value: Any, other: float | None = None): ...

        found = job_type(f)
        assert "argument 'value' has" in refusal(BadArguments, found.encode, (), {"value": value})
        assert found.encode((), {"value": [None, "null"], "other": None})

    def test_a_value_that_contains_itself_is_refused(self):
        def f(value: Any): ...

        loop: list[Any] = []
        loop.append(loop)
        text = refusal(BadArguments, job_type(f).encode, (), {"value": loop})
        assert "argument 'value' contains itself" in text

    def test_an_unannotated_job_says_what_to_write(self):
        def f(job): ...

        text = refusal(BadArguments, job_type(f).encode, (), {})
        assert "missing argument 'job'; write 'job: Job' to be given the job" in text

    def test_a_redacted_value_is_in_no_error(self):
        def f(card: Literal["visa"], address: Model): ...

        found = job_type(f, redact=["card", "address"])
        for kwargs in (
            {"card": "4111", "address": {"street": "x"}},
            {"card": "visa", "address": {"pin": "4111"}},
        ):
            text = refusal(BadArguments, found.encode, (), kwargs)
            assert "does not fit its type" in text
            assert "4111" not in text
        shown = job_type(f)
        text = refusal(BadArguments, shown.encode, (), {"card": "4111", "address": {"street": "x"}})
        assert "argument 'card': invalid enum value '4111'" in text

    def test_a_secret_by_its_name_is_in_no_error(self):
        def f(**args: Literal["a"]): ...

        text = refusal(BadArguments, job_type(f).encode, (), {"api_key": "4111"})
        assert "argument 'api_key' does not fit its type" in text
        assert "4111" not in text
        assert "invalid enum value '4111'" in refusal(BadArguments, job_type(f).encode, (), {"pin": "4111"})

    def test_any_mapping_will_do(self):
        from types import MappingProxyType

        assert job_type(create_watch).encode((), MappingProxyType({"user_id": 7})) == b'{"user_id":7}'

    def test_arguments_may_have_names_that_structs_do_not_like(self):
        def f(__struct_fields__: int, a0: int, self_: int = 1, *, kwargs: int = 2): ...

        found = job_type(f)
        raw = found.encode((1, 2), {"kwargs": 5})
        assert found.call_args(raw) == ((1, 2, 1), {"kwargs": 5})


class TestCallArgs:
    def test_arguments_come_back_with_their_types(self):
        def f(  # noqa: PLR0917
            when: datetime,
            day: date,
            span: timedelta,
            key: UUID,
            colour: Colour,
            address: Address,
            lines: list[Line],
            tags: set[str],
            point: Point,
            model: Model,
            by_id: dict[int, float],
            data: bytes,
        ): ...

        found = job_type(f)
        given = {
            "when": datetime(2030, 1, 2, tzinfo=UTC),
            "day": date(2030, 1, 2),
            "span": timedelta(hours=1),
            "key": UUID(int=7),
            "colour": Colour.RED,
            "address": Address("here"),
            "lines": [{"sku": "a", "amount": 2}],
            "tags": {"x"},
            "point": Point(1, 2),
            "model": Model("there"),
            "by_id": {1: 2.5},
            "data": b"\x00",
        }
        args, kwargs = found.call_args(found.encode((), given))
        assert args == tuple(given.values())
        assert kwargs == {}

    def test_defaults_are_the_functions_own(self):
        shared: list[int] = [1]

        def f(a: int, b: list[int] = shared, *, c: str = "x", d: dict[str, int] | None = None): ...

        args, kwargs = job_type(f).call_args(b'{"a":1}')
        assert args[0] == 1
        assert args[1] is shared
        assert kwargs == {"c": "x", "d": None}
        assert job_type(f).call_args(b'{"d":{"x":1},"a":2,"c":"y"}') == ((2, [1]), {"c": "y", "d": {"x": 1}})

    def test_a_default_need_not_fit_its_type(self):
        def f(a: int = None): ...  # noqa: RUF013

        assert job_type(f).call_args(b"{}") == ((None,), {})

    @pytest.mark.parametrize("raw", [b"{}", b"null", msgspec.Raw(b"null"), msgspec.Raw(b"{}")])
    def test_no_arguments_are_an_empty_object_or_null(self, raw):
        assert job_type(lambda: None, "x").call_args(raw) == ((), {})

    def test_positional_only_arguments_have_names_too(self):
        def f(a: int, /, b: int): ...

        assert job_type(f).call_args(b'{"b":2,"a":1}') == ((1, 2), {})

    @pytest.mark.parametrize(
        ("hint", "raw", "value"),
        [
            (int, b"7.0", 7),
            (int | None, b"7.0", 7),
            (float, b"7.0", 7.0),
            (int | float, b"7.0", 7.0),
            (Any, b"7.0", 7.0),
            (list[int], b"{}", []),
            (set[int], b"{}", set()),
            (tuple[int, ...], b"{}", ()),
            (list[int] | None, b"{}", []),
            (dict[str, int], b"{}", {}),
            (dict[str, int] | list[int], b"{}", {}),
            (list[dict[str, list[int]]], b'[{"a":{},"b":[1.0,2]}]', [{"a": [], "b": [1, 2]}]),
            (tuple[int, list[int]], b"[3.0,{}]", (3, [])),
            (Address, b'{"street":"x","number":4.0}', Address("x", 4)),
            (list[Line], b'[{"sku":"a","amount":2.0}]', [{"sku": "a", "amount": 2}]),
            (Point, b"[1.0,2]", Point(1, 2)),
            (Point | None, b"[1.0,2]", Point(1, 2)),
            (Node, b'{"value":1.0,"children":[{"value":2.0,"children":{}}]}', Node(1, [Node(2, [])])),
            (Annotated[int, msgspec.Meta(title="n")], b"7.0", 7),
        ],
    )
    def test_what_other_languages_make_of_integers_and_empty_lists_is_accepted(self, hint, raw, value):
        def f(a): ...

        f.__annotations__["a"] = hint
        args, _ = job_type(f).call_args(b'{"a":' + raw + b"}")
        assert args == (value,)
        assert type(args[0]) is type(value)

    @pytest.mark.parametrize("raw", [b"7.5", b"1e17", b'"7"', b"true", b"[]"])
    def test_what_is_no_integer_is_refused(self, raw):
        found = job_type(create_watch)
        text = refusal(BadArguments, found.call_args, b'{"user_id":' + raw + b"}")
        assert text.startswith("create_watch: argument 'user_id': expected int, got ")
        assert text.endswith(WHERE)

    @pytest.mark.parametrize(
        ("raw", "problem"),
        [
            (b'{"user":7}', "got an unexpected argument 'user'. Did you mean 'user_id'?"),
            (b"null", "missing argument 'user_id'"),
            (b"[7]", "the arguments are not a JSON object"),
            (b'{"user_id":', "the arguments are not a JSON object"),
            (b"", "the arguments are not a JSON object"),
        ],
    )
    def test_what_does_not_fit_is_refused_with_the_signature(self, raw, problem):
        assert (
            refusal(BadArguments, job_type(create_watch).call_args, raw)
            == f"create_watch: {problem}\n{WHERE}"
        )

    def test_a_redacted_value_is_not_shown_in_the_worker_either(self):
        def f(address: Model): ...

        text = refusal(BadArguments, job_type(f, redact=["address"]).call_args, b'{"address":{"pin":"4111"}}')
        assert "4111" not in text
        assert "no street in {'pin': '4111'}" in refusal(
            BadArguments, job_type(f).call_args, b'{"address":{"pin":"4111"}}'
        )

    @given(
        st.integers(),
        st.text(st.characters(exclude_categories=["Cs"])),
        st.lists(st.floats(allow_nan=False, allow_infinity=False)),
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.booleans() | st.integers()
        ),
    )
    def test_what_is_sent_is_what_arrives(self, number, text, floats, values):
        assert ROUND.call_args(
            ROUND.encode((number,), {"text": text, "floats": floats, "values": values})
        ) == (
            (number, text),
            {"floats": floats, "values": values},
        )


def _round(number: int, text: str, *, floats: list[float], values: dict[str, Any]): ...


ROUND = job_type(_round)


class TestHandlersThatTakeAnything:
    def test_a_handler_of_the_job_alone_takes_any_arguments(self):
        def f(ctx: Context, job: Job): ...

        found = job_type(f)
        assert found.encode((), {"a": 1, "b": [None]}) == b'{"a":1,"b":[null]}'
        assert found.call_args(b'{"a":1}') == ((), {})
        assert "argument 'a' has nan" in refusal(BadArguments, found.encode, (), {"a": float("nan")})

    def test_a_handler_of_the_context_alone_takes_none(self):
        def f(ctx: Context): ...

        assert "got an unexpected argument 'a'" in refusal(BadArguments, job_type(f).encode, (), {"a": 1})

    def test_rest_arguments_arrive_by_name_even_those_called_job(self):
        def f(job: Job, /, **args): ...

        found = job_type(f)
        assert found.call_args(found.encode((), {"job": 1, "ctx": None})) == ((), {"job": 1, "ctx": None})
        assert found.call_args(b"null") == ((), {})

    def test_without_the_slash_the_name_of_the_job_is_taken(self):
        def f(job: Job, **args): ...

        found = job_type(f)
        assert found.call_args(found.encode((), {"a": 1})) == ((), {"a": 1})
        text = refusal(BadArguments, found.encode, (), {"job": 1})
        assert "needs the name 'job' itself; write '/' before '**args'" in text

    def test_named_arguments_beside_them_are_checked_and_so_are_theirs(self):
        def f(user_id: int, *, flag: bool = False, **counts: int): ...

        found = job_type(f)
        raw = found.encode((7,), {"a": 1})
        assert found.call_args(raw) == ((7,), {"flag": False, "a": 1})
        assert found.call_args(b'{"user_id":7.0,"a":1.0}') == ((7,), {"flag": False, "a": 1})
        assert "missing argument 'user_id'" in refusal(BadArguments, found.encode, (), {"a": 1})
        assert "argument 'a': expected int, got str" in refusal(BadArguments, found.encode, (7,), {"a": "1"})
        assert "expected int, got str" in refusal(BadArguments, found.call_args, b'{"user_id":7,"a":"1"}')


class TestEncodeUnchecked:
    def test_it_encodes_whatever_json_can_carry(self):
        assert encode_unchecked("mail", {"a": 1, "b": Model("x")}) == b'{"a":1,"b":{"street":"x"}}'

    @pytest.mark.parametrize(
        ("value", "problem"),
        [(float("inf"), "has inf"), (object(), "cannot travel as JSON"), ("\udfff", "has half a character")],
    )
    def test_it_refuses_the_rest_by_name(self, value, problem):
        text = refusal(BadArguments, encode_unchecked, "mail", {"a": 1, "b": value})
        assert text.startswith(f"mail: argument 'b' {problem}")
        assert "\n" not in text

    def test_names_are_strings(self):
        assert "must be strings" in refusal(BadArguments, encode_unchecked, "mail", {1: 2})


class TestEnqueueing:
    def recorded(self, **settings: Any) -> tuple[JobType[..., ..., Any], Recorder, AsyncRecorder]:
        sync, aio = Recorder(), AsyncRecorder()
        from dayjob.options import JobOptions

        options = JobOptions.of(settings, "x")
        found = JobType(
            create_watch,
            name="watch",
            options=options,
            context=Context,
            pool=SimpleNamespace(enqueuer=sync, async_enqueuer=aio),
        )
        return found, sync, aio

    def test_each_method_says_how(self):
        found, sync, _ = self.recorded(unique_until="done")
        at = datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=1)))
        found.enqueue(user_id=7)
        found.enqueue_in(1.5, user_id=7)
        found.enqueue_in(timedelta(minutes=5), 7)
        found.enqueue_at(at, user_id=7)
        found.enqueue_unique(user_id=7)
        found.enqueue_unique_in(300, user_id=7)
        found.enqueue_unique_at(at, user_id=7)
        plain = EnqueueOptions(unique_until="done")
        assert [how for _, _, how in sync.sent] == [
            plain,
            EnqueueOptions(unique_until="done", delay=1.5),
            EnqueueOptions(unique_until="done", delay=300.0),
            EnqueueOptions(unique_until="done", at=at.timestamp()),
            EnqueueOptions(unique_until="done", unique=True),
            EnqueueOptions(unique_until="done", unique=True, delay=300.0),
            EnqueueOptions(unique_until="done", unique=True, at=at.timestamp()),
        ]
        assert {(name, raw) for name, raw, _ in sync.sent} == {("watch", b'{"user_id":7}')}

    def test_each_method_has_an_awaited_twin(self):
        found, sync, aio = self.recorded()
        at = datetime(2030, 1, 1, tzinfo=UTC)

        async def all_of_them():
            await found.aenqueue(user_id=7)
            await found.aenqueue_in(300, user_id=7)
            await found.aenqueue_at(at, user_id=7)
            await found.aenqueue_unique(user_id=7)
            await found.aenqueue_unique_in(300, user_id=7)
            return await found.aenqueue_unique_at(at, user_id=7)

        assert asyncio.run(all_of_them()) is aio.answer
        found.enqueue(7)
        found.enqueue_in(300, 7)
        found.enqueue_at(at, 7)
        found.enqueue_unique(7)
        found.enqueue_unique_in(300, 7)
        found.enqueue_unique_at(at, 7)
        assert aio.sent == sync.sent

    def test_a_unique_job_that_waits_already_is_none(self):
        found, sync, _ = self.recorded()
        sync.answer = None
        assert found.enqueue_unique(user_id=7) is None

    def test_nothing_is_sent_when_the_arguments_are_wrong(self):
        found, sync, _ = self.recorded()
        refusal(BadArguments, found.enqueue, user=7)
        assert sync.sent == []

    def test_using_makes_a_copy_and_adds_up(self):
        found, sync, _ = self.recorded()
        chosen = found.using(source=42).using(id="w-7")
        assert chosen is not found
        chosen.enqueue(user_id=7)
        found.enqueue(user_id=7)
        assert sync.sent[0][2] == EnqueueOptions(source=42, inherit=False, id="w-7")
        assert sync.sent[1][2] == EnqueueOptions()
        assert chosen(Context(), Job("x"), 1) == "1 "

    def test_using_refuses_what_it_does_not_know(self):
        found, _, _ = self.recorded()
        assert "Did you mean 'source'?" in refusal(BadOption, lambda: found.using(sorce=1))

    @pytest.mark.parametrize("delay", [-1, timedelta(seconds=-1), "300", None, float("nan"), True])
    def test_a_delay_is_a_duration_from_now(self, delay):
        found, sync, _ = self.recorded()
        assert refusal(BadOption, found.enqueue_in, delay, user_id=7).startswith("enqueue_in: delay=")
        assert sync.sent == []

    def test_a_time_has_a_time_zone(self):
        found, _, _ = self.recorded()
        text = refusal(BadOption, found.enqueue_at, datetime(2030, 1, 1), user_id=7)  # noqa: DTZ001
        assert "has no time zone: write datetime.now(UTC)" in text
        assert "give a datetime with a time zone" in refusal(BadOption, found.enqueue_at, 300, user_id=7)

    def test_results_are_asked_for_by_job_or_id(self):
        found, _, _ = self.recorded(keep=60)
        assert found.result("w-7", 3) == "Job('watch', id='w-7') 3"
        assert found.result(Job("watch", id="w-8")) == "Job('watch', id='w-8') None"
        assert asyncio.run(found.aresult("w-7", 3)) == "Job('watch', id='w-7') 3"

    def test_results_that_are_never_kept_cannot_be_asked_for(self):
        found, _, _ = self.recorded()
        assert "write @pool.job(keep=3600)" in refusal(NotReady, found.result, "w-7")


class TestRegistry:
    def test_an_unknown_name_suggests_a_near_one(self):
        pool = WorkerPool(Context)
        pool.register("billing.charge", create_watch)
        assert refusal(UnknownJob, pool.registry.get, "billing.charg") == (
            "this pool has no job 'billing.charg'; did you mean 'billing.charge'?"
        )

    def test_an_unknown_name_far_from_all_shows_what_there_is(self):
        pool = WorkerPool(Context)
        assert "it has none: register one with @pool.job" in refusal(UnknownJob, pool.registry.get, "x")
        for number in range(12):
            pool.register(f"job{number:02}", create_watch)
        text = refusal(UnknownJob, pool.registry.get, "mail")
        assert text.endswith(
            "it has job00, job01, job02, job03, job04, job05, job06, job07, job08, job09 and 2 more"
        )

    def test_a_name_is_taken_once(self):
        pool = WorkerPool(Context)
        pool.register("watch", create_watch)

        def other(): ...

        text = refusal(BadOption, pool.register, "watch", other)
        assert f"already defined at {HERE}:{WATCH_LINE}" in text
        assert f"{HERE}:{other.__code__.co_firstlineno}" in text
        assert pool.registry.get("watch").fn is create_watch

    def test_two_functions_of_one_name_in_one_file_are_two_functions(self):
        pool = WorkerPool()

        @pool.job
        def send(): ...

        def again():
            @pool.job
            def send(): ...

        refusal(BadOption, again)

    def test_a_module_that_is_loaded_again_replaces_its_jobs(self, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "jobs_base.py").write_text("from dayjob.pool import WorkerPool\npool = WorkerPool()\n")
        (tmp_path / "jobs_again.py").write_text("from jobs_base import pool\n@pool.job\ndef send(): ...\n")
        import jobs_again
        import jobs_base

        first = jobs_base.pool.registry.get("send")
        importlib.reload(jobs_again)
        assert jobs_base.pool.registry.get("send") is jobs_again.send
        assert jobs_again.send is not first
        for name in ("jobs_base", "jobs_again"):
            monkeypatch.delitem(sys.modules, name)

    def test_it_is_a_collection_in_the_order_of_registration(self):
        registry = Registry()
        pool = WorkerPool(Context)
        one, two = pool.register("b", create_watch), pool.register("a", create_watch)
        registry.add(one)
        registry.add(two)
        assert registry.names() == ["b", "a"]
        assert list(registry) == [one, two]
        assert len(registry) == 2
        assert "a" in registry
        assert "c" not in registry


class TestPool:
    def test_the_name_defaults_to_the_functions(self):
        pool = WorkerPool()

        @pool.job
        def plain(): ...

        @pool.job()
        def called(): ...

        @pool.job("named", priority=4)
        def other(): ...

        assert pool.registry.names() == ["plain", "called", "named"]
        assert pool.registry.get("named").options.priority == 4

    def test_what_has_no_name_needs_one(self):
        class Send:
            def __call__(self): ...

        for call in (lambda: None, Send(), functools.partial(lambda: None)):
            assert "has no name of its own" in refusal(BadOption, WorkerPool().job, call)

    def test_bad_names_and_options_are_refused(self):
        pool = WorkerPool()
        assert "job name 'a:b'" in refusal(BadOption, pool.register, "a:b", create_watch)
        text = refusal(BadOption, pool.register, "a", create_watch, prioriti=1)
        assert "job 'a': no option 'prioriti'. Did you mean 'priority'?" in text
        assert len(pool.registry) == 0

    def test_a_job_type_can_be_registered_under_a_second_name(self):
        pool = WorkerPool(Context)
        first = pool.register("watch", create_watch)
        second = pool.register("watch.slow", first)
        assert second.fn is create_watch

    def test_a_context_needs_no_arguments(self):
        @dataclass
        class Needy:
            customer: int
            more: list[int] = field(default_factory=list)

        assert "Needy must need no arguments" in refusal(BadOption, WorkerPool, Needy)
        assert "is no class" in refusal(BadOption, WorkerPool, Context())

    def test_pool_options_are_checked(self):
        assert "Did you mean 'concurrency'?" in refusal(BadOption, lambda: WorkerPool(concurency=3))
        assert WorkerPool(concurrency=3).options.concurrency == 3
        assert "give a list of module names" in refusal(BadOption, lambda: WorkerPool(include="shop.mail"))

    def test_a_pool_without_jobs_does_not_start(self):
        assert "write @pool.job above a function" in refusal(NotReady, WorkerPool().start)
        assert "write @pool.job above a function" in refusal(NotReady, WorkerPool().run)

    def test_stopping_what_does_not_run_is_nothing_and_draining_it_is_an_error(self):
        pool = WorkerPool()
        pool.stop()
        assert "call start() before drain()" in refusal(NotReady, pool.drain)

    def test_a_pool_with_a_missing_type_does_not_start(self):
        pool = WorkerPool()

        @pool.job
        def f(a: Missing): ...  # noqa: F821

        assert "a: Missing does not exist" in refusal(BadSignature, pool.start)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """A package with a pool and three modules of jobs."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_pkg" / "mail").mkdir(parents=True)
    (tmp_path / "shop_pkg" / "__init__.py").write_text(
        "from dayjob.pool import WorkerPool\npool = WorkerPool(include=['shop_pkg.mail.*', 'shop_pkg.bills'])\n"
    )
    body = "from shop_pkg import pool\n@pool.job('{0}')\ndef f(): ...\n"
    (tmp_path / "shop_pkg" / "mail" / "__init__.py").write_text("")
    (tmp_path / "shop_pkg" / "mail" / "__main__.py").write_text("raise SystemExit('never import this')\n")
    (tmp_path / "shop_pkg" / "mail" / "send.py").write_text(body.format("mail.send"))
    (tmp_path / "shop_pkg" / "mail" / "read.py").write_text(body.format("mail.read"))
    (tmp_path / "shop_pkg" / "bills.py").write_text(body.format("bills.charge"))
    yield importlib.import_module("shop_pkg").pool
    for name in [name for name in sys.modules if name.startswith("shop_pkg")]:
        del sys.modules[name]


class TestInclude:
    def test_nothing_is_imported_before_it_is_needed(self, shop):
        assert len(shop.registry) == 0
        assert "shop_pkg.bills" not in sys.modules

    def test_an_unknown_name_is_looked_for_in_the_includes(self, shop):
        assert shop.find("mail.send").name == "mail.send"
        assert sorted(shop.registry.names()) == ["bills.charge", "mail.read", "mail.send"]
        assert "did you mean 'mail.send'?" in refusal(UnknownJob, shop.find, "mail.sent")

    def test_a_module_that_cannot_be_imported_is_named(self):
        pool = WorkerPool(include=["no_such_package.jobs"])
        text = refusal(UsageError, pool.import_includes)
        assert text == "include: cannot import 'no_such_package.jobs': No module named 'no_such_package'"
        refusal(UsageError, pool.find, "x")

    def test_a_star_behind_a_module_is_explained(self):
        assert "drop the '.*'" in refusal(UsageError, WorkerPool(include=["difflib.*"]).import_includes)


class TestPeriodic:
    def pool(self):
        pool = WorkerPool(Context)
        return pool, pool.register("watch", create_watch)

    def test_a_schedule_is_kept_with_its_encoded_arguments(self):
        pool, watch = self.pool()
        record = pool.periodic("0 9 * * 1-5", watch, {"user_id": 1}, timezone="Europe/Paris", missed="one")
        assert record.name == "watch 0 9 * * 1-5 Europe/Paris"
        assert (record.job, record.args, record.missed) == ("watch", b'{"user_id":1}', "one")
        assert list(pool.periodics.values()) == [record]

    def test_wrong_arguments_are_refused_at_once(self):
        pool, watch = self.pool()
        refusal(BadArguments, pool.periodic, "0 9 * * *", watch, {"user": 1})
        refusal(BadArguments, pool.periodic, "0 9 * * *", "watch")
        assert pool.periodics == {}

    def test_a_name_that_comes_later_is_checked_later(self):
        pool, _ = self.pool()
        pool.periodic("0 9 * * *", "later", {"user": 1})
        assert [str(error) for error in pool.check()] == [
            "periodic 'later 0 9 * * *': this pool has no job 'later'; it has watch"
        ]
        pool.register("later", create_watch)
        (problem,) = pool.check()
        assert isinstance(problem, BadArguments)
        assert "Did you mean 'user_id'?" in str(problem)

    def test_two_schedules_need_two_names_and_the_same_again_is_the_same(self):
        pool, watch = self.pool()
        first = pool.periodic("0 9 * * *", watch, {"user_id": 1})
        assert pool.periodic("0 9 * * *", watch, {"user_id": 1}) == first
        assert "give one of them a name=" in refusal(
            BadOption, pool.periodic, "0 9 * * *", watch, {"user_id": 2}
        )
        pool.periodic("0 9 * * *", watch, {"user_id": 2}, name="second")
        assert list(pool.periodics) == [first.name, "second"]

    def test_what_cannot_be_scheduled_is_refused(self):
        pool, watch = self.pool()
        _, stranger = self.pool()
        args = {"user_id": 1}
        assert "write 'skip', 'one' or 'all'" in refusal(
            BadOption, pool.periodic, "0 9 * * *", watch, args, missed="none"
        )
        assert "is no job" in refusal(BadOption, pool.periodic, "0 9 * * *", create_watch)
        assert "have no effect here" in refusal(
            BadOption, pool.periodic, "0 9 * * *", watch.using(source=1), args
        )
        other = WorkerPool(Context).register("other", create_watch)
        assert "a job of another pool" in refusal(BadOption, pool.periodic, "0 9 * * *", other, args)
        refusal(ValueError, pool.periodic, "often", watch, args)


def test_types_are_shown_as_one_would_write_them():
    def f(a, b="x", *, c=1): ...

    f.__annotations__.update(a=dict[str, Address] | None, c=Literal["a.b"])
    assert Function(f).shown() == "f(a: dict[str, Address] | None, b=\"x\", *, c: Literal['a.b'] = 1)"


def pay(user: int, card: str, note: str | None = None) -> None: ...
def pay_untyped(user, card) -> None: ...
def pay_in_parts(card: str, parts: list[dict[str, Any]]) -> None: ...
def pay_anything(**args: Any) -> None: ...
def pay_by_job(job: Job) -> None: ...
def pay_nothing() -> None: ...


@pytest.mark.parametrize(
    ("fn", "name", "near"),
    [
        (pay, "crad", ". Did you mean 'card'?"),
        (pay, "nothing_like_it", "\n"),
        (pay_untyped, "crad", ". Did you mean 'card'?"),
        (pay_in_parts, "crad", ". Did you mean 'card'?"),
        (pay_nothing, "card", "\n"),
    ],
)
def test_redact_of_what_is_no_argument_is_refused_at_registration(fn, name, near):
    text = refusal(BadOption, job_type, fn, redact=[name])
    assert f"redact={name!r} is not an argument of the job{near}" in text
    assert fn.__name__ in text


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (pay, "card"),
        (pay_untyped, "pin"),
        (pay_in_parts, "pin"),
        (pay_in_parts, "part"),
        (pay_anything, "crad"),
        (pay_by_job, "crad"),
    ],
)
def test_redact_may_name_an_argument_a_key_inside_of_one_and_anything_where_all_are_taken(fn, name):
    assert job_type(fn, redact=[name]).options.redact == (name,)


def hidden_job(**args: Any) -> Job:
    job = Job("pay", args)
    job.redact = ("card",)
    return job


@pytest.mark.parametrize("get", ["get_int", "get_float", "get_bool", "get_list", "get_dict"])
@pytest.mark.parametrize("key", ["card", "password", "session_id"])
def test_a_getter_of_a_job_does_not_quote_a_hidden_argument(get, key):
    text = refusal(BadArguments, getattr(hidden_job(**{key: "4111" * 50}), get), key)
    assert "4111" not in text
    assert f"argument {key!r} is a str, not" in text


def test_a_getter_of_a_job_quotes_no_hidden_value_inside_of_an_argument():
    job = hidden_job(card="4111" * 50, order={"card": "5500" * 50}, note="from " + "4111" * 50)
    for key in ("order", "note"):
        text = refusal(BadArguments, job.get_int, key)
        assert "4111" not in text
        assert "5500" not in text
    assert "'plain' (str)" in refusal(BadArguments, hidden_job(note="plain").get_int, "note")


@pytest.mark.parametrize(
    "key",
    [
        "password", "db_pass", "passphrase", "client_secret", "token", "api_key", "apikey", "credentials", "authorization",
        "cookie", "cookies", "set-cookie", "session", "sessionid", "session_id", "sessionId", "PHPSESSID", "csrf",
        "csrf_value", "xsrf", "auth", "http_auth", "httpAuth", "auth_header", "auth_code", "AUTH", "ssn", "ssn_number",
        "customer.ssn", "iban", "ibans", "card_number", "cardNumber", "credit_card_number", "cardnumber", "cvv", "cvv_code",
        "cvc",
    ],
)  # fmt: skip
def test_a_key_that_looks_like_a_secret_is_hidden(key):
    assert is_hidden(key)


@pytest.mark.parametrize(
    "key",
    [
        "author", "authors", "author_id", "authority", "authorized", "auth_method", "oauthor", "session_count", "sessions",
        "session_started_at", "cookie_count", "cookie_banner", "cookiecutter", "professional", "assessment", "obsession",
        "caribbean", "ibandwidth", "card", "cards", "card_count", "discard", "compassion", "keyboard", "ssnake", "id", "",
    ],
)  # fmt: skip
def test_a_key_that_only_contains_the_letters_of_a_secret_is_shown(key):
    assert not is_hidden(key)


@pytest.mark.parametrize(
    "text", ["\x80", "\x9b", "\x9f", "\u061c", "\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069"]
)
def test_a_job_name_with_a_control_character_is_refused_at_registration_and_enqueue(text):
    name = f"mail{text}liam"
    assert "control characters" in refusal(BadOption, job_type, create_watch, name)
    assert "control characters" in refusal(
        BadOption, Enqueuer("shop", redis="redis://127.0.0.1:1").enqueue, name
    )
    assert "control characters" in refusal(BadOption, WorkerPool, namespace=name)


@pytest.mark.parametrize("name", ["delay", "send", "apply_async", "perform_async"])
def test_the_enqueue_methods_of_other_libraries_are_answered_with_those_of_dayjob(name):
    job_type = WorkerPool().register("send_notice", lambda: None)
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'. In dayjob, use enqueue\(\.\.\.\)"):
        getattr(job_type, name)
    with pytest.raises(AttributeError, match="no attribute 'enqeue'$"):
        job_type.enqeue()
    assert not hasattr(job_type, "anything")
