"""The run folder: whole files, clear errors, round trip, a really full disk."""

import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pairre
from pairre.runs import RunFolder
from pairre.settings import override
from pairre.support.errors import PairREError, RecipeError, RunError
from pairre.support.files import make_part, written_whole


@pytest.fixture
def run(graph, quick, tmp_path):
    return pairre.train(graph, quick, out=tmp_path / "run", progress=False)


def test_what_a_run_folder_holds(run):
    names = {p.name for p in run.path.iterdir()}
    assert names == {
        *("recipe.toml", "run.json", "graph", "checkpoint.safetensors", "model.safetensors"),
        *("log.jsonl", "metrics.json", "calibration.json", "lock"),
    }
    metrics = json.loads((run.path / "metrics.json").read_text())
    assert metrics["split"] == "test"
    for side in ("both", "head", "tail"):
        assert {"mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10"} <= metrics[side].keys()
    description = json.loads((run.path / "run.json").read_text())
    assert {"torch", "python", "pairre"} <= description["versions"].keys()
    assert description["seed"] == 0


def test_load_gives_back_the_run(run):
    loaded = pairre.load_run(run.path)
    assert torch.equal(loaded.model.entity, run.model.entity)
    assert loaded.recipe == run.recipe
    assert loaded.graph.fingerprint == run.graph.fingerprint
    assert loaded.history == run.history
    assert pairre.evaluate(loaded) == pairre.evaluate(run)
    assert "ring" in repr(loaded)


def test_a_run_from_a_folder_pickles(run):
    loaded = pairre.load_run(run.path, "cpu")
    again = pickle.loads(pickle.dumps(loaded))
    assert pairre.evaluate(again) == pairre.evaluate(loaded)


def test_the_resolved_recipe_can_itself_be_run(run, graph, tmp_path):
    again = pairre.train(graph, run.path / "recipe.toml", out=tmp_path / "again", progress=False)
    assert torch.equal(again.model.entity, run.model.entity)


def test_a_run_in_memory_can_be_saved(graph, quick, tmp_path):
    run = pairre.train(graph, quick, progress=False)
    path = run.save(tmp_path / "later")
    assert torch.equal(pairre.load_run(path).model.relation, run.model.relation)
    with pytest.raises(RunError, match="exists"):
        run.save(path)


def test_a_finished_run_can_be_resumed(run, graph):
    again = pairre.train(graph, out=run.path, resume=True, progress=False)
    assert torch.equal(again.model.entity, run.model.entity)


def test_an_existing_folder_is_not_touched(run, graph, quick):
    before = {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    with pytest.raises(RunError, match="exists; continue it with --resume"):
        pairre.train(graph, quick, out=run.path, progress=False)
    assert {p: p.stat().st_mtime_ns for p in run.path.rglob("*")} == before


def test_only_what_can_be_resumed_is_said_to_be(graph, quick, tmp_path):
    saved = pairre.train(graph, quick, progress=False).save(tmp_path / "saved")  # weights without a checkpoint
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    for path in (saved, tmp_path / "mine"):
        with pytest.raises(RunError, match=f"{path.name}: exists; choose another --out$"):
            pairre.train(graph, quick, out=path, progress=False)


def test_another_recipe_or_graph_is_refused(run, graph, quick, triples_file):
    with pytest.raises(RunError, match=r"another recipe \(train\.lr: 0\.5, not 0\.01\)"):
        pairre.train(graph, override(quick, ["train.lr=0.5"]), out=run.path, resume=True, progress=False)
    (triples_file / "train.tsv").write_text("a\tb\tc\n")
    with pytest.raises(RunError, match="another graph"):
        pairre.train(triples_file, out=run.path, resume=True, progress=False)


def test_nothing_is_made_when_the_recipe_is_wrong(graph, tmp_path):
    with pytest.raises(RecipeError, match=r"model\.name"):
        pairre.train(graph, overrides=["model.name=nothing"], out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_missing_folders(tmp_path, graph):
    for call in (lambda p: pairre.load_run(p), lambda p: pairre.train(graph, out=p, resume=True)):
        with pytest.raises(RunError, match="no such run folder"):
            call(tmp_path / "none")
    (tmp_path / "other").mkdir()
    with pytest.raises(RunError, match=r"not a run folder \(run\.json is missing\)"):
        pairre.load_run(tmp_path / "other")


@pytest.mark.parametrize("damage", ["cut", "garbage", "shape", "progress", "other progress", "empty"])
def test_a_damaged_checkpoint_is_said(run, graph, damage):
    from safetensors.torch import load_file, save_file

    file = run.path / "checkpoint.safetensors"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    elif damage == "garbage":
        file.write_bytes(b"\xff" * 1000)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "shape":
        save_file({**load_file(file), "model.entity": torch.zeros(2, 2)}, file, {"progress": "{}"})
    elif damage == "other progress":
        save_file(load_file(file), file, {"progress": '{"steps": 3}'})
    else:
        save_file(load_file(file), file)
    before = file.read_bytes()
    with pytest.raises(RunError, match=r"checkpoint\.safetensors: damaged") as caught:
        pairre.train(graph, out=run.path, resume=True, progress=False)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == before


def test_damaged_parts_are_named(run):
    (run.path / "run.json").write_text("{")
    with pytest.raises(RunError, match=r"run\.json: damaged"):
        pairre.load_run(run.path)


@pytest.mark.parametrize("name", ["train.parquet", "entities.parquet"])
def test_a_damaged_graph_is_named(run, name):
    (run.path / "graph" / name).write_bytes(b"nothing")
    with pytest.raises(RunError, match=f"{name}: damaged or edited"):
        pairre.load_run(run.path)
    with pytest.raises(PairREError, match=r"parquet: damaged"):
        pairre.load_run(run.path, verify=False)


@pytest.mark.parametrize("inner", ["", "graph"])
def test_a_damaged_run_is_no_graph(run, call, inner):
    assert pairre.load_graph(run.path / inner).fingerprint == run.graph.fingerprint
    folder = run.path / "graph"
    shutil.copy(folder / "valid.parquet", folder / "train.parquet")
    with pytest.raises(PairREError, match=r"train\.parquet: damaged or edited"):
        pairre.load_graph(run.path / inner)
    code, _, err = call("stats", run.path / inner)
    assert (code, err.count("\n")) == (2, 1)


def test_a_run_without_weights_yet(graph, quick, tmp_path):
    folder = RunFolder.create(tmp_path / "run", graph, quick)
    folder.unlock()
    with pytest.raises(RunError, match=r"model\.safetensors: missing"):
        pairre.load_run(folder.path)


def test_a_broken_last_log_line_is_left_out(run):
    with (run.path / "log.jsonl").open("a") as log:
        log.write('{"step": 6')
    assert pairre.load_run(run.path).history == run.history


def test_a_failed_write_leaves_the_old_file(tmp_path):
    file = tmp_path / "f"
    file.write_text("old")

    def fail():
        with written_whole(file) as part:
            part.write_text("new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == ["f"]
    assert file.read_text() == "old"


def train_command(folder: Path, out: Path) -> list[str]:
    settings = ["--set", "train.steps=40", "--set", "model.dim=512"]
    return [sys.executable, "-m", "pairre", "train", str(folder), "--out", str(out), *settings]


def test_a_file_size_limit_reads_as_a_full_disk(triples_file, tmp_path):
    """A limit on file sizes makes every large write fail as a full disk does, whoever runs the test."""
    limit = 100_000
    done = subprocess.run(
        train_command(triples_file, tmp_path / "run"),
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 2, done.stderr
    assert "the disk is full" in done.stderr.splitlines()[-1]
    assert not list((tmp_path / "run").glob("*.safetensors"))
    assert not list((tmp_path / "run").glob(".*"))


def test_a_really_full_disk(triples_file, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)], capture_output=True
        ).returncode
    ):
        pytest.skip("mounting a small disk needs root")
    try:
        done = subprocess.run(train_command(triples_file, disk / "run"), capture_output=True, text=True)
        assert done.returncode == 2, done.stderr
        assert "the disk is full" in done.stderr.splitlines()[-1]
        assert not list(disk.glob("run/.*"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# --- nothing worth keeping, whole or nothing ---


def test_a_run_that_learnt_nothing_is_taken_over(graph, quick, tmp_path):
    """A process that is killed before its first checkpoint leaves a folder that the same command replaces."""
    path = tmp_path / "run"
    RunFolder.create(path, graph, quick).unlock()
    run = pairre.train(graph, quick, out=path, progress=False)
    assert run.path == path
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert pairre.load_run(path).history == run.history


def test_a_folder_in_which_training_just_begins_is_not_taken_over(graph, quick, tmp_path):
    folder = RunFolder.create(tmp_path / "run", graph, quick)
    with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
        pairre.train(graph, quick, out=folder.path, progress=False)
    assert folder.is_untrained()
    folder.unlock()


def test_a_training_that_fails_at_once_leaves_nothing(graph, quick, tmp_path, monkeypatch):
    def fail(self, side):
        raise MemoryError

    monkeypatch.setattr("pairre.training.step.Trainer.step", fail)
    with pytest.raises(MemoryError):
        pairre.train(graph, quick, out=tmp_path / "run", progress=False, device="cpu")
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_fails_leaves_nothing(graph, quick, tmp_path, monkeypatch):
    run = pairre.train(graph, quick, progress=False)
    monkeypatch.setattr(RunFolder, "save_model", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(RunError, match="the disk is full"):
        run.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_what_killed_processes_left_is_removed(run, graph, tmp_path):
    """Parts have random names and are locked while their process lives, so a recycled process id cannot matter."""
    orphans = [run.path / ".model.safetensors.0abc.part", tmp_path / ".run.0abc.part", tmp_path / ".new.0abc.part"]
    for orphan in orphans[:1]:
        orphan.write_text("half")
    for orphan in orphans[1:]:
        orphan.mkdir()
        (orphan / "half").write_text("half")
    alive, lock = make_part(tmp_path / "new", folder=True)
    pairre.train(graph, out=run.path, resume=True, progress=False)
    assert not orphans[0].exists()
    run.save(tmp_path / "new")
    assert not orphans[2].exists()
    assert alive.exists()
    lock.close()


def test_files_have_the_permissions_that_the_user_wants(graph, quick, tmp_path):
    before = os.umask(0o027)
    try:
        path = pairre.train(graph, quick, out=tmp_path / "run", progress=False).path
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.rglob("*") if file.is_file()}
    assert set(modes.values()) == {0o640}


def test_the_first_loss_after_a_resume_is_the_mean_since_the_last_report(graph, quick, tmp_path):
    """Interrupted between two reports, the log still shows what an unbroken run shows."""
    recipe = override(quick, ["train.steps=90", "train.checkpoint_seconds=0", "train.patience=0"])  # reports every 4
    whole = pairre.train(graph, recipe, progress=False)

    def stop(step, _):
        if step >= 27:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        pairre.train(graph, recipe, out=tmp_path / "run", progress=False, on_validation=stop)
    run = pairre.train(graph, out=tmp_path / "run", resume=True, progress=False)
    losses = [[entry["loss"] for entry in r.history if "loss" in entry] for r in (whole, run)]
    assert losses[0] == losses[1]
