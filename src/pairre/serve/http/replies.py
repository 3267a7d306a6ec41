"""Replies of the server: JSON that is exact and holds no control characters, and errors as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from pairre.support.text import json_text


class JSONReply(JSONResponse):
    """An answer as JSON on one line."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of an answer."""
        return json_text(content, indent=None).encode()


def error_reply(
    status: int,
    code: str,
    message: str,
    suggestions: Sequence[str] = (),
    retry_after: float | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return an error as JSON; `retry_after` is in seconds."""
    more = dict(headers or {})
    if retry_after is not None:
        more["retry-after"] = str(max(1, math.ceil(retry_after)))
    body = {"error": {"code": code, "message": message, "suggestions": list(suggestions)}}
    return JSONReply(body, status, more)
