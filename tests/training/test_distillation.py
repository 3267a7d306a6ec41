"""A model that learns from another one: the term is its formula, and a run says and keeps who taught it."""

from __future__ import annotations

import pytest
import torch

import pairre
from pairre.settings import from_values, override
from pairre.support.errors import RunError
from pairre.training.distillation import DistillationTerm, Teacher
from pairre.training.step import Trainer
from tests.conftest import planted_graph, resumed

RECIPE = from_values(
    {
        "model": {"dim": 8},
        "loss": {"name": "cross-entropy", "temperature": 2.0, "subsampling": False},
        "sampling": {"negatives": 0},
        "train": {"batch": 32, "steps": 40, "lr": 0.02, "validate_every": 20},
    }
)


@pytest.fixture(scope="module")
def graph():
    return planted_graph()


@pytest.fixture(scope="module")
def teacher(graph):
    settings = ["model.name=complex", "model.init_range=0.3", "loss.temperature=1"]
    return pairre.train(graph, RECIPE, overrides=settings, progress=False, device="cpu")


def scored_batch(trainer, side):
    """What the terms of a step see, and the batch."""
    seen = []
    trainer.terms[side].append(lambda scored: seen.append(scored) or scored.positive.sum() * 0)
    trainer.step(side)
    trainer.terms[side].pop()
    return seen[0]


@pytest.mark.parametrize("side", ["head", "tail"])
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"filter": False},
        {"negatives": 7},
        {"negatives": "as many as entities"},
        {"negatives": 7, "chunk_size": 5},
        {"negatives": 7, "chunk_size": 1},
    ],
)
def test_the_term_is_the_divergence_over_negatives_that_count(graph, teacher, side, sampling):
    if sampling.get("negatives") == "as many as entities":
        sampling = {"negatives": graph.num_entities}
    recipe = override(RECIPE, {f"sampling.{key}": value for key, value in sampling.items()})
    trainer = Trainer(graph, recipe, torch.device("cpu"))
    scored = scored_batch(trainer, side)
    ids = scored.batch.negative_ids.repeat_interleave(trainer.sampler.chunk_size, 0)
    known = (
        torch.zeros_like(scored.negative, dtype=torch.bool) if scored.targets.known is None else scored.targets.known
    )
    taught = Teacher(teacher.model, 1.7, {})
    term = DistillationTerm(override(recipe, {"distill.weight": 3.0, "distill.temperature": 2.0}), taught)
    expected = 0.0
    for n in range(len(scored.positive)):
        ends = [int(scored.batch.anchor[n]), int(scored.batch.true[n])]
        head, tail = ends if side == "tail" else reversed(ends)
        triple = torch.tensor([[head, int(scored.batch.relation[n]), tail]])
        counts = ~known[n]
        assert not (recipe.sampling.filter and ends[1] in ids[n, counts])
        p = (1.7 / 2 * teacher.model.score_all(triple, side)[0, ids[n, counts]]).double().softmax(0)
        q = (2 / 2 * scored.negative[n, counts]).double().softmax(0)
        expected += 3 * scored.targets.weight[n] * (p * (p / q).log()).sum()
    assert term(scored).item() == pytest.approx(expected.item(), rel=1e-4)


def test_the_scale_is_that_of_the_likeliest_validation_triples(graph, teacher):
    one = Teacher.of(teacher, graph, torch.device("cpu"))
    assert one.scale > 0
    with torch.no_grad():
        teacher.model.relation *= 4
    four = Teacher.of(teacher, graph, torch.device("cpu"))
    with torch.no_grad():
        teacher.model.relation /= 4
    assert four.scale == pytest.approx(one.scale / 4, rel=1e-2)


def test_a_model_comes_nearer_to_its_teacher(graph, teacher):
    def distance(run):
        triples = graph.train[:40].long()
        ours, theirs = (one.model.score_all(triples, "tail").softmax(1) for one in (run, teacher))
        return float((ours - theirs).abs().sum(1).mean())

    alone = pairre.train(graph, RECIPE, progress=False, device="cpu")
    settings = {"distill.weight": 20, "sampling.filter": False, "loss.temperature": 1}
    taught = pairre.train(graph, RECIPE, overrides=settings, teacher=teacher, progress=False, device="cpu")
    assert distance(taught) < distance(alone)
    assert taught.origin["teacher"]["run"] == "a run in memory"


def test_a_resumed_run_has_the_same_bits(graph, teacher):
    taught = Teacher.of(teacher, graph, torch.device("cpu"))
    resumed(lambda: Trainer(graph, RECIPE, torch.device("cpu"), teacher=taught))


def test_a_folder_knows_its_teacher(graph, teacher, tmp_path):
    teacher.save(tmp_path / "teacher")
    options = {"progress": False, "device": "cpu", "out": tmp_path / "run"}
    run = pairre.train(graph, RECIPE, teacher=tmp_path / "teacher", **options)
    assert run.recipe.distill.teacher == str(tmp_path / "teacher")
    assert pairre.load_run(tmp_path / "run", "cpu").origin["teacher"]["checksum"]
    longer = pairre.train(overrides={"train.steps": 60}, resume=True, **options)
    assert longer.history[-1]["step"] == 60
    (tmp_path / "teacher").rename(tmp_path / "gone")
    with pytest.raises(RunError, match=r"distill\.teacher: .*no such run folder"):
        pairre.train(overrides={"train.steps": 80}, resume=True, **options)
    pairre.train(graph, RECIPE, progress=False, device="cpu").save(tmp_path / "teacher")
    with pytest.raises(RunError, match="another teacher, or its teacher has other weights"):
        pairre.train(overrides={"train.steps": 80}, resume=True, **options)
    teacher.path = None


def test_an_ensemble_with_rules_can_teach_on_the_command_line(graph, teacher, tmp_path, call, triples_file):
    loaded = pairre.load_graph(triples_file)
    runs = [
        pairre.train(loaded, RECIPE, overrides=[f"model.name={name}"], progress=False, device="cpu")
        for name in ("pairre", "distmult")
    ]
    rule = pairre.rules.Rule(("next",), "previous", "inverse", 1.0)
    pairre.ensemble(runs, rules=[rule]).save(tmp_path / "both")
    settings = ("--set", "sampling.negatives=0", "--set", "train.steps=10", "--set", "train.batch=32")
    code, _, err = call(
        *("train", triples_file, "--teacher", tmp_path / "both", "--out", tmp_path / "run", "--device", "cpu"),
        *settings,
    )
    assert code == 0, err
    runs = pairre.train_seeds(
        *(loaded, RECIPE), seeds=[0, 1], teacher=tmp_path / "both", progress=False, device="cpu", out=tmp_path / "seeds"
    )
    assert [run.origin["teacher"]["run"] for run in runs] == ["both", "both"]


def test_what_cannot_teach_is_refused(graph, teacher, tmp_path):
    with pytest.raises(RunError, match="from another graph than ring, so it cannot be its teacher"):
        pairre.train(planted_graph(seed=1), RECIPE, teacher=teacher, progress=False)
    with pytest.raises(RunError, match=r"distill\.teacher: .*no such run folder"):
        pairre.train(graph, RECIPE, overrides={"distill.teacher": str(tmp_path / "none")}, progress=False)
