"""Training: it learns, it stops early, it refuses NaN and stores no weights that are not finite."""

import math
from itertools import count

import pytest
import torch
from safetensors.torch import load_file
from training_variants import VARIANTS

import pairre
from conftest import planted_graph
from pairre.graph import Graph
from pairre.models import models
from pairre.settings import override
from pairre.support.errors import GraphError, RunError, TrainingError
from pairre.training import step
from pairre.training.sampling import distinct
from pairre.training.step import Trainer

CPU = torch.device("cpu")


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda s: "+".join(s) or "plain")
def test_it_learns(graph, quick, settings):
    recipe = override(quick, ["train.steps=300", "train.validate_every=100", *settings])
    trained = pairre.train(graph, recipe, progress=False)
    untrained = pairre.train(graph, override(quick, ["train.steps=1", "train.lr=0"]), progress=False)
    for split, gain in (("train", 0.2), ("test", 0.05)):  # the test split has few triples
        before, after = (pairre.evaluate(run, split)["both"]["mrr"] for run in (untrained, trained))
        assert after > before + gain


def test_a_step_follows_the_gradient_of_the_loss(graph, quick):
    """One step of plain arithmetic: dense Adam on autograd's gradients of the loss on whole tables."""
    trainer = Trainer(graph, override(quick, ["train.schedule=constant"]), CPU)
    batch = trainer.sampler.draw("tail", trainer.step_number)
    tables = {n: p.detach().clone().requires_grad_() for n, p in trainer.model.named_parameters()}
    entity = torch.nn.functional.normalize(tables["entity"], dim=-1)
    r_head, r_tail = tables["relation"][batch.relation].chunk(2, dim=-1)
    head, tail = entity[batch.anchor], entity[batch.true]
    d_pos = (head * r_head - tail * r_tail).abs().sum(-1)
    candidates = entity[batch.negative_ids[0]]
    d_neg = (head[:, None] * r_head[:, None] - candidates[None] * r_tail[:, None]).abs().sum(-1)
    share = (-d_neg.detach()).masked_fill(trainer.sampler.targets(batch).known, -math.inf).softmax(1)
    gamma = 6.0
    log_sigmoid = torch.nn.functional.logsigmoid
    each = -log_sigmoid(gamma - d_pos) - (share * log_sigmoid(d_neg - gamma)).sum(1)
    loss = (batch.weight / batch.weight.sum() * each).sum() / 2
    loss.backward()
    optimizer = torch.optim.Adam(tables.values(), lr=trainer.recipe.train.lr)
    optimizer.step()
    trainer.advance(1)
    assert trainer.mean_loss(1) == pytest.approx(loss.item(), rel=1e-5)
    for name, table in trainer.model.named_parameters():
        torch.testing.assert_close(table.detach(), tables[name].detach(), rtol=1e-4, atol=1e-5)


def test_best_weights_are_kept_and_patience_ends_it(graph, quick):
    recipe = override(quick, ["train.steps=400", "train.validate_every=10", "train.patience=3", "train.lr=0.3"])
    run = pairre.train(graph, recipe, progress=False)
    validations = [e for e in run.history if "valid" in e]
    best = max(v["valid"]["mrr"] for v in validations)
    assert len(validations) < 40
    assert validations[-1]["best_mrr"] == best
    assert all(v["valid"]["mrr"] <= best for v in validations[-3:])
    assert pairre.evaluate(run, "valid")["both"]["mrr"] == pytest.approx(best)


def test_same_seed_same_bits_other_seed_other_bits(graph, quick):
    one, two = (pairre.train(graph, quick, progress=False) for _ in range(2))
    other = pairre.train(graph, override(quick, ["train.seed=1"]), progress=False)
    assert torch.equal(one.model.entity, two.model.entity)
    assert not torch.equal(one.model.entity, other.model.entity)


def test_without_validation_the_last_weights_are_kept(graph, quick, tmp_path, caplog):
    bare = Graph("bare", graph.entities, graph.relations, graph.train, graph.valid[:0], graph.test)
    run = pairre.train(bare, quick, out=tmp_path / "run", progress=False, device="cpu")
    assert "no valid split" in caplog.text
    trainer = Trainer(bare, quick, CPU)
    for _ in range(quick.train.steps):
        trainer.advance(1)
    trainer.flush()
    assert torch.equal(run.model.entity, trainer.model.entity)


def test_nan_stops_at_once_and_keeps_the_last_good_state(graph, quick, tmp_path, monkeypatch):
    real, calls = step._build_terms, count(1)

    def build_terms(*arguments):
        return [*real(*arguments), lambda _: torch.tensor(math.nan if next(calls) == 8 else 0.0)]

    monkeypatch.setattr(step, "_build_terms", build_terms)
    with pytest.raises(TrainingError, match="the loss became nan by step 9"):
        pairre.train(graph, quick, out=tmp_path / "run", progress=False, device="cpu")
    monkeypatch.undo()
    assert not (tmp_path / "run").exists()  # no step had been stored
    monkeypatch.setattr(step, "_build_terms", build_terms)
    recipe = override(quick, ["train.checkpoint_seconds=0"])
    calls = count(1)
    with pytest.raises(TrainingError, match=r"the loss became nan by step [89]"):  # 9 while a checkpoint was written
        pairre.train(graph, recipe, out=tmp_path / "run", progress=False, device="cpu")
    monkeypatch.undo()
    run = pairre.train(graph, out=tmp_path / "run", resume=True, progress=False, device="cpu")
    assert torch.equal(run.model.entity, pairre.train(graph, quick, progress=False, device="cpu").model.entity)


def test_a_huge_rate_really_diverges(graph, quick):
    recipe = override(quick, ["train.lr=1e30", "train.schedule=constant"])
    with pytest.raises(TrainingError, match=r"the loss became (nan|inf) by step \d+"):
        pairre.train(graph, recipe, progress=False)


def test_weights_that_are_not_finite_are_never_stored(graph, quick, tmp_path, monkeypatch):
    """An entity that no batch shows again would hide its NaN from the loss; the checkpoint still sees it."""
    real = Trainer.advance

    def spoil(self, num):
        real(self, num)
        if self.progress.step == 20:
            self.model.entity.data[3] = math.nan

    monkeypatch.setattr(Trainer, "advance", spoil)
    with pytest.raises(TrainingError, match="the entity weights are not finite at step 20"):
        pairre.train(graph, override(quick, ["train.checkpoint_seconds=0"]), out=tmp_path / "run", progress=False)
    assert all(value.isfinite().all() for value in load_file(tmp_path / "run" / "checkpoint.safetensors").values())
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_an_empty_graph_is_refused(graph):
    empty = Graph("empty", graph.entities, graph.relations, graph.train[:0], graph.valid, graph.test)
    with pytest.raises(GraphError, match="train is empty"):
        pairre.train(empty)
    with pytest.raises(RunError, match="say which run folder"):
        pairre.train(graph, resume=True)


def test_tensorboard_files_are_written(graph, quick, tmp_path):
    pairre.train(graph, quick, out=tmp_path / "run", progress=False, tensorboard=True)
    assert any((tmp_path / "run" / "tensorboard").glob("events.*"))


# --- the small public graphs: a few hundred steps come near to what the recipes reach (benchmarks/small_graphs.py) ---


@pytest.mark.parametrize(("name", "settings", "bar"), [("umls", [], 0.87), ("sports", ["train.lr=5e-3"], 0.41)])
def test_bars_on_public_graphs(public, name, settings, bar):
    run = pairre.train(public / name, name, overrides=["train.steps=300", *settings], progress=False)
    assert pairre.evaluate(run)["both"]["mrr"] >= bar


def test_planted_graph_is_what_it_says():
    graph = planted_graph()
    assert graph.num_relations == 3
    assert len(graph.train) + len(graph.valid) + len(graph.test) == 160


@pytest.mark.parametrize("storage", ["float16", "bfloat16"])
def test_half_precision_tables_learn_and_are_kept(graph, quick, storage, tmp_path):
    recipe = override(quick, ["train.steps=300", f"model.storage={storage}"])
    run = pairre.train(graph, recipe, out=tmp_path / "run", progress=False)
    assert run.model.entity.dtype == getattr(torch, storage)
    full = pairre.evaluate(pairre.train(graph, override(recipe, ["model.storage=float32"]), progress=False))
    assert pairre.evaluate(run)["both"]["mrr"] == pytest.approx(full["both"]["mrr"], abs=0.08)
    again = pairre.load_run(tmp_path / "run")
    assert torch.equal(again.model.entity, run.model.entity)
    resumed = pairre.train(graph, out=tmp_path / "run", resume=True, progress=False)
    assert torch.equal(resumed.model.entity, run.model.entity)


@pytest.mark.parametrize("num_entities", [10, 40, 5000])
def test_each_negative_is_gathered_once(num_entities):
    negatives = torch.randint(num_entities, (6, 7), generator=torch.Generator().manual_seed(0))
    ids, place = distinct(negatives, num_entities)
    assert len(ids) == min(42, num_entities)
    assert torch.equal(ids[place], negatives)
    each = negatives.unique()
    assert ids.tolist() == [*each.tolist(), *[-1] * (len(ids) - len(each))]


@pytest.mark.parametrize("name", [model.name for model in models() if model.constraints])
def test_constraints_hold_whatever_adam_puts_off(graph, quick, name):
    trainer = Trainer(graph, override(quick, [f"model.name={name}", "train.lr=0.1", "train.batch=4"]), CPU)
    trainer.advance(30)
    trainer.flush()
    for table, rule in trainer.model.constraints.items():
        rows = getattr(trainer.model, table).detach()
        torch.testing.assert_close(rule(trainer.model, rows), rows)
    assert math.isfinite(trainer.mean_loss(30))
