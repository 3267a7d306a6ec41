"""What a person types → the id that is meant, and an id → what a person reads: a label, a CURIE, or the name.

A text may be the exact name, `<IRI>`, a CURIE such as `brick:AHU`, a label, or the last part of an IRI. Case, accents
and underscores are forgiven where that leaves one choice. What is shown for an id can be typed, and means that id.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairre.graph.vocabulary import Vocabulary, nearest
from pairre.support.errors import NameNotFoundError

WELL_KNOWN = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
}
_MOST_NAMED = 5  # choices or near names in an error
_MOST_INDEXED = 5_000_000  # names; of more, only exact ones are found, because an index of the others takes minutes
_CHUNK = 1 << 20  # names that are looked at once
_UP_TO_LOCAL_NAME = r"^.*[/#:]"
_LABEL_AND_NAME = re.compile(r"(.+) \((.+)\)", re.DOTALL)


@dataclass(frozen=True)
class _Index:
    """Labels, local names and names as they are compared when case is forgiven, in ascending order."""

    keys: pa.Array
    ids: np.ndarray

    def ids_of(self, key: str) -> list[int]:
        """Return the ids that a key stands for, ascending."""
        rows = range(len(self.keys))
        start = bisect_left(rows, key, key=self._key)
        end = bisect_right(rows, key, lo=start, key=self._key)
        return sorted(set(self.ids[start:end].tolist()))

    def _key(self, row: int) -> str:
        return str(self.keys[row].as_py())


class Names:
    """The names of entities or relations for people: `find` and `show`."""

    def __init__(self, vocabulary: Vocabulary, labels: pa.Array | None, prefixes: Mapping[str, str]) -> None:
        self.vocabulary, self.labels = vocabulary, labels
        self.prefixes = {**WELL_KNOWN, **prefixes}
        spaces = [(space, prefix) for prefix, space in self.prefixes.items() if space]
        self._namespaces = sorted(spaces, key=lambda pair: -len(pair[0]))  # the longest that fits is the best

    # --- from what is typed to an id ---

    def find(self, text: str) -> int:
        """Return the id that a text means; a NameNotFoundError names the choices, or the nearest names."""
        id = self._find_exact(text)
        return self._find_similar(text) if id is None else id

    def find_or_none(self, text: str) -> int | None:
        """Return the id that a text means, or None if there is none or a choice; nothing near is looked for."""
        id = self._find_exact(text)
        choices = [id] if id is not None else self._similar(text)
        return choices[0] if len(choices) == 1 else None

    def similar(self, text: str) -> int | None:
        """Return the id that a text means if it is not an exact name, or None if there is none or a choice."""
        choices = self._similar(text)
        return choices[0] if len(choices) == 1 else None

    def find_all(self, texts: Sequence[str]) -> list[int]:
        """Return the ids that texts mean; many are looked up together, which is faster than one by one."""
        forms = [list(self._exact_forms(text)) for text in texts]
        try:
            every = pa.array([form for of_text in forms for form in of_text], self.vocabulary.names.type)
        except UnicodeEncodeError:  # a text that is not UTF-8, which `find` describes
            return [self.find(text) for text in texts]
        rows = iter(self.vocabulary.find_all(every).to_pylist())
        found = [[next(rows) for _ in of_text] for of_text in forms]
        exact = [next((id for id in ids if id is not None), None) for ids in found]
        return [self._find_similar(text) if id is None else id for text, id in zip(texts, exact, strict=True)]

    def same(self, texts: pa.Array) -> pa.Array:
        """Return each text as the vocabulary has it or would have it: a name, or the IRI that a CURIE stands for.

        A text that is the label of one id, and no name, stands for that id's name. Nothing is forgiven.
        """
        has_prefixes = any(prefix not in WELL_KNOWN for prefix in self.prefixes)
        same = [list(self._exact_forms(text))[-1] for text in texts.to_pylist()]
        known_as = zip(texts.to_pylist(), self._is_name(texts), self._is_name(same), strict=True)
        for row, (text, is_name, is_known) in enumerate(known_as):
            if is_name or not (is_known or has_prefixes):  # without prefixes of its own, names need not be IRIs
                same[row] = text
        if self.labels is not None:
            labelled = pc.index_in(pa.array(same, self.labels.type), value_set=self.labels).to_pylist()
            for row, (id, is_name) in enumerate(zip(labelled, self._is_name(same), strict=True)):
                if id is not None and not is_name and self._is_unique[id]:
                    same[row] = self.vocabulary[id]
        return pa.array(same, self.vocabulary.names.type)

    def _is_name(self, texts: pa.Array | list[str]) -> list[bool]:
        """Return whether each text is a name of the vocabulary."""
        names = self.vocabulary.names
        found: list[bool] = pc.is_in(pa.array(texts, names.type), value_set=names).to_pylist()
        return found

    def _exact_forms(self, text: str) -> Iterator[str]:
        """Yield the names that a text may be: itself, an IRI in angle brackets, what a CURIE stands for."""
        yield text
        if text[:1] == "<" and text[-1:] == ">":
            yield text[1:-1]
        if (iri := self._expanded(text)) is not None:
            yield iri

    def _find_exact(self, text: str) -> int | None:
        """Return the id of a name, of an IRI in angle brackets, or of a CURIE."""
        found = (self.vocabulary.find(form) for form in self._exact_forms(text))
        return next((id for id in found if id is not None), None)

    def _find_similar(self, text: str) -> int:
        """Return the id that a text means if it is not an exact name; a NameNotFoundError names what to write."""
        choices = self._similar(text)
        if len(choices) == 1:
            return choices[0]
        if choices:
            named = ", ".join(self._described(id) for id in choices[:_MOST_NAMED])
            more = f" and {len(choices) - _MOST_NAMED:,} more" if len(choices) > _MOST_NAMED else ""
            raise NameNotFoundError(f"{self.vocabulary.item} {text!r} may mean {named}{more}; write one by name")
        near = ", ".join(self._described(id) for id in self._nearest(text))
        raise NameNotFoundError(f"no {self.vocabulary.item} named {text!r}" + (f"; nearest: {near}" if near else ""))

    def _similar(self, text: str) -> list[int]:
        """Return the ids that a text may mean if it is not an exact name; in a huge vocabulary there are none."""
        if len(self.vocabulary) > _MOST_INDEXED:
            return []
        return next((choices for choices in self._matches(text) if choices), [])

    def _expanded(self, curie: str) -> str | None:
        """Return the IRI of a CURIE, or None if its prefix is unknown."""
        prefix, colon, rest = curie.partition(":")
        return self.prefixes[prefix] + rest if colon and prefix in self.prefixes else None

    def _matches(self, text: str) -> Iterator[list[int]]:
        """Yield the ids with this label, with this label and name, with this local name, and with nearly either."""
        nearly = self._index.ids_of(folded(pa.array([text], pa.large_string()))[0].as_py())
        yield [id for id in nearly if self.label(id) == text]
        # Without the first condition, a text of many opening brackets would take a time quadratic in its length.
        if text.endswith(")") and (both := _LABEL_AND_NAME.fullmatch(text)):
            id = self._find_exact(both[2])
            yield [] if id is None or self.label(id) != both[1] else [id]
        yield [id for id in nearly if re.split("[/#:]", self.vocabulary[id])[-1] == text]
        yield nearly

    @cached_property
    def _index(self) -> _Index:
        """The index of everything that is not an exact name, built at the first text that needs it."""
        names = self.vocabulary.names.cast(pa.large_string())
        local = pc.replace_substring_regex(names, _UP_TO_LOCAL_NAME, "")
        ids = np.arange(len(names), dtype=np.int32)
        parts = [(names, ids)]
        shortened = np.flatnonzero(pc.not_equal(local, names).to_numpy(zero_copy_only=False))
        parts.append((local.take(shortened), ids[shortened]))
        if self.labels is not None:
            labelled = np.flatnonzero(self.labels.is_valid().to_numpy(zero_copy_only=False))
            parts.append((self.labels.cast(pa.large_string()).take(labelled), ids[labelled]))
        keys = pa.concat_arrays([folded(part) for part, _ in parts])
        order = pc.sort_indices(keys)
        return _Index(keys.take(order), np.concatenate([part for _, part in parts])[order.to_numpy()])

    def _nearest(self, text: str) -> list[int]:
        """Return the ids whose names, local names or labels are similar to a text, the most similar first."""
        if len(self.vocabulary) > _MOST_INDEXED:
            return []
        if "://" in text or self._expanded(text) is not None:  # all IRIs of one namespace are alike
            text = re.split("[/#:]", text.rstrip(">"))[-1] or text
        texts = [text]
        if re.match(r"[^\s/#:]*:[^\s/#:]", text):  # a CURIE whose prefix is unknown: what follows it may be right
            texts.append(text.partition(":")[2])
        near: dict[str, float] = {}
        for wanted in folded(pa.array(texts, pa.large_string())).to_pylist():
            for key in nearest(self._index.keys, wanted, 2 * _MOST_NAMED):
                near[key] = max(near.get(key, 0), SequenceMatcher(None, key, wanted).ratio())
        near = dict(sorted(near.items(), key=lambda item: -item[1]))
        return list(dict.fromkeys(id for key in near for id in self._index.ids_of(key)[:_MOST_NAMED]))[:_MOST_NAMED]

    # --- from an id to what is read ---

    def show(self, id: int) -> str:
        """Return the label of an id, else its CURIE, else its name; the name follows a label that is not enough."""
        label = self.label(id)
        if label is None:
            return self.short(id)
        return label if self._is_enough(id, label) else f"{label} ({self.short(id)})"

    def label(self, id: int) -> str | None:
        """Return the label of an id, or None."""
        return None if self.labels is None else self.labels[id].as_py()

    def short(self, id: int) -> str:
        """Return the CURIE of an id, or its name if no prefix fits."""
        name = self.vocabulary[id]
        for space, prefix in self._namespaces:
            curie = f"{prefix}:{name.removeprefix(space)}"
            if len(name) > len(space) and name.startswith(space) and curie not in self._like_curies:
                return curie
        return name

    def _described(self, id: int) -> str:
        """Return an id as an error names it."""
        label, short = self.label(id), self.short(id)
        return repr(short) if label is None or label == short else f"{label!r} ({short})"

    def _is_enough(self, id: int, label: str) -> bool:
        """Return whether a label stands for one id only, and cannot be taken for the IRI or the CURIE of another."""
        if not self._is_unique[id]:
            return False
        could_be_other = label.startswith("<") or self._expanded(label) is not None
        return not could_be_other or self._find_exact(label) in (None, id)

    @cached_property
    def _like_curies(self) -> frozenset[str]:
        """The names that could be taken for CURIEs, of which there are hardly any."""
        found: set[str] = set()
        for start in range(0, len(self.vocabulary), _CHUNK):
            names = self.vocabulary.names.slice(start, _CHUNK)
            prefixes = pc.replace_substring_regex(names, "(?s):.*", "")
            like = pc.and_(
                pc.is_in(prefixes, pa.array(list(self.prefixes), names.type)), pc.match_substring(names, ":")
            )
            found.update(names.filter(like).to_pylist())
        return frozenset(found)

    @cached_property
    def _is_unique(self) -> np.ndarray:
        """Whether the label of each id is the label of no other id and the name of no other."""
        assert self.labels is not None
        labels = self.labels.dictionary_encode()
        codes = labels.indices.fill_null(0).to_numpy()
        counts = np.bincount(codes[labels.is_valid().to_numpy(zero_copy_only=False)], minlength=len(labels.dictionary))
        rows = self.vocabulary.find_all(labels.dictionary)
        names: np.ndarray = rows.fill_null(-1).to_numpy()[codes]
        unique: np.ndarray = (counts[codes] == 1) & ((names < 0) | (names == np.arange(len(codes))))
        return unique


def folded(texts: pa.Array) -> pa.Array:
    """Return texts as they are compared: in lower case, without accents, with spaces for underscores."""
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        texts = pc.replace_substring_regex(pc.utf8_normalize(texts, "NFKD"), r"\p{Mn}", "")
    return pc.utf8_trim_whitespace(pc.replace_substring(pc.utf8_lower(texts), "_", " "))
