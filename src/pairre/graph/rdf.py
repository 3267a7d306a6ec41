"""RDF → columns of names through pyoxigraph: IRIs and blank nodes are entities, literals are skipped and counted.

The same file gives the same names anywhere and any time: relative IRIs are resolved against `file:///`, and nodes
without a label, which the parser names at random, are numbered in order of first sight (`_:train#1`).
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import IO, TYPE_CHECKING
from xml.parsers import expat

import pyarrow as pa

from pairre.support.errors import GraphError, MissingExtraError

if TYPE_CHECKING:
    import pyoxigraph

RDF_SUFFIXES = {
    ".nt": "N_TRIPLES",
    ".nq": "N_QUADS",
    ".ttl": "TURTLE",
    ".rdf": "RDF_XML",
    ".xml": "RDF_XML",
    ".jsonld": "JSON_LD",
}
_LABELLED = {"N_TRIPLES", "N_QUADS"}  # every blank node has a label of its own there
_RANDOM = re.compile("[a-f][0-9a-f]{19,31}")  # 128 random bits in hexadecimal, leading zeros left out
_BASE = "file:///"
_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20
Chunks = tuple[list[pa.Array], list[pa.Array], list[pa.Array]]  # head, relation, tail


def read_rdf(path: Path, stream: IO[bytes], format_name: str) -> tuple[Chunks, int]:
    """Parse a stream into three lists of dictionary-encoded chunks and the number of literals skipped."""
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtraError(f"{path}: reading RDF", "rdf") from None
    rows: tuple[list[str], list[str], list[str]] = ([], [], [])
    chunks: Chunks = ([], [], [])
    num_literals = 0

    def flush() -> None:
        for chunk, names in zip(chunks, rows, strict=True):
            chunk.append(pa.array(names, pa.string()).dictionary_encode())
            names.clear()

    name = _Namer(path, format_name)
    heads, relations, tails = rows
    try:
        for quad in pyoxigraph.parse(
            _source(stream, format_name), getattr(pyoxigraph.RdfFormat, format_name), base_iri=_BASE
        ):
            tail = quad.object
            if not isinstance(tail, pyoxigraph.NamedNode | pyoxigraph.BlankNode):
                num_literals += 1  # or a quoted triple: no embedding here can hold either
                continue
            heads.append(name(quad.subject))
            relations.append(quad.predicate.value)
            tails.append(name(tail))
            if len(heads) == _CHUNK:
                flush()
    except expat.ExpatError as error:
        raise GraphError(f"{path}:{error.lineno}: {expat.ErrorString(error.code)}") from error
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise GraphError(f"{where}: {' '.join(error.msg.split())}") from error
    flush()
    return chunks, num_literals


class _Namer:
    """Names of nodes, with those that the parser made up replaced."""

    def __init__(self, path: Path, format_name: str) -> None:
        self.prefix = f"_:{path.name.split('.')[0]}#"  # no label can hold a '#'
        self.labelled = format_name in _LABELLED
        self.made_up: dict[str, str] = {}

    def __call__(self, node: pyoxigraph.NamedNode | pyoxigraph.BlankNode) -> str:
        text = str(node)
        if text[0] == "<":
            return text[1:-1]
        if self.labelled or not _RANDOM.fullmatch(text, 2):
            return text
        return self.made_up.setdefault(text, f"{self.prefix}{len(self.made_up) + 1}")


def _source(stream: IO[bytes], format_name: str) -> IO[bytes]:
    """The stream without a byte order mark, and XML checked on the way."""
    buffered = io.BufferedReader(stream)  # type: ignore[type-var]
    if buffered.peek(3)[:3] == _BOM:
        buffered.read(3)
    return io.BufferedReader(_CheckedXml(buffered)) if format_name == "RDF_XML" else buffered


class _CheckedXml(io.RawIOBase):
    """Passes XML on as it reads it, so that a fault has a line, and a file that is cut off is one."""

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
