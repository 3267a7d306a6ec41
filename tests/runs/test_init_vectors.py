"""Own initial vectors: where entities start, frozen to the bit, resumed, stored, refused where they mean nothing."""

import logging

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import pairre
from conftest import resumed
from pairre.runs import RunFolder, read_init_vectors
from pairre.settings import override
from pairre.support.errors import GraphError, RecipeError, RunError
from pairre.training.step import Trainer

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")]),
]
NAMES = ["e7", "e0", "e3"]


def values(width=16, num=3, seed=0):
    return np.random.default_rng(seed).normal(size=(num, width)).astype(np.float32)


def write(path, names=NAMES, vectors=None, **columns):
    vectors = values(num=len(names)).tolist() if vectors is None else vectors
    pq.write_table(pa.table(columns or {"name": names, "vector": vectors}), path / "v.parquet")
    return path / "v.parquet"


@pytest.mark.parametrize("kind", [pa.list_(pa.float64()), pa.list_(pa.float32(), 16), pa.large_list(pa.float16())])
def test_named_rows_start_there_and_others_as_always(tmp_path, graph, quick, caplog, kind):
    column = pa.array(values(num=4).astype(kind.value_type.to_pandas_dtype()).tolist(), kind)
    pq.write_table(pa.table({"name": [*NAMES, "stranger"], "vector": column}), tmp_path / "v.parquet")
    with caplog.at_level(logging.WARNING, logger="pairre"):
        vectors = read_init_vectors(tmp_path / "v.parquet", graph)
    assert "1 of 4 names are no entities of ring and left out: 'stranger'" in caplog.text
    plain, ours = (Trainer(graph, quick, torch.device("cpu"), vectors=v).model for v in (None, vectors))
    ids = [graph.entities.id(name) for name in NAMES]
    expected = plain.entity.detach().clone()
    expected[ids] = torch.tensor(column.to_pylist()[:3])
    assert torch.equal(ours.entity.detach(), expected)
    assert torch.equal(ours.relation, plain.relation)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "settings", [[], ["train.optimizer=adagrad"], ["model.storage=float16"], ["model.unit_norm=true"]]
)
def test_frozen_rows_keep_their_bits_and_others_learn(graph, quick, device, settings):
    recipe = override(quick, [*settings, "train.steps=60", "train.schedule=step"])
    vectors = read_init_vectors(dict(zip(NAMES, values(), strict=True)), graph, frozen=True)
    trainer = Trainer(graph, recipe, torch.device(device), vectors=vectors)
    before = trainer.model.entity.detach().clone()
    trainer.advance(60)
    trainer.flush()
    moved = (trainer.model.entity.detach() != before).any(1).cpu()
    assert not moved[vectors.ids].any()
    assert moved.sum() == graph.num_entities - 3


@pytest.mark.parametrize("frozen", [False, True])
def test_a_checkpoint_goes_on_to_the_bit(graph, quick, frozen):
    vectors = read_init_vectors(dict(zip(NAMES, values(), strict=True)), graph, frozen)
    resumed(lambda: Trainer(graph, quick, torch.device("cpu"), vectors=vectors))


def test_all_rows_may_be_frozen(graph, quick):
    everything = dict(zip(graph.entities.name_list(range(40)), values(num=40), strict=True))
    run = pairre.train(graph, quick, init_vectors=everything, freeze=True, device="cpu", progress=False)
    assert torch.equal(run.model.entity, torch.from_numpy(values(num=40)))


def test_a_run_folder_keeps_the_vectors(tmp_path, graph, quick):
    file, out = write(tmp_path), tmp_path / "run"
    options = {"out": out, "device": "cpu", "progress": False}
    run = pairre.train(graph, quick, init_vectors=file, freeze=True, **options)
    again = pairre.train(graph, quick, resume=True, **options)
    assert torch.equal(run.model.entity, again.model.entity)
    pairre.train(graph, quick, init_vectors=file, freeze=True, resume=True, **options)
    assert "init-vectors.safetensors" in RunFolder.open(out).constant_files()
    for change in ({"init_vectors": file}, {"init_vectors": {"e1": [0.5] * 16}, "freeze": True}):
        with pytest.raises(RunError, match="made with other initial vectors"):
            pairre.train(graph, quick, resume=True, **change, **options)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"name": NAMES}, "the columns `name` and `vector` expected, not name"),
        ({"name": NAMES, "vector": [1.0, 2.0, 3.0]}, "the column `vector` holds double; a list of numbers"),
        ({"name": NAMES, "vector": [["a"]] * 3}, "not a table of names and vectors"),
        ({"name": ["e1", None], "vector": [[1.0]] * 2}, "row 2: the name is null"),
        ({"name": ["e1", "e2"], "vector": [[1.0], None]}, "row 2: the vector is null"),
        ({"name": ["e1", "e2"], "vector": [[1.0], [1.0, 2.0]]}, "row 2: 2 numbers, and the first row has 1"),
        (
            {"name": ["e1", "e2"], "vector": [[1.0], [float("nan")]]},
            "row 2: the vector of 'e2' has a number that is not",
        ),
        (
            {"name": ["e1", "e2"], "vector": [[1.0], [None]]},
            "row 2: the vector of 'e2' has a number that is not finite",
        ),
        ({"name": ["e1", "e1"], "vector": [[1.0], [2.0]]}, "'e1' has two vectors"),
        ({"name": ["x", "y"], "vector": [[1.0], [2.0]]}, "none of 2 names is an entity of ring: 'x', 'y'"),
        ({"name": pa.array([], pa.string()), "vector": pa.array([], pa.list_(pa.float32()))}, "no vectors in it"),
    ],
)
def test_files_that_are_refused(tmp_path, graph, columns, message):
    with pytest.raises(GraphError) as caught:
        read_init_vectors(write(tmp_path, **columns), graph)
    assert message in str(caught.value)


def test_what_does_not_fit_is_refused_before_a_folder_is_made(call, tmp_path, graph, quick, triples_file):
    (tmp_path / "bad.parquet").write_text("nothing like it")
    wide = write(tmp_path, vectors=values(24).tolist())
    train = ["train", triples_file, "--out", tmp_path / "run", "--set", "model.dim=16"]
    for options, message in (
        (["--init-vectors", wide], "they have 24 numbers, and model.dim=16 of pairre needs 16: set model.dim=24"),
        (["--init-vectors", tmp_path / "none.parquet"], "none.parquet: no such file"),
        (["--init-vectors", tmp_path / "bad.parquet"], "bad.parquet: not a table of names and vectors"),
        (["--freeze-vectors"], "there are no initial vectors to keep"),
    ):
        code, _, said = call(*train, *options)
        assert (code, said.count("\n")) == (2, 1), said
        assert message in said
        assert not (tmp_path / "run").exists()
    with pytest.raises(GraphError, match="equally many numbers for each name expected"):
        pairre.train(graph, quick, init_vectors={"e1": [1.0], "e2": [1.0, 2.0]}, progress=False)
    half = override(quick, ["model.storage=float16"])
    with pytest.raises(RecipeError, match=r"too large for model\.storage=float16"):
        pairre.train(graph, half, init_vectors={"e1": [1e9] * 16}, progress=False)
