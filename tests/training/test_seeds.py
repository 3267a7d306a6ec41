"""Several seeds in one call: each ends as it would alone, and a CPU holds one trainer at a time."""

import weakref

import pytest
import torch

import pairre
from pairre.settings import override
from pairre.support.errors import RecipeError
from pairre.training import session
from pairre.training.step import Trainer


def test_seeds_end_as_they_would_alone(graph, quick, tmp_path):
    """In one process, with folders and without, and continued where a folder is there already."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    alone = [
        pairre.train(graph, override(quick, [f"train.seed={seed}"]), progress=False, device=device) for seed in (3, 5)
    ]
    kept = tmp_path / "runs"
    pairre.train(graph, override(quick, ["train.seed=5"]), out=kept / "seed-5", progress=False, device=device)
    for options in ({}, {"out": kept, "resume": True}):
        runs = pairre.train_seeds(graph, quick, seeds=[3, 5, 3], progress=False, device=device, **options)
        assert [run.recipe.train.seed for run in runs] == [3, 5]
        for run, other in zip(runs, alone, strict=True):
            assert torch.equal(run.model.entity, other.model.entity)
            assert torch.equal(run.model.relation, other.model.relation)
    assert (kept / "seed-3" / "metrics.json").exists()
    with pytest.raises(RecipeError, match="seeds"):
        pairre.train_seeds(graph, quick, seeds=[])


def test_a_cpu_holds_one_trainer_at_a_time_and_shows_each_seed(graph, quick, monkeypatch):
    trainers, shown = [], []
    real_init, real_display = Trainer.__init__, session.make_display

    def init(self, *arguments, **options):
        assert [t for t in trainers if t() is not None] == []
        trainers.append(weakref.ref(self))
        real_init(self, *arguments, **options)

    def make_display(graph, recipe, device, tensorboard, progress):
        shown.append((recipe.train.seed, progress))
        return real_display(graph, recipe, device, tensorboard, False)

    monkeypatch.setattr(Trainer, "__init__", init)
    monkeypatch.setattr(session, "make_display", make_display)
    runs = pairre.train_seeds(graph, quick, seeds=[0, 1, 2], device="cpu")
    assert len(runs) == len(trainers) == 3
    assert shown == [(0, True), (1, True), (2, True)]
