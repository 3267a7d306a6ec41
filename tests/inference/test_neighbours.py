"""Neighbours, duplicates and clusters, against all cosines at once; blocks are small, so that there are several."""

import pytest
import torch
import torch.nn.functional as F

from pairre.inference import clusters, duplicates, neighbours, similar
from pairre.inference.neighbours import nearest_of
from pairre.models import model_class
from pairre.runs import Run, vectors
from pairre.settings import Recipe
from pairre.support.errors import NameNotFoundError, PairREError


def random_run(graph, name="pairre", dim=6):
    model = model_class(name)(graph.num_entities, graph.num_relations, dim)
    model.initialise(1.0, 3)
    return Run(graph, Recipe(), model.requires_grad_(False))


@pytest.fixture
def run(graph, monkeypatch):
    monkeypatch.setattr(neighbours, "_BLOCK", 7)
    monkeypatch.setattr(vectors, "_ELEMENTS", 66)
    made = random_run(graph)
    made.model.entity[11] = 2 * made.model.entity[5]  # of another length, so the same to the score
    made.model.entity[12] = made.model.entity[30] + 0.01
    return made


def cosines(run):
    rows = F.normalize(run.model.entity.detach(), dim=1)
    return (rows @ rows.T).fill_diagonal_(-2)


def test_similar_is_the_order_of_all_cosines(run):
    expected = cosines(run)
    for own in (0, 5, 39):
        found = similar(run, f"e{own}", k=8)
        best = expected[own].topk(8)
        assert [one.entity for one in found] == [f"e{i}" for i in best.indices.tolist()]
        assert torch.allclose(torch.tensor([one.similarity for one in found]), best.values, atol=1e-6)
        assert [one.rank for one in found] == list(range(1, 9))
    assert len(similar(run, "e0", k=1000)) == run.graph.num_entities - 1
    ids, values = nearest_of(run, 5, torch.tensor([5, 30, 11, 2]), 2)
    assert ids[0] == 11
    assert values[0] == pytest.approx(1)
    assert 5 not in nearest_of(run, 5, torch.tensor([5]), 2)[0]


def test_duplicates_are_the_pairs_above_the_threshold(run):
    expected = cosines(run).triu(1)
    progress = []
    found = duplicates(run, threshold=0.6, k=1000, progress=progress.append)
    assert {(one.entity, one.other) for one in found} == {
        (f"e{a}", f"e{b}") for a, b in (expected >= 0.6).nonzero().tolist()
    }
    assert (found[0].entity, found[0].other) == ("e5", "e11")
    assert (found[1].entity, found[1].other) == ("e12", "e30")
    assert found == sorted(found, key=lambda pair: -pair.similarity)
    assert duplicates(run, threshold=0.6, k=3) == found[:3]
    assert sum(progress) == pytest.approx(1)


def test_clusters_find_what_was_planted(run):
    directions = F.normalize(torch.randn(3, 6, generator=torch.Generator().manual_seed(1)), dim=1)
    number = torch.arange(40) % 5 % 3  # of 16, 16 and 8 entities
    noise = torch.randn(40, 6, generator=torch.Generator().manual_seed(2))
    run.model.entity.copy_(directions[number] + 0.02 * noise)
    found = clusters(run, 3)
    assert [sorted(one.entities) for one in found[2:]] == [sorted(f"e{i}" for i in range(40) if number[i] == 2)]
    assert sorted(len(one.entities) for one in found) == [8, 16, 16]
    assert found == clusters(run, 3)
    assert all(one.similarity > 0.98 for one in found)
    every = clusters(run, 40)
    assert sum(len(one.entities) for one in every) == 40


def test_models_whose_candidates_depend_on_the_relation_use_stored_rows(graph):
    run = random_run(graph, "transr", 4)
    assert [one.entity for one in similar(run, "e3", k=2)] == [
        f"e{i}" for i in cosines(run)[3].topk(2).indices.tolist()
    ]


def test_what_makes_no_sense_is_refused(run):
    with pytest.raises(NameNotFoundError, match="e99"):
        similar(run, "e99")
    for wrong in (
        lambda: similar(run, "e1", k=0),
        lambda: duplicates(run, threshold=1.5),
        lambda: duplicates(run, k=0),
        lambda: clusters(run, 0),
        lambda: clusters(run, 41),
    ):
        with pytest.raises(PairREError):
            wrong()
    run.model.entity[3] = torch.nan
    with pytest.raises(PairREError, match="diverged"):
        similar(run, "e1")
