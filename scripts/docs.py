# ruff: noqa: INP001, T201 - a program, not a module
"""Writes the generated parts of docs/ from the code: `python scripts/docs.py`, or `--check` to see whether they are true.

A part stands between `<!-- generated: name -->` and `<!-- end -->`; everything outside is written by people.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

import dayjob
from dayjob import cli, errors, options, pool, retry
from dayjob.handlers import registry
from dayjob.store import scripts
from dayjob.store.keys import Keys

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
#: Methods that are public to the rest of the package, not to its users.
INSIDE = {
    *(
        ("JobType", name)
        for name in (
            "wants_context",
            "wants_job",
            "open",
            "arguments",
            "resolved",
            "resolve",
            "encode",
            "call_args",
            "pool_runs",
            "encode_with_gaps",
            "first_argument",
            "encode_value",
            "encode_result",
            "decode_result",
            "batch_of",
        )
    ),
    *(
        (name, method)
        for name in ("Enqueuer", "AsyncEnqueuer")
        for method in (
            "run",
            "senders",
            "new_batch",
            "new_workflow",
            "running_workflow",
            "node_results",
            "submit_call",
            "submit_map",
        )
    ),
    *(("WorkerPool", name) for name in ("import_includes", "find", "enqueuer_for", "prepare")),
}
#: Wide enough that no help text breaks where a terminal's width would break it.
WIDTH = 110


def keys() -> str:
    """A table of every key, from the docstrings of Keys."""
    shown = Keys("<ns>")
    words = {
        "name": "<name>",
        "rest": "<rest>",
        "pool_id": "<pool>",
        "token": "<token>",
        "batch_id": "<batch>",
        "workflow_id": "<workflow>",
        "number": "<number>",
        "slot": "<slot>",
        "receiver": "<receiver>",
        "job_id": "<id>",
        "minute": "<minute>",
        "limit": "<limit>",
        "span": "<minutes>",
        "deletion": "<deletion>",
        "part": "<part>",
        "kind": "<kind>",
        "schedule": "<schedule>",
        "key": "<key>",
        "mailbox_id": "<mailbox>",
    }
    rows = ["| function | key | what it holds |", "|---|---|---|"]
    for name, member in vars(Keys).items():
        if (
            name.startswith("_")
            or name == "of_name"
            or not (isinstance(member, property) or callable(member))
        ):
            continue
        if isinstance(member, property):
            key = getattr(shown, name)
        else:
            parameters = list(inspect.signature(member).parameters)[1:]
            key = getattr(shown, name)(*(words[parameter] for parameter in parameters))
        rows.append(f"| `{name}` | `{key}` | {_line(member)} |")
    return "\n".join(rows)


def lua() -> str:
    """One section for each script: its header as it stands in the file."""
    sections = []
    for name in scripts.all_names():
        script = scripts.load(name)
        flags = ", ".join(script.flags) or "none"
        first, _, rest = script.header.partition("\n")
        sections.append(
            f"### {name}\n\n{_capital(first.partition(': ')[2])}\n\n"
            f"`store/scripts/{name}.lua`, flags: {flags}.\n\n```text\n{rest.strip()}\n```"
        )
    return "\n\n".join(sections)


def job_options() -> str:
    """A table of the options of a job type."""
    return _options(options.JobOptions)


def pool_options() -> str:
    """A table of the options of a pool."""
    return _options(options.PoolOptions)


def commands() -> str:
    """The help of every command, as it is printed."""
    sections = [_help()]
    context = click.Context(cli.cli)
    for name in cli.COMMANDS:
        command = cli.cli.get_command(context, name)
        sections.append(f"## dayjob {name}\n\n{_help(name)}")
        inner = command.commands if isinstance(command, click.Group) else ()
        sections += [f"### dayjob {name} {one}\n\n{_help(name, one)}" for one in inner]
    return "\n\n".join(sections)


def api() -> str:
    """Signature and docstring of every public name that is a class with methods."""
    from dayjob import testing, web  # noqa: PLC0415 - loads the Redis client
    from dayjob.admin import client  # noqa: PLC0415
    from dayjob.enqueue import enqueuer  # noqa: PLC0415 - loads the Redis client

    sections = [
        _class(pool.WorkerPool),
        _class(registry.JobType),
        _class(dayjob.Job),
        _class(enqueuer.Enqueuer),
        _class(enqueuer.AsyncEnqueuer),
        *(_function(one, "dayjob.retry.") for one in (retry.exponential, retry.constant)),
        _class(client.Admin),
        "## AsyncAdmin\n\nThe same constructor and the same methods as `Admin`, awaited. Safe to share between tasks.",
        _function(testing.testing, "dayjob.testing."),
        _class(testing.Jobs),
        _class(testing.FakeClock),
        _function(web.create_app, "dayjob.web."),
        _class(web.WebOptions),
    ]
    return "\n\n".join(sections)


def http_addresses() -> str:
    """Every address of the console's API, by topic, from the table that serves them."""
    from dayjob.web import v1  # noqa: PLC0415 - needs what the extra installs
    from dayjob.web.v1.table import PREFIX  # noqa: PLC0415

    topics = dict.fromkeys(endpoint.topic for endpoint in v1.ENDPOINTS)
    sections = []
    for topic in topics:
        rows = ["| address | takes | answers | what it does |", "|---|---|---|---|"]
        for one in (endpoint for endpoint in v1.ENDPOINTS if endpoint.topic == topic):
            takes = ", ".join(f"`{name}`" for name in one.takes.__struct_fields__)
            kind = getattr(one.answers, "__args__", (one.answers,))[0]
            answers = "lines of progress" if one.streams else f"`{kind.__name__}`"
            many = "a list of " if str(one.answers).startswith("tuple") else ""
            rows.append(
                f"| `{one.method} {PREFIX}{one.path}` | {takes} | {many}{answers} | {_cell(one.summary)} |"
            )
        sections.append(f"### {_capital(topic)}\n\n" + "\n".join(rows))
    return "\n\n".join(sections)


def http_codes() -> str:
    """Every code of an error of the API."""
    from dayjob.web.codes import CODES  # noqa: PLC0415 - only here

    rows = [f"| `{code}` | {row.status} | {row.text} |" for code, row in CODES.items()]
    return "\n".join(["| code | status | meaning |", "|---|---|---|", *rows])


def http_shapes() -> str:
    """What the API takes and answers, field by field, from its OpenAPI document."""
    from dayjob.web import openapi, v1  # noqa: PLC0415 - needs what the extra installs

    sections = []
    for name, schema in sorted(openapi.document(v1.ENDPOINTS)["components"]["schemas"].items()):
        rows = ["| field | type |", "|---|---|"]
        rows += [
            f"| `{field}` | {_cell(_kind(kind))} |" for field, kind in schema.get("properties", {}).items()
        ]
        about = schema.get("description", "")
        sections.append(f"### {name}\n\n{about}\n\n" + ("\n".join(rows) if len(rows) > 2 else "No fields."))
    return "\n\n".join(sections)


def _kind(schema: dict[str, Any]) -> str:
    """A JSON schema in words."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}" if isinstance(schema.get("items"), dict) else "list"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    return str(schema.get("type", "any JSON"))


def web_options() -> str:
    """A table of the options of a console."""
    from dayjob.web import WebOptions  # noqa: PLC0415 - needs what the extra installs

    return _options(WebOptions)


def error_tree() -> str:
    """The tree of errors, as errors.py draws it."""
    return f"```text\n{inspect.getdoc(errors).partition(chr(10) * 2)[2].rpartition(chr(10) * 2)[0]}\n```"  # type: ignore[union-attr]


PARTS: dict[str, Callable[[], str]] = {
    one.__name__: one
    for one in (
        keys, lua, job_options, pool_options, commands, api, error_tree, http_addresses, http_codes, http_shapes, web_options,
    )
}  # fmt: skip


def _options(kind: type) -> str:
    """Name, default and `#:` comment; a comment also holds for the fields right below it that have none."""
    defaults = {name: field.default for name, field in kind.__dataclass_fields__.items()}  # type: ignore[attr-defined]
    rows = ["| option | default | what it does |", "|---|---|---|"]
    comment: list[str] = []
    fresh = False
    for raw in inspect.getsource(kind).splitlines():
        line = raw.strip()
        if line.startswith("#:"):
            comment = [*comment, line[2:].strip()] if fresh else [line[2:].strip()]
            fresh = True
        elif (name := line.partition(":")[0]) in defaults:
            text = _cell(" ".join(comment)) if fresh else "see above"
            rows.append(f"| `{name}` | `{_value(defaults[name])}` | {text} |")
            fresh = False
    return "\n".join(rows)


def _value(default: Any) -> str:
    if isinstance(default, float) and default.is_integer():
        return f"{default:g}" if default < 1e6 else f"{default:.0f}"
    return repr(default)


def _help(*words: str) -> str:
    shown = CliRunner().invoke(
        cli.cli, [*words, "--help"], prog_name="dayjob", terminal_width=WIDTH, max_content_width=WIDTH
    )
    return f"```text\n{shown.output.rstrip()}\n```"


def _class(kind: type) -> str:
    made = "" if kind is registry.JobType else f"```text\n{_signature(kind)}\n```\n\n"
    sections = [f"## {kind.__name__}\n\n{made}{_text(kind)}"]
    for name, member in vars(kind).items():
        if name.startswith("_") or (kind.__name__, name) in INSIDE:
            continue
        if isinstance(member, property) or type(member).__name__ == "MadeOnce":
            sections.append(f"- `{name}`: {_line(member)}")
        elif inspect.isfunction(member):
            sections.append(f"- `{_signature(member)}`\n  {_line(member)}")
    for base in kind.__mro__[1:-1]:
        sections += [
            f"- `{_signature(member)}`\n  {_line(member)}"
            for name, member in vars(base).items()
            if not name.startswith("_") and inspect.isfunction(member) and name not in vars(kind)
        ]
    return sections[0] + "\n\n" + "\n".join(sections[1:])


def _function(one: Callable[..., Any], prefix: str) -> str:
    return f"## {prefix}{one.__name__}\n\n```text\n{_signature(one)}\n```\n\n{_text(one)}"


class _Words:
    """Prints as it is where `inspect` would print a repr."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(one: Any) -> str:
    """As it is written in the source, where annotations are strings and stay short."""
    found = inspect.signature(one)
    own = []
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        default = parameter.default
        if isinstance(default, type) and default is not parameter.empty:
            default = _Words(default.__name__)
        own.append(parameter.replace(annotation=_Words(str(parameter.annotation)), default=default))
    shown = found.replace(parameters=own, return_annotation=_Words(str(found.return_annotation)))
    returns = "" if isinstance(one, type) else f" -> {found.return_annotation}"
    prefix = "async " if inspect.iscoroutinefunction(one) else ""
    return f"{prefix}{one.__name__}{str(shown).rpartition(' -> ')[0]}{returns}"


def _text(one: Any) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(one) or "")


def _line(one: Any) -> str:
    return _cell(_text(one).replace("\n\n", " "))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def rewritten(text: str) -> str:
    """A page with its generated parts made anew."""
    return PART.sub(lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n\n{found[3]}", text)


def main(check: bool) -> int:
    """Write every page that has generated parts, or say which ones are not true any more."""
    stale = []
    for page in sorted(DOCS.rglob("*.md")):
        old = page.read_text("utf-8")
        new = rewritten(old)
        if new != old:
            stale.append(page)
            if not check:
                page.write_text(new, "utf-8")
    for page in stale:
        print(
            f"{page.relative_to(ROOT)}: {'is not what the code says: run python scripts/docs.py' if check else 'written'}"
        )
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
