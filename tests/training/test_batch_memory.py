"""Settings beyond memory are refused before anything is allocated, and nothing else is."""

from contextlib import nullcontext

import pytest
import torch

from conftest import planted_graph
from pairre.models import model_class, models
from pairre.settings import override
from pairre.support.errors import RecipeError
from pairre.support.processes import Processes
from pairre.training.memory import bytes_of_batch, check_batch_memory, check_memory
from pairre.training.plan import make_plan
from pairre.training.step import Trainer

CPU = torch.device("cpu")
FREE = 4_000_000


@pytest.fixture
def _little_memory(monkeypatch):
    monkeypatch.setattr("pairre.training.memory.available_bytes", lambda _: FREE)


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (["sampling.negatives=20000"], "sampling.negatives: 32 positives with 20,000 negatives of 8 features need "),
        (["sampling.negatives=2147483648"], "sampling.negatives: "),
        (["sampling.negatives=9223372036854775807"], "sampling.negatives: "),
        (["sampling.negatives=12000", "sampling.chunk_size=1"], "sampling.negatives: "),
        (["sampling.negatives=5000", "sampling.chunk_size=4"], "sampling.negatives: "),
        (["model.name=rgcn", "sampling.negatives=3000"], "sampling.negatives: "),
        (["train.steps=1000000"], "train.steps: 1,000,000 steps need 32 MB for their learning rates"),
        (["model.dim=100000"], "model.dim: 100,000 features need "),
    ],
)
def test_what_is_beyond_memory_is_refused(graph, quick, settings, key):
    recipe = override(quick, ["model.dim=8", "train.batch=32", *settings])
    with pytest.raises(RecipeError, match="are free on") as refused:
        Trainer(graph, recipe, CPU)
    assert str(refused.value).startswith(key), refused.value


@pytest.mark.parametrize(
    ("place", "free_of_gpu", "free_of_host", "refused"),
    [
        ("device", FREE, 10**12, r"are free on cuda; choose fewer, or set tables\.place to host"),
        ("host", FREE, 10**12, ""),
        ("host", 10**12, FREE, "are free on this machine; choose fewer$"),
    ],
)
def test_the_memory_that_has_the_table_must_have_room(
    graph, quick, monkeypatch, place, free_of_gpu, free_of_host, refused
):
    free = {None: free_of_host, "cuda": free_of_gpu}
    monkeypatch.setattr("pairre.training.memory.available_bytes", lambda device: free[device and device.type])
    recipe = override(quick, ["model.dim=10000", f"tables.place={place}", "train.optimizer=adagrad"])
    expected = pytest.raises(RecipeError, match=refused) if refused else nullcontext()
    with expected:
        check_memory(planted_graph(400), recipe, torch.device("cuda"))


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize("local_size", [1, 2])
def test_processes_of_one_machine_share_its_memory(graph, quick, monkeypatch, local_size):
    monkeypatch.setattr(Processes, "any", lambda _, flag: flag)
    processes = Processes(0, 2, local_size=local_size)

    def refused(what):
        return pytest.raises(RecipeError, match=f"for {what} of each of 2") if local_size == 2 else nullcontext()

    with refused("tables and optimiser"):  # each has 20 rows of 100 kB, and 3 twice as wide
        check_memory(graph, override(quick, ["model.dim=25000", "train.optimizer=adagrad"]), CPU, processes)
    with refused("a batch"):
        check_batch_memory(graph, override(quick, ["model.dim=8", "sampling.negatives=6000"]), 32, CPU, processes)


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    "settings",
    [
        ["train.batch=9223372036854775807"],  # at most the triples of train
        ["sampling.chunk_size=9223372036854775807"],  # at most the batch
        ["train.warmup=9223372036854775807"],
    ],
)
def test_huge_numbers_that_cost_nothing_are_not_refused(graph, quick, settings):
    recipe = override(quick, ["model.dim=8", "sampling.negatives=4", *settings])
    Trainer(graph, recipe, CPU).advance(1)


@pytest.mark.parametrize("name", [model.name for model in models()])
@pytest.mark.parametrize("chunk_size", [0, 1, 5])
def test_the_rows_and_scores_of_a_batch_are_those_that_a_step_has(graph, quick, name, chunk_size):
    settings = [f"model.name={name}", f"sampling.chunk_size={chunk_size}", "model.dim=8", "sampling.negatives=30"]
    recipe = override(quick, settings)
    trainer = Trainer(graph, recipe, CPU)
    trainer.model.train()
    batch = trainer.sampler.draw("tail", torch.tensor(0))
    gathered, relations = (trainer.rows_needed(batch)[0][table].numel() for table in ("entity", "relation"))
    size, model = len(batch.true), model_class(name)
    counted = bytes_of_batch(model, recipe, graph, size) // 4
    relation = (size if model.needs_other_rows else relations) * trainer.model.stored["relation"].width
    rows = (counted - relation - size * 30) / trainer.model.stored["entity"].width
    assert rows == gathered or (name == "gc-ote" and rows == gathered + size * 4)  # whose anchors need no links


def test_a_plan_counts_the_batch_that_a_step_has(graph, quick):
    [of_all] = {_batch(graph, quick, batch) for batch in (len(graph.train), 1 << 40)}
    assert _batch(graph, quick, 8) < of_all


def _batch(graph, quick, batch):
    plan = make_plan(graph, override(quick, [f"train.batch={batch}"]))
    return {part.name: part.num_bytes for part in plan.parts}["rows of a batch"]
