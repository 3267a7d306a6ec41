"""Graphs from SPARQL: an endpoint on this machine evaluates queries in every format; a store; faults of one line."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from pairre.graph import load_graph
from pairre.graph.formats import Layout
from pairre.graph.sparql import read_sparql
from pairre.support.errors import GraphError, PairREError

ox = pytest.importorskip("pyoxigraph", reason="SPARQL needs pairre[rdf]")

E = "http://e.org/"
TTL = f"""@prefix e: <{E}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
e:a e:feeds e:b ; rdfs:label "Fan" ; e:age 7 . e:b e:feeds e:c , [ e:p e:a ] . e:feeds rdfs:label "feeds" .
"""
PREFIX = f"PREFIX ex: <{E}> "
ALL = "WHERE { ?s ?p ?o }"
TRIPLES = {(f"{E}a", f"{E}feeds", f"{E}b"), (f"{E}b", f"{E}feeds", f"{E}c")}


def filled(store):
    store.load(TTL.encode(), ox.RdfFormat.TURTLE)
    return store


class Endpoint(BaseHTTPRequestHandler):
    """Answers queries as `fault`, or else as the format of the server says."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked = self.headers
        status, media, answer, extra = self.server.reply(parse_qs(body)["query"][0])
        self.send_response(status)
        for name, value in {"Content-Type": media, "Content-Length": str(len(answer)), **extra}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        store = filled(ox.Store())
        server.evaluate = lambda query, form: store.query(query).serialize(format=form)
        server.url = f"http://127.0.0.1:{server.server_port}/query"
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def without_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def triples(graph):
    assert not len(graph.valid)
    assert not len(graph.test)
    return set(graph.names(graph.train))


def load(**options):
    return load_graph(split=(1, 0, 0), **options)


FORMATS = {
    "application/sparql-results+json; charset=utf-8": ("SELECT * " + ALL, ox.QueryResultsFormat.JSON),
    "application/sparql-results+xml": ("SELECT * " + ALL, ox.QueryResultsFormat.XML),
    "text/tab-separated-values": ("SELECT * " + ALL, ox.QueryResultsFormat.TSV),
    "application/n-triples": ("CONSTRUCT " + ALL, ox.RdfFormat.N_TRIPLES),
    "text/turtle": ("CONSTRUCT " + ALL, ox.RdfFormat.TURTLE),
    "application/rdf+xml": ("CONSTRUCT " + ALL, ox.RdfFormat.RDF_XML),
}


@pytest.mark.parametrize("media", FORMATS)
def test_an_endpoint_gives_the_same_graph_in_every_format(server, media):
    query, form = FORMATS[media]
    server.reply = lambda text: (200, media, server.evaluate(text, form), {})
    graph = load(sparql=server.url, query=PREFIX + query)
    assert graph.name == "127.0.0.1"
    assert triples(graph) == TRIPLES
    assert graph.annotations.skipped == {"literals": 1, "blank nodes": 2}
    assert (graph.show_entity(graph.find_entity("fan")), graph.show_relation(0)) == ("Fan", "feeds")
    assert graph.find_entity("ex:b") == graph.find_entity(f"{E}b")
    assert len(load(sparql=server.url, query=PREFIX + query, keep_blank=True).train) == 4
    assert "application/sparql-results+json" in server.asked["Accept"]


@pytest.mark.parametrize("query", [f"{PREFIX} SELECT ?head ?relation ?tail WHERE {{ ?head ?relation ?tail }}", "C"])
def test_a_local_store(tmp_path, query):
    filled(ox.Store(str(tmp_path / "store"))).flush()
    text = tmp_path / "query.rq"
    text.write_text(query.replace("C", "CONSTRUCT " + ALL) if query == "C" else query)
    graph = load(sparql=tmp_path / "store", query=text)
    assert (graph.name, triples(graph)) == ("store", TRIPLES)
    assert graph.show_entity(graph.find_entity("FAN")) == "Fan"


def test_the_limit_of_an_endpoint_is_announced(server, caplog):
    query, form = FORMATS["text/turtle"]
    server.reply = lambda text: (200, "text/turtle", server.evaluate(text, form), {"X-SPARQL-MaxRows": "10000"})
    load(sparql=server.url, query=query)
    assert "gives at most 10000 rows, so some may be missing" in caplog.text


JSON = "application/sparql-results+json"


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((500, "text/plain", b"out of\nmemory\x1b[0m", {}), "HTTP 500 Internal Server Error: out of memory"),
        ((400, "text/plain", b"", {}), "HTTP 400 Bad Request"),
        ((302, "text/plain", b"", {"Location": "file:///etc/passwd"}), "HTTP 302 "),
        ((302, "text/plain", b"", {"Location": "ftp://127.0.0.1/x"}), "cannot be reached: unknown url type: ftp"),
        ((200, "text/html", b"<html>", {}), "answers with text/html, which is no result of SPARQL"),
        ((200, JSON, b"", {}), ""),
        ((200, JSON, b'{"head": {"vars": ["s"', {}), ""),
        ((200, JSON, b"[" * 5000, {}), "nested more than 256 levels deep"),
        ((200, JSON, b'{"head": {}, "boolean": true}', {}), "the query asks yes or no; SELECT ?head"),
        (
            (200, JSON, b'{"head": {"vars": ["x", "p", "o"]}, "results": {"bindings": []}}', {}),
            "the query gives the var",
        ),
        (
            (200, JSON, b'{"head": {"vars": ["s", "p", "o"]}, "results": {"bindings": []}}', {}),
            "the query gives no trip",
        ),
        ((200, "text/tab-separated-values", b"?s\t?p\t?o\n<a:a>\t<a:b>\t\n", {}), "row 1: ?o has no value"),
        ((200, "text/tab-separated-values", b"?s\t?p\t?o\n<a:a>\t2\t3\n", {}), 'row 1: ?p is "2"^^'),
        ((200, "application/sparql-results+xml", b"<sparql", {}), ""),
        ((200, "application/n-triples", b"<a:a> <a:b>\n", {}), "query:2: "),
        ((200, "text/turtle", b"<a:a>", {"Content-Length": "500"}), "cut off"),
        ((200, "text/turtle", b"<a:a>", {"Content-Length": "9" * 5000}), ""),
    ],
)
def test_a_fault_of_an_endpoint_is_one_line(server, reply, message, tmp_path):
    server.reply = lambda _: reply
    with pytest.raises(GraphError) as caught:
        load(sparql=server.url, query="SELECT * " + ALL)
    text = str(caught.value)
    assert text.startswith(server.url), text
    assert message in text
    assert "\n" not in text
    assert "/answer" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sparql": "http://127.0.0.1:1/q", "query": "x"},
            "cannot be reached: Connection refused",
        ),
        (
            {"sparql": "file:///etc/passwd", "query": "x"},
            "not the address of an endpoint; http:// or",
        ),
        ({"sparql": "ftp://e.org/", "query": "x"}, "not the address of an endpoint"),
        ({"sparql": "http://", "query": "x"}, "not the address of an endpoint"),
        ({"sparql": "http://e.org:x/", "query": "x"}, "not the address of an endpoint"),
        ({"sparql": "http://e.org/ x", "query": "x"}, "not the address of an endpoint"),
        ({"sparql": "http://me:secret@e.org/", "query": "x"}, "http://…@e.org: names and passwords in an address"),
        ({"sparql": "nowhere", "query": "x"}, "nowhere: neither an address (http://…) nor the folder of a pyoxigraph"),
        ({"sparql": "http://e.org/"}, "an endpoint (sparql) needs a query, and no other source"),
        ({"source": "atlas", "sparql": "http://e.org/", "query": "x"}, "needs a query, and no other source"),
        ({"source": "atlas", "query": "x"}, "a graph needs a source, or an endpoint (sparql) with a query"),
        ({}, "a graph needs a source, or an endpoint (sparql) with a query"),
    ],
)
def test_what_is_no_source_is_refused(options, message):
    with pytest.raises(PairREError) as caught:
        load(**options)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT", "query of "),
        ("ASK " + ALL, "the query asks yes or no"),
        ("SELECT ?s ?p WHERE { ?s ?p ?o }", "the query gives the variables ?s ?p; SELECT ?head"),
        ("SELECT (1 AS ?head) ?relation ?tail WHERE { ?tail ?relation ?o }", "row 1: ?head is"),
        ("SELECT * WHERE { ?s ?p ?o FILTER(false) }", "the query gives no triples"),
        (
            f"SELECT * WHERE {{ ?s ?p ?o FILTER(?p = <{E}p>) }}",
            "the query gives no triples: 1 triples of blank nodes were skipped (--keep-blank keeps",
        ),
    ],
)
def test_a_fault_of_a_query_is_one_line(tmp_path, query, message):
    filled(ox.Store(str(tmp_path / "store"))).flush()
    with pytest.raises(GraphError, match=r"[^\n]*") as caught:
        load(sparql=tmp_path / "store", query=query)
    assert message in str(caught.value).replace("\n", "LINE")


@pytest.mark.parametrize(
    "query", ["SELECT ?s ?p WHERE { ?s ?p ?o }", "SELECT (1 AS ?head) ?relation ?tail WHERE { ?tail ?relation ?o }"]
)
def test_another_thread_may_drop_an_error(tmp_path, query, monkeypatch):
    """Results that are freed there raise an error that nobody can catch."""
    filled(ox.Store(str(tmp_path / "store"))).flush()
    lost, held = [], []
    monkeypatch.setattr("sys.unraisablehook", lost.append)
    try:
        load(sparql=tmp_path / "store", query=query)
    except GraphError as error:
        held.append(error)
    assert held
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert not lost


def test_a_damaged_store_and_a_silent_endpoint(tmp_path):
    (tmp_path / "CURRENT").write_text("nonsense")
    with pytest.raises(GraphError, match=str(tmp_path)):
        load(sparql=tmp_path, query="SELECT * " + ALL)
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(GraphError, match=f"^{url}: (silent for|no answer within) 0.2 s"):
            read_sparql(url, "x", Layout(), timeout=0.2)
