"""One contract over every model in training: it resumes to the bit, it is what was saved, and a GPU agrees."""

import pytest
import torch

import pairre
from conftest import resumed
from pairre.evaluation import rank_both_sides
from pairre.models import model_class, models
from pairre.runs import Progress
from pairre.settings import override
from pairre.support.errors import RecipeError
from pairre.training.sampling import STEP_SIDES
from pairre.training.step import Trainer

CPU = torch.device("cpu")
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
CONTRACT = pytest.mark.parametrize("name", [model.name for model in models()])


def recipe_of(quick, name, steps=8):
    return override(quick, [f"model.name={name}", f"train.steps={steps}", "train.batch=16", "loss.margin=2"])


@CONTRACT
def test_a_resumed_run_ends_in_the_same_bits(graph, quick, name):
    resumed(lambda: Trainer(graph, recipe_of(quick, name), CPU))


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_entities_can_be_kept_at_length_1(graph, quick, optimizer):
    recipe = override(recipe_of(quick, "distmult"), ["model.unit_norm=true", f"train.optimizer={optimizer}"])
    trainer = Trainer(graph, recipe, CPU)
    before = trainer.model.entity.clone()
    trainer.advance(8)
    trainer.flush()
    assert not torch.allclose(trainer.model.entity, before)
    torch.testing.assert_close(trainer.model.entity.norm(dim=1), torch.ones(graph.num_entities))
    resumed(lambda: Trainer(graph, recipe, CPU))


@CONTRACT
def test_a_saved_run_is_the_run(graph, quick, name, tmp_path):
    run = pairre.train(graph, recipe_of(quick, name), device="cpu", progress=False)
    again = pairre.load_run(run.save(tmp_path / "run"), "cpu")
    for side in ("head", "tail"):
        triples = graph.test.long()
        assert torch.equal(run.model.score_all(triples, side), again.model.score_all(triples, side))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@CONTRACT
def test_a_gpu_trains_and_ranks_as_the_cpu(graph, quick, name):
    """Captured or launched plainly the same bits, near the CPU's loss; on the same weights near the CPU's scores."""
    recipe = recipe_of(quick, name, 70)
    trainers = []
    for device, plain in (("cuda", False), ("cuda", True), ("cpu", True)):
        trainer = Trainer(graph, recipe, torch.device(device))
        if plain:
            trainer._captured = None  # launched plainly, never captured
        trainer.advance(70)
        trainer.flush()
        trainers.append((trainer.model, trainer.mean_loss(70)))
    (captured, loss), (launched, _), (_, there) = trainers
    for key, value in launched.state_dict().items():
        assert torch.equal(captured.state_dict()[key], value), key
    assert loss == pytest.approx(there, rel=2e-2)
    ranked = rank_both_sides(captured, graph.test, graph.known)
    scores = {side: captured.score_all(graph.test.long().cuda(), side).cpu() for side in STEP_SIDES}
    captured.cpu()
    for side in STEP_SIDES:
        torch.testing.assert_close(scores[side], captured.score_all(graph.test.long(), side), rtol=1e-3, atol=1e-3)
    here = rank_both_sides(captured, graph.test, graph.known)
    for side in STEP_SIDES:
        assert (here[side].higher != ranked[side].higher).float().mean() <= 0.1


@pytest.mark.parametrize("name", [model.name for model in models() if model.projects_entities])
def test_candidates_projected_once_a_relation_train_as_those_of_each_positive(graph, quick, name):
    tables = []
    for once in (True, False):
        trainer = Trainer(graph, recipe_of(quick, name), CPU)
        assert trainer.sampler.group_relations
        trainer.sampler.group_relations = once
        trainer.advance(4)
        tables.append((trainer.mean_loss(4), trainer.model.entity, trainer.model.relation))
    for one, other in zip(*tables, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [model.name for model in models() if model.projects_entities])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=GPU)])
def test_own_negatives_that_are_projected_train_to_the_same_bits_twice(graph, quick, name, device):
    """Many positives draw the same entity, so that the order in which its gradients are added up matters."""
    recipe = override(recipe_of(quick, name), ["sampling.chunk_size=1", "sampling.negatives=64"])
    one, two = (Trainer(graph, recipe, torch.device(device)) for _ in range(2))
    for trainer in (one, two):
        trainer.advance(8)
        trainer.flush()
    for key, value in one.tensors().items():
        assert torch.equal(value, two.tensors()[key]), key


@CONTRACT
@pytest.mark.parametrize("side", STEP_SIDES)
def test_all_relations_of_a_pair_can_be_scored(graph, quick, name, side, monkeypatch):
    """Every relation between the entities of a batch scores as that triple does, in chunks or at once."""
    model = Trainer(graph, recipe_of(quick, name), CPU).model.double()
    if not model.trains_on_relations:
        pytest.skip(f"{name} cannot")
    triples = graph.train[:5].long()
    anchor, true = (triples[:, 0], triples[:, 2]) if side == "tail" else (triples[:, 2], triples[:, 0])
    ends = model.entity_rows(torch.cat([anchor, true]))
    every = torch.arange(graph.num_relations)
    rows = model.relation_rows(every, side)
    expected = torch.stack(
        [model.score(torch.stack([triples[:, 0], torch.full((5,), r), triples[:, 2]], 1), side) for r in every], 1
    )
    torch.testing.assert_close(model.score_relation_rows(side, ends, rows), expected)
    monkeypatch.setattr("pairre.models.scoring.MAX_ELEMENTS", 1)
    torch.testing.assert_close(model.score_relation_rows(side, ends, rows), expected)


@CONTRACT
def test_relations_are_corrupted_too(graph, quick, name):
    recipe = override(recipe_of(quick, name), ["loss.relation_weight=0.5"])
    if not model_class(name).trains_on_relations:
        with pytest.raises(RecipeError, match=r"loss\.relation_weight"):
            Trainer(graph, recipe, CPU)
        return
    with_relations, without = Trainer(graph, recipe, CPU), Trainer(graph, recipe_of(quick, name), CPU)
    for trainer in (with_relations, without):
        trainer.advance(3)
    assert with_relations.mean_loss(3) > without.mean_loss(3)
    assert not torch.equal(with_relations.model.relation, without.model.relation)


@pytest.mark.parametrize("reciprocal", [False, True])
def test_both_sides_corrupt_relations_only_where_they_differ(graph, quick, reciprocal):
    plain = override(quick, [f"model.reciprocal={str(reciprocal).lower()}"])

    def loss(recipe, step):
        trainer = Trainer(graph, recipe, CPU)
        trainer.resume_from(Progress(step=step))
        trainer.advance(1)
        return trainer.mean_loss(1)

    tails, heads = (loss(override(plain, ["loss.relation_weight=0.5"]), step) - loss(plain, step) for step in (0, 1))
    assert tails > 0
    assert (heads > 0) == reciprocal


def test_relations_that_hold_are_no_negatives(graph, quick):
    trainer = Trainer(graph, override(quick, ["loss.relation_weight=1", "model.reciprocal=true"]), CPU)
    batch = trainer.sampler.draw("head", trainer.step_number)
    mask = trainer.sampler.targets(batch).known_relations
    known = {tuple(t) for t in graph.train.tolist()}
    for b, (anchor, true) in enumerate(zip(batch.anchor.tolist(), batch.true.tolist(), strict=True)):
        assert mask[b].tolist() == [(true, r, anchor) in known for r in range(graph.num_relations)]
