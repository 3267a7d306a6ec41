"""RDF in all its serialisations, parsed by pyoxigraph: IRIs are entities, labels are read, other literals are skipped.

The same file gives the same names on every machine and in every run: relative IRIs are resolved against `file:///`,
and blank nodes without a label, which the parser names at random, are numbered in order of appearance (`_:train#1`).
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import IO
from xml.parsers import expat

from pairre.graph.formats.rdf_checks import BLOCK, MAX_TOKEN, Checked, CheckedJson, CheckedText, CheckedXml
from pairre.graph.formats.rdf_terms import Terms
from pairre.graph.formats.registry import TripleColumns, TripleFile, one_line, register
from pairre.graph.streams import BYTE_ORDER_MARK
from pairre.support.errors import GraphError, MissingExtraError
from pairre.support.reading import shortened

_SERIALISATIONS = {  # ending → pyoxigraph's name
    ".nt": "N_TRIPLES",
    ".nq": "N_QUADS",
    ".ttl": "TURTLE",
    ".rdf": "RDF_XML",
    ".xml": "RDF_XML",
    ".jsonld": "JSON_LD",
}
_ALWAYS_LABELLED = {"N_TRIPLES", "N_QUADS"}  # serialisations in which every blank node has a label
_BASE = "file:///"


@register(*_SERIALISATIONS, help="RDF; labels are read, other literals and blank nodes are skipped and counted")
def read_rdf(file: TripleFile) -> TripleColumns:
    """Return the triples of an RDF file with its prefixes and labels, and the numbers of what was skipped."""
    return read_serialised(file, _SERIALISATIONS[file.ending])


def read_serialised(file: TripleFile, serialisation: str) -> TripleColumns:
    """Return the triples of a file in one of the serialisations, by pyoxigraph's name of it."""
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtraError(f"{file.path}: reading RDF", "rdf") from None
    blank_prefix = f"_:{file.path.name.split('.')[0]}#"  # a label cannot contain '#'
    with file.open() as stream, rdf_faults(file.path):
        source = checked_source(file, stream, serialisation)
        parser = pyoxigraph.parse(source, getattr(pyoxigraph.RdfFormat, serialisation), base_iri=_BASE)
        terms = Terms(file.layout, None if serialisation in _ALWAYS_LABELLED else blank_prefix)
        columns = file.columns(terms.rows(map(attrgetter("subject", "predicate", "object"), parser)))
        return terms.finish(columns, parser.prefixes)


@contextmanager
def rdf_faults(where: Path | str) -> Iterator[None]:
    """Turn what the parsers raise in the block into a GraphError of one line."""
    try:
        yield
    except expat.ExpatError as error:
        raise GraphError(f"{where}:{error.lineno}: {expat.ErrorString(error.code)}") from error
    except SyntaxError as error:
        line = f":{error.lineno}" if error.lineno else ""
        raise GraphError(f"{where}{line}: {shortened(one_line(error.msg), 300)}") from error
    except MemoryError as error:  # pyoxigraph's word for a token that does not fit into its buffer
        raise GraphError(f"{where}: a name or a literal of more than {MAX_TOKEN >> 20} MiB") from error


def checked_source(file: TripleFile, stream: IO[bytes], serialisation: str) -> IO[bytes]:
    """Return the stream without a byte order mark, checked as it is read."""
    source = _without_mark(stream)
    checked: Checked
    if serialisation == "RDF_XML":
        checked = CheckedXml(file.path, source)
    elif serialisation == "JSON_LD":
        checked = CheckedJson(file.path, source)
    else:
        line_based = serialisation in _ALWAYS_LABELLED
        checked = CheckedText(file.path, source, lambda: _without_mark(file.open()), line_based)
    return io.BufferedReader(checked, BLOCK)


def _without_mark(stream: IO[bytes]) -> IO[bytes]:
    buffered = io.BufferedReader(stream)  # type: ignore[type-var]
    if buffered.peek(3)[:3] == BYTE_ORDER_MARK:
        buffered.read(3)
    return buffered
