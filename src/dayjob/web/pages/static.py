"""The files that pages load: one style sheet, one script, one icon. No other file is served."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dayjob.web.reading import compressed
from dayjob.web.render import STATIC, static

#: Addresses contain a digest of the content, so a cached file is never out of date.
_KEPT = "public, max-age=31536000, immutable"


async def static_file(request: Request) -> Response:
    """One of the files, by its name."""
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404)
    data, mark = static(name)
    kept = _KEPT if request.query_params.get("v") == mark else "no-cache"
    body, packed = compressed(request, data)
    headers = {"cache-control": kept, "vary": "Accept-Encoding"} | packed
    return Response(body, media_type=STATIC[name], headers=headers)
