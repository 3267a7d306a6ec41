"""Search of names as they are typed: by prefix, by the beginning of a word, and with typing errors.

The index is built once. Every name, local name and label is folded (case, accents and underscores are forgiven) and
entered from the start and from the start of each of its words, so that prefixes and words are one look into a sorted
array. With a typing error, the entries that share the most pairs of letters with the text are compared by edit
distance.

N entries, P pairs of letters of all entries, C candidates, L letters of an entry.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pairre.graph.names import Names, folded

Match = Literal["exact", "prefix", "word", "typo"]
MAX_TEXT = 64  # letters of an entry, and of what is typed, that are compared
_MAX_WORDS = 8  # of a name, from which it can be found
_MAX_PAIRED = 24  # letters of an entry whose pairs are indexed
_MAX_CANDIDATES = 256  # that are compared by edit distance
_MAX_RANGE = 1 << 16  # entries with a prefix that are ranked by frequency
MAX_INDEXED = 1 << 21  # names, those with the most facts; of more, the others are found exactly only
_WORD = re.compile(r"(?<=[^\w])\w")
_LOCAL = re.compile(r"^.*[/#]", re.DOTALL)


@dataclass(frozen=True)
class Hit:
    """The id of a name that was found, and by what."""

    id: int
    match: Match


class SearchIndex:
    """The names of entities or of relations, by what a person types."""

    def __init__(self, names: Names, num_facts: np.ndarray) -> None:
        self._names, self._num_facts = names, num_facts
        ids = np.arange(len(num_facts))
        if len(ids) > MAX_INDEXED:
            ids = np.sort(np.argpartition(-num_facts, MAX_INDEXED)[:MAX_INDEXED])
        entries = sorted(set(_entries(names, ids)))
        self._keys = [key for key, _, _ in entries]
        self._ids = np.fromiter((id for _, id, _ in entries), np.int64, len(entries))
        self._is_word = np.fromiter((is_word for _, _, is_word in entries), np.bool_, len(entries))
        self._pairs, self._offsets, self._entries = _paired(self._keys)

    def find(self, text: str, limit: int) -> list[Hit]:
        """Return what a text may mean: exact names, then names that begin with it, then words, then typing errors."""
        typed = _fold_one(text)
        if not typed or limit < 1:
            return []
        found: dict[int, Match] = {}
        exact = self._names.find_or_none(text) if _is_text(text) else None
        if exact is not None:
            found[exact] = "exact"
        for ids, match in self._by_prefix(typed, limit):
            for id in ids:
                found.setdefault(id, match)
        if len(found) < limit and len(typed) > 2:
            for id in self._by_distance(typed, limit):
                found.setdefault(id, "typo")
        return [Hit(id, match) for id, match in found.items()][:limit]

    def _by_prefix(self, typed: str, limit: int) -> Iterator[tuple[list[int], Match]]:
        """Yield ids with a key that is a text, that begins with it, and with a word that begins with it."""
        start = bisect_left(self._keys, typed)
        end = bisect_left(self._keys, typed + "\U0010ffff", lo=start)
        same = bisect_left(self._keys, typed + "\0", lo=start, hi=end)
        rows = np.arange(start, min(end, start + _MAX_RANGE))
        is_word = self._is_word[rows]
        yield self._frequent(rows[: same - start][~is_word[: same - start]], limit), "exact"
        yield self._frequent(rows[~is_word], limit), "prefix"
        yield self._frequent(rows[is_word], limit), "word"

    def _frequent(self, rows: np.ndarray, limit: int) -> list[int]:
        """Return the ids of some entries, those with the most facts first, at most `limit`."""
        ids = np.unique(self._ids[rows])
        best: list[int] = ids[np.argsort(-self._num_facts[ids], kind="stable")[:limit]].tolist()
        return best

    def _by_distance(self, typed: str, limit: int) -> list[int]:
        """Return the ids of names that a text may be with a typing error, the nearest first."""
        if not self._keys:
            return []
        wanted = np.unique(_pairs_of(typed[:_MAX_PAIRED]))
        place = np.searchsorted(self._pairs, wanted)
        known = place[(place < len(self._pairs)) & (self._pairs[np.minimum(place, len(self._pairs) - 1)] == wanted)]
        rows = [self._entries[self._offsets[p] : self._offsets[p + 1]] for p in known]
        if not rows:
            return []
        shared = np.bincount(np.concatenate(rows), minlength=len(self._keys))
        enough = np.flatnonzero(shared >= max(1, len(wanted) // 3))
        if len(enough) > _MAX_CANDIDATES:
            enough = enough[np.argpartition(-shared[enough], _MAX_CANDIDATES)[:_MAX_CANDIDATES]]
        if not len(enough):
            return []
        distance = edit_distances(typed[:MAX_TEXT], [self._keys[row] for row in enough.tolist()])
        near = distance <= max(1, min(len(typed), MAX_TEXT) // 4)
        enough, distance = enough[near], distance[near]
        order = np.lexsort((-self._num_facts[self._ids[enough]], self._is_word[enough], distance))
        return list(dict.fromkeys(self._ids[enough[order]].tolist()))[:limit]


def _is_text(text: str) -> bool:
    """Return whether a text can be the name of something: it is UTF-8."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def _fold_one(text: str) -> str:
    """Return a text as it is compared; halves of surrogate pairs become question marks, as no name has any."""
    plain = text[: 4 * MAX_TEXT].encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    return str(folded(pa.array([plain], pa.large_string()))[0].as_py())[:MAX_TEXT]


def _entries(names: Names, ids: np.ndarray) -> Iterator[tuple[str, int, bool]]:
    """Yield (folded text, id, whether it begins within a name) of names, local names and labels of ids."""
    columns = [names.vocabulary.names.cast(pa.large_string())]
    if names.labels is not None:
        columns.append(names.labels.cast(pa.large_string()))
    for column in columns:
        texts = column.take(pa.array(ids))
        there = np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False))
        keys = folded(pc.utf8_slice_codeunits(texts.take(pa.array(there)), 0, 8 * MAX_TEXT)).to_pylist()
        for id, key in zip(ids[there].tolist(), keys, strict=True):
            if "://" in key:  # of an IRI, the words of the local name
                yield key[:MAX_TEXT], id, False
                key = _LOCAL.sub("", key.rstrip("/#")) or key
            yield key[:MAX_TEXT], id, False
            for word in list(_WORD.finditer(key))[:_MAX_WORDS]:
                yield key[word.start() : word.start() + MAX_TEXT], id, True


def _pairs_of(text: str) -> np.ndarray:
    """Return the pairs of neighbouring letters of a text as numbers; the first letter is also a pair with nothing."""
    letters = np.frombuffer(f"\0{text}".encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
    return letters[:-1] << 21 | letters[1:]


def _paired(keys: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all pairs of letters, where the entries of each begin, and the entries that have it."""
    if not keys:
        return np.empty(0, np.int64), np.zeros(1, np.int64), np.empty(0, np.int32)
    cut = [key[:_MAX_PAIRED] for key in keys]
    lengths = np.fromiter(map(len, cut), np.int64, len(cut))
    letters = np.frombuffer("".join(f"\0{key}" for key in cut).encode("utf-32-le"), np.uint32).astype(np.int64)
    entry = np.repeat(np.arange(len(cut), dtype=np.int32), lengths + 1)
    pair = letters[:-1] << 21 | letters[1:]
    within = entry[:-1] == entry[1:]
    pair, entry = pair[within], entry[:-1][within]
    order = np.lexsort((entry, pair))
    pair, entry = pair[order], entry[order]
    new = np.ones(len(pair), np.bool_)
    new[1:] = (pair[1:] != pair[:-1]) | (entry[1:] != entry[:-1])
    pair, entry = pair[new], entry[new]
    pairs, starts = np.unique(pair, return_index=True)
    return pairs, np.append(starts, len(pair)), entry


def edit_distances(typed: str, keys: list[str]) -> np.ndarray:
    """Return how many typing errors lie between a text and the beginning of each key, [C].

    An error is a letter too many, too few or another, or two letters swapped. What follows after the beginning that
    fits best is not counted, because a person who types has not come to the end.
    """
    width = min(max(map(len, keys)), len(typed) + 2)
    letters = np.zeros((len(keys), width), np.uint32)  # [C, L]
    for row, key in enumerate(keys):
        codes = np.frombuffer(key[:width].encode("utf-32-le"), np.uint32)
        letters[row, : len(codes)] = codes
    text = np.frombuffer(typed.encode("utf-32-le"), np.uint32)
    steps = np.arange(width + 1, dtype=np.int32)
    before, above = None, np.broadcast_to(steps, (len(keys), width + 1)).copy()
    for i, letter in enumerate(text):
        table = np.empty_like(above)
        table[:, 0] = i + 1
        table[:, 1:] = np.minimum(above[:, 1:] + 1, above[:, :-1] + (letters != letter))
        if before is not None:
            swapped = (letters[:, 1:] == text[i - 1]) & (letters[:, :-1] == letter)
            table[:, 2:] = np.where(swapped, np.minimum(table[:, 2:], before[:, :-2] + 1), table[:, 2:])
        # A letter that is missing in the text: the least of all places to the left, each a step further away.
        table = np.minimum.accumulate(table - steps, axis=1) + steps
        before, above = above, table
    inside = np.concatenate([np.ones((len(keys), 1), np.bool_), letters != 0], axis=1)
    return np.asarray(np.where(inside, above, len(typed) + 1).min(axis=1))
