"""Training: it learns, it stops early, it refuses NaN, and a broken run ends in the same bits as an unbroken one."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

import pairre
from conftest import planted_graph
from pairre import kernels
from pairre.evaluation.evaluate import evaluate_triples
from pairre.graph import Graph
from pairre.models import MODELS
from pairre.settings.recipe import override
from pairre.support.device import Recorded
from pairre.support.errors import GraphError, RecipeError, RunError, TrainingError
from pairre.training.sampling import SIDES
from pairre.training.trainer import Trainer, _distinct

CPU = torch.device("cpu")
VARIANTS = [
    [],
    ["sampling.chunk_size=1"],
    ["sampling.chunk_size=5"],
    ["sampling.negatives=0", "loss.name=cross-entropy"],
    ["loss.name=margin", "loss.margin=2"],
    ["loss.name=logistic"],
    ["train.optimizer=adagrad", "train.lr=0.3"],
    ["train.update_rows=touched"],
    ["train.schedule=step"],
    ["train.schedule=cosine", "train.warmup=20"],
    ["regularizer.name=n3", "regularizer.weight=1e-4"],
    ["regularizer.name=l2", "regularizer.weight=1e-4"],
    [
        *("model.name=distmult", "sampling.negatives=0"),
        *("loss.name=k-vs-all", "loss.subsampling=false", "loss.margin=0", "loss.smoothing=0.1"),
    ],
    ["model.name=complex", "model.reciprocal=true", "sampling.negatives=0", "loss.name=cross-entropy"],
    ["model.name=transh", "loss.margin=2", "train.lr=0.05"],
    ["model.name=kg2e", "loss.margin=0"],
]


def states(run_path: Path) -> dict[str, bytes]:
    return {name: (run_path / name).read_bytes() for name in ("model.safetensors", "metrics.json")}


def weights(path):
    from safetensors.torch import load_file

    return load_file(path / "checkpoint.safetensors")


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
    batch = trainer.sampler.batch("tail", trainer.clock)
    tables = {n: p.detach().clone().requires_grad_() for n, p in trainer.model.named_parameters()}
    entity = torch.nn.functional.normalize(tables["entity"], dim=-1)
    r_head, r_tail = tables["relation"][batch.relation].chunk(2, dim=-1)
    head, tail = entity[batch.anchor], entity[batch.true]
    d_pos = (head * r_head - tail * r_tail).abs().sum(-1)
    candidates = entity[batch.negatives[0]]
    d_neg = (head[:, None] * r_head[:, None] - candidates[None] * r_tail[:, None]).abs().sum(-1)
    share = (-d_neg.detach()).masked_fill(trainer.sampler.known_mask(batch), -math.inf).softmax(1)
    gamma = 6.0
    log_sigmoid = torch.nn.functional.logsigmoid
    each = -log_sigmoid(gamma - d_pos) - (share * log_sigmoid(d_neg - gamma)).sum(1)
    loss = (batch.weight / batch.weight.sum() * each).sum() / 2
    loss.backward()
    optimizer = torch.optim.Adam(tables.values(), lr=trainer.recipe.train.lr)
    optimizer.step()
    trainer.step()
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
        trainer.step()
    trainer.settle()
    assert torch.equal(run.model.entity, trainer.model.entity)


def test_nan_stops_at_once_and_keeps_the_last_good_state(graph, quick, tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "penalty", lambda self, *_: torch.tensor(math.nan if self.progress.step == 7 else 0.0))
    with pytest.raises(TrainingError, match="the loss became nan by step 9"):
        pairre.train(graph, quick, out=tmp_path / "run", progress=False, device="cpu")
    monkeypatch.undo()
    run = pairre.train(graph, out=tmp_path / "run", resume=True, progress=False, device="cpu")
    assert torch.equal(run.model.entity, pairre.train(graph, quick, progress=False, device="cpu").model.entity)


def test_a_huge_rate_really_diverges(graph, quick):
    recipe = override(quick, ["train.lr=1e30", "train.schedule=constant"])
    with pytest.raises(TrainingError, match=r"the loss became (nan|inf) by step \d+"):
        pairre.train(graph, recipe, progress=False)


def test_weights_that_are_not_finite_are_never_stored(graph, quick, tmp_path, monkeypatch):
    """An entity that no batch shows again would hide its NaN from the loss; the checkpoint still sees it."""
    real = Trainer.step

    def spoil(self, num):
        real(self, num)
        if self.progress.step == 20:
            self.model.entity.data[3] = math.nan

    monkeypatch.setattr(Trainer, "step", spoil)
    with pytest.raises(TrainingError, match="the entity weights are not finite at step 20"):
        pairre.train(graph, quick, out=tmp_path / "run", progress=False)
    assert all(value.isfinite().all() for value in weights(tmp_path / "run").values())
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


# --- real processes, really stopped ---


def command(folder: Path, run: Path, *more: str) -> list[str]:
    settings = ["model.dim=16", "train.batch=32", "train.steps=3000", "train.validate_every=100", "train.patience=0"]
    settings += ["train.checkpoint_seconds=0.1", "sampling.negatives=8", "train.schedule=step"]
    flags = [part for setting in settings for part in ("--set", setting)]
    return [sys.executable, "-m", "pairre", "train", str(folder), "--out", str(run), *flags, *more]


def wait_for_step(run: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        log = run / "log.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        if lines and any(json.loads(line)["step"] >= step for line in lines[:-1]):
            return
        time.sleep(0.02)
    raise AssertionError(f"step {step} not reached")


def test_stopped_runs_end_bit_identical(triples_file, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run(command(triples_file, whole), check=True, capture_output=True)
    codes = []
    for i, (sign, step) in enumerate(((signal.SIGINT, 300), (signal.SIGTERM, 900), (signal.SIGKILL, 1500))):
        more = ["--resume"] if i else []
        process = subprocess.Popen(command(triples_file, broken, *more), stderr=subprocess.PIPE, text=True)
        wait_for_step(broken, step)
        os.kill(process.pid, sign)
        _, said = process.communicate(timeout=60)
        codes.append(process.returncode)
        if sign != signal.SIGKILL:
            assert "with --resume continues" in said.splitlines()[-1]
    assert codes == [130, 143, -signal.SIGKILL]
    assert not (broken / "metrics.json").exists()
    subprocess.run(command(triples_file, broken, "--resume"), check=True, capture_output=True)
    assert states(whole) == states(broken)
    one, two = weights(whole), weights(broken)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    steps = [json.loads(line)["step"] for line in (broken / "log.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert steps == [json.loads(line)["step"] for line in (whole / "log.jsonl").read_text().splitlines()]


def test_a_folder_in_use_is_locked(triples_file, tmp_path):
    run = tmp_path / "run"
    process = subprocess.Popen(command(triples_file, run, "--set", "train.steps=1000000"), stderr=subprocess.DEVNULL)
    try:
        wait_for_step(run, 100)
        with pytest.raises(RunError, match=f"in use by process {process.pid}"):
            pairre.train(triples_file, out=run, resume=True, progress=False)
    finally:
        process.kill()
        process.wait()


# --- the bars of the small public graphs ---


@pytest.mark.parametrize(("name", "bar"), [("umls", 0.90), ("sports", 0.43)])
def test_bars_on_public_graphs(public, name, bar):
    run = pairre.train(public / name, name, progress=False)
    assert pairre.evaluate(run)["both"]["mrr"] >= bar


def test_planted_graph_is_what_it_says():
    graph = planted_graph()
    assert graph.num_relations == 3
    assert len(graph.train) + len(graph.valid) + len(graph.test) == 160


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("settings", VARIANTS, ids=lambda s: s[0] if s else "plain")
def test_a_recorded_step_is_the_step(graph, quick, settings):
    """A replayed CUDA graph ends in the bits of plain launches, one step at a time or many, and near the CPU's loss."""
    recipe = override(quick, ["train.steps=130", *settings])
    results = []
    for device, ways in (("cuda", "one"), ("cuda", "many"), ("cuda", "plain"), ("cpu", "one")):
        trainer = Trainer(graph, recipe, torch.device(device))
        if ways == "plain":
            trainer._steps = [Recorded(partial(trainer._step, side), CPU) for side in SIDES]  # never records
        for num in (1, 64, 1, 64) if ways == "many" else [1] * 130:
            trainer.step(num)
        trainer.settle()
        assert int(trainer.clock) == trainer.progress.step == 130
        results.append((trainer.model.entity.detach().cpu(), trainer.mean_loss(130)))
    (one, loss), (many, _), (plain, _), (_, there) = results
    assert torch.equal(one, plain)
    assert torch.equal(many, plain)
    assert loss == pytest.approx(there, rel=1e-2)


@pytest.mark.parametrize("num_entities", [10, 40, 5000])
def test_each_negative_is_read_once(num_entities):
    negatives = torch.randint(num_entities, (6, 7), generator=torch.Generator().manual_seed(0))
    ids, place = _distinct(negatives, num_entities)
    assert len(ids) == min(42, num_entities)
    assert torch.equal(ids[place], negatives)
    distinct = negatives.unique()
    assert ids.tolist() == [*distinct.tolist(), *[-1] * (len(ids) - len(distinct))]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the tests above use the GPU itself")
@pytest.mark.parametrize(
    "settings",
    [[], ["sampling.chunk_size=1", "train.optimizer=adagrad"], ["model.name=rotate"], ["model.name=se"]],
    ids=lambda s: s[0] if s else "plain",
)
def test_the_kernels_of_the_gpu_train_and_rank_as_those_of_the_cpu(graph, quick, settings, monkeypatch):
    """All of a step and of the ranking through Triton's interpreter: near the CPU's weights, and the same ranks."""
    gpu = pytest.importorskip("pairre.kernels.cuda", reason="triton is not installed")
    recipe = override(quick, ["train.steps=4", "train.batch=8", "sampling.negatives=6", "model.dim=8", *settings])
    results = []
    for kernels in (kernels.backend("cpu"), gpu):
        monkeypatch.setattr(ops, "backend", lambda _, kernels=kernels: kernels)
        trainer = Trainer(graph, recipe, CPU)
        trainer.step(4)
        trainer.settle()
        results.append((trainer.model, trainer.mean_loss(4)))
    (one, loss), (two, other) = results
    assert loss == pytest.approx(other, rel=1e-4)
    torch.testing.assert_close(one.entity, two.entity, rtol=1e-2, atol=1e-3)
    one.load_state_dict(two.state_dict())
    there = evaluate_triples(two, graph.test, graph.known)
    monkeypatch.undo()
    for side, here in evaluate_triples(one, graph.test, graph.known).items():
        assert torch.equal(here.higher, there[side].higher)
        assert torch.equal(here.equal, there[side].equal)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_ranks_on_a_gpu_are_those_of_the_cpu(graph, quick):
    """On the same weights; scores differ in their last bits, so only candidates that nearly tie could change places."""
    run = pairre.train(graph, override(quick, ["train.steps=100"]), progress=False, device="cuda")
    there = evaluate_triples(run.model, graph.test, graph.known)
    here = evaluate_triples(run.model.cpu(), graph.test, graph.known)
    for side, ranks in here.items():
        assert torch.equal(ranks.higher, there[side].higher)
        assert torch.equal(ranks.equal, there[side].equal)


@pytest.mark.parametrize("name", [model.name for model in MODELS if model.constraints])
def test_constraints_hold_whatever_adam_puts_off(graph, quick, name):
    trainer = Trainer(graph, override(quick, [f"model.name={name}", "train.lr=0.1", "train.batch=4"]), CPU)
    trainer.step(30)
    trainer.settle()
    for table, rule in trainer.model.constraints.items():
        rows = getattr(trainer.model, table).detach()
        torch.testing.assert_close(rule(trainer.model, rows), rows)
    assert math.isfinite(trainer.mean_loss(30))
