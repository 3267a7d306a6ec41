"""Efforts: a plan first, rounds in which the best go on, one run at the end, and nothing repeated after a kill."""

import json
import signal
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pairre import check_run, evaluate, load_run, predict, train, train_best
from pairre.cli.train import read_seconds
from pairre.settings import resolve
from pairre.studies.effort import EFFORTS, EffortInterruptedError, effort_plan
from pairre.studies.effort.candidates import Candidate, candidates, families
from pairre.studies.effort.choice import choose
from pairre.studies.effort.journal import Journal, Trial
from pairre.studies.effort.plan import make_effort_plan, readable_seconds
from pairre.studies.effort.probe import Cost
from pairre.support.errors import GraphError, RecipeError, RunError, TrainingError

TRIALS = sys.modules["pairre.studies.effort.trials"]
SECONDS = 1.2
SMALL = {"model.dim": 8, "train.batch": 32}
FEW = {
    family: [Candidate(f"{family} {n}", {**SMALL, "model.name": model, "train.lr": lr}) for n, lr in enumerate(lrs, 1)]
    for family, model, lrs in (("distance", "pairre", (0.05, 1e-7, 0.02)), ("rotation", "rotate", (0.05, 1e-7, 0.02)))
}
REAL_COST = sys.modules["pairre.studies.effort.probe"].Probe._cost


class KilledError(BaseException):
    """Stands for a kill: nothing catches it."""


@pytest.fixture(autouse=True)
def few_candidates(monkeypatch):
    monkeypatch.setattr("pairre.studies.effort.candidates.families", lambda _: FEW)
    monkeypatch.setattr("pairre.studies.effort.run.LEAST_SECONDS", 0.5)
    # Seconds of the processor, and costs as on a quiet machine, so that a busy one tries as much.
    for clock in ("run.clock", "trials.time", "journal.time"):
        monkeypatch.setattr(f"pairre.studies.effort.{clock}", SimpleNamespace(monotonic=time.process_time))
    monkeypatch.setattr(
        "pairre.studies.effort.probe.Probe._cost", lambda *_: Cost(setup=0.0, per_step=1e-3, per_ranking=1e-5)
    )
    monkeypatch.setattr("pairre.studies.effort.probe._LEAST_STEPS", 10)
    monkeypatch.setattr("pairre.studies.effort.plan._ENDING", 0.0)


@pytest.fixture
def calls(monkeypatch):
    """What was trained: (steps, folder) of each call."""
    found = []

    def noted(graph, recipe, **options):
        assert len(graph.test) == 0, "the test split takes no part"
        found.append((recipe and recipe.train.steps, options.get("out")))
        return train(graph, recipe, **options)

    monkeypatch.setattr(TRIALS, "train", noted)
    return found


def best(graph, out, **more):
    lines = []
    options = {"effort": "standard", "time": SECONDS, "device": "cpu", "progress": False, "notify": lines.append}
    return train_best(graph, out=out, **(options | more)), lines


def plan_of(path):
    return json.loads((path / "plan.json").read_text(encoding="utf-8"))


def test_a_plan_comes_first_and_a_run_results(graph, tmp_path, calls):
    run, lines = best(graph, tmp_path / "run")
    assert lines[0] == "plan of --effort standard for ring on cpu: at most about 1.2 s"
    assert not any(
        line.startswith(("round", "training"))
        for line in lines[: lines.index(next(line for line in lines if line.startswith("  ends in"))) + 1]
    )
    plan = plan_of(tmp_path / "run")
    opened = load_run(tmp_path / "run", "cpu")
    assert evaluate(opened, "valid")["both"]["mrr"] == plan["chosen"]["valid_mrr"]
    assert opened.graph.fingerprint == graph.fingerprint
    assert len(predict(opened, head="e1", relation="next", k=3)) == 3
    assert run.path == tmp_path / "run"
    assert not any(report.fault for report in check_run(run.path))
    assert (run.path / "metrics.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert plan["chosen"]["options"][plan["chosen"]["what"]] == max(plan["chosen"]["options"].values())
    assert len(calls) == len(plan["trials"])
    assert best(graph, run.path, resume=True)[0].path == run.path  # it had come to its end
    (run.path / "plan.json").write_text("{}")
    assert [report.name for report in check_run(run.path) if report.fault] == ["plan.json"]


def test_only_the_best_go_on_and_have_more_time(graph, tmp_path):
    best(graph, tmp_path / "run")
    trials = plan_of(tmp_path / "run")["trials"]
    first, second, members = ([one for one in trials if one["round"] == number] for number in (1, 2, 0))
    assert len(first) == 6
    assert len(second) == 3
    assert {one["candidate"] for one in members} <= {one["candidate"] for one in second}
    assert not {"distance 2", "rotation 2"} & {one["candidate"] for one in second}
    steps = {one["candidate"]: one["steps"] for one in first}
    assert all(one["steps"] > steps[one["candidate"]] for one in second)
    assert len({one["candidate"].split()[0] for one in members}) == len(members)


@pytest.mark.parametrize("in_member", [False, True], ids=["in a trial", "in a member"])
def test_after_a_kill_nothing_is_repeated(graph, tmp_path, calls, monkeypatch, in_member):
    noted, out = TRIALS.train, tmp_path / "run"

    def killed(graph, recipe, **options):
        if in_member and options.get("out"):
            validated = options["on_validation"]

            def watch(step, mrr):
                validated(step, mrr)
                raise KilledError

            options["on_validation"] = watch
        elif not in_member and len(calls) == 3:
            raise KilledError
        return noted(graph, recipe, **options)

    monkeypatch.setattr(TRIALS, "train", killed)
    with pytest.raises(KilledError):
        best(graph, out)
    state = tmp_path / "run.effort"
    before = plan_of(state)["trials"]
    assert before
    assert not out.exists()
    with pytest.raises(RunError, match="go on with --resume"):
        best(graph, out)
    for more, words in (
        ({"effort": "best"}, "begun with --effort standard"),
        ({"time": 9.0}, "begun with another --time"),
    ):
        with pytest.raises(RunError, match=words):
            best(graph, out, resume=True, **more)
    with pytest.raises(RunError, match="begun with another graph"):
        best(replace(graph, train=graph.train[1:]), out, resume=True)
    monkeypatch.setattr(TRIALS, "train", noted)
    calls.clear()
    _, lines = best(None, out, resume=True)
    after = plan_of(out)["trials"]
    assert after[: len(before)] == before
    assert len(calls) == len(after) - len(before)
    assert len({(one["candidate"], one["round"]) for one in after}) == len(after)
    assert lines[0].startswith("plan of --effort standard")
    assert not state.exists()


def test_short_trainings_stay_in_memory_and_are_not_repeated(graph, tmp_path, calls, monkeypatch):
    with monkeypatch.context() as stopped:
        stopped.setattr(TRIALS, "_SHORT", {"cpu": 60.0})
        stopped.setattr("pairre.studies.effort.run.choose", lambda *_: signal.raise_signal(signal.SIGINT))
        with pytest.raises(EffortInterruptedError):
            best(graph, tmp_path / "run")
    assert {out for _, out in calls} == {None}
    assert (tmp_path / "run.effort" / "member-1" / "model.safetensors").exists()
    before = len(calls)
    run, _ = best(None, tmp_path / "run", resume=True)
    assert len(calls) == before
    assert evaluate(run, "valid")["both"]["mrr"] > 0.11


def test_signals_stop_it_with_advice(graph, tmp_path, monkeypatch):
    for signum in (signal.SIGINT, signal.SIGTERM):
        monkeypatch.setattr(TRIALS, "train", lambda *_, signum=signum, **__: signal.raise_signal(signum))
        with pytest.raises(EffortInterruptedError, match="with --resume continues") as stopped:
            best(graph, tmp_path / signum.name)
        assert stopped.value.exit_code == 128 + signum
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_is_stopped_before_there_is_a_plan_leaves_nothing(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "pairre.studies.effort.run.make_effort_plan", lambda *_, **__: signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(EffortInterruptedError, match="nothing had been tried"):
        best(graph, tmp_path / "run")
    monkeypatch.undo()
    monkeypatch.setattr("pairre.training.memory.available_bytes", lambda *_: 1000)
    with pytest.raises(TrainingError, match=r"nothing can be trained; .*: .* are free on cpu"):
        best(graph, tmp_path / "run", time=20)
    assert list(tmp_path.iterdir()) == []


def test_a_slow_machine_does_not_exceed_the_time_by_much(graph, tmp_path, monkeypatch):
    """Steps that take ten times as long as when they were timed; seconds are those of the processor."""
    slow = Cost(setup=0.0, per_step=1e-4, per_ranking=1e-5)
    monkeypatch.setattr("pairre.studies.effort.probe.Probe._cost", lambda *_: slow)
    started = time.process_time()
    best(graph, tmp_path / "run")
    assert time.process_time() - started < 8 * SECONDS  # kernels may have to be compiled first


def test_time_that_is_left_is_for_another_family(graph, tmp_path, monkeypatch):
    """The second one is not planned; the first one ends at once."""
    monkeypatch.setitem(EFFORTS, "standard", replace(EFFORTS["standard"], members=1))
    monkeypatch.setattr("pairre.studies.effort.plan._LONGEST", 0.02)  # of the default steps
    monkeypatch.setattr(TRIALS, "_WORTH_TRAINING", 0.0)
    best(graph, tmp_path / "run", time=60.0)
    plan = plan_of(tmp_path / "run")
    members = [one["candidate"].split()[0] for one in plan["trials"] if one["round"] == 0]
    assert plan["plan"]["members"] == 1
    assert sorted(members) == ["distance", "rotation"]


def test_without_a_validation_split_some_of_train_is_held_out(graph, tmp_path):
    without = replace(graph, valid=graph.valid[:0])
    run, lines = best(without, tmp_path / "run")
    assert "held out of train" in lines[1]
    assert run.graph.fingerprint == without.fingerprint
    assert len(load_run(run.path, "cpu").graph.train) == len(graph.train)
    assert any("again, on all of train" in line for line in lines)
    assert plan_of(run.path)["chosen"]["valid_mrr"] is None
    assert evaluate(run)["both"]["mrr"] > 0


def test_a_failed_trial_is_left_behind(graph, tmp_path, monkeypatch):
    FEW_AND_BAD = {"bad": [Candidate("bad 1", {**SMALL, "train.lr": 1e30})], **FEW}
    monkeypatch.setattr("pairre.studies.effort.candidates.families", lambda _: FEW_AND_BAD)
    best(graph, tmp_path / "run")
    plan = plan_of(tmp_path / "run")
    tried = [one for one in plan["trials"] if one["candidate"] == "bad 1"]
    assert [one["round"] for one in tried] in ([1], [])
    assert tried == [] or "the loss became" in tried[0]["error"] or tried[0]["valid_mrr"] < 0.5


def test_what_takes_too_long_is_left_out_and_named(graph, monkeypatch):
    monkeypatch.setattr("pairre.studies.effort.probe.Probe._cost", REAL_COST)
    monkeypatch.setattr("pairre.studies.effort.probe._LEAST_STEPS", 10_000)
    plan = effort_plan(graph, time=1.0, device="cpu")
    assert set(plan.left_out) | {one.name for one in plan.candidates} == {
        one.name for variants in FEW.values() for one in variants
    }
    assert len(plan.candidates) == 1
    assert plan.candidates[0].name not in plan.left_out
    assert plan.rounds == []
    said = [line for line in plan.lines() if line.startswith("  left out")]
    assert all(any(name in line and line.endswith(why) for line in said) for name, why in plan.left_out.items())


def test_without_a_folder_the_run_stays_in_memory(graph):
    run = train_best(graph, effort="quick", time=2.0, device="cpu", progress=False)
    assert run.path is None
    assert run.graph.fingerprint == graph.fingerprint
    assert evaluate(run, "valid")["both"]["mrr"] > 0.11  # that of a random order


def test_the_simplest_of_equals_is_kept(graph):
    run = train(graph, resolve(graph, None, {**SMALL, "train.steps": 20}), device="cpu", progress=False)
    chosen = choose([run], ["distance 1"], [], [0.5], lambda: -1.0, 0.0)
    assert (chosen.what, chosen.members, chosen.ensemble) == ("distance 1", [0], None)
    twice = choose([run, run], ["one", "other"], [], [0.5, 0.5], lambda: -1.0, 0.0)
    assert twice.options["one"] == twice.options["other"] >= twice.options["one + other"]
    assert twice.what == "one"


@pytest.mark.parametrize("on_gpu", [False, True], ids=["cpu", "gpu"])
def test_every_candidate_of_the_table_fits_a_graph(graph, on_gpu):
    table = families.__wrapped__(on_gpu)
    assert {} in [one.settings for one in table["pairre"]], "the default is a candidate"
    for variants in table.values():
        assert len({json.dumps(one.settings, sort_keys=True) for one in variants}) == len(variants)
        for one in variants:
            resolve(graph, None, one.settings)


@pytest.fixture
def on_a_gpu(monkeypatch):
    """Plan as for a GPU, with given seconds of a step by model."""
    monkeypatch.setattr("pairre.studies.effort.candidates.families", families.__wrapped__)
    monkeypatch.setattr("pairre.studies.effort.plan.available_bytes", lambda *_: 10**12)
    monkeypatch.setattr("pairre.studies.effort.probe._LEAST_STEPS", 60)
    monkeypatch.setattr("pairre.studies.effort.plan._ENDING", 2.0)

    def plan(graph, *, effort="standard", seconds=None, compiled=0.0, **per_step):
        def cost(probe, recipe):
            probe.compiled = compiled
            return Cost(0.2, per_step.get(recipe.model.name, 1e-4), 1e-6)

        monkeypatch.setattr("pairre.studies.effort.probe.Probe._cost", cost)
        return make_effort_plan(graph, effort, seconds, torch.device("cuda"), held_out=False)

    return plan


def test_on_a_gpu_an_effort_takes_as_long_as_so_many_trainings(graph, on_a_gpu):
    """The ring has 3,000 steps; a training begins with 5 seconds that an effort has only once."""
    assert on_a_gpu(graph).seconds == 10
    assert on_a_gpu(graph, pairre=1e-2).seconds == pytest.approx(2 * 30.2 + 5, abs=0.1)
    assert on_a_gpu(graph, pairre=1e-2, effort="best").seconds == pytest.approx(10 * 30.2 + 45, abs=0.1)
    assert on_a_gpu(graph, compiled=20.0).seconds == 30, "others wait for kernels, too"
    assert on_a_gpu(graph, compiled=20.0, seconds=12.0).seconds == 12


def test_without_time_for_trials_the_best_families_are_trained(graph, on_a_gpu):
    """A trial of the first one would take all of the time that trials have."""
    short = on_a_gpu(graph, complex=4e-3)
    assert [one.name for one in short.candidates] == ["complex 1", "pairre 1"]
    assert (short.rounds, short.members) == ([], 2)
    assert any("complex 1, pairre 1" in line for line in short.lines())
    alone = on_a_gpu(graph, seconds=10.0, complex=0.1, pairre=0.1, rotate=0.1)
    assert (len(alone.candidates), alone.members) == (1, 1)
    long = on_a_gpu(graph, seconds=60.0)
    assert len(long.rounds) == 2
    assert {"complex", "pairre", "rotate"} == {one.family for one in long.candidates}
    assert set(long.left_out.values()) == {"complex can be tried"}
    slow = on_a_gpu(graph, seconds=60.0, complex=1.0)
    assert "complex" not in {one.family for one in slow.candidates}


def test_time_for_many_epochs_makes_a_model_wider(graph, on_a_gpu, tmp_path):
    dims = []
    for seconds, per_step in ((20.0, 1e-3), (20.0, 0.5)):
        plan = on_a_gpu(graph, seconds=60.0, complex=per_step)
        plan = replace(plan, costs={"complex 1": Cost(0.2, per_step, 1e-6)}, max_steps=10**6)
        search = TRIALS.Search(Journal(tmp_path, plan, 0, []), graph, torch.device("cpu"), print)
        recipe = search._recipe_of_member(families.__wrapped__(True)["complex"][0], seconds)
        dims.append((recipe.model.dim, recipe.train.steps))
    assert [dim for dim, _ in dims] == [1000, 500]
    assert dims[0][1] == pytest.approx(19.8 / 2e-3, rel=0.01), "twice the seconds for each step"


def test_few_steps_do_not_rule_a_family_out(graph, on_a_gpu, tmp_path):
    plan = on_a_gpu(graph, seconds=60.0)
    for steps, kept in ((300, ["rotate 1", "complex 1", "pairre 1"]), (5_000, ["rotate 1"])):
        trials = [
            Trial(one.name, number, steps, 0.5, 0.9 if one.name == "rotate 1" else 0.1)
            for one in plan.candidates
            for number in (1, 2)
        ]
        search = TRIALS.Search(Journal(tmp_path, plan, 0, trials), graph, torch.device("cpu"), print)
        assert [one.name for one in search.finalists()] == kept


def test_a_greater_effort_tries_more(monkeypatch):
    monkeypatch.setattr("pairre.studies.effort.candidates.families", families.__wrapped__)
    quick, standard, most = ({one.name for one in candidates(effort, False)} for effort in EFFORTS.values())
    assert quick < standard < most


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"effort": "fast"}, RecipeError, "effort 'fast': unknown"),
        ({"time": 0.1}, RecipeError, "at least 0.5 seconds"),
        ({"time": float("inf")}, RecipeError, "at least"),
        ({"resume": True}, RunError, "no effort was begun"),
    ],
)
def test_what_cannot_be_done_is_refused(graph, tmp_path, more, error, words):
    with pytest.raises(error, match=words):
        best(graph, tmp_path / "run", **more)
    assert list(tmp_path.iterdir()) == []


def test_graphs_and_folders_that_cannot_be_used_are_refused(graph, tmp_path):
    with pytest.raises(GraphError, match="too few"):
        best(replace(graph, train=graph.train[:1]), tmp_path / "run")
    with pytest.raises(GraphError, match="no graph given"):
        best(None, tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    with pytest.raises(RunError, match="exists"):
        best(graph, tmp_path / "run")
    (tmp_path / "other.effort").mkdir()
    (tmp_path / "other.effort" / "plan.json").write_text('{"plan": 3}')
    with pytest.raises(RunError, match=r"plan\.json: damaged"):
        best(graph, tmp_path / "other", resume=True)


@pytest.mark.parametrize(
    "option",
    [
        ("--recipe", "umls"),
        ("--set", "model.dim=8"),
        ("--rules", "rules.tsv"),
        ("--init-from", "run"),
        ("--init-vectors", "vectors.parquet"),
        ("--teacher", "run"),
        ("--seeds", "2"),
        ("--tensorboard",),
    ],
)
def test_options_that_say_how_to_train_are_refused(call, triples_file, tmp_path, option):
    code, _, said = call("train", triples_file, "--effort", "quick", "--out", tmp_path / "run", *option)
    assert code == 2
    assert said.splitlines()[-1].startswith(f"pairre: {option[0]}: --effort finds out by itself how to train")


def test_the_command(call, triples_file, tmp_path):
    out = tmp_path / "run"
    code, printed, said = call("train", triples_file, "--time", "2s", "--dry-run", "--out", out, "--device", "cpu")
    assert (code, out.exists()) == (0, False), said
    assert printed.startswith("plan of --effort standard")
    code, printed, said = call(
        "train", triples_file, "--effort", "quick", "--time", "2", "--out", out, "--device", "cpu"
    )
    assert code == 0, said
    assert said.startswith("plan of --effort quick")
    assert f"The run is in {out}. Next:" in printed
    for words in (("--time", "soon"), ("--time", "1s2m"), ("--effort", "quick", "--resume")):
        code, _, said = call("train", triples_file, "--out", tmp_path / "other", *words)
        assert code == 2
        assert len(said.splitlines()) == 1


def test_times_as_people_write_them():
    assert [read_seconds(text) for text in ("90", "90s", "10m", "1h30m", "2H")] == [90, 90, 600, 5400, 7200]
    assert [readable_seconds(value) for value in (1.24, 50, 601, 5400, 7200)] == [
        "1.2 s",
        "50 s",
        "10 min",
        "1 h 30 min",
        "2 h",
    ]
