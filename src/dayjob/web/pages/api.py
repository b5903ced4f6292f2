"""API: every address, what it takes and answers, and every code of errors; from the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from dayjob.admin.client import AsyncAdmin
from dayjob.web.codes import CODES
from dayjob.web.pages.shell import Values, page

_REF = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class ApiField:
    """A field of an input or an answer."""

    name: str
    kind: str
    #: The type that it refers to; "" if it is a plain one.
    type: str
    required: bool
    text: str


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """One address."""

    method: str
    path: str
    summary: str
    takes: tuple[ApiField, ...]
    answers: str
    #: The type that it answers with; "" if it is a plain one.
    type: str


@page("api.html", "/api", "API")
async def api(request: Request, _admin: AsyncAdmin) -> Values:
    """All addresses by topic, all types, all codes."""
    document: dict[str, Any] = request.app.state.openapi
    schemas = document["components"]["schemas"]
    topics: dict[str, list[ApiAddress]] = {}
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            topics.setdefault(described["tags"][0], []).append(_address(method, path, described, schemas))
    inputs = {
        _name(body["content"]["application/json"]["schema"])
        for methods in document["paths"].values()
        for described in methods.values()
        if (body := described.get("requestBody"))
    }
    types = {name: _fields(schema) for name, schema in sorted(schemas.items()) if name not in inputs}
    return {
        "topics": topics,
        "types": types,
        "schemas": schemas,
        "codes": CODES,
        "about": document["info"]["description"],
    }


def _address(method: str, path: str, described: dict[str, Any], schemas: dict[str, Any]) -> ApiAddress:
    if "requestBody" in described:
        name = _name(described["requestBody"]["content"]["application/json"]["schema"])
        takes = _fields(schemas[name])
    else:
        takes = tuple(
            _field(one["name"], one["schema"], required=one["required"]) for one in described["parameters"]
        )
    (content,) = described["responses"]["200"]["content"].values()
    answers = _kind(content["schema"])
    return ApiAddress(method.upper(), path, described["summary"], takes, answers, _name(content["schema"]))


def _fields(schema: dict[str, Any]) -> tuple[ApiField, ...]:
    required = schema.get("required", ())
    return tuple(
        _field(name, one, required=name in required) for name, one in schema.get("properties", {}).items()
    )


def _field(name: str, schema: dict[str, Any], *, required: bool) -> ApiField:
    text = schema.get("description", "")
    bounds = [
        f"{words} {schema[key]:,}"
        for key, words in (("minimum", "at least"), ("maximum", "at most"), ("exclusiveMinimum", "more than"))
        if isinstance(schema.get(key), int | float)
    ]
    if "default" in schema and schema["default"] not in (None, ""):
        bounds.append(f"default {schema['default']!r}".replace("True", "true").replace("False", "false"))
    return ApiField(
        name, _kind(schema), _name(schema), required, " ".join(filter(None, (text, "; ".join(bounds))))
    )


def _name(schema: dict[str, Any]) -> str:
    """The type that a schema refers to, directly or as its items; "" if none."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_REF)
    for inner in (schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", ())):
        if isinstance(inner, dict) and (found := _name(inner)):
            return found
    return ""


def _kind(schema: dict[str, Any]) -> str:
    """The type of a schema in a few words."""
    if "$ref" in schema:
        return _name(schema)
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(_kind(one) for one in schema["anyOf"])
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_kind(schema['items'])}"
    return str(schema.get("type", "any"))
