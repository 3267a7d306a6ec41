"""Find out which model fits a graph, in the time that there is, and end with one run."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pairre.evaluation import calibration_of, evaluate
from pairre.graph import Graph, Split, load_graph
from pairre.rules import mine
from pairre.runs import Run, RunFolder, load_run
from pairre.studies.effort.candidates import EFFORTS, EffortName
from pairre.studies.effort.choice import Chosen, choose
from pairre.studies.effort.journal import PLAN, Journal, locked_folder, state_folder, stored_graph
from pairre.studies.effort.plan import LEAST_SECONDS, EffortPlan, make_effort_plan
from pairre.studies.effort.rules import answer_in_time, mine_in_time
from pairre.studies.effort.trials import Notify, Search
from pairre.support.device import pick_device
from pairre.support.errors import GraphError, PairREError, RecipeError, RunError, suggest
from pairre.support.files import disk_errors, sync_folder, write_checked_json
from pairre.support.interrupts import check_interrupt, interrupts_noted
from pairre.support.randomness import generator
from pairre.support.terminal import Console
from pairre.training import TrainingInterruptedError, train

_HELD_OUT = 0.1  # of train, where there is no validation split
_TO_SPARE = 0.1  # of the time, which rules may take beside that of the end
_MAX_SPLIT = 20_000_000  # triples of train that are held out from


class EffortInterruptedError(TrainingInterruptedError):
    """Raised on Ctrl-C and SIGTERM; the trials that had ended are kept."""

    def __init__(self, folder: Path, signum: int) -> None:
        kept = f"the trials that had ended are in {folder}: the same command with --resume continues"
        PairREError.__init__(self, f"stopped; {kept if (folder / PLAN).exists() else 'nothing had been tried yet'}")
        self.exit_code = 128 + signum


def train_best(
    graph: Any = None,
    *,
    effort: EffortName | None = None,
    time: float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    seed: int = 0,
    progress: bool = True,
    notify: Notify | None = None,
) -> Run:
    """Find out which model fits a graph, or what `load_graph` takes, and return a run of it, or of several together.

    What is tried is in `studies/effort/candidates.toml`. An effort, `quick`, `standard` (the default) or `best`, says
    how much of it is tried and how long that takes: about a minute; twice as long as `train` with its defaults; ten
    times as long. With `time`, it takes at most about so many seconds. A plan is printed first. Candidates are tried
    in rounds, of which the best go on. The best of the best families are then trained in full. Together, with rules,
    or alone, whatever has the highest validation MRR is the result. The test split takes no part in any of that. If
    there is no validation split, a tenth of train is held out, and what is kept is then trained on all of it.

    With `out`, the run is stored in that folder, with `plan.json`, which says what was tried. Until then, the folder
    `OUT.effort` beside it holds what `resume=True` goes on from. `notify` gets every line that is printed.
    """
    show = notify or (Console(stderr=True).print_line if progress else lambda _: None)

    def say(text: str) -> None:
        check_interrupt()
        show(text)

    if out is None:
        if resume:
            raise RunError("resume: say which run folder, with out")
        with tempfile.TemporaryDirectory() as scratch:
            options: dict[str, Any] = {"effort": effort, "time": time, "device": device, "seed": seed}
            try:
                run = train_best(graph, **options, out=Path(scratch) / "run", progress=progress, notify=say)
            except EffortInterruptedError:  # there is no folder to go on from
                raise KeyboardInterrupt from None
            return replace(run, path=None)
    _check(effort, time)
    began, path = clock.monotonic(), Path(out)
    folder, chosen_device = state_folder(path), pick_device(device)
    begun = (folder / PLAN).exists()
    if resume and not begun:
        if (path / PLAN).exists():  # it had come to its end
            return load_run(path, device)
        raise RunError(f"{path}: no effort was begun for it; leave out --resume")
    if begun and not resume:
        raise RunError(f"{folder}: holds what was tried for {path} before; go on with --resume, or delete that folder")
    RunFolder.check_free(path)
    loaded = _loaded(graph, folder if begun else None)
    with interrupts_noted(), locked_folder(folder), _stops_at_once(folder):
        searched = _searched_graph(loaded)
        if begun:
            journal = _resumed(folder, loaded, effort, time)
        else:
            journal = _begun(folder, loaded, searched, effort or "standard", time, chosen_device, seed, began)
        for line in journal.plan.lines():
            say(line)
        run = _Effort(journal, loaded, searched, chosen_device, say, progress).run(path)
    journal.remove()
    return run


def effort_plan(
    graph: Any, *, effort: EffortName = "standard", time: float | None = None, device: str = "auto"
) -> EffortPlan:
    """Return what `train_best` would do; nothing is trained but a few steps that are timed."""
    _check(effort, time)
    loaded = _loaded(graph, None)
    return make_effort_plan(_searched_graph(loaded), effort, time, pick_device(device), held_out=len(loaded.valid) == 0)


def _check(effort: str | None, time: float | None) -> None:
    if effort is not None and effort not in EFFORTS:
        raise RecipeError(f"effort {effort!r}: unknown{suggest(effort, EFFORTS)}; one of {', '.join(EFFORTS)}")
    if time is not None and not LEAST_SECONDS <= time < float("inf"):
        raise RecipeError(f"time {time:g}: at least {LEAST_SECONDS:g} seconds expected")


def _loaded(graph: Any, folder: Path | None) -> Graph:
    """Return the graph that is given, or else the one that an effort was begun with."""
    if graph is None:
        if folder is None:
            raise GraphError("no graph given: only an effort that is resumed has one")
        return stored_graph(folder)
    loaded: Graph = graph if isinstance(graph, Graph) else load_graph(graph)
    if len(loaded.train) < 2:
        raise GraphError(f"{loaded.name}: train has {len(loaded.train)} triples, too few to find anything out")
    return loaded


def _searched_graph(graph: Graph) -> Graph:
    """Return a graph without test triples, and with a validation split, if need be a tenth of train."""
    graph = graph.without_test()
    if len(graph.valid):
        return graph
    if len(graph.train) > _MAX_SPLIT:
        raise GraphError(f"{graph.name}: the valid split is empty, and train too large to hold out some; give one")
    distinct, group = torch.unique(graph.train, dim=0, return_inverse=True)
    number = max(1, int(_HELD_OUT * len(distinct)))
    held = torch.zeros(len(distinct), dtype=torch.bool)
    held[torch.randperm(len(distinct), generator=generator(0, "held out"))[:number]] = True
    kept = ~held[group]
    weights: dict[Split, torch.Tensor] = {split: values[kept] for split, values in graph.weights.items()}
    return replace(graph, train=graph.train[kept], valid=distinct[held], weights=weights)


def _begun(
    folder: Path,
    graph: Graph,
    searched: Graph,
    effort: EffortName,
    time: float | None,
    device: torch.device,
    seed: int,
    began: float,
) -> Journal:
    """Return the state of a new effort; what is in its folder was cut off before there was a plan."""
    plan = make_effort_plan(searched, effort, time, device, held_out=len(graph.valid) == 0)
    graph.save(folder / "graph")
    journal = Journal(folder, plan, seed, [], clock.monotonic() - began)
    journal.store()
    return journal


def _resumed(folder: Path, graph: Graph, effort: str | None, time: float | None) -> Journal:
    """Return the state of an effort that goes on, if it was begun with the same."""
    journal = Journal.load(folder)
    if stored_graph(folder).fingerprint != graph.fingerprint:
        raise RunError(f"{folder}: begun with another graph; leave out GRAPH")
    if effort not in (None, journal.plan.effort):
        raise RunError(f"{folder}: begun with --effort {journal.plan.effort}; leave out --effort")
    if time not in (None, journal.plan.seconds):
        raise RunError(f"{folder}: begun with another --time ({journal.plan.seconds:g} s); leave it out")
    return journal


class _Effort:
    """What is left to do of a plan."""

    def __init__(
        self, journal: Journal, graph: Graph, searched: Graph, device: torch.device, say: Notify, progress: bool
    ) -> None:
        self.journal, self.graph, self.searched, self.device = journal, graph, searched, device
        self.say, self.progress = say, progress

    def run(self, out: Path) -> Run:
        """Return the run that the effort ends in, stored in a folder."""
        search = Search(self.journal, self.searched, self.device, self.say)
        found = search.members(search.finalists(), self.progress)
        names, left = list(found), self._seconds_left_for_rules
        members = [replace(run, graph=self.searched) for run in found.values()]  # what is known of it is shared
        trials = [self.journal.find(name, 0) for name in names]
        rules = mine_in_time(self.searched, left)
        alone = [trial.valid_mrr for trial in trials if trial]
        chosen = choose(members, names, rules, alone, left, answer_in_time(self.searched, self.graph, left))
        for what, mrr in chosen.options.items():
            self.say(f"valid MRR {mrr:.4f}  {what}{' (kept)' * (what == chosen.what)}")
        return self._finish_into(self._build_chosen(chosen, members, names), chosen, out)

    def _seconds_left_for_rules(self) -> float:
        """Return how long rules may still be looked for and weighed, so that the rest ends soon after the time does."""
        plan, again = self.journal.plan, 0.0
        if plan.held_out:  # members are trained once more
            again = sum(trial.seconds for trial in self.journal.trials if trial.round == 0)
        return self.journal.left - again - plan.finish_seconds / 2 + _TO_SPARE * plan.seconds

    def _build_chosen(self, chosen: Chosen, members: list[Run], names: list[str]) -> Run:
        """Return what was chosen; where triples were held out, its members are trained again on all of train."""
        kept = [members[m] for m in chosen.members]
        if self.journal.plan.held_out:
            kept = [self._trained_on_all(names[m], members[m], m) for m in chosen.members]
        if chosen.ensemble is None:
            return kept[0]
        if not self.journal.plan.held_out:
            return chosen.ensemble.run()
        return chosen.ensemble.run_of(kept, mine(self.graph) if chosen.with_mined else None)

    def _trained_on_all(self, name: str, member: Run, number: int) -> Run:
        """Return a member that is trained again on all of train, for as many steps as were best."""
        path = self.journal.folder / f"whole-{number}"
        best = max((entry for entry in member.history if "valid" in entry), key=lambda entry: entry["valid"]["mrr"])
        recipe = replace(member.recipe, train=replace(member.recipe.train, steps=best["step"], epochs=0))
        if not (path.exists() and load_run(path, "cpu").unfinished is None):
            self.say(f"training {name} again, on all of train")
        begun = path.exists()
        return train(
            self.graph.without_test(),
            None if begun else recipe,
            out=path,
            resume=begun,
            device=str(self.device),
            progress=self.progress,
        )

    def _finish_into(self, run: Run, chosen: Chosen, out: Path) -> Run:
        """Return the run on the whole graph, with metrics, probabilities and `plan.json`, in its folder."""
        run = replace(run, graph=self.graph, path=None, calibration=None)
        self.say("fitting probabilities and ranking")
        calibration_of(run)
        part = self.journal.folder / "result"
        shutil.rmtree(part, ignore_errors=True)  # one that was cut off
        run.save(part)
        mrr = {}
        for split in ("valid", "test"):
            if len(self.graph.split(split)):
                metrics = evaluate(run, split)
                RunFolder(part).save_metrics(metrics)  # those of test are kept if there are both
                mrr[split] = metrics["both"]["mrr"]
        kept = {"what": chosen.what, "options": chosen.options, "valid_mrr": mrr.get("valid")}
        write_checked_json(part / PLAN, {**self.journal.as_dict(), "chosen": kept})
        RunFolder.check_free(out)
        with disk_errors(out):
            if out.exists():
                shutil.rmtree(out)  # a run that had not learnt anything
            part.replace(out)
            sync_folder(out.parent)
        run.path = out
        return run


@contextmanager
def _stops_at_once(folder: Path) -> Iterator[None]:
    """End the block at once on Ctrl-C or SIGTERM, with an error that says how it goes on."""
    received = [signal.SIGINT]

    def stop(signum: int, _: object) -> None:
        received[0] = signal.Signals(signum)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, stop) if is_main else None
    try:
        yield
    except KeyboardInterrupt:
        raise EffortInterruptedError(folder, received[0]) from None
    except TrainingInterruptedError as error:  # in a member, which is saved
        raise EffortInterruptedError(folder, error.exit_code - 128) from None
    finally:
        if is_main:
            signal.signal(signal.SIGTERM, previous)
