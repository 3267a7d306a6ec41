"""Discovery against a brute-force search over all triples: ties, domains, probabilities, interruptions, odd shapes."""

import itertools
import sys
from collections import defaultdict

import pytest
import torch

from conftest import cuda_kernels_on_the_cpu
from pairre.graph import load_graph
from pairre.inference import discover
from pairre.models import model_class
from pairre.runs import Calibration, Run
from pairre.support.errors import PairREError, RunError

SPLITS = ("train", "valid", "test")
discover_module = sys.modules[discover.__module__]


class Odds(Calibration):
    """A calibration that turns the order of relations around: odds rise with the score, by a curve of each relation."""

    base_rate, num_entities = 0.5, 1 << 40

    def __init__(self):
        """Hold nothing."""

    def logit(self, scores, relations):
        shift = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)[relations.cpu()].to(scores.device)
        z = scores.double() + shift
        return torch.where(z > 0, 2 * z, z)  # as a curve through points

    def probability(self, scores, relations):
        return self.logit(scores, relations).sigmoid()

    def to_values(self):
        return {"odds": 1}


def make_run(graph, quick, name="pairre", dim=6):
    model = model_class(name)(graph.num_entities, graph.num_relations, dim)
    model.attach(graph, 0.5, 0)
    model.initialise(0.5, 0)
    return Run(graph, quick, model.requires_grad_(False))


def planted_ties(run):
    """Entities that are equal to the bit, so that links tie."""
    run.model.entity[1::3] = run.model.entity[1]
    return run


@pytest.fixture
def run(graph, quick):
    return planted_ties(make_run(graph, quick))


@pytest.fixture(params=[False, True], ids=["by score", "by probability"])
def odds(request, monkeypatch):
    calibration = Odds() if request.param else None
    monkeypatch.setattr(discover_module, "calibration_of", lambda _: calibration)
    return calibration


def brute_force(run, odds, k, relations=None, per_relation=False, min_probability=0.0, pairs="plausible"):
    """All triples scored one by one, in the documented order."""
    graph = run.graph
    known = {tuple(t) for s in SPLITS for t in graph.split(s).tolist()}
    train, found = graph.train.tolist(), defaultdict(list)
    for r in range(graph.num_relations):
        if relations and graph.relations[r] not in relations:
            continue
        heads, tails = (graph.domains.plausible(r, side).tolist() for side in ("head", "tail"))
        if pairs == "observed":
            heads = sorted({h for h, q, _ in train if q == r})
        elif pairs == "all":
            heads = tails = range(graph.num_entities)
        loops = any(h == t for h, q, t in train if q == r)
        triples = [
            (h, r, t) for h, t in itertools.product(heads, tails) if (h, r, t) not in known and (h != t or loops)
        ]
        if not triples:
            continue
        scores = run.model.score(torch.tensor(triples)).float()
        keys = scores.double() if odds is None else odds.logit(scores, torch.full((len(scores),), r))
        rows = zip(keys.tolist(), scores.tolist(), triples, strict=True)
        found[r if per_relation else 0] += [row for row in rows if odds is None or row[0] >= limit(min_probability)]
    best = []
    for rows in found.values():
        best += sorted(rows, key=lambda row: (-row[0], -row[1], row[2][1], row[2][0], row[2][2]))[:k]
    best.sort(key=lambda row: (-row[0], -row[1], row[2][1], row[2][0], row[2][2]))
    return [(next(graph.names(torch.tensor([t]))), s) for _, s, t in best]


def limit(probability):
    return torch.tensor(probability, dtype=torch.float64).logit().item()


def assert_same(links, wanted):
    assert [(link.head, link.relation, link.tail) for link in links] == [names for names, _ in wanted]
    assert [link.score for link in links] == pytest.approx([score for _, score in wanted], abs=1e-5)
    assert [link.rank for link in links] == list(range(1, len(wanted) + 1))


OPTIONS = [
    {"k": 1},
    {"k": 40},
    {"k": 40, "pairs": "all"},
    {"k": 40, "pairs": "observed"},
    {"k": 7, "per_relation": True, "pairs": "all"},
    {"k": 100_000, "relations": ["beside", "next"]},
    {"k": 100_000, "pairs": "all"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_brute_force(run, odds, options, monkeypatch):
    """With room for few pairs and small blocks and chunks, so that every way through the search is taken."""
    wanted = brute_force(run, odds, **options)
    assert_same(discover(run, **options), wanted)
    monkeypatch.setattr(discover_module, "_MOST_FOUND", {"cpu": 17})
    monkeypatch.setattr(discover_module, "_MAX_QUERY_FEATURES", {"cpu": 6 * 11})
    monkeypatch.setattr(discover_module, "_MIN_CANDIDATES", 13)
    monkeypatch.setattr(discover_module, "_MAX_CANDIDATE_FEATURES", 1)
    done = []
    assert_same(discover(run, **options, progress=done.append), wanted)
    assert sum(done) == pytest.approx(1)


def test_the_least_probability(run, monkeypatch):
    odds = Odds()
    monkeypatch.setattr(discover_module, "calibration_of", lambda _: odds)
    least = 0.02
    links = discover(run, k=1000, min_probability=least, pairs="all")
    assert_same(links, brute_force(run, odds, 1000, min_probability=least, pairs="all"))
    assert links
    assert all(link.probability >= least for link in links)
    assert discover(run, k=3, min_probability=0.999999) == []


@pytest.mark.parametrize("name", ["transe", "rotate", "distmult", "transh", "se", "conve"])
def test_any_model(graph, quick, name, monkeypatch):
    """Of each metric, with a formula of its own, and with candidates that depend on the relation."""
    monkeypatch.setattr(discover_module, "calibration_of", lambda _: None)
    run = make_run(graph, quick, name, dim=16)
    found = discover(run, k=25, pairs="all")
    wanted = brute_force(run, None, 25, pairs="all")
    assert [link.score for link in found] == pytest.approx([score for _, score in wanted], abs=1e-4)
    assert len({(link.head, link.relation, link.tail) for link in found}) == 25


def test_the_kernels_for_cuda_find_the_same(run, odds):
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("Triton takes no tensors of the CPU where there is a GPU")
    wanted = brute_force(run, odds, 9, pairs="all")
    with cuda_kernels_on_the_cpu():
        assert_same(discover(run, k=9, pairs="all"), wanted)


def test_an_interrupted_search_goes_on(run, odds, tmp_path, monkeypatch):
    """Stopped after each block in turn, as by kill -9, the search ends in the same links and does nothing twice."""
    monkeypatch.setattr(discover_module, "_SAVE_EVERY", 0.0)
    monkeypatch.setattr(discover_module, "_MAX_QUERY_FEATURES", {"cpu": 6 * 11})
    for per_relation in (False, True):
        options = {"k": 20, "pairs": "all", "per_relation": per_relation}
        state, done = tmp_path / f"state-{per_relation}", []

        class Killed(BaseException):
            pass

        def die_after_a_block(fraction, done=done):
            done.append(fraction)
            if len(done) == 3:
                raise Killed

        whole, attempts = discover(run, **options), 0
        while True:
            attempts += 1
            done.clear()
            try:
                links = discover(run, **options, state=state, progress=die_after_a_block)
                break
            except Killed:
                assert state.exists()
        assert links == whole
        assert attempts > 5
        assert discover(run, **options, state=state) == whole  # at once, from the last state
        with pytest.raises(RunError, match="another search"):
            discover(run, k=21, pairs="all", state=state)
    run.model.entity[0] += 1
    with pytest.raises(RunError, match="another search"):
        discover(run, **options, state=state)


def test_bad_requests(run, monkeypatch):
    with pytest.raises(PairREError, match="k must be 1 or more"):
        discover(run, k=0)
    with pytest.raises(PairREError, match="no relation named 'nxt'"):
        discover(run, relations=["nxt"])
    with pytest.raises(PairREError, match="a number from 0 up to below 1"):
        discover(run, min_probability=1.0)
    monkeypatch.setattr(discover_module, "calibration_of", lambda _: None)
    with pytest.raises(PairREError, match="no validation split"):
        discover(run, min_probability=0.5)
    run.model.entity[5] = torch.nan
    with pytest.raises(PairREError, match="not finite numbers"):
        discover(run)


def test_heads_without_a_fact_of_the_relation_are_considered(quick):
    """Of twenty countries, one has no capital in train; only its type of facts says that it may have one."""
    triples = [(f"country {i}", "in", "world") for i in range(20)] + [(f"city {i}", "near", "sea") for i in range(20)]
    triples += [(f"country {i}", "capital", f"city {i}") for i in range(19)]
    run = make_run(load_graph({"train": triples, "valid": triples[:1], "test": triples[:1]}), quick)
    found = {
        pairs: {link.head for link in discover(run, k=1000, relations=["capital"], pairs=pairs)}
        for pairs in ("plausible", "observed", "all")
    }
    assert "country 19" in found["plausible"]
    assert "country 19" not in found["observed"]
    assert "city 0" in found["all"]
    assert "city 0" not in found["plausible"]


def test_unknown_pairs_are_refused(run):
    with pytest.raises(PairREError, match="did you mean 'observed'"):
        discover(run, pairs="observd")


def test_relations_that_train_lacks_are_left_out(quick):
    triples = [(f"{i}", "next", f"{(i + 1) % 9}") for i in range(9)]
    run = make_run(load_graph({"train": triples, "valid": [("0", "beside", "2")], "test": triples[:1]}), quick)
    assert {link.relation for link in discover(run, k=1000, pairs="all")} == {"next"}
    with pytest.raises(PairREError, match="relation 'beside': train has no triple of it"):
        discover(run, relations=["beside"])
