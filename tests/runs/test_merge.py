"""Merging: one run of PairRE whose scores are the mean of several, and whatever cannot be merged is refused."""

import pytest
import torch

import pairre
from pairre.support.errors import RunError

QUICK = ("train.steps=30", "train.batch=32", "sampling.negatives=8", "model.dim=6")


@pytest.fixture(scope="module")
def graph():
    return pairre.load_graph("atlas")


def trained(graph, *settings, **options):
    return pairre.train(graph, overrides=[*QUICK, *settings], progress=False, device="cpu", **options)


@pytest.mark.parametrize("reciprocal", ["false", "true"])
def test_scores_are_the_mean_of_the_members(graph, reciprocal):
    always = f"model.reciprocal={reciprocal}"
    sizes = ("model.dim=6", "model.dim=10", "model.dim=3")
    runs = [trained(graph, always, f"train.seed={seed}", size) for seed, size in enumerate(sizes)]
    merged = pairre.merge(runs)
    assert merged.model.dim == merged.recipe.model.dim == 19
    for side in ("head", "tail"):
        scores = torch.stack([run.model.score_all(graph.test[:20], side) for run in runs])
        torch.testing.assert_close(merged.model.score_all(graph.test[:20], side), scores.mean(0), rtol=1e-5, atol=1e-6)
        assert not torch.allclose(scores[0], scores[1])


def test_a_merged_run_is_a_run(graph, tmp_path, call):
    for seed in range(2):
        trained(graph, f"train.seed={seed}", out=tmp_path / f"seed-{seed}")
    paths = [tmp_path / f"seed-{seed}" for seed in range(2)]
    code, out, _ = call("merge", *paths, "--out", tmp_path / "merged", "--device", "cpu")
    assert (code, "12 features" in out) == (0, True)
    again = pairre.load_run(tmp_path / "merged", "cpu")
    one = pairre.merge([pairre.load_run(path, "cpu") for path in paths])
    assert torch.equal(again.model.entity, one.model.entity)
    assert pairre.evaluate(again)["both"] == pairre.evaluate(one)["both"]
    before = (tmp_path / "merged" / "model.safetensors").read_bytes()
    code, _, err = call("train", "atlas", "--out", tmp_path / "merged", "--resume", "--device", "cpu")
    assert (code, "no checkpoint to continue from" in err) == (2, True)
    assert (tmp_path / "merged" / "model.safetensors").read_bytes() == before
    code, out, _ = call("predict", tmp_path / "merged", "--head", "France", "--relation", "borders", "-k", "3")
    assert (code, "France" in out) == (0, True)


def test_half_precision_is_merged_in_full(graph):
    runs = [trained(graph, "model.storage=float16", f"train.seed={seed}") for seed in range(2)]
    merged = pairre.merge(runs)
    assert merged.model.entity.dtype == torch.float32
    assert merged.recipe.model.storage == "float32"


def test_what_cannot_be_merged_is_refused(graph, tmp_path, call):
    one = trained(graph)
    with pytest.raises(RunError, match="at least two"):
        pairre.merge([one])
    with pytest.raises(RunError, match="a run of transe; runs of pairre can be merged"):
        pairre.merge([one, trained(graph, "model.name=transe")])
    with pytest.raises(RunError, match=r"model\.reciprocal is not that of"):
        pairre.merge([one, trained(graph, "model.reciprocal=true")])
    with pytest.raises(RunError, match="another graph"):
        pairre.merge([one, trained(graph.without_test())])
    one.save(tmp_path / "one")
    code, _, err = call("merge", tmp_path / "one", tmp_path / "one", "--out", tmp_path / "one")
    assert (code, "exists" in err) == (2, True)
    code, _, err = call("merge", tmp_path / "one", tmp_path / "none", "--out", tmp_path / "two")
    assert (code, "no such run folder" in err) == (2, True)
