"""Extend a trained run by facts and entities that came later, without training again what it has learnt.

The rows of new entities start at what their facts ask for (`start_rows.py`), then take some steps in which nothing else
moves: every old vector keeps its bits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor

from pairre.graph import Graph, Layout
from pairre.graph.annotation_files import with_more
from pairre.graph.extend import ExtendedGraph, NewTriples, extend_graph, read_new_triples
from pairre.models import Model, require_all_rows
from pairre.runs import Run, grown_model, load_run
from pairre.settings import Recipe
from pairre.support.device import pick_device
from pairre.support.errors import RecipeError, suggest
from pairre.training.start_rows import Start, set_start_rows
from pairre.training.step import PartialTraining, Trainer

log = logging.getLogger("pairre")
Move = Literal["new", "named"]
EPOCHS, RATE = 10, 0.005  # chosen on entities that are not reported: docs/results/answers-extend-*.json
_BATCHES = 50
_CHUNK = 1 << 16  # rows


def extend(
    run: Run | str | Path,
    new: NewTriples,
    *,
    epochs: int = EPOCHS,
    rate: float = RATE,
    move: Move = "new",
    columns: tuple[str, str, str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    labels: str | Path | Sequence[str | Path] = (),
    types: str | Path | None = None,
    device: str = "auto",
    start: Start = "facts",
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Return a run with new triples, and a vector for each new entity in them; the given run stays as it is.

    `new` is a file of triples, read as `load_graph` reads one, or rows of head, relation and tail by name. Triples that
    the graph has are left out; new relations are refused. New entities start at what their facts ask for (`start`, or
    at the mean of their neighbours) and then learn for some `epochs` of their facts, with the loss and the negatives of
    the run's recipe; a step moves a feature by up to `rate` times its usual size, falling to 0. With `move="named"` old
    entities that the new triples name learn as well, from all of their facts; otherwise every old vector keeps its
    bits, and so does the score of every old triple. A known entity may be named by its IRI, CURIE or
    label; `labels` and `types` are files as for `load_graph`. `progress` is called with the part of the steps that was
    done since its last call.
    """
    if move not in get_args(Move):
        raise RecipeError(f"move {move!r}: unknown{suggest(str(move), get_args(Move))}; one of new, named")
    if not isinstance(epochs, int) or epochs < 0:
        raise RecipeError(f"epochs: a whole number from 0 on expected, not {epochs!r}")
    if not 0 <= rate < math.inf:
        raise RecipeError(f"rate: a finite number from 0 on expected, not {rate!r}")
    triples, source = read_new_triples(new, Layout(columns, header, delimiter))
    base = run if isinstance(run, Run) else load_run(run, device)
    require_all_rows(base.model.entities, "extend")
    extended = extend_graph(base.graph, triples, source)
    extended = replace(extended, graph=with_more(extended.graph, labels, types))
    graph, first_new = extended.graph, base.graph.num_entities
    chosen = base.model.device if isinstance(run, Run) else pick_device(device)
    model = grown_model(base, graph, chosen)
    num_alone = set_start_rows(model, first_new, extended.added, start, base.recipe)
    _warn(base, extended, num_alone, move)
    moving = torch.arange(first_new, graph.num_entities)
    if move == "named":
        moving = extended.named
    if len(moving) and epochs:
        _learn(model, base.recipe, graph, moving, epochs, rate, progress)
    model.requires_grad_(False)
    origin = {
        "command": "extend",
        "run": base.path.name if base.path else None,
        "fingerprint": base.graph.fingerprint,
        "num_entities": first_new,
        "num_triples": len(base.graph.train),
        "new_entities": graph.num_entities - first_new,
        "new_triples": len(extended.added),
        "known_triples": extended.num_known,
        "settings": {"epochs": epochs, "rate": rate, "move": move, "start": start},
        **({"before": base.origin} if base.origin else {}),
    }
    return Run(
        graph, base.recipe, model, list(base.history), rules=base.rules, calibration=base.calibration, origin=origin
    )


def _warn(base: Run, extended: ExtendedGraph, num_alone: int, move: Move) -> None:
    """Log what may surprise."""
    if num_alone:
        log.warning("%s new entities are linked to no old one, and start at random", f"{num_alone:,}")
    if extended.graph.num_entities == base.graph.num_entities and move == "new":
        log.warning("no new entity, so that every vector stays; move 'named' lets those of the named entities move")
    if base.model.needs_other_rows:
        log.warning("%s reads neighbours, so that answers about old neighbours of new triples change", base.model.name)


def _learn(
    model: Model,
    recipe: Recipe,
    graph: Graph,
    moving: Tensor,
    epochs: int,
    rate: float,
    progress: Callable[[float], None] | None,
) -> None:
    """Let the rows of `moving` entities [M], and no others, learn from all triples of train about them."""
    device = model.device
    learns = torch.zeros(graph.num_entities, dtype=torch.bool)
    learns[moving] = True
    rows = learns[graph.train[:, 0].long()] | learns[graph.train[:, 2].long()]
    facts, weights = graph.train[rows], graph.weights.get("train")
    batch = min(recipe.train.batch, -(-len(facts) // _BATCHES))
    steps = -(-epochs * len(facts) // batch)
    usual = _usual_size(model)
    settings = replace(
        recipe.train, batch=batch, steps=steps, lr=rate * usual, schedule="linear", warmup=0, update_rows="touched"
    )
    stored = model.state_dict()  # ConvE stores statistics of batches, which must not change either
    statistics = {name: stored[name].clone() for name, _ in model.named_buffers() if name in stored}
    partial = PartialTraining(model, moving.to(device), facts, None if weights is None else weights[rows])
    trainer = Trainer(graph, replace(recipe, train=settings), device, partial=partial)
    for start in range(0, steps, 20):
        number = min(20, steps - start)
        trainer.advance(number)
        if progress is not None:
            progress(number / steps)
    trainer.flush()
    trainer.check_finite()
    for name, value in statistics.items():
        model.get_buffer(name).copy_(value)
    model.step = None


@torch.no_grad()
def _usual_size(model: Model) -> float:
    """Return the root of the mean square of all features of entities."""
    chunks = (rows for _, rows in model.stored["entity"].chunks(_CHUNK))
    means = [rows.float().square().mean() * (len(rows) / model.num_entities) for rows in chunks]
    return float(torch.stack(means).sum().sqrt())
