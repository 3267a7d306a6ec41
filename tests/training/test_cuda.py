"""Training on a GPU: captured steps are the steps, and weights, losses and ranks are near those of the CPU."""

from contextlib import nullcontext

import pytest
import torch
from training_variants import VARIANTS

import pairre
from conftest import cuda_kernels_on_the_cpu
from pairre.evaluation import rank_both_sides
from pairre.models import Ensemble
from pairre.runs import build_model
from pairre.settings import override
from pairre.training.distillation import Teacher
from pairre.training.step import Trainer

CPU = torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("settings", VARIANTS, ids=lambda s: s[0] if s else "plain")
def test_a_captured_step_is_the_step(graph, quick, settings):
    """A replayed CUDA graph ends in the bits of plain launches, one step at a time or many, and near the CPU's loss."""
    recipe = override(quick, ["train.steps=130", *settings])
    results = []
    for device, ways in (("cuda", "one"), ("cuda", "many"), ("cuda", "plain"), ("cpu", "one")):
        trainer = Trainer(graph, recipe, torch.device(device))
        if ways == "plain":
            trainer._captured = None  # launched plainly, never captured
        for num in (1, 64, 1, 64) if ways == "many" else [1] * 130:
            trainer.advance(num)
        trainer.flush()
        assert int(trainer.step_number) == trainer.progress.step == 130
        results.append((trainer.model.entity.detach().cpu(), trainer.mean_loss(130)))
    (one, loss), (many, _), (plain, _), (_, there) = results
    assert torch.equal(one, plain)
    assert torch.equal(many, plain)
    assert loss == pytest.approx(there, rel=1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("settings", [["sampling.negatives=6"], ["sampling.negatives=0"]], ids=lambda s: s[0])
def test_a_step_with_a_teacher_is_captured(graph, quick, settings):
    """A teacher whose scores need no host is part of the CUDA graph, and the bits are those of plain launches."""
    recipe = override(quick, ["train.steps=130", "loss.name=cross-entropy", *settings])
    members = [
        build_model(graph, override(quick, [f"model.name={name}"]), torch.device("cuda"))
        for name in ("complex", "pairre")
    ]
    teacher = Teacher(Ensemble(members, torch.ones(graph.num_relations, 2)), 1.0, {})
    results = []
    for is_captured in (True, False):
        trainer = Trainer(graph, recipe, torch.device("cuda"), teacher=teacher)
        assert trainer._captured
        if not is_captured:
            trainer._captured = None
        trainer.advance(130)
        trainer.flush()
        results.append(trainer.model.entity.detach().cpu())
    assert torch.equal(*results)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the tests above use the GPU itself")
@pytest.mark.parametrize(
    "settings",
    [[], ["sampling.chunk_size=1", "train.optimizer=adagrad"], ["model.name=rotate"], ["model.name=se"]],
    ids=lambda s: s[0] if s else "plain",
)
def test_the_kernels_of_the_gpu_train_and_rank_as_those_of_the_cpu(graph, quick, settings):
    """All of a step and of the ranking through Triton's interpreter: near the CPU's weights, and the same ranks."""
    pytest.importorskip("pairre.kernels.cuda", reason="triton is not installed")
    recipe = override(quick, ["train.steps=4", "train.batch=8", "sampling.negatives=6", "model.dim=8", *settings])
    results = []
    for kernels in (nullcontext, cuda_kernels_on_the_cpu):
        with kernels():
            trainer = Trainer(graph, recipe, CPU)
            trainer.advance(4)
            trainer.flush()
        results.append((trainer.model, trainer.mean_loss(4)))
    (one, loss), (two, other) = results
    assert loss == pytest.approx(other, rel=1e-4)
    torch.testing.assert_close(one.entity, two.entity, rtol=1e-2, atol=1e-3)
    one.load_state_dict(two.state_dict())
    with cuda_kernels_on_the_cpu():
        there = rank_both_sides(two, graph.test, graph.known)
    for side, here in rank_both_sides(one, graph.test, graph.known).items():
        assert torch.equal(here.higher, there[side].higher)
        assert torch.equal(here.equal, there[side].equal)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_ranks_on_a_gpu_are_those_of_the_cpu(graph, quick):
    """On the same weights; scores differ in their last bits, so only candidates that nearly tie could change places."""
    run = pairre.train(graph, override(quick, ["train.steps=100"]), progress=False, device="cuda")
    there = rank_both_sides(run.model, graph.test, graph.known)
    here = rank_both_sides(run.model.cpu(), graph.test, graph.known)
    for side, ranks in here.items():
        assert torch.equal(ranks.higher, there[side].higher)
        assert torch.equal(ranks.equal, there[side].equal)
