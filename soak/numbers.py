"""Hold ranks and metrics against other ways to compute them: brute force in float64, PyKEEN, OGB, other batch sizes.

    python -m soak.numbers            prints the counts
    python -m soak.numbers --keep     also writes docs/results/soak-numbers-DATE.json

Every model is ranked on random graphs with repeated triples, with equal, NaN and infinite rows. A rank in float32 must
be that of the same weights in float64. Where another candidate scores within `TOLERANCE` of the true entity, float32
may decide either way; such near-ties are counted, and so are the ranks that they change in trained models.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import pairre
from pairre.evaluation import rank, rank_both_sides, summarise
from pairre.evaluation.ranking import SIDES, Ranks, rank_among
from pairre.graph import Graph, Side, Vocabulary
from pairre.graph.index import COLUMN
from pairre.models import Model, models
from pairre.models.neighbourhood import Neighbourhood

_GRAPHS = 6  # for each model and condition, in the whole run
TOLERANCE = 2e-5  # of a score, relative to 1 + its magnitude
CONDITIONS = ("plain", "equal rows", "NaN rows", "infinite rows")
METRICS = {  # ours → PyKEEN's
    "mrr": "inverse_harmonic_mean_rank",
    "mr": "arithmetic_mean_rank",
    "hits_at_1": "hits_at_1",
    "hits_at_3": "hits_at_3",
    "hits_at_10": "hits_at_10",
    "amri": "adjusted_arithmetic_mean_rank_index",
}


def main() -> None:
    """Run every comparison and print or keep the counts."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--graphs", type=int, default=_GRAPHS, help="random graphs for each model and condition")
    parser.add_argument("--trained", nargs="*", default=["atlas"], help="graphs on which every model is trained")
    parser.add_argument("--keep", action="store_true", help="write docs/results/soak-numbers-DATE.json")
    arguments = parser.parse_args()
    seeds = range(arguments.graphs)
    result = {
        "graphs_of_each_model_and_condition": arguments.graphs,
        "share_of_the_whole": arguments.graphs / _GRAPHS,
        "models": [m.name for m in models()],
        "brute_force_in_float64": {c: total(brute_force(m, c, s) for m in models() for s in seeds) for c in CONDITIONS},
        "batches_chunks_and_threads": total(same_everywhere(m, s) for m in models() for s in seeds[:2]),
        "pykeen": total(as_pykeen(m, c, s) for m in models() for c in CONDITIONS[:2] for s in seeds[:2]),
        "ogb": total(as_ogb(m, c, s) for m in models() for c in CONDITIONS[:2] for s in seeds[:2]),
        "trained": {name: {m.name: trained(name, m.name) for m in models()} for name in arguments.trained},
    }
    print(json.dumps(result, indent=2))
    if arguments.keep:
        from benchmarks.machine import RESULTS, describe

        path = RESULTS / f"soak-numbers-{describe()['date']}.json"
        path.write_text(json.dumps({"machine": describe(), **result}, indent=2) + "\n", encoding="utf-8")


def total(counts: Iterator[Counter[str]]) -> dict[str, int]:
    """Return the sums of all counts."""
    summed: Counter[str] = Counter()
    for count in counts:
        summed.update(count)
    return dict(summed)


# --- what is ranked ---------------------------------------------------------------------------------------------------


def random_graph(seed: int) -> Graph:
    """Return a small graph in which triples are repeated, within splits and across them."""
    random = torch.Generator().manual_seed(seed)
    num_entities, num_relations = (
        int(torch.randint(low, high, (), generator=random)) for low, high in ((5, 60), (1, 5))
    )
    sizes = (num_entities, num_relations, num_entities)
    triples = torch.stack([torch.randint(n, (90,), generator=random, dtype=torch.int32) for n in sizes], 1)
    triples[40:50] = triples[:10]
    triples[60:65] = triples[80:85] = triples[70:75]
    names = (
        Vocabulary([f"{kind}{i}" for i in range(n)], kind) for kind, n in (("e", num_entities), ("r", num_relations))
    )
    return Graph("random", *names, triples[:50], triples[50:65], triples[65:])


def random_model(model_type: type[Model], graph: Graph, condition: str, seed: int) -> Model:
    """Return a model with random rows, some of which are as the condition says."""
    dim = (6, 9, 12, 17, 24)[seed % 5]
    if model_type.metric == "modulus" or model_type.name in ("complex", "quate", "conve"):
        dim += dim % 2
    model = model_type(graph.num_entities, graph.num_relations, dim)
    model.initialise(0.5, seed)
    model.init_from_graph(graph, seed)
    model.attach(graph, 0.5, seed)
    model.requires_grad_(False)
    if condition == "equal rows":
        model.entity.copy_(model.entity[torch.arange(len(model.entity)) % 4 % len(model.entity)])
    elif condition == "NaN rows":
        model.entity[1::5] = torch.nan
    elif condition == "infinite rows":
        model.entity[1::5] = torch.inf
        model.entity[2::7] = -torch.inf
    return model


def filtered_scores(model: Model, graph: Graph, triples: Tensor, side: Side) -> Tensor:
    """Return scores [N, E] in float64, one triple at a time, NaN where another known triple stands."""
    precise = copy.deepcopy(model).double()
    known = {tuple(t) for split in ("train", "valid", "test") for t in graph.split(split).tolist()}
    column, every = COLUMN[side], torch.arange(graph.num_entities)
    rows = []
    for triple in triples.long().tolist():
        made = torch.tensor(triple).repeat(graph.num_entities, 1)
        made[:, column] = every
        scores = precise.score(made, side)
        others = [e for e, t in enumerate(made.tolist()) if tuple(t) in known and e != triple[column]]
        scores[others] = torch.nan
        rows.append(scores)
    return torch.stack(rows)


# --- comparisons ------------------------------------------------------------------------------------------------------


def brute_force(model_type: type[Model], condition: str, seed: int) -> Counter[str]:
    """Compare the ranks of a random model with those that Python counts from float64 scores."""
    graph = random_graph(seed)
    model = random_model(model_type, graph, condition, seed)
    counts: Counter[str] = Counter()
    for side in SIDES:
        counts += check_ranks(model, graph, graph.test, side, rank(model, graph.test, graph.known, side))
    return counts


def check_ranks(model: Model, graph: Graph, triples: Tensor, side: Side, ranks: Ranks) -> Counter[str]:
    """Raise AssertionError unless ranks follow from scores in float64; count them and their near-ties."""
    scores = filtered_scores(model, graph, triples, side)
    true_id = triples[:, COLUMN[side]].long()
    own = scores.gather(1, true_id[:, None])
    twins = torch.zeros_like(scores, dtype=torch.bool)
    if not isinstance(model, Neighbourhood):  # whose scores depend on more than an entity's row
        twins = (model.entity[None] == model.entity[true_id][:, None]).all(2) & ~scores.isnan()
    allowed = ~known_others(graph, triples, side)
    twins[torch.arange(len(triples)), true_id] = False
    close = own.isfinite() & ((scores - own).abs() <= TOLERANCE * (1 + own.abs()))
    close[torch.arange(len(triples)), true_id] = False
    near = (close & ~twins).sum(1)
    higher = ((scores > own) & ~close).sum(1)
    equal = twins.sum(1)
    num_candidates = allowed.sum(1)
    finite = own[:, 0].isfinite()
    assert torch.equal(ranks.num_candidates, num_candidates), model.name
    low, high = higher[finite], (higher + near)[finite]
    assert bool(((low <= ranks.higher[finite]) & (ranks.higher[finite] <= high)).all()), (model.name, side)
    both = ranks.higher[finite] + ranks.equal[finite]
    assert bool(((low + equal[finite] <= both) & (both <= high + equal[finite])).all()), (model.name, side)
    assert bool((ranks.equal >= equal)[finite].all()), (model.name, side)
    if model.metric != "dot":  # a distance that is not finite is worse than any other
        worst = (scores.isfinite() & allowed).sum(1)
        assert bool((ranks.values() >= worst + 1)[~finite].all()), (model.name, side)
    return Counter(
        ranks=len(triples), near_ties=int(near.sum()), true_ties=int(equal.sum()), not_finite=int((~finite).sum())
    )


def known_others(graph: Graph, triples: Tensor, side: Side) -> Tensor:
    """Return which entities [N, E] would make another known triple."""
    known = {tuple(t) for split in ("train", "valid", "test") for t in graph.split(split).tolist()}
    column = COLUMN[side]
    table = torch.zeros(len(triples), graph.num_entities, dtype=torch.bool)
    for row, triple in enumerate(triples.tolist()):
        for entity in range(graph.num_entities):
            made = (*triple[:column], entity, *triple[column + 1 :])
            table[row, entity] = entity != triple[column] and made in known
    return table


@contextmanager
def sizes(queries: int, elements: int, threads: int) -> Iterator[None]:
    """Rank with batches, chunks and threads of other sizes."""
    before = torch.get_num_threads()
    ranking = sys.modules["pairre.evaluation.ranking"]
    few = {"cpu": queries, "cuda": queries}
    torch.set_num_threads(threads)
    try:
        with (
            mock.patch.object(ranking, "_MAX_QUERY_FEATURES", few),
            mock.patch.object(ranking, "_MAX_CANDIDATE_FEATURES", few),
            mock.patch("pairre.models.scoring.MAX_ELEMENTS", elements),
            mock.patch("pairre.kernels.reference.ranks.MAX_ELEMENTS", elements),
            mock.patch("pairre.kernels.reference.scores.MAX_ELEMENTS", elements),
            mock.patch("pairre.kernels.cpu.ranks._SCORES", elements),
        ):
            yield
    finally:
        torch.set_num_threads(before)


def same_everywhere(model_type: type[Model], seed: int) -> Counter[str]:
    """Compare the ranks of a model, with many equal rows, for batches, chunks and threads of all sizes."""
    graph = random_graph(seed)
    model = random_model(model_type, graph, "equal rows", seed)
    fixed = {side: torch.randint(graph.num_entities, (len(graph.test), 9), dtype=torch.int32) for side in SIDES}

    def ranks() -> list[Ranks]:
        every = rank_both_sides(model, graph.test, graph.known)
        few = rank_both_sides(model, graph.test, graph.known, fixed_candidates=fixed)
        return [*every.values(), *few.values()]

    expected, num = ranks(), 0
    for queries, elements, threads in product((1, 100, 1 << 26), (1, 200, 1 << 25), (1, 2, 3)):
        with sizes(queries, elements, threads), small_chunks(7 if elements == 200 else None):
            for one, other in zip(ranks(), expected, strict=True):
                assert torch.equal(one.higher, other.higher), (model.name, queries, elements, threads)
                assert torch.equal(one.equal, other.equal), (model.name, queries, elements, threads)
                num += len(one.higher)
    return Counter(ranks=num)


@contextmanager
def small_chunks(size: int | None) -> Iterator[None]:
    """Cut the candidates into chunks of a few rows, which real tables are too small for."""
    whole = Model.candidate_chunks

    def chunks(self: Model, *arguments: Any) -> Iterator[tuple[int, Tensor]]:
        for first, rows in whole(self, *arguments):
            yield from ((first + i, rows[i : i + size]) for i in range(0, len(rows), size or len(rows)))

    with mock.patch.object(Model, "candidate_chunks", chunks) if size else mock.MagicMock():
        yield


def as_pykeen(model_type: type[Model], condition: str, seed: int) -> Counter[str]:
    """Compare metrics with those of PyKEEN's evaluator, given the same scores."""
    from pykeen.evaluation import RankBasedEvaluator

    graph = random_graph(seed)
    model = random_model(model_type, graph, condition, seed)
    ranks = rank_both_sides(model, graph.test, graph.known)
    peer = RankBasedEvaluator()
    for side in SIDES:
        scores = model.score_all(graph.test.long(), side)
        own = scores.gather(1, graph.test[:, COLUMN[side], None].long())
        scores[known_others(graph, graph.test, side)] = torch.nan
        peer.process_scores_(graph.test.long(), side, scores, own)
    theirs, num = peer.finalize(), 0
    for label, of in (("both", "both"), ("head", "head"), ("tail", "tail")):
        ours = summarise(ranks)[label]
        for name, their_name in METRICS.items():
            value = theirs.get_metric(f"{of}.realistic.{their_name}")
            assert abs(ours[name] - value) < 1e-6 * (1 + abs(value)), (model.name, label, name, ours[name], value)
            num += 1
    return Counter(metrics=num)


def as_ogb(model_type: type[Model], condition: str, seed: int) -> Counter[str]:
    """Compare ranks among fixed candidates with OGB's evaluator, given the same scores."""
    evaluator = ogb_evaluator()
    graph, num = random_graph(seed), 0
    model = random_model(model_type, graph, condition, seed)
    random = torch.Generator().manual_seed(seed)
    for side in SIDES:
        candidates = torch.randint(graph.num_entities, (len(graph.test), 20), generator=random, dtype=torch.int32)
        ranks = rank_among(model, graph.test, candidates, side)
        own = graph.test[:, COLUMN[side], None]
        scores = model.score_candidates(graph.test.long(), side, torch.cat([own, candidates], 1).long())
        theirs = evaluator({"y_pred_pos": scores[:, 0], "y_pred_neg": scores[:, 1:]})
        assert torch.allclose(theirs["mrr_list"].double(), 1 / ranks.values(), atol=1e-6), (model.name, side)
        for k in (1, 3, 10):
            assert torch.equal(theirs[f"hits@{k}_list"].bool(), ranks.values() <= k), (model.name, side)
        num += len(own)
    return Counter(ranks=num)


def ogb_evaluator() -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """Return OGB's evaluator of ogbl-wikikg2; ogb would ask the network for its newest version on import."""
    with mock.patch.dict(sys.modules, {"outdated": None}):
        from ogb.linkproppred import Evaluator
    return Evaluator("ogbl-wikikg2").eval  # type: ignore[no-any-return]


def trained(graph_name: str, model_name: str, steps: int = 200) -> dict[str, Any]:
    """Train a model, rank a part of test in float32 and in float64, and count near-ties and ranks that they change."""
    overrides = [f"model.name={model_name}", "model.dim=24", f"train.steps={steps}", "train.patience=0"]
    run = pairre.train(graph_name, overrides=overrides, progress=False, device="cpu")
    graph, triples = run.graph, run.graph.test[:100]
    counts: Counter[str] = Counter()
    precise: dict[Side, Ranks] = {}
    ranks = rank_both_sides(run.model, triples, graph.known)
    for side in SIDES:
        counts += check_ranks(run.model, graph, triples, side, ranks[side])
        scores = filtered_scores(run.model, graph, triples, side)
        own = scores.gather(1, triples[:, COLUMN[side], None].long())
        equal = (scores == own).sum(1) - 1
        precise[side] = Ranks((scores > own).sum(1), equal, ranks[side].num_candidates)
        counts["other_ranks"] += int((precise[side].values() != ranks[side].values()).sum())
    both, exact = summarise(ranks)["both"], summarise(precise)["both"]
    return {**counts, "mrr": both["mrr"], "mrr_in_float64": exact["mrr"]}


if __name__ == "__main__":
    main()
