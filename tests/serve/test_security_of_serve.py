"""Who is answered: host names, tokens, origins, and the headers of every answer."""

import inspect

import pytest

from pairre.serve.http import security
from pairre.serve.http.security import Access, host_of, is_loopback
from pairre.support.errors import PairREError
from serve.conftest import served

TOKEN = "a-secret-of-some-length"
BEARER = {"authorization": f"Bearer {TOKEN}"}
TRIPLE = {"head": "France", "relation": "borders", "tail": "Italy"}


@pytest.fixture(scope="module")
def guarded(atlas_run, tmp_path_factory):
    """A server with a token that one other site may ask."""
    access = Access.of("0.0.0.0", TOKEN, ["https://example.org"])
    with served({"atlas": atlas_run}, tmp_path_factory.mktemp("reviews"), access=access, prepares=False) as found:
        yield found.client


LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"]
ELSEWHERE = ["0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.evil", ""]
PROTECTED = ["/api/v1/runs", "/api/v1/openapi.json", "/metrics", "/api/v1/runs/atlas/entity?name=Peru"]
EVERYWHERE = ["/", "/static/main.js", "/health", "/metrics", "/api/v1/runs", "/api/v1/runs/x", "/none"]
FOREIGN = ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "10.0.0.1", "[::2]:80", ""]


@pytest.mark.parametrize("host", [*LOOPBACK, *ELSEWHERE])
def test_which_hosts_are_this_machine(host):
    assert is_loopback(host) == (host in LOOPBACK)


def test_another_host_needs_a_token():
    with pytest.raises(PairREError, match="PAIRRE_TOKEN"):
        Access.of("0.0.0.0", None, environment={})
    assert Access.of("0.0.0.0", None, environment={"PAIRRE_TOKEN": TOKEN}).token == TOKEN
    assert Access.of("127.0.0.1", None, environment={}).token is None
    assert Access.of("127.0.0.1", None, environment={"PAIRRE_TOKEN": ""}).token is None


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "with a\nline break and more", "é" * 20])
def test_a_token_that_is_easily_guessed_or_sent_wrongly_is_refused(token):
    with pytest.raises(PairREError, match="16 or more"):
        Access.of("127.0.0.1", token, environment={})


@pytest.mark.parametrize(
    "origin", ["*", "https://*.example.org", "example.org", "https://example.org/path", "file://x"]
)
def test_origins_are_named_one_by_one(origin):
    with pytest.raises(PairREError, match="allow-origin"):
        Access.of("127.0.0.1", None, [origin])


@pytest.mark.parametrize("path", PROTECTED)
def test_the_api_wants_the_token(guarded, path):
    wrong = ["Bearer wrong", f"bearer {TOKEN}", TOKEN, f"Bearer {TOKEN} ", f"Basic {TOKEN}", "Bearer \xff"]
    for headers in ({}, *({"authorization": text.encode("latin-1")} for text in wrong)):
        refused = guarded.get(path, headers=headers)
        if headers.get("authorization") == f"Bearer {TOKEN} ".encode():
            continue  # HTTP strips the space
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert TOKEN not in refused.text
    assert guarded.get(path, headers=BEARER).status_code == 200
    assert guarded.get(f"{path}{'&' if '?' in path else '?'}token={TOKEN}").status_code == 401  # never in an address


def test_the_page_and_the_probes_need_no_token(guarded):
    for path in ("/", "/static/main.js", "/health", "/ready"):
        assert guarded.get(path).status_code == 200


def test_tokens_are_compared_in_constant_time():
    assert "hmac.compare_digest(given, self._token)" in inspect.getsource(security)
    assert "== self._token" not in inspect.getsource(security)


@pytest.mark.parametrize("path", EVERYWHERE)
def test_every_answer_binds_the_browser(server, path):
    headers = server.client.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_answers_are_not_cached(server):
    assert server.client.get("/api/v1/runs").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("host", FOREIGN)
def test_other_host_names_are_refused_on_loopback(server, host):
    """A page whose name is pointed at this machine (DNS rebinding) would else read answers."""
    for path in ("/", "/api/v1/runs", "/health"):
        response = server.client.get(path, headers={"host": host})
        assert response.status_code == 400, host
        assert response.json()["error"]["code"] == "bad_host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "127.0.0.2"])
def test_the_names_of_this_machine_are_answered(server, host):
    assert server.client.get("/health", headers={"host": host}).status_code == 200


def test_a_host_name_that_is_allowed(atlas_run):
    access = Access.of("127.0.0.1", None, hosts=["kg.example.org"])
    with served({"atlas": atlas_run}, access=access, prepares=False) as found:
        assert found.client.get("/health", headers={"host": "KG.example.org"}).status_code == 200
        assert found.client.get("/health", headers={"host": "other.example.org"}).status_code == 400


@pytest.mark.parametrize(
    ("header", "name"),
    [("a.b:80", "a.b"), ("a.b", "a.b"), ("[::1]", "::1"), ("[::1]:80", "::1"), ("A.B", "a.b"), ("", "")],
)
def test_names_in_host_headers(header, name):
    assert host_of(header) == name


def test_other_sites_read_nothing_unless_they_are_named(server, guarded):
    preflight = {"origin": "https://example.org", "access-control-request-method": "GET"}
    preflight["access-control-request-headers"] = "authorization"
    refused = server.client.options("/api/v1/runs", headers=preflight)
    assert "access-control-allow-origin" not in refused.headers
    allowed = guarded.options("/api/v1/runs", headers=preflight)
    assert allowed.headers["access-control-allow-origin"] == "https://example.org"
    answered = guarded.get("/api/v1/runs", headers={**BEARER, "origin": "https://example.org"})
    assert answered.headers["access-control-allow-origin"] == "https://example.org"
    assert "access-control-allow-credentials" not in answered.headers
    other = guarded.get("/api/v1/runs", headers={**BEARER, "origin": "https://other.example"})
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://localhost:9"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_pages_of_other_sites_cannot_store_verdicts(server, headers, status):
    response = server.client.post("/api/v1/runs/atlas/review", json={**TRIPLE, "verdict": "undo"}, headers=headers)
    assert response.status_code == status, response.text


def test_a_form_cannot_post(server):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        body = '{"head": "France", "relation": "borders", "tail": "Italy", "verdict": "undo"}'
        response = server.client.post("/api/v1/runs/atlas/review", content=body, headers={"content-type": kind})
        assert response.status_code == 422, kind
