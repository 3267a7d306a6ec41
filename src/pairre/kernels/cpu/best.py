"""Find the best candidates of one query on the CPU, with no more calls than it takes: what a server does all day.

C candidates, D features, N rows, X entities that are left out.

The scores have the bits of `scores.score_candidates`: the same compiled functions compute them, or one whose inner
loop is the same, so that it is vectorised in the same way.
"""

# Kernels carry no types: numba infers them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pairre.kernels.cpu.scores import CODES, l1_forward_shared
from pairre.kernels.cpu.terms import L1, forward_kernel, kernel
from pairre.kernels.reference.scores import Metric
from pairre.support.compiled import compiled

_NONE, NONE_KNOWN = np.empty(0, np.int64), np.empty(0, np.int32)


class BestOfQuery(NamedTuple):
    """The best candidates of one query, best first, and how many scores were not finite numbers."""

    ids: list[int]
    scores: list[float]
    num_lost: int


def best_of_query(
    metric: Metric,
    query: np.ndarray,
    scale: np.ndarray | None,
    rows: np.ndarray,
    k: int,
    *,
    candidates: np.ndarray | None = None,
    known: np.ndarray = NONE_KNOWN,
    own: int = -1,
) -> BestOfQuery:
    """Return the k best of rows [N, D] for a query [1, D], by row; of equal scores the smallest id wins.

    `candidates` [C] int64, ascending, are the only rows that count. Rows `known` [X] int32, ascending, and `own` are
    left out. Made for a small k: the time grows with C × k if scores ascend.
    """
    scores = _scores(metric, query, scale, rows, candidates)
    k = min(k, len(scores))
    ids, best = np.empty(k, np.int64), np.empty(k, scores.dtype)
    every = candidates is None
    count, num_lost = _keep_best(scores, _NONE if candidates is None else candidates, every, known, own, ids, best)
    return BestOfQuery(ids[:count].tolist(), best[:count].tolist(), num_lost)


def _scores(
    metric: Metric, query: np.ndarray, scale: np.ndarray | None, rows: np.ndarray, candidates: np.ndarray | None
) -> np.ndarray:
    """Return the scores [C] of a query."""
    if scale is None:
        scale = np.ones_like(query)
        if metric == "modulus":
            scale[:, query.shape[1] // 2 :] = 0
    num = len(rows) if candidates is None else len(candidates)
    out = np.empty((1, num), query.dtype)
    scores: np.ndarray = out[0]
    code = CODES[metric]
    if num == 0:
        return scores
    if code != L1:
        chosen = np.arange(num) if candidates is None else candidates
        forward_kernel(code, False)(query, scale, rows, rows, chosen[None], 8, out, 0, 1)
    elif candidates is None:
        l1_forward_shared(query, scale, rows, out, 0, 1)
    else:
        _l1_forward_listed(query, scale, rows, candidates, out)
    return scores


@kernel
def _l1_forward_listed(q, w, c, ids, out):
    """Score candidates by their rows, as `l1_forward_shared` scores all rows: copying them would take longer."""
    num_queries, num_features = q.shape
    last = len(ids) - 1
    for b in range(0, num_queries, 2):
        b1 = min(b + 1, num_queries - 1)
        for j in range(0, last + 1, 4):
            j1, j2, j3 = min(j + 1, last), min(j + 2, last), min(j + 3, last)
            i0, i1, i2, i3 = ids[j], ids[j1], ids[j2], ids[j3]
            s0 = q.dtype.type(0)
            s1, s2, s3, t0, t1, t2, t3 = s0, s0, s0, s0, s0, s0, s0
            for k in range(num_features):
                x, y, u, v = q[b, k], w[b, k], q[b1, k], w[b1, k]
                c0, c1, c2, c3 = c[i0, k], c[i1, k], c[i2, k], c[i3, k]
                s0 += abs(x - y * c0)
                s1 += abs(x - y * c1)
                s2 += abs(x - y * c2)
                s3 += abs(x - y * c3)
                t0 += abs(u - v * c0)
                t1 += abs(u - v * c1)
                t2 += abs(u - v * c2)
                t3 += abs(u - v * c3)
            out[b, j], out[b, j1], out[b, j2], out[b, j3] = -s0, -s1, -s2, -s3
            out[b1, j], out[b1, j1], out[b1, j2], out[b1, j3] = -t0, -t1, -t2, -t3


@compiled(nogil=True)
def _keep_best(scores, candidates, every, known, own, ids, best):
    """Fill ids and scores with the best candidates by insertion; return how many, and how many scores were lost."""
    k, count, num_lost, place = len(ids), 0, 0, 0
    for j in range(len(scores)):
        id = j if every else candidates[j]
        while place < len(known) and known[place] < id:
            place += 1
        if id == own or (place < len(known) and known[place] == id):
            continue
        score = scores[j]
        if not np.isfinite(score):
            num_lost += 1
            continue
        if count == k and (k == 0 or score <= best[k - 1]):
            continue
        position = min(count, k - 1)
        while position > 0 and best[position - 1] < score:
            ids[position], best[position] = ids[position - 1], best[position - 1]
            position -= 1
        ids[position], best[position] = id, score
        count = min(count + 1, k)
    return count, num_lost
