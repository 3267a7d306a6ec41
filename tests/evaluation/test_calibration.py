"""Probabilities: the curve that is fitted, the answers it is fitted on, and that both are stored with the run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pairre
from conftest import QUICK, planted_graph
from pairre.evaluation import answers, calibrate, calibration_of
from pairre.evaluation.answers import best_answers
from pairre.evaluation.logistic import fit_curve
from pairre.runs import Calibration
from pairre.support.errors import PairREError, RunError
from pairre.support.files import write_checked_json


@pytest.fixture(scope="module")
def run():
    """A run that has learnt the ring well."""
    recipe = replace(QUICK, train=replace(QUICK.train, steps=200, lr=0.05, validate_every=200))
    return pairre.train(planted_graph(), recipe, progress=False, device="cpu")


def drawn(num, slope=1.5, intercept=-1.0, offsets=(0.0, 1.0, -2.0), seed=0):
    """Draw observations from a logistic curve."""
    random = np.random.default_rng(seed)
    x, groups = random.normal(3, 2, num), random.integers(len(offsets), size=num)
    logit = slope * x + intercept + np.array(offsets)[groups]
    return x, random.random(num) < 1 / (1 + np.exp(-logit)), groups


# --- the curve ---


def test_the_curve_is_the_maximum_of_the_penalised_likelihood():
    x, true, groups = drawn(150)
    curve = fit_curve(x, true, groups, 4)
    assert curve.points.shape == (0, 2)  # too few observations to bend it
    assert curve.offsets[3] == 0  # a group without observations has the curve of all
    target = np.where(true, (true.sum() + 1) / (true.sum() + 2), 1 / ((~true).sum() + 2))
    p = 1 / (1 + np.exp(-(curve.slope * x + curve.intercept + curve.offsets[groups])))
    residual = target - p
    assert abs(residual.sum()) < 1e-6
    assert abs((residual * x).sum()) < 1e-6
    pull = np.bincount(groups, residual, 4)[:3] / curve.offsets[:3]  # the penalty pulls all offsets with one force
    assert pull == pytest.approx(np.full(3, pull[0]), rel=1e-4)


def test_the_curve_that_made_the_data_is_found():
    x, true, groups = drawn(20_000)
    curve = fit_curve(x, true, groups, 3)
    assert curve.slope == pytest.approx(1.5, rel=0.05)
    assert np.diff(curve.offsets) == pytest.approx([1, -3], abs=0.15)
    assert 4 <= len(curve.points) <= 20
    assert curve.points[:-1, 0] == pytest.approx(curve.points[:-1, 1], abs=0.35)  # no bend was needed


def test_offsets_of_groups_that_do_not_differ_are_shrunk_away():
    x, true, _ = drawn(2000, offsets=(0.0,))
    many = np.arange(2000) % 400  # five observations each: their own shares differ by chance alone
    assert np.abs(fit_curve(x, true, many, 400).offsets).max() < 0.6


def test_a_curve_that_is_not_logistic_is_bent():
    random = np.random.default_rng(0)
    x = random.normal(size=20_000)
    chance = np.where(x < 0, 0.05, 0.6)  # a step
    true = random.random(len(x)) < chance
    curve = fit_curve(x, true, np.zeros(len(x), int), 1)
    p = probability(curve, x)
    for side in (x < -0.1, x > 0.1):
        assert p[side].mean() == pytest.approx(chance[side].mean(), abs=0.03)
    logistic = 1 / (1 + np.exp(-(curve.slope * x + curve.intercept)))
    assert ((p - chance) ** 2).mean() < 0.5 * ((logistic - chance) ** 2).mean()


def probability(curve, x, group=0):
    calibration = Calibration(
        *(curve.slope, curve.intercept, torch.from_numpy(curve.offsets), torch.from_numpy(curve.points)),
        *(curve.base_rate, 1, 1, "answers", 1),
    )
    return calibration.probability(torch.from_numpy(x), torch.tensor(group)).numpy()


@settings(max_examples=30)
@given(
    st.integers(1, 700), st.integers(0, 10_000), st.sampled_from([None, 0.01, 0.5]), st.sampled_from([-3.0, 0.0, 2.0])
)
def test_a_higher_score_always_has_a_higher_probability(num, seed, base_rate, slope):
    """Also where false triples score higher, where one number separates them, and where there is one observation."""
    x, true, groups = drawn(num, slope, seed=seed)
    curve = fit_curve(x, true, groups, 3, base_rate)
    p = probability(curve, np.linspace(x.min() - 1, x.max() + 1, 500), 1)
    assert ((p > 0) & (p < 1)).all()
    assert (np.diff(p) > 0).all()


@pytest.mark.parametrize("base_rate", [0.02, 0.5, 0.9])
def test_weighted_to_a_base_rate_the_mean_probability_is_that_rate(base_rate):
    x, true, _ = drawn(5000, offsets=(0.0,))
    p = probability(fit_curve(x, true, np.zeros(5000, int), 1, base_rate), x)
    assert base_rate * p[true].mean() + (1 - base_rate) * p[~true].mean() == pytest.approx(base_rate, abs=0.02)


# --- the answers ---


def test_answers_are_those_that_brute_force_finds(run):
    """Every question of the split once; plausible candidates; known ones and the anchor itself left out."""
    graph = run.graph
    known = set(map(tuple, torch.cat([graph.train, graph.test]).tolist()))
    valid = set(map(tuple, graph.valid.tolist()))
    expected = []
    for column, other in ((0, 2), (2, 0)):
        for anchor, relation in {(t[other], t[1]) for t in valid}:
            answers = []
            side = "head" if column == 0 else "tail"
            for entity in sorted({*graph.domains.plausible(relation, side).tolist()} - {anchor}):
                triple = (entity, relation, anchor) if column == 0 else (anchor, relation, entity)
                if triple not in known:
                    score = run.model.score(torch.tensor([triple]), side).item()
                    answers.append((round(score, 4), relation, triple in valid))
            expected += sorted(answers, reverse=True)[:3]
    scores, relations, true = best_answers(run, "valid", 3)
    found = list(zip([round(s, 4) for s in scores.tolist()], relations.tolist(), true.tolist(), strict=True))
    assert sorted(found) == sorted(expected)
    assert any(true)


def test_test_triples_are_no_part_of_the_fit_but_as_known_facts(run):
    """Only which answers are left out may depend on the test split."""
    without = replace(run, graph=run.graph.without_test(), calibration=None)
    moved = replace(run, graph=replace(run.graph, test=run.graph.train[:16]), calibration=None)  # known in any case
    assert calibrate(without).to_values() == calibrate(moved).to_values()


# --- a run ---


def test_probabilities_are_those_of_held_out_answers(run):
    calibration = calibration_of(run)
    scores, relations, true = best_answers(run, "test")
    p = calibration.probability(scores, relations)
    assert calibration.base_rate == pytest.approx(true.double().mean().item(), abs=0.03)
    assert p.mean().item() == pytest.approx(calibration.base_rate, abs=0.05)
    assert p[true].mean() > 2 * p[~true].mean()
    grid = calibration.probability(scores[:, None], torch.tensor([[0, 1, 2, 99]]))  # 99 was added after the fit
    assert grid.shape == (len(scores), 4)
    assert torch.equal(grid[:, 2][relations == 2], p[relations == 2])


def test_given_negatives_and_base_rate(run):
    false = run.graph.valid.clone()
    false[:, 2] = (false[:, 2] + 20) % 40
    given = calibrate(replace(run, calibration=None), negatives=false)
    assert (given.num_true, given.num_false, given.base_rate) == (16, 16, 0.5)
    positive, negative = (
        given.probability(run.model.score(t.long()), t[:, 1]).mean() for t in (run.graph.valid, false)
    )
    assert positive > 0.6 > 0.4 > negative
    assert calibrate(replace(run, calibration=None), base_rate=0.3).base_rate == 0.3


def test_it_is_stored_and_survives_load_save_and_merge(run, call, tmp_path):
    folder = tmp_path / "run"
    trained = pairre.train(planted_graph(), QUICK, progress=False, device="cpu", out=folder)
    stored = json.loads((folder / "calibration.json").read_text())
    assert "checksum" in stored
    loaded = pairre.load_run(folder, "cpu")
    copied = pairre.load_run(loaded.save(tmp_path / "copy"), "cpu")
    again = calibrate(replace(loaded, path=None))
    stored = [calibration.to_values() for calibration in (loaded.calibration, trained.calibration, copied.calibration)]
    assert stored == [again.to_values()] * 3
    assert call("merge", folder, tmp_path / "copy", "--out", tmp_path / "merged")[0] == 0
    merged = pairre.load_run(tmp_path / "merged", "cpu")
    assert merged.calibration is not None
    assert calibration_of(merged).slope == pytest.approx(calibration_of(loaded).slope, rel=0.01)  # equal runs


def test_old_runs_are_fitted_in_memory_and_changed_weights_lose_theirs(run, tmp_path):
    folder = tmp_path / "run"
    replace(run, calibration=None, path=None).save(folder)
    assert not (folder / "calibration.json").exists()
    loaded = pairre.load_run(folder, "cpu")
    assert calibration_of(loaded).to_values() == calibration_of(run).to_values()
    assert not (folder / "calibration.json").exists()
    calibrate(loaded)
    assert (folder / "calibration.json").exists()
    pairre.runs.RunFolder.open(folder).save_model(loaded.model)
    assert pairre.load_run(folder, "cpu").calibration is None


def test_without_a_validation_split_there_is_none(run):
    bare = replace(run, graph=replace(run.graph, valid=run.graph.valid[:0]), calibration=None)
    assert calibration_of(bare) is None
    with pytest.raises(PairREError, match="no validation split"):
        calibrate(bare)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("slope", -1.0), ("slope", "1"), ("slope", True), ("base_rate", 1), ("num_true", None)),
        *(("offsets", [0.0] * 99), ("offsets", "x"), ("offsets", 3), ("offsets", [None]), ("points", [[0, 0], [0, 1]])),
        ("points", [1.0, 2.0]),
    ],
)
def test_a_calibration_that_makes_no_sense_is_refused(run, tmp_path, key, value):
    folder = replace(run, path=None).save(tmp_path / "run")
    write_checked_json(folder / "calibration.json", {**calibration_of(run).to_values(), key: value})
    with pytest.raises(RunError, match=f"calibration.json: damaged: .*{key.split('_')[0]}"):
        pairre.load_run(folder, "cpu")


# --- the command ---


def test_the_command(run, call, tmp_path):
    folder = replace(run, calibration=None, path=None).save(tmp_path / "run")
    code, printed, _ = call("calibrate", folder, "--base-rate", "0.5", "--device", "cpu")
    assert code == 0
    assert printed.startswith("Probabilities refer to a base rate of 0.5, fitted on ")
    assert pairre.load_run(folder, "cpu").calibration.base_rate == 0.5
    code, printed, said = call("calibrate", folder, "--base-rate", "1.5")
    assert (code, printed, said) == (2, "", "pairre: base rate 1.5: a number between 0 and 1 expected\n")
    assert pairre.load_run(folder, "cpu").calibration.base_rate == 0.5
    false = tmp_path / "false.tsv"
    false.write_text("e1\tnext\te20\ne2\tnext\te30\ne3\tbeside\te25\n", encoding="utf-8")
    code, printed, _ = call("calibrate", folder, "--negatives", false, "--device", "cpu")
    assert (code, printed.splitlines()[-1].endswith("16 true and 3 false given triples.")) == (0, True)
    false.write_text("e1\tnext\te99\n", encoding="utf-8")
    code, printed, said = call("calibrate", folder, "--negatives", false)
    assert (code, printed) == (2, "")
    assert "e99" in said
    assert pairre.load_run(folder, "cpu").calibration.num_false == 3
    damaged = json.loads((folder / "calibration.json").read_text())
    (folder / "calibration.json").write_text(json.dumps({**damaged, "slope": 9.0}))
    code, printed, said = call("predict", folder, "--head", "e1", "--relation", "next")
    assert code == 2
    assert "calibration.json: damaged: its contents differ from its checksum" in said


def test_a_huge_graph_is_calibrated_when_somebody_asks(graph, quick, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr("pairre.training.session.is_huge", lambda _: True)
    monkeypatch.setattr("pairre.training.session.calibration_of", lambda _: None)
    run = pairre.train(graph, quick, progress=False, out=tmp_path / "run")
    assert f"pairre calibrate {tmp_path / 'run'} fits them" in caplog.text
    monkeypatch.setattr("pairre.evaluation.calibration.MAX_UNASKED", 10)
    run.calibration = None
    assert calibration_of(run) is None
    assert pairre.calibrate(run) is not None
    assert calibration_of(run) is not None


def test_of_very_many_relations_a_sample_is_asked(run, monkeypatch):
    """Each relation is a ranking of its own: 100,000 of them took minutes at the end of a training."""
    asked = []

    def best_new(own, questions, *arguments):
        asked.append(int(questions[0, 1]))
        return real(own, questions, *arguments)

    real = answers.best_new
    monkeypatch.setattr(answers, "best_new", best_new)
    everything = [column.tolist() for column in best_answers(run, "valid")]
    num = len(set(asked))
    assert num > 1
    monkeypatch.setattr(answers, "_MAX_RELATIONS", num)
    assert [column.tolist() for column in best_answers(run, "valid")] == everything
    asked.clear()
    monkeypatch.setattr(answers, "_MAX_RELATIONS", num - 1)
    scores, relations, true = best_answers(run, "valid")
    assert len(set(asked)) == len(torch.unique(relations)) == num - 1
    assert true.any()
    assert len(scores) < len(everything[0])
