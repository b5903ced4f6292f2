"""Tools for assistants: the reads and actions of the API, for a program that speaks the Model Context Protocol.

A tool is made from an endpoint of the API, so that it takes, checks and answers the same. An action is first a dry run: it answers
what would happen and a `confirm` text. Only a second call with the same arguments and that text acts.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from dayjob.admin import verbs
from dayjob.admin.client import AsyncAdmin
from dayjob.admin.doctor import examine
from dayjob.admin.verbs import VerbRow
from dayjob.errors import DayjobError
from dayjob.names import suggest
from dayjob.web import v1
from dayjob.web.console import WebConsole
from dayjob.web.options import WebOptions
from dayjob.web.responses import Refusal, plain, problem_of, refusal_of
from dayjob.web.v1.jobs import meant
from dayjob.web.v1.table import Call, Endpoint, Nothing, read_fields

#: Reads that only make sense over HTTP.
LEFT_OUT = ("/me", "/openapi.json")
#: Actions that are not verbs of one target.
FURTHER_ACTIONS = ("/jobs/apply", "/failures/apply", "/enqueue")
#: Bytes of an answer that an assistant gets.
MAX_BYTES = 200_000
CONFIRM = "confirm"

_CONFIRM_TEXT = "The text that the dry run of the same action answered. Leave it out for a dry run, which changes nothing."


@dataclass(frozen=True, slots=True)
class AssistantTool:
    """One tool."""

    name: str
    description: str
    #: JSON Schema of its arguments.
    schema: dict[str, Any]
    endpoint: Endpoint | None
    #: Of an action: what it does; None if it is not in the table of verbs.
    verb: VerbRow | None = None
    acts: bool = False

    @property
    def destroys(self) -> bool:
        """Whether it loses something that cannot be brought back."""
        return self.acts and (self.verb is None or self.verb.asks)


class AssistantTools:
    """The tools over one namespace. Actions are there only if they are allowed."""

    def __init__(self, admin: AsyncAdmin, *, allow_actions: bool = False) -> None:
        self._admin = admin
        self._console = WebConsole(admin, WebOptions(read_only=not allow_actions))
        self._secret = os.urandom(32)
        found = [*_reads(), *(_actions() if allow_actions else ())]
        self.tools = {tool.name: tool for tool in found}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """The answer as JSON, and whether it is an error."""
        try:
            answer = await self._call(name, dict(arguments))
        except Refusal as refusal:
            return msgspec.json.encode(problem_of(refusal)).decode(), True
        text = msgspec.json.encode(plain(answer)).decode()
        if len(text) > MAX_BYTES:
            hint = "Ask for less: use size, name, where or a shorter time."
            long = Refusal(400, f"The answer has {len(text):,} bytes; {MAX_BYTES:,} are sent.", hint)
            return msgspec.json.encode(problem_of(long)).decode(), True
        return text, False

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        tool = self.tools.get(name)
        if tool is None:
            raise Refusal(404, f"There is no tool {name[:80]!r}{suggest(name, list(self.tools)) or '.'}")
        if tool.endpoint is None:
            return await self._doctor(arguments)
        confirm = arguments.pop(CONFIRM, None) if tool.acts else None
        sent = read_fields(arguments, tool.endpoint.takes)
        call = Call(_request(), self._console, self._admin, sent)
        if not tool.acts:
            return await tool.endpoint.run(call)
        expected = self._confirmation(name, arguments)
        if confirm is None:
            return await self._dry_run(tool, sent, expected)
        if not (isinstance(confirm, str) and hmac.compare_digest(confirm.encode(), expected.encode())):
            hint = f"Call it without {CONFIRM} first, with the same arguments."
            raise Refusal(
                409, "The confirmation is not that of a dry run of this action. Nothing was changed.", hint
            )
        return await _whole(await tool.endpoint.run(call))

    def _confirmation(self, name: str, arguments: dict[str, Any]) -> str:
        """Proves that a dry run with these arguments was made in this process."""
        body = msgspec.json.encode([name, arguments], order="sorted")
        return hmac.new(self._secret, body, hashlib.sha256).hexdigest()[:16]

    async def _doctor(self, arguments: dict[str, Any]) -> Any:
        read_fields(arguments, Nothing)
        try:
            return await self._admin._walk(examine(self._admin._session.keys, time.time))
        except DayjobError as error:
            raise refusal_of(error) from None

    async def _dry_run(self, tool: AssistantTool, sent: Any, confirm: str) -> dict[str, Any]:
        try:
            target = await self._target(tool, sent)
        except DayjobError as error:
            raise refusal_of(error) from None
        return {
            "dry_run": True, "would": tool.description, "target": target, CONFIRM: confirm,
            "next": f"Nothing was changed. To act, call {tool.name} again with the same arguments and this {CONFIRM}.",
        }  # fmt: skip

    async def _target(self, tool: AssistantTool, sent: Any) -> Any:
        """What the action would be applied to, as it is now. Raises Refusal if it does not exist."""
        kind = tool.verb.target if tool.verb is not None else tool.name
        match kind:
            case "job":
                found = await self._admin.job(sent.id, name=sent.name)
                if found is None:
                    raise Refusal(404, f"No job {sent.id[:200]!r} was found.", code="unknown_job")
                return {
                    "id": found.job.id,
                    "name": found.job.name,
                    "state": found.job.state,
                    "sentence": found.sentence,
                }
            case "queue":
                return None if getattr(sent, "force", False) else (await self._admin.queue(sent.name)).view
            case "pool":
                pools = {pool.id: pool for pool in (await self._admin.pools(workers=False)).pools}
                if sent.pool not in pools:
                    raise Refusal(404, f"No pool {sent.pool[:200]!r} is running.", code="unknown_pool")
                return {"id": sent.pool, "lease": pools[sent.pool].lease}
            case "schedule":
                schedules = {one.name: one for one in await self._admin.periodic()}
                if sent.name not in schedules:
                    raise Refusal(404, f"No schedule {sent.name[:200]!r} exists.", code="unknown_schedule")
                return schedules[sent.name]
            case "jobs_apply":
                return await self._admin.count(sent.state, **meant(sent))
        return asdict(sent) if hasattr(sent, "__dataclass_fields__") else msgspec.to_builtins(sent)


def _reads() -> list[AssistantTool]:
    found = [
        AssistantTool(one.name, one.summary, _schema(one), one)
        for one in v1.ENDPOINTS
        if one.method == "GET" and one.path not in LEFT_OUT
    ]
    text = "Every check of the server and the namespace for anything that could lose or stop jobs."
    return [
        *found,
        AssistantTool(
            "doctor", text, {"type": "object", "properties": {}, "additionalProperties": False}, None
        ),
    ]


def _actions() -> list[AssistantTool]:
    by_path = {one.path: one for one in v1.ENDPOINTS if one.method == "POST"}
    rows: list[tuple[str, VerbRow | None]] = [(row.path, row) for row in verbs.TABLE if row.path in by_path]
    rows += [(path, None) for path in FURTHER_ACTIONS]
    return [
        AssistantTool(
            by_path[path].name, row.effect if row is not None else by_path[path].summary, _schema(by_path[path], acts=True),
            by_path[path], row, acts=True,
        )
        for path, row in rows
    ]  # fmt: skip


def _schema(endpoint: Endpoint, *, acts: bool = False) -> dict[str, Any]:
    """The schema of an endpoint's input, as the schema of an object."""
    found = msgspec.json.schema(endpoint.takes)
    definitions: dict[str, Any] = found.get("$defs", {})
    own = dict(definitions.pop(endpoint.takes.__name__))
    own.pop("title", None)
    if acts:
        own["properties"] = {**own["properties"], CONFIRM: {"type": "string", "description": _CONFIRM_TEXT}}
    return {**own, "$defs": definitions} if definitions else own


def _request() -> Request:
    """The request that handlers of the API get: there is none."""
    return Request({"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""})


async def _whole(answer: Any) -> Any:
    """An answer; of a stream of progress, the last line, which has the result."""
    if not isinstance(answer, StreamingResponse):
        return answer
    lines: AsyncIterator[Any] = aiter(answer.body_iterator)
    last = b"{}"
    async for line in lines:
        last = line if isinstance(line, bytes) else str(line).encode()
    return msgspec.json.decode(last)
