"""Who trains and ranks in `cpu.py`, on which data, and how each does it in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import machine

if TYPE_CHECKING:
    import torch

    from pairre import Graph

SHAPE = {"entities": 14_541, "relations": 237, "train": 272_115, "valid": 17_535, "test": 20_466}
DIM, BATCH, NEGATIVES, MARGIN, RATE, SEED = 200, 1024, 256, 6.0, 1e-3, 0
RANK_SETTINGS = ((32, None), (64, None))  # PyKEEN's batch and slice sizes to choose the best from; None: all entities
SUB_BATCH, SLICED = 32, ((16, 1024),)  # the same work in small pieces


@dataclass(frozen=True)
class Contender:
    """One line of the table: a system, a task and its settings."""

    system: Literal["pykeen", "pairre"]
    task: Literal["train", "rank"]
    variant: str  # PyKEEN: plain, helped; ours: how negatives are shared
    filtered: bool = True
    rows: Literal["all", "touched"] = "all"
    pieces: bool = False  # PyKEEN: sub-batches or slices

    @property
    def label(self) -> str:
        """Name for the table."""
        if self.system == "pairre":
            return f"pairre, {self.variant} negatives, Adam on {self.rows} rows" if self.task == "train" else "pairre"
        details = [self.system, self.variant]
        if self.task == "train":
            details.append("filtered" if self.filtered else "unfiltered")
        return ", ".join(details + ["pieces"] * self.pieces)

    @property
    def negatives(self) -> str:
        """How negatives are shared."""
        if self.task == "rank":
            return "all entities"
        return f"{NEGATIVES} for the batch" if self.variant == "shared" else f"{NEGATIVES} a positive"


CONTENDERS = (
    *(Contender("pykeen", "train", v, filtered=f) for v in ("plain", "helped") for f in (False, True)),
    Contender("pykeen", "train", "plain", filtered=False, pieces=True),
    *(Contender("pairre", "train", v, rows=r) for v in ("shared", "own") for r in ("all", "touched")),
    *(Contender("pykeen", "rank", v) for v in ("plain", "helped")),
    Contender("pykeen", "rank", "plain", pieces=True),
    Contender("pairre", "rank", ""),
)


# --- data -----------------------------------------------------------------------------------------------------------


def real_data() -> bool:
    """Whether $PAIRRE_DATA holds FB15k-237."""
    folder = os.environ.get("PAIRRE_DATA")
    return bool(folder) and any((Path(folder or "") / "fb15k-237").glob("train.tsv*"))


def load_shape() -> Graph:
    """FB15k-237, or random triples of its shape: few entities and relations are in most triples."""
    import numpy as np
    import torch

    from pairre import load_graph
    from pairre.graph import SPLITS, Graph, Vocabulary

    if real_data():
        return load_graph("fb15k-237")
    parts = [SHAPE[s] for s in SPLITS]
    random = np.random.default_rng(SEED)
    sizes = [SHAPE[kind] for kind in ("entities", "relations", "entities")]
    drawn = [(size * random.random(2 * sum(parts)) ** 2).astype(np.int32) for size in sizes]
    triples = torch.from_numpy(random.permutation(np.unique(np.stack(drawn, 1), axis=0))[: sum(parts)])
    entities = Vocabulary(map(str, range(SHAPE["entities"])), "entity")
    relations = Vocabulary(map(str, range(SHAPE["relations"])), "relation")
    return Graph("fb15k-237 shape", entities, relations, *triples.split(parts))


# --- workers: each runs in a process of its own ---------------------------------------------------------------------


def keep_freed_memory() -> None:
    """Tell glibc to reuse freed memory instead of returning it: no page faults for the next temporary."""
    libc = ctypes.CDLL(None)
    assert libc.mallopt(-4, 0) == 1, "M_MMAP_MAX refused: not glibc?"
    assert libc.mallopt(-1, -1) == 1, "M_TRIM_THRESHOLD refused: not glibc?"


def timed(function: Callable[[], Any]) -> dict[str, float]:
    """Wall and processor seconds of a call; processor ÷ wall far below the cores means that the machine was busy."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def train_pykeen(job: Contender, graph: Graph, quick: bool) -> dict[str, float]:
    """PyKEEN's own loop; a callback takes the time at each batch and ends the loop."""
    import torch
    from pykeen.losses import NSSALoss
    from pykeen.training import SLCWATrainingLoop, TrainingCallback

    warm, steps = (1, 2) if quick else (3, 10 if job.variant == "plain" else 20)

    class Enough(Exception):  # noqa: N818
        """The steps are done; PyKEEN's loop has no number of steps."""

    class Clock(TrainingCallback):  # type: ignore[misc]
        """Wall and processor time at the start of every batch."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[tuple[float, float]] = []

        def pre_batch(self, **_: Any) -> None:
            """Count a batch as soon as it is there with its negatives."""
            self.times.append((time.perf_counter(), time.process_time()))
            if len(self.times) > warm + steps:
                raise Enough

    factory, model = pykeen_model(graph, loss=NSSALoss(margin=MARGIN, adversarial_temperature=1.0))
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.Adam(model.parameters(), lr=RATE),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": NEGATIVES, "filtered": job.filtered},
        automatic_memory_optimization=False,
    )
    clock = Clock()
    settings = {"batch_size": BATCH, "sub_batch_size": SUB_BATCH if job.pieces else None}
    with contextlib.suppress(Enough):
        loop.train(factory, num_epochs=1, callbacks=clock, drop_last=True, use_tqdm=False, **settings)
    (start, cpu_start), (end, cpu_end) = clock.times[warm], clock.times[-1]
    return {"items": steps * BATCH, "seconds": end - start, "cpu_seconds": cpu_end - cpu_start}


def pykeen_model(graph: Graph, **settings: Any) -> tuple[Any, Any]:
    """PyKEEN's training triples and its PairRE: L1 norm, entities on the unit sphere by default."""
    from pykeen.models import PairRE
    from pykeen.triples import CoreTriplesFactory

    factory = CoreTriplesFactory(graph.train.long(), num_entities=graph.num_entities, num_relations=graph.num_relations)
    return factory, PairRE(triples_factory=factory, embedding_dim=DIM, p=1, random_seed=SEED, **settings)


def train_pairre(job: Contender, graph: Graph, quick: bool) -> dict[str, float]:
    """Trainer.advance by an even number of steps: heads and tails are corrupted in turn."""
    trainer = pairre_trainer(graph, {"shared": 0, "own": 1}[job.variant], job.rows)
    warm, steps = (4, 20) if quick else (20, 200)
    trainer.advance(warm)
    return {"items": steps * BATCH, **timed(lambda: trainer.advance(steps))}


def pairre_trainer(graph: Graph, chunk_size: int = 0, rows: str = "all") -> Any:
    """Our model, sampler and optimiser with the benchmark's settings."""
    import torch

    from pairre.settings import from_values
    from pairre.training.step import Trainer

    recipe = {
        "model": {"name": "pairre", "dim": DIM},
        "loss": {"name": "self-adversarial", "margin": MARGIN},
        "sampling": {"negatives": NEGATIVES, "chunk_size": chunk_size, "filter": True},
        "train": {
            "batch": BATCH,
            "lr": RATE,
            "steps": 1_000_000,
            "update_rows": rows,
            "seed": SEED,
            "schedule": "constant",
        },
    }
    return Trainer(graph, from_values(recipe), torch.device("cpu"))


def rank_pykeen(job: Contender, graph: Graph, quick: bool) -> dict[str, Any]:
    """RankBasedEvaluator with few metrics, at the best of some batch and slice sizes."""
    _, model = pykeen_model(graph)
    tried = []
    for batch, slices in SLICED if job.pieces else RANK_SETTINGS[: 1 if quick else None]:
        num_triples = batch if quick else 256

        def run(count: int, batch: int = batch, slices: int | None = slices) -> dict[str, float]:
            return timed(lambda: pykeen_ranks(model, graph, graph.test[:count].long(), batch, slices))

        run(batch)  # to warm up
        short, long = run(batch), run(batch + num_triples)
        spent = {key: long[key] - short[key] for key in long}
        tried.append({"batch_size": batch, "slice_size": slices, "items": num_triples, **spent})
    return min(tried, key=lambda t: t["seconds"] / t["items"]) | {"tried": tried}


def pykeen_ranks(model: Any, graph: Graph, triples: torch.Tensor, batch: int, slices: int | None) -> Any:
    """Return filtered ranks of both sides, by PyKEEN."""
    from pykeen.evaluation import RankBasedEvaluator

    evaluator = RankBasedEvaluator(filtered=True, metrics=["mr", "mrr"], add_defaults=False)
    known = [split.long() for split in (graph.train, graph.valid, graph.test)]
    settings = {"batch_size": batch, "slice_size": slices, "use_tqdm": False}
    return evaluator.evaluate(model, triples, additional_filter_triples=known, **settings)


def rank_pairre(_: Contender, graph: Graph, quick: bool) -> dict[str, float]:
    """rank_both_sides over the whole test split, the index of known triples built within the time."""
    from pairre.evaluation import rank_both_sides

    model = pairre_trainer(graph).model
    rank_both_sides(model, graph.test[:64], graph.known_train)  # another index, so that the real one is not there yet
    chosen = graph.test[:2000] if quick else graph.test
    return {"items": len(chosen), **timed(lambda: rank_both_sides(model, chosen, graph.known))}


def check_agreement(graph: Graph) -> dict[str, float]:
    """Both systems with the same parameters: how far scores and filtered metrics are apart."""
    import torch

    from pairre.evaluation import rank_both_sides, summarise

    _, peer = pykeen_model(graph)
    model = pairre_trainer(graph).model
    with torch.no_grad():
        model.entity.copy_(peer.entity_representations[0]._embeddings.weight)
        model.relation.copy_(torch.cat([r._embeddings.weight for r in peer.relation_representations], 1))
        triples = graph.test[:32].long()
        pairs = {
            "triple": (peer.score_hrt(triples)[:, 0], model.score(triples)),
            "tails": (peer.score_t(triples[:, :2]), model.score_tails(triples[:, 0], triples[:, 1])),
            "heads": (peer.score_h(triples[:, 1:]), model.score_heads(triples[:, 1], triples[:, 2])),
        }
        differences = {f"max_difference_{k}": (a - b).abs().max().item() for k, (a, b) in pairs.items()}
    theirs = pykeen_ranks(peer, graph, triples, 32, None)
    ours = summarise(rank_both_sides(model, triples, graph.known))["both"]
    names = {"mrr": "inverse_harmonic_mean_rank", "mr": "arithmetic_mean_rank"}
    for key, name in names.items():
        differences |= {f"{key}_pykeen": theirs.get_metric(f"both.realistic.{name}"), f"{key}_pairre": ours[key]}
    return {**differences, "largest_score": pairs["tails"][0].abs().max().item()}


def work(job: dict[str, Any]) -> None:
    """One contender, in a process that has done nothing else."""
    quick = job.pop("quick")
    if job.pop("check", False):
        machine.answer(check_agreement(load_shape()))
        return
    contender = Contender(**job)
    if contender.system == "pykeen" and contender.variant == "helped":
        keep_freed_memory()
    function = {
        ("pykeen", "train"): train_pykeen,
        ("pairre", "train"): train_pairre,
        ("pykeen", "rank"): rank_pykeen,
        ("pairre", "rank"): rank_pairre,
    }[contender.system, contender.task]
    result = function(contender, load_shape(), quick)
    machine.answer({**result, "rate": result["items"] / result["seconds"]})
