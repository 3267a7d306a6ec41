"""The planted graph of benchmarks/ogb_shape.py has the structure that its figures are read against."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pairre import evaluate, train
from pairre.graph import SPLITS
from pairre.support.errors import DownloadError

SCALE = 0.002
QUICK = ["model.dim=64", "sampling.chunk_size=0", "train.lr=2e-2", "train.steps=500", "train.validate_triples=100"]


@pytest.fixture(scope="module")
def shape():
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    yield importlib.import_module("ogb_shape")
    del sys.path[0]


@pytest.fixture(scope="module")
def made(shape):
    return shape.make(SCALE)


def written(shape, made, folder):
    world, splits, negatives = made
    shape.write(folder / "ogb" / "ogbl_wikikg2", world, splits, dict(negatives), 2)


def keys(world, head, relation, tail):
    head, relation, tail = (np.asarray(ids, np.int64) for ids in (head, relation, tail))
    return (head * world.num_relations + relation) * world.num_entities + tail


def test_it_has_what_it_claims(shape, made):
    world, splits, negatives = made
    assert [len(splits[split]) for split in SPLITS] == [32_218, 859, 1_197]
    everything = torch.cat(list(splits.values())).numpy()
    true = np.unique(keys(world, *everything.T))
    assert len(true) == len(everything)
    for split in shape.GIVEN:
        head, relation, tail = (ids[:, None] for ids in splits[split].numpy().T)
        for corrupted in ((negatives[f"{split}.head"], relation, tail), (head, relation, negatives[f"{split}.tail"])):
            found = keys(world, *np.broadcast_arrays(*corrupted))
            assert found.shape == (len(splits[split]), 500)
            assert not np.isin(found, true).any()
    head, relation, tail = everything.T
    relations = world.relations
    facet, limit = relations.facet[relation], relations.limit[relation]
    wanted = relations.leads["tail"][relation, world.community[facet, head]]
    follows = (world.community[facet, tail] == wanted) & (world.place[facet, tail] < limit)
    assert 0.85 < follows.mean() < 0.92
    back = relations.mirror[relation]
    held = np.isin(keys(world, tail, back, head), true)
    assert held[follows & (back >= 0)].mean() > 0.8
    degree = np.bincount(np.concatenate([head, tail]))
    assert degree.max() > 5 * np.median(degree)
    assert np.array_equal(shape.make(SCALE)[2]["test.tail"], negatives["test.tail"])


@pytest.mark.parametrize("loader", ["ogb", "stand-in"])
def test_the_loader_reads_it(shape, made, tmp_path, monkeypatch, loader):
    if loader == "ogb":
        pytest.importorskip("pandas", reason="the extra `ogb` is not installed")
    else:
        monkeypatch.setitem(sys.modules, "ogb", None)
        monkeypatch.setitem(sys.modules, "ogb.linkproppred", None)
    written(shape, made, tmp_path)
    with shape.ogb() as name:
        graph = shape.load(tmp_path, SCALE)
        with pytest.raises(DownloadError, match="expected 2,500,604 entities, found 5,001"):
            shape.load(tmp_path, 1)
    assert name.startswith(loader)
    world, splits, negatives = made
    assert (graph.num_entities, graph.num_relations) == (world.num_entities, world.num_relations)
    assert all(torch.equal(graph.split(split), splits[split]) for split in SPLITS)
    assert all(np.array_equal(graph.candidates[key].numpy(), ids) for key, ids in negatives.items())


def test_a_short_training_ends_between_counting_and_the_oracle(shape, made, tmp_path):
    written(shape, made, tmp_path)
    with shape.ogb():
        graph = shape.load(tmp_path, SCALE)
    found = {name: metrics["mrr"] for name, metrics in shape.references(made[0], graph)["test"].items()}
    assert found["oracle"] > 0.75
    assert found["counting"] < 0.2
    run = train(graph, "ogbl-wikikg2", overrides=QUICK, device="cpu", progress=False)
    assert 2 * found["counting"] < evaluate(run)["both"]["mrr"] < found["oracle"]
