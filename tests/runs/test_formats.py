"""Run folders of every format: golden ones give the same answers for ever, newer ones are refused, old ones migrate."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import pairre
from pairre.runs.folder import FORMAT, PLAIN_FORMAT, RunFolder
from pairre.support.errors import RunError
from pairre.support.files import write_checked_json

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "golden-answers.json").read_text())
OF_ENSEMBLE = json.loads((HERE / "golden-answers-ensemble.json").read_text())  # PairRE, ComplEx and two rules


def answers(path: Path) -> dict:
    run = pairre.load_run(path, "cpu")
    triples = run.graph.test.long()
    return {
        "scores": {side: run.model.score_all(triples, side)[:, :6].tolist() for side in ("head", "tail")},
        "mrr": pairre.evaluate(run)["both"]["mrr"],
        "best": [p.tail for p in pairre.predict(run, head="e3", relation="next", k=3)],
    }


def check_answers(path: Path, expected: dict = EXPECTED) -> None:
    found = answers(path)
    for side, scores in expected["scores"].items():
        torch.testing.assert_close(torch.tensor(found["scores"][side]), torch.tensor(scores), atol=2e-6, rtol=1e-6)
    assert found["best"] == expected["best"]
    assert found["mrr"] == pytest.approx(expected["mrr"], abs=1e-9)


def test_there_is_a_golden_folder_of_every_format():
    assert {int(path.name.removeprefix("format-")) for path in HERE.glob("format-*")} == set(range(1, FORMAT + 1))


@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_every_format_gives_the_same_answers(number):
    check_answers(HERE / f"format-{number}", EXPECTED if number <= PLAIN_FORMAT else OF_ENSEMBLE)
    assert not any(report.fault for report in pairre.check_run(HERE / f"format-{number}"))


def test_a_newer_format_is_refused(tmp_path):
    shutil.copytree(HERE / f"format-{FORMAT}", tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    write_checked_json(folder.path / "run.json", {**folder.description(), "format": FORMAT + 1})
    with pytest.raises(RunError, match=f"its format is {FORMAT + 1}, and this version of pairre reads up to {FORMAT}"):
        pairre.load_run(folder.path)


@pytest.mark.parametrize("value", [0, -1, "2", None, [2], 1.0, True])
def test_a_format_that_is_no_number_is_refused(tmp_path, value):
    shutil.copytree(HERE / f"format-{FORMAT}", tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    write_checked_json(folder.path / "run.json", {**folder.description(), "format": value})
    with pytest.raises(RunError, match="its format is"):
        pairre.load_run(folder.path)


def test_an_old_format_is_migrated_on_a_copy(tmp_path, call):
    old = tmp_path / "old"
    shutil.copytree(HERE / "format-1", old)
    before = {file: file.read_bytes() for file in old.rglob("*") if file.is_file()}
    code, out, _ = call("migrate", old, "--out", tmp_path / "new")
    assert (code, "new" in out) == (0, True)
    assert {file: file.read_bytes() for file in old.rglob("*") if file.is_file()} == before
    check_answers(tmp_path / "new")
    migrated = RunFolder.open(tmp_path / "new")
    assert migrated.format == PLAIN_FORMAT
    assert migrated.description()["created"] == RunFolder.open(old).description()["created"]
    assert migrated.metrics() == RunFolder.open(old).metrics()
    with pytest.raises(RunError, match="newest format already"):
        pairre.migrate(tmp_path / "new", tmp_path / "newer")


def test_resuming_an_old_format_says_how(tmp_path, graph):
    shutil.copytree(HERE / "format-1", tmp_path / "old")
    with pytest.raises(RunError, match=r"of format 1.*pairre migrate .* --out NEW"):
        pairre.train(graph, out=tmp_path / "old", resume=True, progress=False)


@pytest.mark.parametrize("damage", ["swap", "out of range"])
def test_a_damaged_graph_of_format_1_is_noticed(tmp_path, damage):
    """That format has no checksums of files, but the fingerprint of the graph."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shutil.copytree(HERE / "format-1", tmp_path / "old")
    train, test = (tmp_path / "old" / "graph" / f"{split}.parquet" for split in ("train", "test"))
    if damage == "swap":
        both = train.read_bytes(), test.read_bytes()
        train.write_bytes(both[1])
        test.write_bytes(both[0])
    else:
        table = pq.read_table(train).to_pydict()
        table["head"][0] = 1_000_000
        pq.write_table(pa.table({name: pa.array(ids, pa.int32()) for name, ids in table.items()}), train)
    for load in (pairre.load_run, pairre.load_graph):
        with pytest.raises(pairre.PairREError, match="damaged"):
            load(tmp_path / "old")
