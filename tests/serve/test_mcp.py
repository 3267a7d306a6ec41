"""The tools of agents, by the official client in real sessions: over standard input and output, and over HTTP."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, contextmanager

import pytest

pytest.importorskip("mcp")
from mcp import Client, StdioServerParameters

STARTS = 300  # seconds within which a loaded machine has started a server
TOOLS = {"search", "facts", "predict", "why", "similar"}
TOKEN = "a-secret-of-some-length"


@asynccontextmanager
async def over_stdio(run):
    """Start the command as an agent's program does, and yield a session with it."""
    arguments = ["-m", "pairre", "mcp", str(run), "--device", "cpu"]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))) as client:
        yield client


@contextmanager
def listening(run, *arguments, environment=None):
    """Run the command with --http; yield the process and its URL."""
    command = [sys.executable, "-m", "pairre", "mcp", str(run), "--http", "--port", "0", "--device", "cpu", *arguments]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    killer = threading.Timer(STARTS, process.kill)
    killer.start()
    try:
        lines = iter(process.stderr.readline, "")
        found = next((match for line in lines if (match := re.search(r"http://\S+/mcp", line))), None)
        assert found, "the server did not start"
        yield process, found.group()
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


async def check_session(client):
    """Ask every tool, and what is wrong, in one session."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == TOOLS
    for tool in tools.values():
        assert len(tool.description) > 40
        assert tool.input_schema["type"] == tool.output_schema["type"] == "object"
        assert tool.annotations.read_only_hint
        for name, argument in tool.input_schema["properties"].items():
            assert argument.get("description"), f"{tool.name}: {name} says nothing"
    results = {
        "search": await client.call_tool("search", {"text": "fran", "kind": "entity"}),
        "facts": await client.call_tool("facts", {"entity": "France", "relation": "borders"}),
        "predict": await client.call_tool("predict", {"head": "France", "relation": "borders", "k": 3}),
        "why": await client.call_tool("why", {"head": "France", "relation": "borders", "tail": "Italy", "k": 2}),
        "similar": await client.call_tool("similar", {"entity": "France", "k": 2}),
    }
    for name, result in results.items():
        assert not result.is_error, (name, result.content)
        assert json.loads(result.content[0].text) == result.structured_content
        assert "\n" not in result.content[0].text
    found = {name: result.structured_content for name, result in results.items()}
    assert found["search"]["results"][0]["name"] == "France"
    [as_head, _] = sorted(found["facts"]["facts"], key=lambda one: one["entity_is"])
    assert "Germany" in as_head["others"]
    assert found["predict"]["query"] == "France | borders | ?"
    assert len(found["predict"]["answers"]) == 3
    known = {answer["answer"] for answer in found["predict"]["answers"]} & set(as_head["others"])
    assert not known, "what is known is not predicted"
    assert found["why"]["triple"] == "France | borders | Italy"
    assert found["why"]["known"] == "train"
    assert len(found["similar"]["similar"]) == 2
    return found


async def check_faults(client):
    """Ask what makes no sense: the session goes on, and the answer says what to write."""
    wrong = await client.call_tool("predict", {"head": "Frnace", "relation": "borders"})
    assert wrong.is_error
    assert "did you mean: France" in wrong.content[0].text
    for arguments in ({"head": "France"}, {"head": "France", "relation": "borders", "k": 0}, {"k": 10**9}):
        assert (await client.call_tool("predict", arguments)).is_error
    assert (await client.call_tool("why", {"head": "France", "relation": "borders"})).is_error
    assert (await client.call_tool("facts", {"entity": "x" * 9000})).is_error
    assert not (await client.call_tool("similar", {"entity": "Italy"})).is_error


@pytest.mark.slow
def test_a_session_over_standard_input_and_output(atlas_run):
    async def session():
        async with over_stdio(atlas_run) as client:
            await check_session(client)
            await check_faults(client)

    asyncio.run(asyncio.wait_for(session(), 4 * STARTS))


@pytest.mark.slow
def test_a_session_over_http_and_an_orderly_end(atlas_run):
    async def session(url):
        async with Client(url) as client, Client(url) as other:
            first, second = await asyncio.gather(check_session(client), check_session(other))
            assert first == second
            await check_faults(client)

    with listening(atlas_run) as (process, url):
        asyncio.run(asyncio.wait_for(session(url), 4 * STARTS))
        process.send_signal(signal.SIGTERM)
        assert process.wait(STARTS) == 0


@pytest.mark.slow
def test_who_is_answered_over_http(atlas_run):
    import httpx2 as httpx

    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"accept": "application/json, text/event-stream"}
    with listening(atlas_run, environment={"PAIRRE_TOKEN": TOKEN}) as (_, url):

        def status(**headers):
            return httpx.post(url, json=message, headers={**accept, **headers}, timeout=STARTS).status_code

        bearer = {"authorization": f"Bearer {TOKEN}"}
        assert status() == 401
        assert status(authorization="Bearer no") == 401
        assert status(**bearer, host="evil.example") == 400
        assert status(**bearer, origin="https://evil.example") == 403
        assert status(**bearer) not in (401, 403)
        too_large = httpx.post(url, content=b"x" * (2 << 20), headers={**accept, **bearer}, timeout=STARTS)
        assert too_large.status_code == 413


def test_hostile_names_stay_names(hostile_run):
    from pairre.serve.local import LocalEngine
    from pairre.serve.mcp.tools import build_server
    from pairre.serve.state import RunState

    async def session():
        engine = LocalEngine(lambda: [RunState.open("run", hostile_run, "cpu")], prepares=False)
        starting = asyncio.ensure_future(engine.start())
        async with Client(build_server(engine, "run", lambda: asyncio.shield(starting))) as client:
            found = await client.call_tool("search", {"text": "🦆", "kind": "entity"})
            assert found.structured_content["results"][0]["name"] == "🦆 duck"
            every = await client.call_tool("predict", {"head": "<script>alert(1)</script>", "relation": "<i>rel</i>"})
            assert not every.is_error, every.content
            assert not re.search("[\x00-\x1f\u202e\u2028]", every.content[0].text)
            for answer in every.structured_content["answers"]:
                again = await client.call_tool("similar", {"entity": answer["answer"]})
                assert not again.is_error, "what a tool returns can be given to a tool"
        await engine.stop()

    asyncio.run(session())


def test_a_run_that_is_not_there(call):
    code, _, err = call("mcp", "no/such/run")
    assert code == 2
    assert "no such run folder" in err


def test_beyond_this_machine_a_token_is_needed(call, atlas_run, monkeypatch):
    monkeypatch.delenv("PAIRRE_TOKEN", raising=False)
    code, _, err = call("mcp", atlas_run, "--http", "--host", "0.0.0.0")
    assert code == 2
    assert "token" in err
