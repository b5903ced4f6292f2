"""The OpenAPI document of the API, built from the same table as its routes. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, get_type_hints

import msgspec

from dayjob.version import __version__
from dayjob.web.responses import JSON, LEFT_OUT, PROBLEM, WORKED_OUT, Problem
from dayjob.web.v1.streams import NDJSON
from dayjob.web.v1.table import PREFIX, Endpoint

_REF = "#/components/schemas/{name}"

_TEXT = """\
Everything the operator's console can see and do. Names and IDs are in the query of a GET and in the JSON body of a POST.
Every action names a job and the state in which it was seen; if the job is in another state by now, the answer is 409 and
nothing is changed. Arguments that look like secrets are hidden. Every error has a stable `code`. Reads are compressed with gzip and
have an ETag.
"""

#: Why any request may be refused.
_ALWAYS = {
    400: "The request is not valid.",
    401: "Sign in first.",
    403: "Not allowed: by role, by --read-only, or because the request came from a page of another site.",
    421: "The console does not answer to this host name.",
    429: "There were too many wrong passwords from this address. Wait.",
    503: "Redis does not answer, or answers with an error.",
}
_OF_BODY = {413: "The body is too large.", 415: "The body is not application/json."}


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The document, for a console at the root of its server."""
    table = list(endpoints)
    kinds: list[Any] = [Problem]
    for endpoint in table:
        kinds += [endpoint.answers, endpoint.takes]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    # The types are the keys, because their schemas may be inline or references.
    found = dict(zip(map(repr, kinds), schemas, strict=True))
    for view, names in LEFT_OUT.items():
        for name in names:
            components[view.__name__]["properties"].pop(name, None)
    for view, properties in WORKED_OUT.items():
        _add(components[view.__name__], view, properties, components)
    for component in components.values():
        _say_all_are_there(component, taken=component["title"] in {one.takes.__name__ for one in table})
    paths: dict[str, Any] = {}
    for endpoint in table:
        paths.setdefault(f"{PREFIX}{endpoint.path}", {})[endpoint.method.lower()] = _operation(
            endpoint, found[repr(endpoint.answers)], components.get(endpoint.takes.__name__, {})
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "dayjob", "version": __version__, "description": _TEXT},
        "servers": [{"url": "/"}],
        "security": [{}, {"password": []}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _add(
    component: dict[str, Any], view: type, properties: Iterable[str], components: dict[str, Any]
) -> None:
    """Describe the computed properties of a view."""
    for name in properties:
        getter = inspect.getattr_static(view, name).fget
        (schema,), more = msgspec.json.schema_components(
            [get_type_hints(getter)["return"]], ref_template=_REF
        )
        components.update({key: value for key, value in more.items() if key not in components})
        component["properties"][name] = schema


def _say_all_are_there(component: dict[str, Any], *, taken: bool) -> None:
    """An answer always has all of its fields, including those with a default."""
    if "properties" in component and not taken:
        component["required"] = sorted(component["properties"])
        for schema in component["properties"].values():
            schema.pop("default", None)


def _operation(endpoint: Endpoint, answers: dict[str, Any], takes: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.topic],
        "responses": _responses(endpoint, answers),
    }
    if endpoint.method == "GET":
        described["parameters"] = [
            {
                "name": name, "in": "query", "required": name in takes.get("required", ()),
                "schema": _without_null(schema),
            }
            for name, schema in takes.get("properties", {}).items()
        ]  # fmt: skip
    else:
        schema = {"$ref": _REF.format(name=endpoint.takes.__name__)}
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return described


def _responses(endpoint: Endpoint, answers: dict[str, Any]) -> dict[str, Any]:
    kind = NDJSON if endpoint.streams else JSON
    words = "One object per line; the last has the result or the error." if endpoint.streams else "Done."
    described: dict[str, Any] = {"200": {"description": words, "content": {kind: {"schema": answers}}}}
    why = dict(_ALWAYS)
    if endpoint.method == "POST":
        why |= _OF_BODY
    else:
        described["304"] = {"description": "The answer has the ETag that If-None-Match names."}
    if endpoint.finds:
        why[404] = "The named thing does not exist."
    if endpoint.moves:
        why[409] = "The job is in another state, or the change was already made. Nothing was changed."
    content = {PROBLEM: {"schema": {"$ref": _REF.format(name=Problem.__name__)}}}
    for status, text in sorted(why.items()):
        described[str(status)] = {"description": text, "content": content}
    return described


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: an optional parameter is left out."""
    if "anyOf" not in schema:
        return schema
    kinds = [one for one in schema["anyOf"] if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **kinds[0]} if len(kinds) == 1 else {**rest, "anyOf": kinds}
