"""Triples from a SPARQL query, asked of an endpoint over HTTP or of a local store of pyoxigraph.

A SELECT has the variables ?head ?relation ?tail, or ?s ?p ?o; a CONSTRUCT gives triples as it is. What an endpoint
answers is written to a temporary file and then read piece by piece, so that memory holds the graph only.
"""

from __future__ import annotations

import http.client
import logging
import re
import sys
import tempfile
import urllib.request
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit

from pairre.graph.formats import Layout, TripleColumns, TripleFile
from pairre.graph.formats.rdf import checked_source, rdf_faults, read_serialised
from pairre.graph.formats.rdf_terms import Terms
from pairre.graph.formats.registry import one_line
from pairre.support.errors import GraphError, MissingExtraError
from pairre.support.reading import announced_bytes, check_path, shortened, shown
from pairre.support.terminal import Console, DownloadColumn, TransferSpeedColumn, progress

log = logging.getLogger("pairre")
TIMEOUT = 600.0  # seconds without a byte; an endpoint may think for long before the first
MAX_BYTES = 32 << 30  # of an answer
_CHUNK = 1 << 18
_VARIABLES = (("head", "relation", "tail"), ("s", "p", "o"), ("subject", "predicate", "object"))
_WANTED = "SELECT ?head ?relation ?tail or CONSTRUCT expected"
_RESULTS = {  # media type → pyoxigraph's name of the format, and the RDF whose checks fit
    "application/sparql-results+json": ("JSON", "JSON_LD"),
    "application/json": ("JSON", "JSON_LD"),
    "application/sparql-results+xml": ("XML", "RDF_XML"),
    "text/tab-separated-values": ("TSV", "N_TRIPLES"),
}
_RDF = {
    "application/n-triples": "N_TRIPLES",
    "text/turtle": "TURTLE",
    "application/rdf+xml": "RDF_XML",
    "application/ld+json": "JSON_LD",
}
_ACCEPT = (
    "application/sparql-results+json, application/n-triples, text/turtle;q=0.9, application/sparql-results+xml;q=0.8, "
    "application/rdf+xml;q=0.7, text/tab-separated-values;q=0.6"
)
_PREFIX = re.compile(r"\bPREFIX\s+([^\s:]*)\s*:\s*<([^<>\s]*)>", re.IGNORECASE)


def read_sparql(source: str, query: str, layout: Layout, *, timeout: float = TIMEOUT) -> TripleColumns:
    """Return the triples that a query gives; `source` is the address of an endpoint or the folder of a store.

    Every fault is a GraphError of one line. A bar shows how much has arrived, on a terminal only.
    """
    try:
        import pyoxigraph  # noqa: F401
    except ImportError:
        raise MissingExtraError("SPARQL", "rdf") from None
    if "://" in source:
        _check_address(source)
        with tempfile.TemporaryDirectory(prefix="pairre-") as folder:
            answer = Path(folder) / "answer"
            media_type = _ask(source, query, answer, timeout)
            columns = _read_answer(source, TripleFile(answer, layout), media_type)
    else:
        columns = _query_store(Path(source), query, layout)
    if not len(columns.head):
        skipped = " and ".join(f"{number:,} triples of {what}" for what, number in columns.skipped.items() if number)
        kept = f": {skipped} were skipped (--keep-blank keeps blank nodes and lists)" if skipped else ""
        raise GraphError(f"{shown(source)}: the query gives no triples{kept}")
    return replace(columns, prefixes={**dict(_PREFIX.findall(query)), **columns.prefixes})


def source_name(source: str) -> str:
    """Return what a graph from an endpoint or a store is called."""
    return urlsplit(source).hostname or "sparql" if "://" in source else Path(source).resolve().name


def _check_address(source: str) -> None:
    try:
        address = urlsplit(source)
        valid = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:
        valid = False
    if not valid or not source.isascii() or not source.isprintable() or " " in source:
        raise GraphError(f"{shown(source)}: not the address of an endpoint; http:// or https:// expected")
    if address.username is not None:
        raise GraphError(
            f"{address.scheme}://…@{address.hostname}: names and passwords in an address are not supported"
        )


def _ask(url: str, query: str, answer: Path, timeout: float) -> str:
    """Write what an endpoint answers to a file, and return its media type."""
    headers = {"Accept": _ACCEPT, "User-Agent": "pairre", "Content-Type": "application/x-www-form-urlencoded"}
    request = urllib.request.Request(url, urlencode({"query": query}).encode(), headers)
    with _network_faults(url, timeout), _opener().open(request, timeout=timeout) as response:
        with answer.open("wb") as file:
            _receive(url, response, file)
        if limit := response.headers.get("X-SPARQL-MaxRows"):
            log.warning("%s: gives at most %s rows, so some may be missing", url, shortened(one_line(limit)))
        return str(response.headers.get_content_type())


def _opener() -> urllib.request.OpenerDirector:
    """Return what opens web addresses and follows redirections, to nothing but http and https."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        *(urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler),
        *(urllib.request.HTTPRedirectHandler, urllib.request.HTTPDefaultErrorHandler),
        *(urllib.request.HTTPErrorProcessor, urllib.request.UnknownHandler),
    ):
        opener.add_handler(handler())
    return opener


def _receive(url: str, response: Any, file: Any) -> None:
    total, received = announced_bytes(response.headers.get("Content-Length")), 0
    with progress(
        Console(stderr=True), DownloadColumn(), TransferSpeedColumn(), disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(f"asking {shown(url)}", total=total)
        while chunk := response.read(_CHUNK):
            received += len(chunk)
            if received > MAX_BYTES:
                raise GraphError(f"{url}: the answer has more than {MAX_BYTES >> 30} GiB; ask for less")
            file.write(chunk)
            bar.update(task, completed=received)
    if total is not None and received < total:
        raise GraphError(f"{url}: cut off after {received:,} of {total:,} bytes; try again")


@contextmanager
def _network_faults(url: str, timeout: float) -> Iterator[None]:
    """Turn what goes wrong between here and an endpoint into a GraphError of one line."""
    try:
        yield
    except HTTPError as error:
        with error:
            said = shortened(one_line(error.read(2000).decode("utf-8", "replace")), 200)
        raise GraphError(f"{url}: HTTP {error.code} {error.reason}" + (f": {said}" if said else "")) from error
    except TimeoutError as error:
        raise GraphError(f"{url}: silent for {timeout:g} s; ask for less, or try again") from error
    except URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise GraphError(f"{url}: no answer within {timeout:g} s") from error
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise GraphError(f"{url}: cannot be reached: {one_line(reason)}") from error
    except http.client.HTTPException as error:
        raise GraphError(f"{url}: not an answer over HTTP, or cut off ({type(error).__name__})") from error
    except OSError as error:
        raise GraphError(f"{url}: cut off, or cannot be stored: {error.strerror or error}") from error


def _read_answer(url: str, file: TripleFile, media_type: str) -> TripleColumns:
    """Return the triples of an answer."""
    try:
        if media_type in _RDF:
            return read_serialised(file, _RDF[media_type])
        if media_type in _RESULTS:
            return _read_results(file, *_RESULTS[media_type])
    except GraphError as error:  # the user knows the address, not the temporary file
        raise GraphError(str(error).replace(str(file.path), url)) from error
    raise GraphError(f"{url}: answers with {shortened(media_type)}, which is no result of SPARQL")


def _read_results(file: TripleFile, results_format: str, checked_as: str) -> TripleColumns:
    """Return the triples of the rows that a SELECT gave."""
    import pyoxigraph

    with file.open() as stream, rdf_faults(file.path):
        source = checked_source(file, stream, checked_as)
        given_format = getattr(pyoxigraph.QueryResultsFormat, results_format)
        terms = Terms(file.layout, None)  # labels of blank nodes are those of the answer
        with closing(_triples(file.path, pyoxigraph.parse_query_results(source, given_format))) as triples:
            return terms.finish(file.columns(terms.rows(triples)), {})


def _query_store(folder: Path, query: str, layout: Layout) -> TripleColumns:
    """Return the triples that a query gives on a local store, which is opened for reading only."""
    import pyoxigraph

    check_path(folder)
    if not (folder / "CURRENT").is_file():
        raise GraphError(f"{shown(folder)}: neither an address (http://…) nor the folder of a pyoxigraph store")
    with rdf_faults(f"query of {folder}"):
        try:
            terms = Terms(layout, None)
            with closing(_triples(folder, pyoxigraph.Store.read_only(str(folder)).query(query))) as triples:
                return terms.finish(TripleFile(folder).columns(terms.rows(triples)), {})
        except (OSError, RuntimeError, ValueError) as error:
            raise GraphError(f"{folder}: {shortened(one_line(error), 300)}") from error


def _triples(where: Path, results: Any) -> Generator[tuple[Any, Any, Any], None, None]:
    """Yield the terms of head, relation and tail of every result."""
    import pyoxigraph

    try:
        if isinstance(results, pyoxigraph.QueryTriples):
            yield from map(attrgetter("subject", "predicate", "object"), results)
            return
        if not isinstance(results, pyoxigraph.QuerySolutions):
            raise GraphError(f"{where}: the query asks yes or no; {_WANTED}")
        given = {variable.value.lower(): variable.value for variable in results.variables}
        wanted = next((names for names in _VARIABLES if set(names) <= given.keys()), None)
        if wanted is None:
            found = shortened(" ".join(f"?{name}" for name in given.values()) or "none", 200)
            raise GraphError(f"{where}: the query gives the variables {found}; {_WANTED}")
        names = [given[name] for name in wanted]
        allowed = (pyoxigraph.NamedNode | pyoxigraph.BlankNode, pyoxigraph.NamedNode, object)
        for number, row in enumerate(results, start=1):
            terms = tuple(row[name] for name in names)
            for name, term, kind in zip(names, terms, allowed, strict=True):
                if term is None or not isinstance(term, kind):
                    what = "has no value" if term is None else f"is {shortened(one_line(term))}, which is no IRI"
                    raise GraphError(f"{where}: row {number:,}: ?{name} {what}")
            yield terms
    finally:
        del results  # by the thread that has them, whoever drops the traceback of an error
