"""Renders pages: the templates, and the format of times, numbers, arguments and addresses.

The templates escape everything. Functions here that return Markup escape its parts themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from dayjob import text
from dayjob.web.reading import compressed

STATIC = {
    "dayjob.css": "text/css; charset=utf-8",
    "dayjob.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
#: Shown instead of a missing number.
NONE = "\u2013"
#: How many characters of arguments a table shows.
MAX_ARGS = 300


@cache
def static(name: str) -> tuple[bytes, str]:
    """The bytes of a static file, and a digest of them."""
    data = (files("dayjob.web") / "static" / name).read_bytes()
    return data, hashlib.sha256(data).hexdigest()[:10]


def render(request: Request, template: str, /, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A template as an answer."""
    url = partial(address, request)

    def asset(name: str) -> str:
        return url(f"/static/{name}", v=static(name)[1])

    text = _environment().get_template(template).render(url=url, asset=asset, **values)
    # A lone surrogate, which only hostile input contains, cannot be encoded.
    body, headers = compressed(request, text.encode("utf-8", "replace"))
    return HTMLResponse(body, status, headers={"vary": "Accept-Encoding"} | headers)


def address(request: Request, path: str, **query: Any) -> str:
    """The address of a page, with the path under which the console is served. Empty parameters are left out."""
    asked = {key: value for key, value in query.items() if value not in (None, "")}
    text = urlencode(asked, errors="replace")
    return f"{quote(request.scope.get('root_path', ''))}{path}" + (f"?{text}" if asked else "")


def prepare() -> None:
    """Compile every template, so that the first request does not wait for it."""
    for name in _environment().list_templates():
        _environment().get_template(name)


@cache
def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("dayjob.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "number": number, "took": took, "span": text.span, "size": size, "args": args, "pretty": pretty, "line": line, "coded": coded,
        "moment": moment, "elapsed": elapsed, "share": share, "counted": counted,
    }  # fmt: skip
    return found


# Numbers.


def number(value: float | None) -> str:
    """A number with commas between its thousands; a dash for none."""
    if value is None:
        return NONE
    if isinstance(value, float) and not value.is_integer() and abs(value) < 100:
        return f"{value:.1f}"
    return f"{round(value):,}"


def counted(value: int, noun: str, plural: str = "") -> str:
    """A number and a noun, such as "1 job" and "2 jobs"."""
    return f"{number(value)} {noun if value == 1 else plural or noun + 's'}"


def took(seconds: float | None) -> str:
    """The duration of a job, which may be milliseconds."""
    return NONE if seconds is None else text.took(seconds)


def share(part: float, whole: float) -> str:
    """A share in percent; 0 of 0 is 0 %."""
    if not whole or not part:
        return "0%"
    percent = 100 * part / whole
    if percent < 10:
        return f"{percent:.1f}%" if percent >= 0.05 else "<0.1%"
    return f"{percent:.0f}%"


def size(number_of_bytes: float | None) -> str:
    """An amount of memory; a dash for none."""
    return text.size(number_of_bytes) if number_of_bytes else NONE


# Times: the script in the browser keeps them up to date, and shows them in the reader's time zone.


def moment(at: float | None, now: float) -> Markup:
    """How long ago, or in how long; the title has the time."""
    if at is None:
        return Markup("&ndash;")
    return _time(at, relative(at - now), "")


def elapsed(at: float | None, now: float) -> Markup:
    """How much time has passed since `at`."""
    return Markup("&ndash;") if at is None else _time(at, brief(now - at), "for")


def _time(at: float, words: str, kind: str) -> Markup:
    try:
        when = datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return Markup("moment {:g}").format(at)
    mark = Markup(' data-for=""') if kind else Markup()
    return Markup('<time datetime="{}" data-at="{:.3f}" title="{}"{}>{}</time>').format(
        f"{when:%Y-%m-%dT%H:%M:%SZ}", at, f"{when:%Y-%m-%d %H:%M:%S} UTC", mark, words
    )


def relative(seconds: float) -> str:
    """Seconds from now, as text."""
    if abs(seconds) < 1:
        return "now"
    return f"in {brief(seconds)}" if seconds > 0 else f"{brief(-seconds)} ago"


def brief(seconds: float) -> str:
    """A duration, in whole seconds if it is short. The script in the browser continues counting from it."""
    seconds = max(0.0, seconds)
    return f"{seconds:.0f} s" if seconds < 10 else text.span(seconds)


# Arguments and errors.


def args(value: Any) -> Markup:
    """Arguments on one line: name=value."""
    if isinstance(value, Mapping):
        pieces = [Markup("{}=<b>{}</b>").format(key, _short(item)) for key, item in list(value.items())[:12]]
        return Markup(" ").join(pieces)
    return Markup() if value is None else Markup("<b>{}</b>").format(_short(value))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and re.fullmatch(r"\S{1,60}", value) else _json(value)
    return text if len(text) <= MAX_ARGS else text[:MAX_ARGS] + "…"


def pretty(value: Any) -> str:
    """Any JSON value over several lines."""
    return msgspec.json.format(_json(value), indent=2)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def coded(text: str) -> Markup:
    """A text in which `commands` are shown as code."""
    parts = enumerate(text.split("`"))
    return Markup().join(Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in parts)


def line(text: str, most: int = 300) -> str:
    """The first line of a text."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= most else first[:most] + "…"
