"""The run folder of an ensemble: everything in one folder, whole or not there, and every damage noticed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pairre
from pairre.models import Ensemble, EntityRules, RuleScores
from pairre.rules import Rule
from pairre.runs import Members, Run, RunFolder, build_model
from pairre.settings import override
from pairre.support.errors import PairREError, RunError
from pairre.support.files import write_checked_json
from tests.conftest import QUICK, planted_graph

RULES = [Rule(("next",), "previous", "inverse", 1.0), Rule(("beside",), "beside", "symmetry", 0.8)]
CPU = torch.device("cpu")


def untrained(graph, *settings):
    recipe = override(QUICK, ["model.dim=4", *settings])
    return Run(graph, recipe, build_model(graph, recipe, CPU).requires_grad_(False))


def in_memory(graph):
    """An ensemble of a half-precision table, a model whose range counts, one of neighbours, and rules of both kinds."""
    runs = [
        untrained(graph, "model.storage=float16"),
        untrained(graph, "model.name=rotate", "model.init_range=0.7", "model.reciprocal=true"),
        untrained(graph, "model.name=gc-ote", "train.seed=3"),
    ]
    rules = RuleScores(graph, RULES, "noisy-or"), EntityRules(graph)
    model = Ensemble([*(run.model for run in runs), *rules], torch.rand(3, 5))
    recipes = [run.recipe for run in runs]
    return Run(graph, Members.of(model, recipes).recipe(model), model, members=recipes, origin={"command": "ensemble"})


@pytest.fixture
def stored(tmp_path):
    made = in_memory(planted_graph())
    made.save(tmp_path / "run")
    return made


def test_a_stored_ensemble_is_the_same(stored, tmp_path):
    again = pairre.load_run(tmp_path / "run", "cpu")
    triples = stored.graph.test.long()
    for side in ("head", "tail"):
        assert torch.equal(again.model.score_all(triples, side), stored.model.score_all(triples, side))
    assert again.model.members[0].entity.dtype == torch.float16
    assert (again.model.rules.rules, again.model.rules.combine) == (RULES, "noisy-or")
    assert [type(one) for one in again.model.rule_members()] == [RuleScores, EntityRules]
    assert again.members == stored.members
    assert again.origin == {"command": "ensemble"}
    assert again.recipe.model.name == "ensemble"
    again.save(tmp_path / "copy")
    copied = pairre.load_run(tmp_path / "copy", "cpu")
    assert torch.equal(copied.model.score_all(triples, "tail"), stored.model.score_all(triples, "tail"))


def test_folders_from_before_there_were_rules_that_name_entities_open(tmp_path):
    graph = planted_graph()
    runs = [untrained(graph), untrained(graph, "model.name=rotate")]
    model, recipes = Ensemble([run.model for run in runs], torch.rand(3, 2)), [run.recipe for run in runs]
    Members.of(model, recipes).save(tmp_path / "members")
    listed = json.loads((tmp_path / "members" / "members.json").read_text())
    older = {key: value for key, value in listed.items() if key not in ("entity_rules", "checksum")}
    write_checked_json(tmp_path / "members" / "members.json", older)
    assert Members.load(tmp_path / "members").entity_rules is False


def test_only_ensembles_have_the_newest_format(stored, tmp_path):
    untrained(stored.graph).save(tmp_path / "one")
    assert (RunFolder.open(tmp_path / "one").format, RunFolder.open(tmp_path / "run").format) == (2, 3)
    assert not any(report.fault for report in pairre.check_run(tmp_path / "run"))
    with pytest.raises(RunError, match=r"newest format already \(3\)"):
        pairre.migrate(tmp_path / "run", tmp_path / "new")


@pytest.mark.parametrize("name", ["0.toml", "2.toml", "members.json", "rules.tsv"])
@pytest.mark.parametrize("damage", ["missing", "edited"])
def test_damage_to_a_file_of_members_is_noticed(stored, tmp_path, name, damage):
    file = tmp_path / "run" / "members" / name
    if damage == "missing":
        file.unlink()
    else:
        file.write_text(file.read_text().replace("0", "1") + " ")
    with pytest.raises(PairREError, match=f"members/{name}: (missing|damaged)"):
        pairre.load_run(tmp_path / "run")
    assert [r.name for r in pairre.check_run(tmp_path / "run") if r.fault] == [f"members/{name}"]


def test_missing_members_are_noticed(stored, tmp_path):
    shutil.rmtree(tmp_path / "run" / "members")
    with pytest.raises(RunError, match=r"members/0.toml: missing"):
        pairre.load_run(tmp_path / "run")
    with pytest.raises(RunError, match=r"members: missing; restore it"):
        pairre.load_run(tmp_path / "run", verify=False)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"attached_with": [], "combine": None},
        {"attached_with": [[1.0]], "combine": None},
        {"attached_with": [[0.0, 1]], "combine": None},
        {"attached_with": [["x", 1]], "combine": None},
        {"attached_with": [[1.0, 1.5]], "combine": None},
        {"attached_with": 3, "combine": None},
        {"attached_with": [[1.0, 1]], "combine": "min"},
        {"attached_with": [[1.0, 1]], "combine": None, "entity_rules": 1},
    ],
    ids=str,
)
def test_a_list_of_members_that_says_nothing_is_refused(stored, tmp_path, values):
    folder = tmp_path / "run" / "members"
    write_checked_json(folder / "members.json", values)
    with pytest.raises(RunError, match=r"members.json: damaged"):
        Members.load(folder)


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pairre.runs.members.write_rules", fail)
    with pytest.raises(RunError, match="disk is full"):
        in_memory(planted_graph()).save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from pairre.runs import members
from tests.conftest import planted_graph
from tests.runs.test_members import in_memory
members.write_checked_json = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
in_memory(planted_graph()).save(Path(sys.argv[1]))
"""


def test_a_process_that_is_killed_while_it_writes_leaves_no_run(tmp_path):
    path, root = tmp_path / "run", Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=root, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not path.exists()
    assert list(tmp_path.iterdir()), "what was begun has another name"
    in_memory(planted_graph()).save(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_recipe_that_names_an_ensemble_is_refused(graph):
    with pytest.raises(PairREError, match="an ensemble is made of runs"):
        pairre.train(graph, overrides=["model.name=ensemble"], progress=False)


def test_the_weights_must_fit_the_members(stored, tmp_path):
    folder = tmp_path / "run" / "members"
    listed = json.loads((folder / "members.json").read_text())
    members = Members.load(folder)
    assert len(members.recipes) == len(listed["attached_with"]) == 3
    fewer = Members(members.recipes[:2], members.attached_with[:2])
    with pytest.raises(RunError, match=r"model\.safetensors: damaged: 'mixing'"):
        RunFolder.open(tmp_path / "run").load_model(fewer.build(stored.graph, CPU))
