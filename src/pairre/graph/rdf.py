"""RDF → columns of names through pyoxigraph: IRIs and blank nodes are entities, literals are skipped and counted."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow as pa

from pairre.errors import GraphError, MissingExtraError

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
_CHUNK = 1 << 20
Columns = tuple[list[pa.Array], list[pa.Array], list[pa.Array], int]


def read_rdf(path: Path, stream: IO[bytes], format_name: str) -> Columns:
    """Parse a stream into three lists of dictionary-encoded chunks and the number of literals skipped."""
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtraError(f"{path}: reading RDF", "rdf") from None
    heads: list[str] = []
    relations: list[str] = []
    tails: list[str] = []
    chunks: tuple[list[pa.Array], list[pa.Array], list[pa.Array]] = ([], [], [])
    num_literals = 0

    def flush() -> None:
        for chunk, names in zip(chunks, (heads, relations, tails), strict=True):
            chunk.append(pa.array(names, pa.string()).dictionary_encode())
            names.clear()

    rdf_format = getattr(pyoxigraph.RdfFormat, format_name)
    try:
        for quad in pyoxigraph.parse(stream, rdf_format, base_iri=path.resolve().as_uri()):
            head, tail = _name(quad.subject), _name(quad.object)
            if head is None or tail is None:
                num_literals += 1
                continue
            heads.append(head)
            relations.append(quad.predicate.value)
            tails.append(tail)
            if len(heads) == _CHUNK:
                flush()
    except SyntaxError as error:
        where = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise GraphError(f"{where}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise GraphError(f"{path}: invalid UTF-8 ({error.reason})") from error
    flush()
    return (*chunks, num_literals)


def _name(term: pyoxigraph.NamedNode | pyoxigraph.BlankNode | pyoxigraph.Literal | pyoxigraph.Triple) -> str | None:
    """The name of an entity; None for a literal or a quoted triple, which no embedding here can hold."""
    import pyoxigraph

    if isinstance(term, pyoxigraph.NamedNode):
        return str(term.value)
    if isinstance(term, pyoxigraph.BlankNode):
        return f"_:{term.value}"
    return None
