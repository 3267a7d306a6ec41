"""A run that is resumed: without its graph, for longer, and with nothing else changed."""

import pytest
import torch

import pairre
from conftest import planted_graph
from pairre.runs import RunFolder, changes
from pairre.settings import override
from pairre.support.errors import GraphError, PairREError, RecipeError, RunError


@pytest.fixture
def constant(quick):
    """A recipe whose learning rate does not depend on the number of steps."""
    return override(quick, ["train.schedule=constant", "train.patience=0"])


def files(path):
    return {file.name: file.read_bytes() for file in path.iterdir() if file.is_file() and file.name != "lock"}


def test_longer_training_ends_in_the_bits_of_an_unbroken_run(graph, constant, tmp_path):
    short = pairre.train(graph, constant, out=tmp_path / "run", progress=False, device="cpu")
    assert short.history[-1]["step"] == 60
    more = ["train.steps=120", "train.checkpoint_seconds=5"]
    longer = pairre.train(out=tmp_path / "run", resume=True, overrides=more, progress=False, device="cpu")
    unbroken = pairre.train(graph, override(constant, ["train.steps=120"]), progress=False, device="cpu")
    assert torch.equal(longer.model.entity, unbroken.model.entity)
    assert torch.equal(longer.model.relation, unbroken.model.relation)
    stored = RunFolder.open(tmp_path / "run")
    assert stored.recipe() == override(constant, more)
    assert list(stored.faults()) == []
    again = pairre.train(out=tmp_path / "run", resume=True, progress=False, device="cpu")  # nothing is left to do
    assert torch.equal(again.model.entity, longer.model.entity)


def test_the_rate_follows_the_schedule_of_the_new_length(graph, quick, tmp_path):
    pairre.train(graph, quick, out=tmp_path / "run", progress=False, device="cpu")
    before = pairre.load_run(tmp_path / "run", "cpu")
    after = pairre.train(out=tmp_path / "run", resume=True, overrides=["train.steps=120"], progress=False, device="cpu")
    assert after.recipe.train.schedule == "linear"
    assert after.history[-1]["step"] == 120
    assert not torch.equal(after.model.entity, before.model.entity)  # a rate of 0 would have moved nothing


def test_a_run_that_stopped_early_goes_on(graph, quick, tmp_path):
    settings = ["train.patience=1", "train.validate_every=5", "train.lr=0.3"]
    stopped = pairre.train(graph, quick, overrides=settings, out=tmp_path / "run", progress=False, device="cpu")
    assert (reached := stopped.history[-1]["step"]) < 60
    best = max(entry["best_mrr"] for entry in stopped.history if "valid" in entry)
    resumed = pairre.train(out=tmp_path / "run", resume=True, overrides=["train.patience=0"], progress=False)
    assert resumed.history[-1]["step"] == 60 > reached
    assert max(entry["best_mrr"] for entry in resumed.history if "valid" in entry) >= best


def test_the_best_so_far_is_measured_on_the_triples_that_count_now(graph, quick, tmp_path):
    pairre.train(
        graph, quick, overrides=["train.validate_triples=3"], out=tmp_path / "run", progress=False, device="cpu"
    )
    best = pairre.evaluate(pairre.load_run(tmp_path / "run", "cpu"), "valid")["both"]["mrr"]
    pairre.train(
        out=tmp_path / "run", resume=True, overrides=["train.validate_triples=0"], progress=False, device="cpu"
    )
    assert RunFolder.open(tmp_path / "run").stored_progress().best_mrr == pytest.approx(best)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (["train.lr=0.5"], RunError, r"train.lr: 0.5, not 0.01.*--set can change.*train.steps"),
        (["train.steps=100", "model.dim=8"], RunError, "another recipe .model.dim: 8, not 16.;"),
        (["train.steps=59"], RecipeError, "train.steps: 59 is below step 60"),
        (["train.epoch=3"], RecipeError, "unknown key"),
    ],
)
def test_anything_else_is_refused_by_name_and_changes_nothing(graph, quick, tmp_path, settings, error, message):
    pairre.train(graph, quick, out=tmp_path / "run", progress=False)
    before = files(tmp_path / "run")
    with pytest.raises(error, match=message):
        pairre.train(out=tmp_path / "run", resume=True, overrides=settings, progress=False)
    assert files(tmp_path / "run") == before


def test_a_recipe_that_says_another_number_of_steps_changes_nothing_unasked(graph, quick, tmp_path):
    pairre.train(graph, quick, out=tmp_path / "run", progress=False)
    with pytest.raises(RunError, match=r"train\.steps: 90, not 60"):
        pairre.train(graph, override(quick, ["train.steps=90"]), out=tmp_path / "run", resume=True, progress=False)


def test_another_graph_and_no_graph_are_refused(graph, quick, tmp_path):
    pairre.train(graph, quick, out=tmp_path / "run", progress=False)
    with pytest.raises(RunError, match=r"another graph.*leave out GRAPH"):
        pairre.train(planted_graph(seed=1), out=tmp_path / "run", resume=True, progress=False)
    for arguments in ({}, {"resume": True}, {"out": tmp_path / "new"}):
        with pytest.raises(PairREError):
            pairre.train(progress=False, **arguments)
    with pytest.raises(GraphError, match="no graph given"):
        pairre.train_seeds(seeds=[0], out=tmp_path / "seeds", resume=True)


def test_seeds_are_resumed_without_a_graph(graph, quick, tmp_path):
    pairre.train_seeds(graph, quick, seeds=[0, 1], out=tmp_path, progress=False)
    runs = pairre.train_seeds(seeds=[0, 1], overrides=["train.steps=80"], out=tmp_path, resume=True, progress=False)
    assert [run.history[-1]["step"] for run in runs] == [80, 80]
    assert [run.recipe.train.seed for run in runs] == [0, 1]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_recipe_is_replaced_whole_or_not_at_all(graph, quick, tmp_path, monkeypatch, which):
    """A process that dies before any of the three writes leaves a folder that can be opened and resumed."""
    pairre.train(graph, quick, out=tmp_path / "run", progress=False)
    folder, longer = RunFolder.open(tmp_path / "run"), override(quick, ["train.steps=90"])
    writes = iter(range(3))

    def dying(write):
        def guarded(*arguments):
            if next(writes) == which:
                raise KeyboardInterrupt
            write(*arguments)

        return guarded

    with monkeypatch.context() as patch:
        patch.setattr(changes, "write_text", dying(changes.write_text))
        patch.setattr(changes, "write_checked_json", dying(changes.write_checked_json))
        with pytest.raises(KeyboardInterrupt):
            changes.replace_recipe(folder, longer)
    folder.verify()
    assert folder.recipe() == (longer if which == 2 else quick)
    steps = ["train.steps=95"]
    assert pairre.train(out=tmp_path / "run", resume=True, overrides=steps, progress=False).history[-1]["step"] == 95
    folder.verify()
    (tmp_path / "run" / "recipe.toml").write_text(quick.to_toml() + "#")
    assert len(list(folder.faults())) == 1


@pytest.mark.parametrize(
    ("first", "then"), [("train.steps=20", "train.epochs=4"), ("train.epochs=1", "train.steps=80")]
)
def test_a_length_in_epochs_or_steps_may_change(graph, quick, tmp_path, first, then):
    pairre.train(graph, override(quick, [first]), out=tmp_path / "run", progress=False, device="cpu")
    longer = pairre.train(out=tmp_path / "run", resume=True, overrides=[then], progress=False, device="cpu")
    assert longer.recipe.train.steps > 20
    assert RunFolder.open(tmp_path / "run").stored_progress().step == longer.recipe.train.steps
