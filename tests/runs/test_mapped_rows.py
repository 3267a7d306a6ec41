"""A run whose weights are in several files is opened without loading a table, and is the same run to the bit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pairre
from conftest import QUICK, cut_run, planted_graph
from pairre.inference import discover, explain, neighbours, predict, score
from pairre.runs import Run, build_model, check_run, load_run, merge
from pairre.runs.mapped_rows import BlockRows
from pairre.settings import override
from pairre.support.errors import RunError
from pairre.support.tensors import read_tensors, write_tensors

MODELS = {
    "pairre": [],
    "rotate": ["model.name=rotate", "model.storage=bfloat16"],
    "complex": ["model.name=complex", "model.reciprocal=true"],
    "ote": ["model.name=ote"],
    "conve": ["model.name=conve"],
    "rgcn": ["model.name=rgcn"],
}


@pytest.fixture(scope="module", params=MODELS)
def paths(request, tmp_path_factory):
    """The same run with one file of weights, and with three of which one has no rows of entities."""
    graph, recipe = planted_graph(), override(QUICK, MODELS[request.param])
    model = build_model(graph, recipe, torch.device("cpu")).requires_grad_(False)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(0))
    whole = Run(graph, recipe, model).save(tmp_path_factory.mktemp("whole") / "run")
    parts = whole.with_name("parts")
    shutil.copytree(whole, parts)
    cut_run(parts, 0, 13, 13)
    return whole, parts


@pytest.fixture
def parts(graph, quick, tmp_path):
    """A run with three files of weights."""
    path = Run(graph, quick, build_model(graph, quick, torch.device("cpu"))).save(tmp_path / "run")
    cut_run(path, 0, 13, 27)
    return path


def test_it_is_the_same_run(paths):
    whole, parts = (load_run(path, "cpu") for path in paths)
    assert parts.model.entity.is_meta
    assert isinstance(parts.model.stored["entity"], BlockRows)
    for make in (
        lambda run: pairre.evaluate(run, by="relation", plausible=True),
        lambda run: predict(run, head="e3", relation="next", k=12, known=True),
        lambda run: predict(run, head="e3", tail="e4"),
        lambda run: score(run, [("e3", "next", "e4"), ("e30", "beside", "e2")]),
        lambda run: discover(run, k=20),
        lambda run: neighbours.similar(run, "e3"),
        lambda run: neighbours.clusters(run, 3),
        lambda run: run.entity_vectors().array.tolist(),
        lambda run: explain(run, "e3", "beside", "e4").as_dict(),
    ):
        assert make(whole) == make(parts)


def test_rows_are_found_in_any_file(paths):
    whole, parts = (load_run(path, "cpu", verify=False).model.stored["entity"] for path in paths)
    ids = torch.tensor([[0, 39, 12], [13, 13, 14]])
    assert torch.equal(parts.gather(ids), whole.gather(ids))
    assert torch.equal(torch.cat([rows for _, rows in parts.chunks(7)]), torch.cat([r for _, r in whole.chunks(7)]))
    for wrong in (-1, 40):
        with pytest.raises(IndexError):
            parts.gather(torch.tensor([wrong]))
    with pytest.raises(RunError, match="stay as they are"):
        parts.write(ids[0], whole.gather(ids[0]))


def test_saving_it_puts_the_files_together(paths, tmp_path):
    whole, parts = paths
    joined = load_run(parts, "cpu").save(tmp_path / "joined")
    assert (joined / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_it_can_be_extended_and_merged(parts, tmp_path):
    run = load_run(parts, "cpu")
    larger = pairre.extend(run, [("new", "next", "e3")], epochs=0)
    rows = torch.cat([rows for _, rows in run.model.stored["entity"].chunks(100)])
    assert torch.equal(larger.model.entity[:40], rows)
    joined = load_run(run.save(tmp_path / "joined"), "cpu")
    assert torch.equal(merge([run, run]).model.entity, merge([joined, joined]).model.entity)


def rewrite(path: Path, number: int, *, rows=None, change=lambda table: table, metadata=None) -> Path:
    """Write a file of weights again, with other rows or another range of them."""
    file = path / f"model-{number:05}-of-00003.safetensors"
    tensors, said = read_tensors(file)
    tensors["entity"] = change(tensors["entity"])
    said |= {} if rows is None else {"rows": rows if isinstance(rows, str) else json.dumps({"entity": rows})}
    write_tensors(file, tensors, {**said, **(metadata or {})})
    return file


def overlap(path: Path) -> Path:
    return rewrite(path, 2, rows=[12, 26, 40])


def gap(path: Path) -> Path:
    return rewrite(path, 2, rows=[14, 28, 40])


def short(path: Path) -> Path:
    return rewrite(path, 3, rows=[27, 38, 40], change=lambda table: table[:11])


def miscounted(path: Path) -> Path:
    return rewrite(path, 1, rows=[0, 14, 40])


def other_total(path: Path) -> Path:
    return rewrite(path, 3, rows=[27, 40, 41])


def no_rows(path: Path) -> Path:
    return rewrite(path, 3, rows="[")


def other_type(path: Path) -> Path:
    return rewrite(path, 2, change=lambda table: table.half())


def other_width(path: Path) -> Path:
    return rewrite(path, 2, change=lambda table: table[:, 1:])


def other_save(path: Path) -> Path:
    return rewrite(path, 2, metadata={"attached_with": "[0.25, 7]"})


def flipped_byte(path: Path) -> Path:
    file = path / "model-00002-of-00003.safetensors"
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)
    return file


def cut_off(path: Path) -> Path:
    file = path / "model-00001-of-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    return file


DAMAGE = {
    overlap: "begins at row 12, so that rows 12 to 13 are there twice",
    gap: "begins at row 14, so that rows 13 to 14 are missing",
    short: "rows 38 to 40 are missing",
    miscounted: "has 13 rows, and says 0 to 14 of 40",
    other_total: "rows of another number, width or type",
    no_rows: "does not say which rows it has|its rows are",
    other_type: "rows of another number, width or type",
    other_width: "rows of another number, width or type",
    other_save: "stored at another time than model-00001-of-00003.safetensors: 'attached_with' differs",
    flipped_byte: "its contents differ from its checksum",
    cut_off: "damaged",
}


@pytest.mark.parametrize("harm", DAMAGE, ids=lambda harm: harm.__name__)
def test_damage_is_one_line(parts, harm):
    assert not [report for report in check_run(parts) if report.fault]
    file = harm(parts)
    with pytest.raises(RunError, match=DAMAGE[harm]) as raised:
        load_run(parts, "cpu")
    assert str(raised.value).startswith(str(file))
    assert "\n" not in str(raised.value)
    [report] = [report for report in check_run(parts) if report.fault]
    assert report.name == file.name


def test_a_missing_file_is_one_line(parts):
    (parts / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(RunError, match="of 3 files of weights 2 are there"):
        load_run(parts, "cpu")
    assert [report for report in check_run(parts) if "of 3 files of weights 2 are there" in report.fault]


def test_checksums_are_compared_unless_that_is_unwanted(parts):
    flipped_byte(parts)
    load_run(parts, "cpu", verify=False)


def test_check_names_every_file(parts, call):
    code, printed, _ = call("check", parts)
    assert code == 0
    for number, rows in ((1, "0 to 13"), (2, "13 to 27"), (3, "27 to 40")):
        assert f"model-{number:05}-of-00003.safetensors" in printed
        assert f"rows {rows} of 40" in printed


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(tmp_path):
    """A table of 300 MB is checked, evaluated and queried in a process of its own, in chunks of 8 MB."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of a process's memory is read from Linux")
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("memory_of_a_run.py"), tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    table, grown = json.loads(done.stdout)
    assert table == 300_000_000
    assert grown < 150_000_000
