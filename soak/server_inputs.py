"""What is fuzzed of servers: requests, arguments of an agent's tools, files of verdicts, messages of scorer processes.

A request may be refused with an error of the client (4xx) as JSON; a server's error (500) is a finding.
"""

from __future__ import annotations

import asyncio
import json
import struct
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from pairre.serve.http.app import Service, build_app
from pairre.serve.http.limits import Limits
from pairre.serve.http.quick import plain_arguments
from pairre.serve.local import LocalEngine
from pairre.serve.reviews import Reviews
from pairre.serve.state import RunState
from pairre.serve.wire import FrameReader, frame, read_answers
from soak.side_inputs import Inputs

RUN = Path(__file__).parents[1] / "tests" / "runs" / "format-3"
_LOOP = asyncio.new_event_loop()
_BASE = "/api/v1/runs/golden"


@cache
def _engine() -> LocalEngine:
    """Return an engine that answers questions about a stored run."""
    engine = LocalEngine(lambda: [RunState.open("golden", RUN, "cpu")], prepares=False)
    _LOOP.run_until_complete(engine.start())
    return engine


@cache
def _app() -> Any:
    reviews = {"golden": Reviews(Path(tempfile.mkdtemp(prefix="pairre-soak-")) / "reviews.jsonl")}
    return build_app(Service(_engine(), ["golden"], limits=Limits(rate=0), reviews=reviews))


def _ask(method: str, path: str, query: bytes = b"", body: bytes = b"") -> tuple[int, bytes]:
    """Return the status and the body of the answer to a request."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    scope = {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"},
        **{"path": path, "raw_path": path.encode(), "query_string": query, "root_path": "", "headers": headers},
        **{"client": ("127.0.0.1", 1), "server": ("localhost", 80)},
    }
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    said: list[Any] = []

    async def receive() -> Any:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        said.append(message)

    _LOOP.run_until_complete(_app()(scope, receive, send))
    return said[0]["status"], b"".join(message.get("body", b"") for message in said[1:])


def _check(status: int, body: bytes) -> None:
    """Raise AssertionError unless this is an answer, or an error of one line in JSON."""
    if status >= 500 and status != 503:
        raise AssertionError(f"status {status}: {body[:200]!r}")
    if status != 200 and len(json.loads(body)["error"]["message"].splitlines()) != 1:
        raise AssertionError(f"a message of several lines: {body[:200]!r}")


def _body(path: str, data: bytes, _folder: Path) -> None:
    """Post a body."""
    _check(*_ask("POST", f"{_BASE}{path}", body=data))


def _query(path: str, data: bytes, _folder: Path) -> None:
    """Ask with a query string."""
    _check(*_ask("GET", f"{_BASE}{path}", query=data))
    plain_arguments(data)


@cache
def _tools() -> Any:
    from pairre.serve.mcp.tools import build_server

    engine = _engine()

    async def opened() -> None:
        pass

    return build_server(engine, "golden", opened)


def _tool(data: bytes, _folder: Path) -> None:
    """Call a tool of agents: its name, then its arguments as JSON."""
    from mcp.server.mcpserver.exceptions import MCPServerError

    name, _, text = data.partition(b" ")
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return  # no message of the protocol
    if not isinstance(arguments, dict):
        return
    try:
        _LOOP.run_until_complete(_tools().call_tool(name.decode("utf-8", "replace"), arguments))
    except MCPServerError:
        return


def _verdicts(data: bytes, folder: Path) -> None:
    """Open a file of verdicts, add one, and read it again: nothing that was read may be lost."""
    file = folder / "reviews.jsonl"
    file.write_bytes(data)
    triple = ("a", "r", "\ud800\n")
    before = _opened(file, lambda reviews: reviews.add(triple, "accept"))
    after = _opened(file, lambda _: None)
    if [one for one in before if _names(one) != triple] != [one for one in after if _names(one) != triple]:
        raise AssertionError("verdicts were lost")


def _opened(file: Path, use: Callable[[Reviews], None]) -> list[Any]:
    """Return the accepted triples of a file, and use it."""
    reviews = Reviews(file)
    try:
        accepted = reviews.accepted()
        reviews.summary()
        use(reviews)
    finally:
        reviews.close()
    return accepted


def _names(accepted: Any) -> tuple[str, str, str]:
    return accepted["head"], accepted["relation"], accepted["tail"]


def _frames(data: bytes, _folder: Path) -> None:
    """Read messages between processes."""
    reader = FrameReader()
    try:
        for start in range(0, len(data), 7):
            for message in reader.feed(data[start : start + 7]):
                list(read_answers(message.data)) if message.tag == "answers" else message.json()
    except (ValueError, KeyError, TypeError, IndexError, struct.error):  # the connection is closed
        return


# --- all of them ------------------------------------------------------------------------------------------------------

_VALUES = (
    *(
        b"9" * 5000,
        b"1e999",
        b"NaN",
        b"-1",
        b"1.5",
        b"true",
        b"null",
        b"[" * 2000,
        b"[]",
        b"{}",
        b'"x"',
        b'""',
        b"1001",
    ),
    *(b'"\\ud800"', b'"\\u0000"', b"\xff", b"\xed\xa0\x80", b"\0", b"x" * 9000, b'"a":', b",", b'"k":0', b'"k":1001'),
    *(b"/", b"%", b"%00", b"%ff", b"&", b"=", b"+", b"%F0%9F", b"e0", b"next", b"previous", b"beside", b"\xe2\x80\xae"),
)
_BODIES = {
    "/predict": (
        b'{"queries": [{"head": "e0", "relation": "next"}, {"relation": "beside", "tail": "e1"}], "k": 3}',
        b'{"queries": [{"head": "e0", "tail": "e1"}], "k": 9, "known": true, "any": true, "type": "x"}',
    ),
    "/score": (b'{"triples": [["e0", "next", "e1"], ["e3", "beside", "e2"]]}',),
    "/review": (b'{"head": "e0", "relation": "next", "tail": "e1", "verdict": "accept"}',),
}
_QUERIES = {
    "/predict": (
        b"head=e0&relation=next&k=3&known=true",
        b"relation=beside&tail=e1&any=true&type=x",
        b"head=e0&tail=e1",
    ),
    "/search": (b"q=e1&kind=any&limit=5", b"q=n%C3%A9xt"),
    "/entity": (b"name=e0&limit=3",),
    "/neighbourhood": (b"name=e0&limit=3",),
    "/similar": (b"name=e0&k=3",),
    "/review/export": (b"format=csv",),
}
_CALLS = (
    *(b'search {"text": "e1", "kind": "any", "limit": 3}', b'facts {"entity": "e0", "relation": "next", "limit": 2}'),
    *(b'predict {"head": "e0", "relation": "next", "k": 2}', b'similar {"entity": "e0", "k": 2}'),
)
_LINES = (
    b'{"head": "a", "relation": "r", "tail": "b", "verdict": "accept", "when": "2026-01-01T00:00:00+00:00"}\n'
    b'{"head": "a", "relation": "r", "tail": "c", "verdict": "reject", "when": "2026-01-01T00:00:00+00:00"}\n'
    b'{"head": "a", "relation": "r", "tail": "b", "verdict": "undo", "when": ""}\n{"head": "cut o',
)


def server_inputs() -> Inputs:
    """Return all of them by name."""
    found: Inputs = {f"post{path}": (partial(_body, path), seeds, _VALUES) for path, seeds in _BODIES.items()}
    found |= {f"get{path}": (partial(_query, path), seeds, _VALUES) for path, seeds in _QUERIES.items()}
    found["tools"] = (
        _tool,
        _CALLS,
        (*_VALUES, b"search ", b"facts ", b"predict ", b"similar ", b'"head": ', b'"tail": '),
    )
    found["verdicts"] = (
        _verdicts,
        _LINES,
        (*_VALUES, b"\n", b'"verdict": "accept"', b'"undo"', b"\r\n", b"\xef\xbb\xbf"),
    )
    answers = frame("answers", b"\x0d\0\0\0[[1,false,2]]{}")
    found["frames"] = _frames, (answers, frame("setup", b"{}") + frame("calls", b"[]")), (b"\xff" * 4, b"\0" * 4, b"{}")
    return found
