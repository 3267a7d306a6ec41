"""From terms of RDF to names: labels are collected, and literals, blank nodes and lists are skipped and counted.

Blank nodes stand for things without a name, such as the restrictions of an ontology and the cells of a list, so no
answer could name them. `Layout.keep_blank` keeps them, and lists too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pairre.graph.formats.registry import Layout, TripleColumns

if TYPE_CHECKING:
    import pyoxigraph

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
LITERALS, BLANK_NODES, LISTS = "literals", "blank nodes", "RDF lists"  # what is skipped
LABELS = pa.schema({"name": pa.string(), "label": pa.string(), "rank": pa.int32()})
_LABEL_RELATIONS = {  # relation → how much worse it is than the best
    "http://www.w3.org/2000/01/rdf-schema#label": 0,
    "http://www.w3.org/2004/02/skos/core#prefLabel": 10,
}
_LIST_RELATIONS = {f"{RDF}first", f"{RDF}rest"}
_RANDOM_LABEL = re.compile("[a-f][0-9a-f]{19,31}")  # 128 random bits in hexadecimal without leading zeros
_CHUNK = 1 << 16  # labels that are encoded at once


class Terms:
    """Reads triples of terms as names; afterwards it holds labels and the numbers of what was skipped.

    `blank_prefix` begins the names of blank nodes whose label the parser drew at random; None means that all labels are
    those of the source.
    """

    def __init__(self, layout: Layout, blank_prefix: str | None) -> None:
        import pyoxigraph

        self.skipped: Counter[str] = Counter()
        self._parser, self._layout, self._blank_prefix = pyoxigraph, layout, blank_prefix
        self._replacements: dict[str, str] = {}
        self._labels: list[tuple[str, str, int]] = []
        self._label_tables: list[pa.Table] = []

    def rows(self, triples: Iterable[tuple[Any, Any, Any]]) -> Iterator[tuple[str, str, str]]:
        """Yield the names of head, relation and tail of every triple whose tail is an entity."""
        named, blank, skipped = self._parser.NamedNode, self._parser.BlankNode, self.skipped
        for subject, predicate, tail in triples:
            relation = predicate.value
            if not isinstance(tail, named | blank):
                if relation in _LABEL_RELATIONS and isinstance(tail, self._parser.Literal):
                    self._add_label(subject, relation, tail)
                else:
                    skipped[LITERALS] += 1  # or a quoted triple: no embedding here can represent either
            elif not self._layout.keep_blank and relation in _LIST_RELATIONS:
                skipped[LISTS] += 1
            elif not self._layout.keep_blank and (isinstance(subject, blank) or isinstance(tail, blank)):
                skipped[BLANK_NODES] += 1
            else:
                yield self._name(subject), relation, self._name(tail)

    def finish(self, columns: TripleColumns, prefixes: Mapping[str, str]) -> TripleColumns:
        """Return the columns that were made of the rows, with everything else that was found."""
        self._encode_labels()
        labels = pa.concat_tables(self._label_tables) if self._label_tables else None
        return replace(columns, skipped=dict(self.skipped), prefixes=dict(prefixes), labels=labels)

    def _name(self, node: pyoxigraph.NamedNode | pyoxigraph.BlankNode) -> str:
        text = str(node)
        if text[0] == "<":
            return text[1:-1]
        if self._blank_prefix is None or not _RANDOM_LABEL.fullmatch(text, 2):
            return text
        return self._replacements.setdefault(text, f"{self._blank_prefix}{len(self._replacements) + 1}")

    def _add_label(self, node: Any, relation: str, literal: Any) -> None:
        wanted, language = self._layout.language.lower(), (literal.language or "").lower()
        fits = [language == wanted, language.startswith(f"{wanted}-"), not language, True]
        self._labels.append((self._name(node), literal.value, _LABEL_RELATIONS[relation] + fits.index(True)))
        if len(self._labels) == _CHUNK:
            self._encode_labels()

    def _encode_labels(self) -> None:
        if self._labels:
            columns = zip(*self._labels, strict=True)
            self._label_tables.append(
                pa.table([pa.array(column) for column in columns], names=LABELS.names).cast(LABELS)
            )
            self._labels.clear()
