"""Reads the parameters of a handler or middleware from its annotations, and formats signatures for error messages.

A handler takes the context, then the job, then its arguments; the first two are optional.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Literal

from dayjob.errors import BadOption, BadSignature
from dayjob.job import Job

Colour = Literal["sync", "async"]
Role = Literal["context", "job", "argument"]

#: The module in front of a name in the repr of a type, unless it is inside a string.
_PREFIX = re.compile(r"('[^']*')|(?:[\w<>]+\.)+")

#: Errors raised for a name that does not exist yet, but may exist later.
NOT_YET = (NameError, AttributeError)


class NoContext:
    """The context of a pool without a context class."""


class Function:
    """A callable of the user, and everything that can be read from it without calling it."""

    def __init__(self, call: Callable[..., Any], context: type = NoContext) -> None:
        self.call = call
        self.context = context
        self.plain = _plain(call)
        self.name = given_name(call) or type(call).__name__
        self.is_async = is_async(call)
        #: "sync" or "async" if calling it returns a generator of that kind, otherwise None.
        self.yields = _yields(call)
        self.location = _location(self.plain)

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters. Raises BadSignature if they cannot be read."""
        try:
            return list(_signature(self.call).parameters.values())
        except (TypeError, ValueError):
            raise BadSignature(
                f"{self.name}    {self.location}\n    its parameters cannot be read; wrap it in a function"
            ) from None

    def hint(self, parameter: inspect.Parameter) -> Any:
        """The type that `parameter` is annotated with; Any without an annotation.

        Raises NameError or AttributeError while a name in it does not exist, and BadSignature if it is not a type.
        """
        annotation = parameter.annotation
        if annotation is parameter.empty:
            return Any
        holder = SimpleNamespace(__annotations__={"hint": annotation})
        names = self._names()
        try:
            return typing.get_type_hints(holder, names, names, include_extras=True)["hint"]
        except NOT_YET:
            raise
        except Exception as error:
            # Evaluating the user's annotation may raise anything.
            raise self.bad(f"{parameter.name}: {show(annotation)} is no type ({error})") from None

    @property
    def return_annotation(self) -> Any:
        """The return annotation as it is written; Any without one."""
        annotation = _signature(self.call).return_annotation
        return Any if annotation is inspect.Signature.empty else annotation

    def return_hint(self) -> Any:
        """The type of the return annotation. Raises like `hint`."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return self.hint(inspect.Parameter("result", kind, annotation=self.return_annotation))

    def undefined(self, parameter: inspect.Parameter, error: BaseException) -> BadSignature:
        """The error for a type that still does not exist when it is needed."""
        return self.bad(
            f"{parameter.name}: {show(parameter.annotation)} does not exist ({error}): "
            "define or import it at the top level of the module"
        )

    def role(self, hint: Any) -> Role:
        """Whether a parameter of this type receives the context, the job or an argument."""
        kind = _bare(hint)
        if kind is Job:
            return "job"
        if not isinstance(kind, type) or kind.__module__ == "builtins":
            return "argument"
        return "context" if kind in self.context.__mro__ else "argument"

    def no_context(self, name: str, hint: Any) -> str:
        """The explanation for a class that was probably meant as the context but is not this pool's context."""
        kind = show(hint)
        if self.context is NoContext:
            return f"{name}: {kind} is not the context of this pool, which has none: write WorkerPool({kind})"
        own = self.context.__name__
        return f"{name}: {kind} is not the context of this pool, which is {own}: write {name}: {own}"

    def shown(self, parameters: Sequence[inspect.Parameter] | None = None) -> str:
        """`name(parameters)` as in source code."""
        chosen = self.parameters() if parameters is None else parameters
        return self.name + str(inspect.Signature([_shown(one) for one in chosen]))

    def bad(self, problem: str) -> BadSignature:
        """An error that shows the function, its location and the problem."""
        return BadSignature(f"{self.shown()}    {self.location}\n    {problem}")

    def misplaced(self, roles: Mapping[str, Role]) -> BadSignature:
        """The error for parameters in a wrong order; shows the right one."""
        first = [one for one in self.parameters() if roles[one.name] != "argument"]
        rest = [one for one in self.parameters() if roles[one.name] == "argument"]
        asked = [roles[one.name] for one in first]
        for role in ("context", "job"):
            if asked.count(role) > 1:
                return self.bad(f"asks for the {role} more than once")
        first.sort(key=lambda one: roles[one.name] == "job")
        only = bool(rest) and rest[0].kind is inspect.Parameter.POSITIONAL_ONLY
        kind = inspect.Parameter.POSITIONAL_ONLY if only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        first = [one.replace(kind=kind, default=inspect.Parameter.empty) for one in first]
        return self.bad(f"context, then job, then the arguments: {self.shown([*first, *rest])}")

    def _names(self) -> dict[str, Any]:
        # Names of the module and the closure come first, because its own `Job` may be another class.
        cells = zip(
            getattr(getattr(self.plain, "__code__", None), "co_freevars", ()),
            getattr(self.plain, "__closure__", None) or (),
            strict=False,
        )
        closure = {}
        for name, cell in cells:
            try:
                closure[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        known = {"Job": Job, self.context.__name__: self.context}
        return known | getattr(self.plain, "__globals__", {}) | closure


def given_name(call: Callable[..., Any]) -> str | None:
    """The name in its `def`, or None for lambdas and callable objects."""
    name = getattr(_unbound(call), "__name__", "<lambda>")
    return None if name == "<lambda>" else str(name)


def is_async(call: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine. Looks through partials, and at the `__call__` of objects."""
    return any(inspect.iscoroutinefunction(one) for one in _called(call))


def show(annotation: Any) -> str:
    """A type as in source code, without modules."""
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    return _PREFIX.sub(lambda match: match[1] or "", inspect.formatannotation(annotation))


class _Text:
    """A string whose repr is the string itself, for `inspect`, which prints annotations and defaults by repr."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    annotation, default = parameter.annotation, parameter.default
    if annotation is not parameter.empty:
        annotation = _Text(show(annotation))
    if default is not parameter.empty:
        text = (
            '"' + repr(default)[1:-1] + '"' if type(default) is str and '"' not in default else repr(default)
        )
        default = _Text(text if len(text) <= 40 else "...")
    return parameter.replace(annotation=annotation, default=default)


def _yields(call: Callable[..., Any]) -> Colour | None:
    if any(inspect.isgeneratorfunction(one) for one in _called(call)):
        return "sync"
    return "async" if any(inspect.isasyncgenfunction(one) for one in _called(call)) else None


def _called(call: Callable[..., Any]) -> tuple[Any, Any]:
    """The object itself and its `__call__`: either may be the function that runs."""
    call = _unbound(call)
    return call, getattr(call, "__call__", None)  # noqa: B004 - the method itself is wanted


def _unbound(call: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(call, functools.partial | staticmethod):
        call = call.func if isinstance(call, functools.partial) else call.__func__
    return call


def _plain(call: Callable[..., Any]) -> Any:
    """The function at the bottom of partials, methods, decorators and callable objects."""
    found: Any = call
    while True:
        if isinstance(found, functools.partial):
            found = found.func
        elif inspect.ismethod(found) or isinstance(found, staticmethod):
            found = found.__func__
        elif hasattr(found, "__wrapped__"):
            found = found.__wrapped__
        elif (
            hasattr(found, "__code__")
            or isinstance(found, type)
            or not hasattr(type(found).__call__, "__code__")
        ):
            return found
        else:
            found = type(found).__call__


def _signature(call: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415 - does not exist before

        return inspect.signature(call, annotation_format=annotationlib.Format.FORWARDREF)
    return inspect.signature(call)


def _location(plain: Any) -> str:
    code = getattr(plain, "__code__", None)
    if code is None:
        return f"{getattr(plain, '__module__', None) or '?'}"
    path = Path(code.co_filename)
    with suppress(ValueError, OSError):  # outside the working directory, or that is gone: show the whole path
        path = path.relative_to(Path.cwd())
    return f"{path}:{code.co_firstlineno}"


def _bare(hint: Any) -> Any:
    """The class behind `Annotated[...]`, `... | None` and type arguments."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _bare(typing.get_args(hint)[0])
    if origin in (typing.Union, UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not NoneType]
        return _bare(kinds[0]) if len(kinds) == 1 else hint
    return origin or hint


def check_context(context: Any) -> None:
    """Raises BadOption unless `context` is a class that needs no arguments."""
    if isinstance(context, str):
        raise BadOption(
            f"WorkerPool({context!r}): the first argument is the context, a class. "
            f"Did you mean WorkerPool(namespace={context!r})?"
        )
    if not isinstance(context, type):
        kind = type(context).__name__
        meant = f"; write WorkerPool({kind})" if type(context).__module__ != "builtins" else ""
        raise BadOption(
            f"WorkerPool: {context!r} is no class{meant}: give one that needs no arguments, such as a dataclass"
        )
    try:
        inspect.signature(context).bind()
    except TypeError as error:
        raise BadOption(f"WorkerPool: {context.__name__} must need no arguments: {error}") from None
    except ValueError:
        pass  # a class written in C may have no signature; creating the first context will show whether it works
