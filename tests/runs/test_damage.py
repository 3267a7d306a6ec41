"""Damage of a run folder: every flipped bit is noticed, and said in one line."""

import json
from pathlib import Path

import pytest
import torch

import pairre
from pairre.runs import RunFolder
from pairre.runs.log import RunLog
from pairre.settings import override
from pairre.support.errors import PairREError, RunError
from pairre.support.tensors import write_tensors


@pytest.fixture
def run(graph, quick, tmp_path):
    return pairre.train(graph, quick, out=tmp_path / "run", progress=False)


def files_of(run: Path) -> list[Path]:
    return sorted(file for file in run.rglob("*") if file.is_file() and file.name != "lock")


def same_values(file: Path, whole: bytes) -> bool:
    """Whether a file of JSON says what it said: the last of 17 digits may be another one of the same float64."""
    return file.suffix == ".json" and json.loads(file.read_bytes()) == json.loads(whole)


def test_a_flipped_digit_that_changes_no_value_is_no_damage(tmp_path):
    file, whole = tmp_path / "metrics.json", b'{"a": 0.058369878635896946}'
    file.write_bytes(whole.replace(b"946", b"947"))
    assert same_values(file, whole)
    file.write_bytes(whole.replace(b"946", b"956"))
    assert not same_values(file, whole)


def test_every_flipped_bit_is_noticed(run):
    """In every file, many bits: `load_run` or `check_run` says so, and no other exception comes out."""
    random = torch.Generator().manual_seed(0)
    for file in files_of(run.path):
        whole = file.read_bytes()
        for _ in range(40):
            position = int(torch.randint(len(whole), (), generator=random))
            bit = 1 << int(torch.randint(8, (), generator=random))
            file.write_bytes(whole[:position] + bytes([whole[position] ^ bit]) + whole[position + 1 :])
            try:
                faults = [report for report in pairre.check_run(run.path) if report.fault]
            except PairREError:
                continue
            cut_off = file.name == "log.jsonl" and position == len(whole) - 1  # as a crash would leave it
            assert faults or cut_off or same_values(file, whole), (file.name, position, bit)
        file.write_bytes(whole)
    assert not any(report.fault for report in pairre.check_run(run.path))


def test_another_text_of_the_same_number_is_noticed(run):
    log = RunLog(run.path / "log.jsonl")
    log.write([{"step": 1, "loss": 0.44233785992135133}])
    log.file.write_bytes(log.file.read_bytes().replace(b"5133", b"5132"))
    assert float("0.44233785992135132") == 0.44233785992135133
    assert log.read() == ([], 1)


def test_swapped_splits_are_noticed(run):
    train, test = (run.path / "graph" / f"{split}.parquet" for split in ("train", "test"))
    first, second = train.read_bytes(), test.read_bytes()
    train.write_bytes(second)
    test.write_bytes(first)
    with pytest.raises(RunError, match="damaged or edited"):
        pairre.load_run(run.path)


def test_an_edited_recipe_is_noticed(run):
    """Weights mean what they meant when they were trained."""
    recipe = run.path / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("margin = ", "margin = 1"))
    with pytest.raises(RunError, match=r"recipe\.toml: damaged or edited"):
        pairre.load_run(run.path)


@pytest.mark.parametrize("model", ["rotate", "rgcn"])
def test_what_weights_mean_is_stored_with_them(graph, quick, tmp_path, model):
    """The unit of RotatE's phases follows from the margin, and the neighbours of an entity from the seed."""
    path = pairre.train(graph, override(quick, [f"model.name={model}"]), out=tmp_path / "run", progress=False).path
    expected = pairre.load_run(path).model.score_all(graph.test.long(), "tail")
    recipe = path / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("margin = ", "margin = 1").replace("seed = 0", "seed = 1"))
    edited = pairre.load_run(path, verify=False)
    assert edited.recipe.loss.margin > 9
    assert torch.equal(edited.model.score_all(graph.test.long(), "tail"), expected)
    again = pairre.load_run(edited.save(tmp_path / "again"))
    assert torch.equal(again.model.score_all(graph.test.long(), "tail"), expected)


@pytest.mark.parametrize("said", ["[0, 0]", "[1]", "[NaN, 0]", '["a", 0]', "[1, 0.5]", "[" * 9999, "5"])
def test_absurd_attachments_are_refused(run, said):
    write_tensors(run.path / "model.safetensors", run.model.state_dict(), {"attached_with": said})
    with pytest.raises(RunError, match=r"model\.safetensors: damaged: its weights go with"):
        pairre.load_run(run.path)


@pytest.mark.parametrize(
    "progress",
    ['{"step": -1}', '{"step": 1e3}', '{"step": 999999999}', '{"step": 5, "best_mrr": 7}', '{"step": true}', "[[[["],
)
def test_absurd_progress_is_refused(run, graph, progress):
    folder = RunFolder(run.path)
    tensors, _ = folder.load_checkpoint()
    write_tensors(run.path / "checkpoint.safetensors", tensors, {"progress": progress})
    with pytest.raises(RunError, match=r"checkpoint\.safetensors: damaged"):
        pairre.train(graph, out=run.path, resume=True, progress=False)


_NOT_FINITE = [
    *(b'{"step": 5, "loss": %s}\n' % number for number in (b"1e999", b"NaN", b"-Infinity", b"1" * 400)),
    b'{"step": 5, "loss": 1, "seconds": 1e999}\n',
    b'{"step": 5, "valid": {"mrr": 1e999}}\n',
    b'{"step": 5, "loss": 1, "valid": ' + b"[" * 900 + b"]" * 900 + b"}\n",
    b'{"step": 5, "loss": 1, "valid": {"hits": [NaN]}}\n',
]


@pytest.mark.parametrize("line", _NOT_FINITE)
def test_a_number_of_the_log_that_is_not_finite_is_damage(run, graph, line, call):
    file = run.path / "log.jsonl"
    file.write_bytes(line + file.read_bytes())
    assert call("check", run.path)[0] == 2
    pairre.train(graph, out=run.path, resume=True, progress=False)
    assert line not in file.read_bytes()


@pytest.mark.parametrize("line", [b"5\n", b"\xff\xfe\n", b"[[[[\n", b'{"step": "x"}\n', b'{"step": 3, "loss": "a"}\n'])
def test_damaged_lines_of_the_log_are_left_out(run, line, caplog):
    file = run.path / "log.jsonl"
    file.write_bytes(line + file.read_bytes())
    with caplog.at_level("WARNING", "pairre"):
        assert pairre.load_run(run.path).history == run.history
    assert "1 damaged lines left out" in caplog.text


@pytest.mark.parametrize("name", ["run.json", "recipe.toml", "graph/train.parquet", "model.safetensors", "log.jsonl"])
def test_files_that_cannot_be_read_are_one_line(run, name, monkeypatch):
    """A folder in place of a file cannot be read by anyone, not even by root."""
    (run.path / name).unlink()
    (run.path / name).mkdir()
    with pytest.raises(PairREError) as caught:
        pairre.load_run(run.path)
    assert "\n" not in str(caught.value)


def test_the_command_names_every_damaged_file(run, call):
    code, out, _ = call("check", run.path)
    assert (code, "✗" in out) == (0, False)
    model = run.path / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"\x01")
    code, out, err = call("check", run.path)
    assert code == 2
    assert "1 of" in err
    assert "differ from its checksum" in " ".join(out.split())
    assert call("predict", run.path, "--head", "e1", "--relation", "next")[0] == 2
    assert call("predict", run.path, "--head", "e1", "--relation", "next", "--no-verify")[0] == 0
