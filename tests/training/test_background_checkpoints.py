"""A checkpoint that is written while training goes on holds what was when it began."""

import threading
from pathlib import Path

import pytest
import torch

from pairre.runs import RunFolder, folder
from pairre.settings import override
from pairre.support.errors import RunError
from pairre.training import state
from pairre.training.state import WholeState
from pairre.training.step import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def trainer(graph, quick):
    trainer = Trainer(graph, override(quick, ["train.steps=40"]), CPU)
    trainer.advance(5)
    return trainer


def make_folder(graph, trainer, path: Path) -> RunFolder:
    return RunFolder.create(path, graph, trainer.recipe, fill=trainer.store_checkpoint)


def test_steps_do_not_reach_a_checkpoint_that_has_begun(graph, trainer, tmp_path, monkeypatch):
    of_run, may_write, write = make_folder(graph, trainer, tmp_path / "run"), threading.Event(), folder.write_tensors

    def write_later(*arguments) -> None:
        assert may_write.wait(20)
        write(*arguments)

    monkeypatch.setattr(folder, "write_tensors", write_later)
    trainer.advance(2)
    expected = {name: tensor.clone() for name, tensor in trainer.tensors().items()}
    whole = WholeState(trainer, of_run)
    whole.begin_checkpoint()
    trainer.advance(3)
    assert whole.pending
    assert whole.is_writing()
    may_write.set()
    whole.finish_checkpoint()
    assert not whole.pending
    found, progress = of_run.load_checkpoint()
    assert progress.step == 7
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    of_run.unlock()


def test_without_room_for_a_copy_it_is_written_at_once(graph, trainer, tmp_path, monkeypatch):
    of_run = make_folder(graph, trainer, tmp_path / "run")
    monkeypatch.setattr(state, "available_bytes", lambda: 1000)
    monkeypatch.setattr(state, "_copies", lambda tensors: pytest.fail("a copy was made"))
    trainer.advance(2)
    whole = WholeState(trainer, of_run)
    whole.begin_checkpoint()
    assert not whole.pending
    assert of_run.stored_progress().step == 7
    of_run.unlock()


def test_what_went_wrong_is_raised_at_the_end(graph, trainer, tmp_path, monkeypatch):
    of_run = make_folder(graph, trainer, tmp_path / "run")
    whole = WholeState(trainer, of_run)

    def fail(*_) -> None:
        raise RunError("the disk is full")

    monkeypatch.setattr(folder, "write_tensors", fail)
    whole.begin_checkpoint()
    with pytest.raises(RunError, match="the disk is full"):
        whole.finish_checkpoint()
    whole.begin_checkpoint()
    whole.give_up_checkpoint()
    of_run.unlock()
