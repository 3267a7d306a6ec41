"""RDF in all its serialisations, parsed by pyoxigraph: IRIs and blank nodes are entities, literals are skipped.

The same file gives the same names on every machine and in every run: relative IRIs are resolved against `file:///`,
and blank nodes without a label, which the parser names at random, are numbered in order of appearance (`_:train#1`).
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import IO, TYPE_CHECKING
from xml.parsers import expat

from pairre.graph.formats.registry import TripleColumns, TripleFile, one_line, register
from pairre.graph.streams import BYTE_ORDER_MARK
from pairre.support.errors import GraphError, MissingExtraError

if TYPE_CHECKING:
    import pyoxigraph

_SERIALISATIONS = {  # ending → pyoxigraph's name
    ".nt": "N_TRIPLES",
    ".nq": "N_QUADS",
    ".ttl": "TURTLE",
    ".rdf": "RDF_XML",
    ".xml": "RDF_XML",
    ".jsonld": "JSON_LD",
}
_ALWAYS_LABELLED = {"N_TRIPLES", "N_QUADS"}  # serialisations in which every blank node has a label
_RANDOM_LABEL = re.compile("[a-f][0-9a-f]{19,31}")  # 128 random bits in hexadecimal without leading zeros
_BASE = "file:///"


@register(*_SERIALISATIONS, help="RDF; literals are skipped and counted")
def read_rdf(file: TripleFile) -> TripleColumns:
    """Return the triples of an RDF file and the number of literals that were skipped."""
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtraError(f"{file.path}: reading RDF", "rdf") from None
    with file.open() as stream:
        triples = _Triples(file, stream)
        try:
            columns = file.columns(triples.rows(pyoxigraph))
        except expat.ExpatError as error:
            raise GraphError(f"{file.path}:{error.lineno}: {expat.ErrorString(error.code)}") from error
        except SyntaxError as error:
            where = f"{file.path}:{error.lineno}" if error.lineno else str(file.path)
            raise GraphError(f"{where}: {one_line(error.msg)}") from error
    return replace(columns, num_literals=triples.num_literals)


class _Triples:
    """The triples of a stream as names, with the random labels of the parser replaced by numbers."""

    def __init__(self, file: TripleFile, stream: IO[bytes]) -> None:
        self.num_literals = 0
        self._serialisation = _SERIALISATIONS[file.ending]
        self._source = _text_source(stream, self._serialisation)
        self._always_labelled = self._serialisation in _ALWAYS_LABELLED
        self._prefix = f"_:{file.path.name.split('.')[0]}#"  # a label cannot contain '#'
        self._replacements: dict[str, str] = {}

    def rows(self, parser: ModuleType) -> Iterator[tuple[str, str, str]]:
        """Yield head, relation and tail of every triple whose tail is an entity."""
        entity = parser.NamedNode | parser.BlankNode
        rdf_format = getattr(parser.RdfFormat, self._serialisation)
        for quad in parser.parse(self._source, rdf_format, base_iri=_BASE):
            if isinstance(quad.object, entity):
                yield self._name(quad.subject), quad.predicate.value, self._name(quad.object)
            else:
                self.num_literals += 1  # or a quoted triple: no embedding here can represent either

    def _name(self, node: pyoxigraph.NamedNode | pyoxigraph.BlankNode) -> str:
        text = str(node)
        if text[0] == "<":
            return text[1:-1]
        if self._always_labelled or not _RANDOM_LABEL.fullmatch(text, 2):
            return text
        return self._replacements.setdefault(text, f"{self._prefix}{len(self._replacements) + 1}")


def _text_source(stream: IO[bytes], serialisation: str) -> IO[bytes]:
    """Return the stream without a byte order mark; XML is checked as it is read."""
    buffered = io.BufferedReader(stream)  # type: ignore[type-var]
    if buffered.peek(3)[:3] == BYTE_ORDER_MARK:
        buffered.read(3)
    return io.BufferedReader(_CheckedXml(buffered)) if serialisation == "RDF_XML" else buffered


class _CheckedXml(io.RawIOBase):
    """A stream of XML that is checked by expat: pyoxigraph neither reports lines nor notices a truncated file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.parser = expat.ParserCreate()
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.stream.read(len(buffer))
        if not self.ended:
            self.parser.Parse(data, not data)
        self.ended = not data
        buffer[: len(data)] = data
        return len(data)
