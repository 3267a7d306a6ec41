"""Tables in the memory of the host: the bits of tables on the device, whatever trains, stores, loads or ranks them.

Without a GPU its part is played by the CPU, which has the tables in memory that it takes for that of another device.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import pairre
from conftest import cuda_kernels_on_the_cpu, launch_plainly, planted_graph
from pairre.evaluation import rank_both_sides
from pairre.runs import load_run
from pairre.settings import override, validate, validate_over_processes
from pairre.support import host_memory
from pairre.support.errors import DeviceError, RecipeError
from pairre.support.host_memory import host_zeros, is_on_host, on_cpu, zeros_beside
from pairre.training.step import Trainer

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda:0" if GPU else "cpu")
HOST = "tables.place=host"
SETTINGS = {
    "adagrad": ["train.optimizer=adagrad", "train.lr=0.1"],
    "elementwise adagrad": ["train.optimizer=elementwise-adagrad", "sampling.chunk_size=4"],
    "adam": ["train.schedule=step"],
    "adam of touched rows": ["train.update_rows=touched", "sampling.chunk_size=1"],
    "half precision": ["model.storage=float16", "train.optimizer=adagrad", "model.name=rotate"],
    "bfloat16": ["model.storage=bfloat16", "model.name=transe", "train.update_rows=touched"],
    "unit norm": ["model.unit_norm=true", "model.name=distmult"],
    "constrained": ["model.name=kg2e"],
    "reciprocal": ["model.name=complex", "model.reciprocal=true", "loss.relation_weight=0.3", "regularizer.name=n3"],
    "network": ["model.name=conve", "loss.name=logistic", "train.optimizer=adagrad"],
    "gathers relations": ["model.name=ote"],
}


@pytest.fixture(autouse=True)
def _memory_apart(monkeypatch):
    """Have the CPU play a device with memory of its own where there is none."""
    if not GPU:

        def as_tensor(pages, device):
            pages.__array_interface__ = {**pages.__cuda_array_interface__, "version": 3}
            return torch.from_numpy(np.asarray(pages))

        monkeypatch.setattr(host_memory, "_has_memory_of_its_own", lambda device: True)
        monkeypatch.setattr(host_memory, "_as_tensor", as_tensor)
        monkeypatch.setattr(host_memory, "_pin", lambda memory, device: None)
        monkeypatch.setattr(host_memory, "_unpin", lambda address, device: None)


def trained(graph, recipe, steps, plainly=False):
    trainer = Trainer(graph, recipe, DEVICE)
    if plainly:
        launch_plainly(trainer)
    trainer.advance(steps)
    trainer.flush()
    trainer.check_finite()
    return trainer


def same(one, other):
    """Compare the weights and the state of two trainers by their bits."""
    assert int(one.step_number) == int(other.step_number)
    for (name, mine), theirs in zip(one.tensors().items(), other.tensors().values(), strict=True):
        assert torch.equal(mine, theirs), name


@pytest.mark.parametrize("name", SETTINGS)
def test_bits_are_those_of_the_table_on_the_device(graph, quick, name):
    """Captured and replayed on a GPU; rows and state of entities are on the host, all else is not."""
    steps = 130 if GPU else 30
    recipe = override(quick, [f"train.steps={steps}", *SETTINGS[name]])
    device, host = trained(graph, recipe, steps), trained(graph, override(recipe, [HOST]), steps)
    same(device, host)
    for key, value in host.tensors().items():
        assert is_on_host(value) == (key == "model.entity" or key.startswith("optimizer.entity.")), key
        assert value.device == DEVICE
    assert not any(map(is_on_host, device.tensors().values()))
    if GPU:
        same(host, trained(graph, override(recipe, [HOST]), steps, plainly=True))
    assert device.mean_loss(steps) == host.mean_loss(steps)
    for side, ranks in rank_both_sides(device.model.eval(), graph.test, graph.known).items():
        there = rank_both_sides(host.model.eval(), graph.test, graph.known)[side]
        assert torch.equal(ranks.higher, there.higher)
        assert torch.equal(ranks.equal, there.equal)


@pytest.mark.parametrize("settings", [SETTINGS["adagrad"], []], ids=["adagrad", "adam"])
def test_kernels_of_the_gpu_move_rows_of_the_host(graph, quick, settings):
    """Through Triton's interpreter where there is no GPU."""
    pytest.importorskip("pairre.kernels.cuda", reason="triton is not installed")
    small = ["train.steps=3", "train.batch=8", "sampling.negatives=6", "model.dim=8"]
    recipe = override(quick, [*small, *settings])
    with nullcontext() if GPU else cuda_kernels_on_the_cpu():
        same(trained(graph, recipe, 3), trained(graph, override(recipe, [HOST]), 3))


@pytest.mark.parametrize(("before", "after"), [("host", "device"), ("device", "host"), ("host", "host")])
def test_a_run_goes_on_wherever_its_rows_were(graph, quick, tmp_path, before, after):
    settings = {"progress": False, "device": str(DEVICE)}
    whole = pairre.train(graph, quick, **settings)
    steps = [f"tables.place={before}", "train.steps=60", "train.checkpoint_seconds=0"]
    stop = {"at": 0}

    def interrupt(*_):
        stop["at"] += 1
        if stop["at"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pairre.train(graph, override(quick, steps), out=tmp_path / "run", on_validation=interrupt, **settings)
    there = [f"tables.place={after}"]
    run = pairre.train(out=tmp_path / "run", resume=True, overrides=there, **settings)
    assert run.recipe.tables.place == after
    assert is_on_host(run.model.entity) == (after == "host")
    loaded = load_run(tmp_path / "run", str(DEVICE))
    assert is_on_host(loaded.model.entity) == (after == "host")
    for model in (run.model, loaded.model):
        assert torch.equal(model.entity, whole.model.entity)
        assert torch.equal(model.relation, whole.model.relation)


def test_the_best_weights_of_a_run_without_a_folder(graph, quick):
    device = pairre.train(graph, quick, progress=False, device=str(DEVICE))
    host = pairre.train(graph, override(quick, [HOST]), progress=False, device=str(DEVICE))
    assert is_on_host(host.model.entity)
    assert torch.equal(device.model.entity, host.model.entity)


def test_tensors_in_host_memory():
    zeros = host_zeros((5, 3), torch.float16, DEVICE)
    assert zeros.shape == (5, 3)
    assert zeros.device == DEVICE
    assert not zeros.any()
    zeros[2:].fill_(1.5)
    part = zeros[1:4, 1:]
    assert is_on_host(part)
    assert on_cpu(part).tolist() == [[0, 0], [1.5, 1.5], [1.5, 1.5]]
    on_cpu(part)[0] = 7
    assert zeros[1].tolist() == [0, 7, 7], "what the CPU sees is the memory itself"
    beside = zeros_beside(part, (4,), torch.int32)
    assert is_on_host(beside)
    assert beside.dtype == torch.int32
    plain = torch.ones(3, device=DEVICE)
    assert not is_on_host(zeros_beside(plain, (4,), torch.int32))
    assert on_cpu(plain).device.type == "cpu"
    assert not is_on_host(host_zeros((0, 3), torch.float32, DEVICE))


def test_memory_is_given_back():
    kept = len(host_memory._PAGES)
    zeros = host_zeros((1000,), torch.float32, DEVICE)
    view = zeros[10:20]
    del zeros
    assert len(host_memory._PAGES) == kept + 1
    del view
    assert len(host_memory._PAGES) == kept


@pytest.mark.skipif(GPU, reason="memory can be pinned")
def test_memory_that_cannot_be_pinned_is_one_line(monkeypatch):
    def check(status):
        raise RuntimeError(f"no memory ({status})")

    monkeypatch.undo()
    monkeypatch.setattr(host_memory, "_cuda", lambda: SimpleNamespace(cudaHostRegister=lambda *_: 2))
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "check_error", check)
    with pytest.raises(DeviceError, match=r"12 B of the host's memory cannot be pinned for cuda \(no memory \(2\)\)"):
        host_zeros((3,), torch.float32, torch.device("cuda"))


def test_on_a_cpu_it_is_the_same_memory(monkeypatch):
    monkeypatch.undo()
    zeros = host_zeros((3,), torch.float32, torch.device("cpu"))
    assert not is_on_host(zeros)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["model.name=rgcn"], "tables.place: rgcn reads the rows of neighbours"),
        (["model.name=gc-ote"], "tables.place: gc-ote reads the rows of neighbours"),
        (["sampling.negatives=0"], r"tables.place: each step reads all entities \(sampling.negatives=0\)"),
    ],
)
def test_steps_that_need_too_many_rows_are_refused(graph, quick, settings, line):
    recipe = override(quick, [HOST, *settings])
    with pytest.raises(RecipeError, match=line):
        validate(recipe, graph, pairre.models.model_class(recipe.model.name))


def test_several_processes_are_refused(quick):
    with pytest.raises(RecipeError, match=r"tables\.place: host is for one process"):
        validate_over_processes(override(quick, [HOST]), pairre.models.PairRE, "cpu")


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="no CUDA device")
def test_a_table_beyond_the_memory_of_the_card_trains(quick):
    """The card may be used for less than the table has, 2 GB, so that on the card it does not fit."""
    graph = planted_graph(1_000_000)
    recipe = override(quick, ["model.dim=512", "train.optimizer=adagrad", "train.steps=60"])
    expected = trained(graph, recipe, 60).mean_loss(60)
    torch.cuda.empty_cache()
    room = torch.cuda.memory_reserved() + 1.6e9
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.mem_get_info()[1])
    try:
        assert trained(graph, override(recipe, [HOST]), 60).mean_loss(60) == expected
        with pytest.raises(torch.OutOfMemoryError):
            Trainer(graph, recipe, DEVICE)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
