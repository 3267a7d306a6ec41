"""The files of the explorer, read once at the start: a request names one of them, never a path of the disk."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from pairre import serve
from pairre.serve.http.replies import error_reply

_FOLDERS = (
    (Path(serve.__file__).parents[1] / "analysis" / "web", ""),  # not imported: it would load torch
    (Path(serve.__file__).parent / "explorer", ""),
)
_TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_SERVED = {*_TYPES, ".html", ".png", ".ico", ".json", ".webmanifest", ".woff2", ".txt"}


@dataclass(frozen=True)
class StaticFile:
    """A file in memory."""

    data: bytes
    type: str
    tag: str  # for the cache of a browser


def static_files() -> dict[str, StaticFile]:
    """Return the files of the explorer by the path that a request gives, below `/static/`."""
    found = {}
    for folder, prefix in _FOLDERS:
        for file in sorted(folder.rglob("*")):
            if file.is_file() and (file.suffix in _SERVED or file.name.startswith("LICENSE")):
                data = file.read_bytes()
                type = _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "text/plain"
                text = "; charset=utf-8" if type.startswith("text/") else ""
                tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
                found[prefix + file.relative_to(folder).as_posix()] = StaticFile(data, type + text, tag)
    return found


def static_reply(files: Mapping[str, StaticFile], name: str, request: Request) -> Response:
    """Return a file, or that the browser has it, or that there is none."""
    file = files.get(name)
    if file is None:
        return error_reply(404, "not_found", "no such page")
    headers = {"etag": file.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match", "").removeprefix("W/") == file.tag:  # a proxy that packs it says W/
        return Response(status_code=304, headers=headers)
    return Response(file.data, headers=headers, media_type=file.type)
