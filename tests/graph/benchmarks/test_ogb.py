"""OGB's graphs through its own loader, from small data in the layout of the real ones, up to its own evaluator."""

import gzip
import os
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from pairre import evaluate, load_graph, load_run, train
from pairre.evaluation.ranking import rank_among
from pairre.graph import SPLITS
from pairre.graph.benchmarks import find
from pairre.models import PairRE, models
from pairre.runs import Run
from pairre.settings import from_values, load_recipe, override
from pairre.support.errors import DownloadError, GraphError, MissingExtraError, RecipeError, RunError
from pairre.training.sampling import Sampler

pytest.importorskip("pandas", reason="the extra `ogb` is not installed")
sys.modules.setdefault("outdated", None)  # else ogb asks the network for its newest version
linkproppred = pytest.importorskip("ogb.linkproppred", reason="the extra `ogb` is not installed")
del sys.modules["outdated"]

SIZES = {"disease": 5, "drug": 7, "protein": 6}
FIRST = {"disease": 0, "drug": 5, "protein": 12}
RELATIONS = [("disease", "in", "protein"), ("drug", "against", "disease"), ("drug", "with", "drug")]
NEGATIVES = 9
CPU = torch.device("cpu")
QUICK = from_values(
    {
        "model": {"dim": 8},
        "sampling": {"negatives": 4},
        "train": {"batch": 16, "steps": 20, "lr": 0.01, "validate_every": 10, "validate_triples": 5},
    }
)


def table(file, header, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(map(str, row)) for row in (header, *rows)]
    file.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n"))


def save(file, value, protocol=2):
    """As published: a pickle from before weights had a format of their own, written under NumPy 1."""
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(value, file, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    if protocol == 2:
        file.write_bytes(file.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray"))


def made(folder):
    folder.mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()
    return folder


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIRRE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("PAIRRE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "data"


@pytest.fixture
def wikikg2(data):
    """20 entities, 3 relations."""
    folder, random = made(data / "ogbl_wikikg2"), np.random.default_rng(0)
    table(folder / "mapping" / "nodeidx2entityid.csv.gz", ["node idx", "entity id"], [(i, f"Q{i}") for i in range(20)])
    table(folder / "mapping" / "reltype2relid.csv.gz", ["reltype", "rel id"], [(2, "P31"), (0, "P17"), (1, "P6")])
    parts = {}
    for split, size in zip(SPLITS, (60, 12, 10), strict=True):
        part = {"head": random.integers(20, size=size), "relation": random.integers(3, size=size)}
        part["tail"] = random.integers(20, size=size)
        if split != "train":
            part |= {f"{side}_neg": random.integers(20, size=(size, NEGATIVES)) for side in ("head", "tail")}
        parts[split] = part
        save(folder / "split" / "time" / f"{split}.pt", part)
    return parts


@pytest.fixture
def biokg(data):
    """18 entities of 3 types, each with ids from 0; the same name may be of two types."""
    folder, random = made(data / "ogbl_biokg"), np.random.default_rng(0)
    for kind, size in SIZES.items():
        rows = [(i, 100 + i if kind == "protein" else f"C{i}") for i in range(size)]
        table(folder / "mapping" / f"{kind}_entidx2name.csv.gz", ["ent idx", "ent name"], rows)
    rows = [(i, name) for i, (_, name, _) in enumerate(RELATIONS)]
    table(folder / "mapping" / "relidx2relname.csv.gz", ["rel idx", "rel name"], rows)
    parts = {}
    for split, size in zip(SPLITS, (80, 12, 10), strict=True):
        relation = random.integers(3, size=size)
        part = {"relation": relation}
        for side, end in (("head", 0), ("tail", 2)):
            kinds = [RELATIONS[r][end] for r in relation]
            part[f"{side}_type"] = kinds
            part[side] = np.array([random.integers(SIZES[kind]) for kind in kinds])
            if split != "train":
                part[f"{side}_neg"] = np.stack([random.integers(SIZES[kind], size=NEGATIVES) for kind in kinds])
        parts[split] = part
        save(folder / "split" / "random" / f"{split}.pt", part, protocol=4)
    return parts


def test_wikikg2_keeps_ids_and_takes_names(wikikg2):
    graph = load_graph("ogbl-wikikg2")
    assert (graph.num_entities, graph.num_relations, graph.types) == (20, 3, {})
    assert graph.relations.name_list([0, 1, 2]) == ["P17", "P6", "P31"]
    assert graph.entities.id("Q17") == 17
    for split, part in wikikg2.items():
        expected = np.stack([part["head"], part["relation"], part["tail"]], 1)
        assert np.array_equal(graph.split(split).numpy(), expected)
    for split in ("valid", "test"):
        given = graph.fixed_candidates(split)
        assert all(np.array_equal(given[side].numpy(), wikikg2[split][f"{side}_neg"]) for side in ("head", "tail"))
        assert given["head"].dtype == torch.int32
    assert graph.fixed_candidates("train") == {}


def test_biokg_types_follow_one_another(biokg):
    graph = load_graph("ogbl-biokg")
    assert graph.types == FIRST
    assert load_graph("ogbl-biokg").fingerprint == graph.fingerprint
    assert graph.entities.name_list([4, 5, 11, 12]) == ["disease:C4", "drug:C0", "drug:C6", "protein:100"]
    for split, part in biokg.items():
        for side, column in (("head", 0), ("tail", 2)):
            first = np.array([FIRST[kind] for kind in part[f"{side}_type"]])
            assert np.array_equal(graph.split(split)[:, column].numpy(), part[side] + first)
            if split != "train":
                assert np.array_equal(graph.fixed_candidates(split)[side].numpy(), part[f"{side}_neg"] + first[:, None])


def test_typed_negatives_have_the_type_of_what_they_replace(biokg):
    graph = load_graph("ogbl-biokg")
    kind = np.digitize(np.arange(graph.num_entities), list(FIRST.values()))
    sampler = Sampler(
        graph,
        override(QUICK, ["sampling.same_type=true", "sampling.chunk_size=1", "sampling.negatives=50"]),
        PairRE,
        CPU,
    )
    for step, side in enumerate(("tail", "head")):
        batch = sampler.draw(side, torch.tensor(step))
        assert batch.negative_ids.shape == (16, 50)
        assert np.array_equal(kind[batch.negative_ids], np.repeat(kind[batch.true][:, None], 50, 1))
        diseases = batch.negative_ids[batch.true < SIZES["disease"]]
        assert diseases.unique().tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(RecipeError, match=r"sampling\.same_type: each positive needs negatives of its own"):
        train(graph, override(QUICK, ["sampling.same_type=true"]), progress=False)
    with pytest.raises(RecipeError, match=r"sampling\.same_type: atlas has no types"):
        train("atlas", override(QUICK, ["sampling.same_type=true", "sampling.chunk_size=1"]), progress=False)


@pytest.mark.parametrize("name", ["ogbl-wikikg2", "ogbl-biokg"])
def test_metrics_equal_those_of_the_benchmark(wikikg2, biokg, name):
    """With entities that share a vector, so that there are ties; on both sides together, as the leaderboard does."""
    graph = load_graph(name)
    model = PairRE(graph.num_entities, graph.num_relations, 4)
    model.initialise(1.0, 0)
    with torch.no_grad():
        model.entity.copy_(model.entity[torch.arange(graph.num_entities) % 6])
    evaluator, lists, ties = linkproppred.Evaluator(name=name), [], 0
    triples = graph.test.long()
    for side, column in (("head", 0), ("tail", 2)):
        changed = triples[:, None].repeat(1, NEGATIVES, 1)
        changed[:, :, column] = graph.fixed_candidates("test")[side]
        with torch.no_grad():
            true, others = model.score(triples), model.score(changed.view(-1, 3)).view(-1, NEGATIVES)
        ties += int((others == true[:, None]).sum())
        lists.append(evaluator.eval({"y_pred_pos": true, "y_pred_neg": others}))
    assert ties
    result = evaluate(Run(graph, QUICK, model))
    for ours, theirs in (("mrr", "mrr_list"), ("hits_at_1", "hits@1_list"), ("hits_at_10", "hits@10_list")):
        assert result["both"][ours] == pytest.approx(torch.cat([part[theirs] for part in lists]).double().mean().item())
    assert result["protocol"] == "9 fixed candidates"


@pytest.mark.parametrize("model", models(), ids=lambda m: m.name)
def test_every_model_ranks_given_candidates(wikikg2, model, monkeypatch):
    """Candidates that are all entities give the ranks of an unfiltered ranking, in chunks of any size."""
    graph = load_graph("ogbl-wikikg2")
    built = model(graph.num_entities, graph.num_relations, 6 if model.name == "conve" else 4)
    built.initialise(0.5, 0)
    built.init_from_graph(graph, 0)
    everyone = torch.arange(20, dtype=torch.int32).repeat(len(graph.test), 1)
    monkeypatch.setattr(sys.modules[rank_among.__module__], "_MAX_CANDIDATE_FEATURES", {"cpu": 250})
    for side, column in (("head", 0), ("tail", 2)):
        with torch.no_grad():
            scores = built.score_all(graph.test.long(), side)
        true = scores.gather(1, graph.test[:, column, None].long())
        ranks = rank_among(built, graph.test, everyone, side)
        expected = (scores > true + 1e-6).sum(1) + ((scores - true).abs() <= 1e-6).sum(1) / 2 + 1
        assert torch.allclose(ranks.realistic, expected.double())
        assert ranks.num_candidates.tolist() == [21] * len(graph.test)


def test_nan_ranks_last_among_the_given(wikikg2, caplog):
    graph = load_graph("ogbl-wikikg2")
    model = PairRE(20, 3, 4)
    model.initialise(1.0, 0)
    with torch.no_grad():
        model.relation.fill_(torch.nan)
    assert rank_among(model, graph.test, graph.fixed_candidates("test")["tail"], "tail").realistic.tolist() == [10] * 10
    assert "score NaN" in caplog.text


def test_the_whole_path(biokg, call, tmp_path):
    """Trained, validated and evaluated by the benchmark's protocol, which the run folder keeps."""
    graph = load_graph("ogbl-biokg")
    recipe = override(QUICK, ["sampling.same_type=true", "sampling.chunk_size=1"])
    trained = train(graph, recipe, out=tmp_path / "run", device="cpu", progress=False)
    biokg.clear()
    opened = load_run(tmp_path / "run", "cpu")
    assert opened.graph.fingerprint == graph.fingerprint
    assert opened.graph.types == FIRST
    assert all(torch.equal(ids, graph.candidates[name]) for name, ids in opened.graph.candidates.items())
    assert evaluate(opened)["both"] == evaluate(trained)["both"]
    validated = next(entry for entry in trained.history if "valid" in entry)
    assert validated["valid"]["mr"] <= NEGATIVES + 1
    code, printed, said = call("evaluate", tmp_path / "run")
    assert code == 0, said
    assert "10 triples, 9 fixed candidates" in printed
    blind = opened.graph.without_test()
    assert (len(blind.test), set(blind.candidates)) == (0, {"valid.head", "valid.tail"})
    assert blind.fingerprint != graph.fingerprint
    (tmp_path / "run" / "graph" / "negatives.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(RunError, match=r"negatives\.safetensors: damaged"):
        load_run(tmp_path / "run")
    with pytest.raises(GraphError, match=r"negatives\.safetensors: damaged"):
        load_run(tmp_path / "run", verify=False)


def test_a_download_of_another_size_is_refused(wikikg2, data, monkeypatch, tmp_path):
    (tmp_path / "cache").mkdir()
    data.rename(tmp_path / "cache" / "ogb")
    with pytest.raises(DownloadError, match=r"expected 2,500,604 entities, found 20; .* remove the folder"):
        load_graph("ogbl-wikikg2")


def test_faults_are_one_line(wikikg2, biokg, data):
    (data / "ogbl_biokg" / "mapping" / "drug_entidx2name.csv.gz").unlink()
    with pytest.raises(GraphError, match="mapping: no names of type drug"):
        load_graph("ogbl-biokg")
    folder = data / "ogbl_wikikg2"
    names = folder / "mapping" / "nodeidx2entityid.csv.gz"
    for rows, words in (
        ([(0, "Q0"), (2, "Q2")], "the ids are not 0, 1, 2"),
        ([("x", "Q0")], "not a table of ids and names"),
        ([(i, f"Q{i}") for i in range(7)], "a split has an id without a name in mapping: .* is not an id from 0 to 6"),
    ):
        table(names, ["node idx", "entity id"], rows)
        with pytest.raises(GraphError, match=words):
            load_graph("ogbl-wikikg2")
    names.unlink()
    with pytest.raises(GraphError, match=r"nodeidx2entityid\.csv\.gz"):
        load_graph("ogbl-wikikg2")


class Mischief:
    """A pickle that runs a command."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


def test_it_cannot_smuggle_in_code(wikikg2, data, tmp_path):
    file = data / "ogbl_wikikg2" / "split" / "time" / "valid.pt"
    torch.save({"head": Mischief(tmp_path / "made")}, file, pickle_module=pickle)
    with pytest.raises(GraphError, match=r"valid\.pt: damaged: posix\.mkdir in a file of arrays"):
        load_graph("ogbl-wikikg2")
    assert not (tmp_path / "made").exists()
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(GraphError, match=r"valid\.pt: damaged"):
        load_graph("ogbl-wikikg2")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            OSError("unreachable"),
            r"ogbl_biokg is missing, and ogb cannot fetch it \(unreachable\); try again",
        ),
        (SystemExit(-1), "ogbl_biokg is missing, and the download was declined"),
        (EOFError(), "ogbl_biokg is missing, and the download was declined"),
    ],
    ids=["offline", "declined", "nobody to ask"],
)
def test_without_a_copy_it_says_what_is_missing(data, call, monkeypatch, answer, words):
    def ask(_):
        print("This will download it. Will you proceed?")
        raise answer

    monkeypatch.setattr("ogb.linkproppred.dataset.decide_download", ask)
    with pytest.raises(DownloadError, match=r"no checksum is known .* --unverified"):
        load_graph("ogbl-biokg")
    with pytest.raises(DownloadError, match=words):
        load_graph("ogbl-biokg", unverified=True)
    code, printed, said = call("stats", "ogbl-biokg", "--unverified")
    assert (code, printed) == (2, "")
    assert "pairre: ogbl-biokg: " in said


def test_without_ogb_the_extra_is_named(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb.linkproppred", None)
    with pytest.raises(MissingExtraError, match=r"ogbl-wikikg2 needs .* pip install 'pairre\[ogb\]'"):
        load_graph("ogbl-wikikg2", unverified=True)


def test_recipes_have_the_published_settings():
    for name, values in {
        "ogbl-wikikg2": (512, 128, 200, 6, 1, 1e-3, 200_000),
        "ogbl-biokg": (512, 128, 2000, 12, 1, 1e-3, 300_000),
    }.items():
        recipe = load_recipe(name)
        loss, training = recipe.loss, recipe.train
        found = (training.batch, recipe.sampling.negatives, recipe.model.dim, loss.margin, loss.temperature)
        assert (*found, training.lr, training.steps) == values
        assert recipe.sampling.same_type == (name == "ogbl-biokg")
        assert find(name).from_ogb


def test_a_copy_without_splits_is_not_given_to_the_loader(wikikg2, data):
    """The loader would unpickle `processed/data_processed`."""
    folder = data / "ogbl_wikikg2"
    shutil.rmtree(folder / "split")
    (folder / "processed").mkdir(exist_ok=True)
    (folder / "processed" / "data_processed").write_bytes(b"anything")
    with pytest.raises(GraphError, match="no folder split"):
        load_graph("ogbl-wikikg2")


@pytest.mark.parametrize("value", [[1, 2], {"head": np.zeros(1)}, "text"])
def test_a_split_of_another_shape_is_damaged(wikikg2, data, value):
    save(next((data / "ogbl_wikikg2" / "split").glob("*/valid.pt")), value)
    with pytest.raises(GraphError, match=r"valid\.pt: damaged"):
        load_graph("ogbl-wikikg2")
