"""`dayjob mcp`: a real client of the Model Context Protocol talks to the real program over its standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dayjob import Admin
from dayjob.admin import verbs
from dayjob.web import v1
from server import missing

SRC = str(Path(__file__).resolve().parents[2] / "src")
pytestmark = pytest.mark.timeout(600)


def environment(**more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "PYTHONPATH": SRC, **more}


class Assistant:
    """One session with the program."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in (await self.session.list_tools()).tools}

    async def ask(self, name: str, /, **arguments: Any) -> Any:
        answer = await self.session.call_tool(name, arguments)
        assert not answer.is_error, answer.content[0].text
        return json.loads(answer.content[0].text)

    async def refused(self, name: str, /, **arguments: Any) -> Any:
        answer = await self.session.call_tool(name, arguments)
        assert answer.is_error
        return json.loads(answer.content[0].text)


@pytest.fixture
def talk(redis_url, namespace, tmp_path):
    """Starts the program, and has a conversation with it."""
    try:
        from mcp import ClientSession, StdioServerParameters, stdio_client
    except ImportError:
        missing("mcp is not installed: pip install 'dayjob[mcp]'")

    def start(conversation: Callable[[Assistant], Awaitable[None]], *options: str) -> str:
        words = ["-m", "dayjob", "mcp", "--redis", redis_url, "--namespace", namespace, *options]
        program = StdioServerParameters(command=sys.executable, args=words, env=environment(), cwd=tmp_path)
        greeting = ""

        async def run() -> None:
            nonlocal greeting
            with (tmp_path / "errors").open("w") as errors:
                async with (
                    stdio_client(program, errlog=errors) as streams,
                    ClientSession(*streams) as session,
                ):
                    greeting = (await session.initialize()).instructions or ""
                    await conversation(Assistant(session))

        asyncio.run(run())
        assert (tmp_path / "errors").read_text() == ""
        return greeting

    return start


@pytest.fixture
def admin(redis_url, namespace):
    with Admin(namespace, redis=redis_url, show_unannounced=True) as found:
        yield found


def test_everything_can_be_read_and_nothing_can_be_changed(talk, admin, namespace):
    job = admin.enqueue("mail", {"to": "ada", "password": "hunter2"}).subject.split()[1]

    async def conversation(assistant: Assistant) -> None:
        tools = await assistant.tools()
        reads = {one.name for one in v1.ENDPOINTS if one.method == "GET"} - {"me", "openapi_json"}
        assert set(tools) == {*reads, "doctor"}
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        assert "No pool is running" in (await assistant.ask("verdict"))["sentence"]
        queues = await assistant.ask("queues")
        assert queues["queues"][0]["queue"]["name"] == "mail"
        page = await assistant.ask("jobs", state="waiting")
        assert page["jobs"][0]["id"] == job
        assert "no pool is running" in (await assistant.ask("job_explain", id=job))["sentence"]
        assert (await assistant.ask("failures"))["groups"] == []
        assert {one["level"] for one in await assistant.ask("doctor")} & {"ok", "warning"}
        assert "hunter2" not in json.dumps([page, await assistant.ask("job", id=job)])
        # What does not exist, does not fit, or is not there.
        assert (await assistant.refused("queue", name="nail"))["code"] == "unknown_queue"
        assert (await assistant.refused("jobs", state="lost"))["code"] == "bad_request"
        assert "Did you mean 'size'?" in (await assistant.refused("jobs", state="dead", sise=5))["error"]
        assert (await assistant.refused("job_delete", id=job, state="waiting"))["status"] == 404

    greeting = talk(conversation)
    assert f"the namespace '{namespace}'" in greeting
    assert "Nothing can be changed here." in greeting
    assert admin.queue("mail").view.queue.size == 1


def test_an_action_is_a_dry_run_first_and_is_audited(talk, admin):
    job = admin.enqueue("mail", {}).subject.split()[1]

    async def conversation(assistant: Assistant) -> None:
        tools = await assistant.tools()
        posts = {one.path: one.name for one in v1.ENDPOINTS if one.method == "POST"}
        assert {posts[row.path] for row in verbs.TABLE if row.path in posts} <= set(tools)
        assert tools["job_delete"].annotations.destructive_hint
        assert not tools["queue_pause"].annotations.destructive_hint
        dry = await assistant.ask("queue_pause", name="mail")
        assert (dry["dry_run"], dry["target"]["queue"]["size"]) == (True, 1)
        assert not admin.queue("mail").view.queue.paused
        # The text of another action, and one that was made up.
        other = await assistant.ask("queue_resume", name="mail")
        for text in (other["confirm"], "0" * 16, 7):
            assert (await assistant.refused("queue_pause", name="mail", confirm=text))["status"] == 409
        assert not admin.queue("mail").view.queue.paused
        assert (await assistant.ask("queue_pause", name="mail", confirm=dry["confirm"]))["done"]
        assert admin.queue("mail").view.queue.paused
        # It was done already.
        assert (await assistant.refused("queue_pause", name="mail", confirm=dry["confirm"]))[
            "code"
        ] == "already"
        dry = await assistant.ask("job_delete", id=job, state="waiting")
        assert dry["target"]["state"] == "waiting"
        assert (await assistant.ask("job_delete", id=job, state="waiting", confirm=dry["confirm"]))["done"]
        assert (await assistant.refused("job_delete", id=job, state="waiting"))["code"] == "unknown_job"
        # Many jobs at once.
        sent = {"verb": "delete", "state": "waiting", "name": "mail"}
        for n in range(3):
            admin.enqueue("mail", {"n": n})
        dry = await assistant.ask("jobs_apply", **sent)
        assert dry["target"]["matched"] == 3
        assert (await assistant.ask("jobs_apply", **sent, confirm=dry["confirm"]))["tally"]["changed"] == 3

    talk(conversation, "--allow-actions")
    assert admin.queue("mail").view.queue.size == 0
    acted = {entry.action for entry in admin.audit() if entry.actor == "mcp"}
    assert {"pause", "delete"} <= acted


def test_without_the_extra_the_command_names_it(tmp_path):
    """A module of this name that cannot be found: as if the package were not installed."""
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(
        "import importlib.util as util\nfound = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'mcp' else found(name, *rest)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "dayjob", "mcp"], capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{SRC}"),
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "dayjob: assistants need mcp.\n    pip install 'dayjob[mcp]'\n"
    assert done.stdout == ""
