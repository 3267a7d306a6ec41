"""Does the recipe `ogbl-wikikg2` work end to end at the real size? Everything but the download, on a planted graph.

Makes a graph of ogbl-wikikg2's shape, writes it as OGB does, loads it as `pairre train ogbl-wikikg2` does, trains with
the shipped recipe, and ranks valid and test among the 500 candidates given for each side. At the full size the files
lie where a download would, so that they are held against the published sizes, too.

Hidden in the graph: an entity is of a kind and has a theme in each of two ways (facets); kind and theme are a
community. A relation looks at one facet and leads from one kind to another, from each theme to one other by a
permutation of its own. Of five relations one is symmetric, two are inverse to each other, one leads onto a few hubs of
each community. Some entities of a community are drawn often, most rarely. About every tenth triple is noise.

The model's figures are read between two others. The oracle knows all of that: a candidate whose mirrored triple is in
train comes first, then those of the right community by how often they are drawn. Counting: a candidate scores by how
often train has it on that side of that relation.

    python benchmarks/ogb_shape.py [--scale 0.01] [--steps N] [--device cuda] [--quick] [--keep | --json FILE]
"""

from __future__ import annotations

import gzip
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pairre  # first: it sets how OpenMP threads wait, which torch reads when it loads

# isort: split
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pyarrow import csv
from torch import Tensor

import machine
from pairre.evaluation import Ranks, summarise
from pairre.graph import Graph, KnownTriples, Side, Split
from pairre.graph.index import COLUMN
from pairre.support.device import pick_device
from planted_world import GIVEN, NAME, NEGATIVES, SIDES, Arrays, World, make

_PICKLE = SimpleNamespace(__name__="pickle", Pickler=pickle._Pickler, dump=pickle.dump)  # C's would hold whole files
# --- as OGB publishes it --------------------------------------------------------------------------------------------


def write(folder: Path, world: World, splits: dict[Split, Tensor], negatives: Arrays, protocol: int) -> None:
    """Names and splits in the layout of the download; `negatives` lose what was written."""
    names, files = folder / "mapping", folder / "split" / "time"
    names.mkdir(parents=True)
    files.mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()
    _names(names / "nodeidx2entityid.csv.gz", ("node idx", "entity id"), "Q", world.num_entities)
    _names(names / "reltype2relid.csv.gz", ("reltype", "rel id"), "P", world.num_relations)
    for split, triples in splits.items():
        columns = zip(("head", "relation", "tail"), triples.long().T, strict=True)
        arrays = {name: column.contiguous().numpy() for name, column in columns}
        for side in SIDES if split in GIVEN else ():
            arrays[f"{side}_neg"] = negatives.pop(f"{split}.{side}").astype(np.int64)
        torch.save(arrays, files / f"{split}.pt", _PICKLE, protocol, _use_new_zipfile_serialization=False)


def _names(file: Path, header: tuple[str, str], letter: str, num: int) -> None:
    ids = pa.array(np.arange(num))
    table = pa.table([ids, pc.binary_join_element_wise(letter, ids.cast(pa.string()), "")], names=list(header))
    text = pa.BufferOutputStream()
    csv.write_csv(table, text, csv.WriteOptions(quoting_style="none"))
    file.write_bytes(gzip.compress(text.getvalue(), 1))


class StandIn:
    """What pairre uses of `ogb.linkproppred.LinkPropPredDataset`: where the files are, and which split is meant."""

    meta_info = {"split": "time"}

    def __init__(self, name: str, root: str) -> None:
        self.root = str(Path(root, name.replace("-", "_")))
        self.pre_process()

    def pre_process(self) -> None:
        """Fetch what is missing."""
        raise OSError("a stand-in fetches nothing")


@contextmanager
def ogb() -> Iterator[str]:
    """OGB's own loader where it is installed, else the stand-in; which of them."""
    if util.find_spec("ogb"):
        yield f"ogb {metadata.version('ogb')}"
        return
    names = ("ogb", "ogb.linkproppred")
    sys.modules.update({name: ModuleType(name) for name in names})
    vars(sys.modules[names[1]])["LinkPropPredDataset"] = StandIn
    try:
        yield "stand-in"
    finally:
        for name in names:
            del sys.modules[name]


def load(root: Path, scale: float) -> Graph:
    """Load as the command line does: from the cache, where sizes are checked, or as a copy that is trusted."""
    where = {"PAIRRE_CACHE": str(root), "PAIRRE_DATA": "" if scale == 1 else str(root / "ogb")}
    with mock.patch.dict(os.environ, where):
        return pairre.load_graph(NAME)


# --- what the model's figures are read between ----------------------------------------------------------------------


def references(world: World, graph: Graph) -> dict[str, dict[str, Any]]:
    """Metrics of the oracle and of counting on both splits, both sides together."""
    known = KnownTriples(graph.train, graph.num_entities, graph.num_relations)
    train_rows = _by_relation(graph.train, graph.num_relations)
    table = torch.zeros(graph.num_entities, dtype=torch.int32)  # of one relation at a time

    def counting(relation: int, side: Side, candidates: Tensor) -> Tensor:
        seen = graph.train[train_rows[relation], COLUMN[side]].long()
        table.index_add_(0, seen, torch.ones(len(seen), dtype=torch.int32))
        scores = table[candidates]
        table[seen] = 0
        return scores

    def ranks(split: Split, side: Side) -> list[Ranks]:
        triples, given = graph.split(split), graph.fixed_candidates(split)[side]
        counts = torch.zeros(2, 2, len(triples), dtype=torch.int64)
        for relation, own in enumerate(_by_relation(triples, graph.num_relations)):
            if len(own):
                candidates = torch.cat([triples[own, COLUMN[side], None], given[own]], 1).long()
                scores = oracle(world, known, triples[own], side, candidates), counting(relation, side, candidates)
                for i, (true, others) in enumerate((s[:, :1], s[:, 1:]) for s in scores):
                    counts[i, :, own] = torch.stack([(others > true).sum(1), (others == true).sum(1)])
        return [Ranks(higher, equal, torch.full_like(higher, NEGATIVES + 1)) for higher, equal in counts]

    figures: dict[str, dict[str, Any]] = {}
    for split in GIVEN:
        found = zip(("oracle", "counting"), ranks(split, "head"), ranks(split, "tail"), strict=True)
        figures[split] = {name: summarise({"head": head, "tail": tail})["both"] for name, head, tail in found}
    return figures


def _by_relation(triples: Tensor, num_relations: int) -> tuple[Tensor, ...]:
    """Return the rows of each relation."""
    relation = triples[:, 1].numpy().astype(np.int16)
    order = torch.from_numpy(np.argsort(relation, kind="stable"))
    return torch.split(order, np.bincount(relation, minlength=num_relations).tolist())


def oracle(world: World, known: KnownTriples, triples: Tensor, side: Side, candidates: Tensor) -> Tensor:
    """Scores [N, K] of candidates for triples of one relation, by what is hidden and by mirrored triples of train."""
    relations, relation = world.relations, int(triples[0, 1])
    facet, mirror = int(relations.facet[relation]), int(relations.mirror[relation])
    community, places = (torch.from_numpy(a[facet]) for a in (world.community, world.place))
    wanted = torch.from_numpy(relations.leads[side][relation])[community[triples[:, 2 - COLUMN[side]].long()].long()]
    place = places[candidates]
    right = community[candidates] == wanted[:, None]
    if side == "tail":
        right &= place < int(relations.limit[relation])
    scores = torch.where(right, world.num_entities - place, 0)
    if mirror >= 0:
        mirrored = triples.flip(1)
        mirrored[:, 1] = mirror
        scores[known.side("tail" if side == "head" else "head").contains(mirrored, candidates)] = world.num_entities + 1
    return scores


# --- the measurement ------------------------------------------------------------------------------------------------


@contextmanager
def part(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Time what is inside, the device's work included."""
    start = time.perf_counter()
    yield
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    seconds[name] = round(time.perf_counter() - start, 2)
    print(f"{name:<12}{seconds[name]:>9.1f} s, at most {machine.peak_memory_gb():.1f} GB so far", flush=True)


def measure(scale: float, steps: int, device: torch.device, protocol: int) -> dict[str, Any]:
    """Everything from nothing to the metrics."""
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        with part("make", seconds):
            world, splits, negatives = make(scale)
        with part("write", seconds):
            write(root / "ogb" / NAME.replace("-", "_"), world, splits, negatives, protocol)
        del splits, negatives
        with ogb() as loader, part("load", seconds):
            graph = load(root, scale)
    with part("references", seconds):
        figures = references(world, graph)
    with part("train", seconds):
        changes = [f"train.steps={steps}"] if steps else []
        run = pairre.train(graph, NAME, overrides=changes, device=str(device), progress=False)
    for split in GIVEN:
        with part(f"rank_{split}", seconds):
            ranked = pairre.evaluate(run, split)
        figures[split]["model"] = {**ranked["both"], "interval_95": ranked["interval_95"]["mrr"]}
    return {
        "scale": scale,
        "graph": repr(graph),
        "loader": f"{loader}, pickles of protocol {protocol}",
        "recipe": NAME,
        "steps": run.recipe.train.steps,
        "device": device.type,
        "seconds": seconds,
        "train_ms_a_step": 1e3 * seconds["train"] / run.recipe.train.steps,
        "peak_memory_gb": machine.peak_memory_gb(),
        "peak_gpu_memory_gb": torch.cuda.max_memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0,
        "validations": [(e["step"], e["valid"]["mrr"]) for e in run.history if "valid" in e],
        **figures,
    }


def show(result: dict[str, Any]) -> None:
    """Print a small table."""
    print(f"\n{result['graph']} by {result['loader']}, {result['train_ms_a_step']:.3f} ms a step with all around it")
    for split in GIVEN:
        for who in ("counting", "model", "oracle"):
            found = result[split][who]
            hits = "".join(f"  Hits@{k} {found[f'hits_at_{k}']:.4f}" for k in (1, 3, 10))
            print(f"{split:<6}{who:<9} MRR {found['mrr']:.4f}{hits}")
    print(f"peak memory {result['peak_memory_gb']:.1f} GB, of the GPU {result['peak_gpu_memory_gb']:.1f} GB")


def main() -> None:
    """Measure once."""
    parser = machine.options(__doc__ or "")
    parser.add_argument("--scale", type=float, default=0.0, help="share of the published sizes (default 1)")
    parser.add_argument("--steps", type=int, default=0, help="instead of the recipe's own")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--protocol", type=int, default=2, choices=(2, 4), help="of the pickles; torch's own is 2")
    arguments = parser.parse_args()
    scale = arguments.scale or (0.002 if arguments.quick else 1)
    steps = arguments.steps or (100 if arguments.quick else 0)
    device, described = pick_device(arguments.device), machine.describe()
    described |= {"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
    result = {"machine": described, **measure(scale, steps, device, arguments.protocol)}
    show(result)
    machine.write("ogb-shape", result, arguments)


if __name__ == "__main__":
    main()
