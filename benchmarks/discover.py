"""How long does it take to search a graph for its missing triples, exhaustively or pruned, and beside PyKEEN?

The search does the same work whatever the weights are, but the threshold that it pushes down, and so the number of
pairs it hands back, depends on them. `--run` takes a trained run; without one, weights are random.

    PAIRRE_DATA=… python benchmarks/discover.py [--graph fb15k-237] [--dim 1500] [--device cuda] [--pairs plausible]
        [--relations N] [--run RUN] [--peer] [--keep | --json FILE]

`--peer` also runs PyKEEN's `predict_all` with the same vectors on the same device, which scores every triple, and
compares the triples found. Both then order triples by score, because PyKEEN has no probabilities.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

import machine
import pairre
from pairre.inference.discover import Pairs, considered_pairs, discover
from pairre.models import PairRE
from pairre.runs import Run
from pairre.support.device import pick_device


def random_run(graph: pairre.Graph, dim: int, device: torch.device) -> Run:
    """Return a run of PairRE with random weights."""
    with device:
        model = PairRE(graph.num_entities, graph.num_relations, dim)
    model.initialise(1.0, 0)
    return Run(graph, pairre.default_recipe(graph), model.requires_grad_(False))


def without_validation(graph: pairre.Graph) -> pairre.Graph:
    """Return a graph with the same triples, all of them in train, so that no probabilities can be fitted."""
    train = torch.cat([graph.train, graph.valid, graph.test])
    return replace(graph, train=train, valid=train[:0], test=train[:0], candidates={})


def timed(run: Run, k: int, pairs: Pairs, num_relations: int | None = None) -> tuple[dict[str, Any], list[Any]]:
    """Seconds of a search, with everything from the loaded run to the list of names; and the list."""
    graph, cuda = run.graph, run.model.entity.device.type == "cuda"
    relations = torch.unique(graph.train[:, 1])
    if num_relations:  # evenly spread over all
        relations = relations[torch.linspace(0, len(relations) - 1, num_relations).long()]
    sizes = [[len(ids) for ids in considered_pairs(graph, r, pairs)] for r in relations.tolist()]
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    links = discover(run, k=k, pairs=pairs, relations=graph.relations.name_list(relations.tolist()))
    seconds = time.perf_counter() - started
    num_pairs = sum(h * t for h, t in sizes)
    result = {
        "k": k,
        "relations": len(relations),
        "queries": sum(h for h, _ in sizes),
        "pairs": num_pairs,
        "seconds": round(seconds, 3),
        "terms_per_second": num_pairs * run.model.dim / seconds,
        "least_score": links[-1].score,
        "probabilities": links[-1].probability is not None,
    }
    if cuda:
        result["peak_memory_reserved_gb"] = round(torch.cuda.max_memory_reserved() / 1e9, 3)
    return result, links


def pykeen_all(run: Run, k: int) -> tuple[float, list[tuple[str, str, str]]]:
    """Seconds of PyKEEN's `predict_all` with the same vectors, and the best new triples."""
    from pykeen.models import PairRE as PeerPairRE
    from pykeen.predict import predict_all
    from pykeen.triples import CoreTriplesFactory

    graph, model, device = run.graph, run.model, run.model.entity.device
    sizes = {"num_entities": graph.num_entities, "num_relations": graph.num_relations}
    triples = torch.cat([graph.split(split) for split in ("train", "valid", "test")]).long()
    peer = PeerPairRE(triples_factory=CoreTriplesFactory(graph.train.long(), **sizes), embedding_dim=model.dim, p=1).to(
        device
    )
    with torch.no_grad():
        peer.entity_representations[0]._embeddings.weight.copy_(model.entity)
        parts = model.parts("relation", model.relation)
        for representation, part in zip(
            peer.relation_representations, (parts.head_scale, parts.tail_scale), strict=True
        ):
            representation._embeddings.weight.copy_(part)
    num_known = len(torch.unique(triples, dim=0))
    started = time.perf_counter()
    pack = predict_all(peer, k=k + num_known + graph.num_entities * graph.num_relations, batch_size=None)
    seconds = time.perf_counter() - started
    known = {tuple(t) for t in triples.tolist()}
    loops = {r for h, r, t in graph.train.tolist() if h == t}
    order = pack.scores.argsort(descending=True)
    found = []
    for h, r, t in pack.result[order].tolist():
        if (h, r, t) not in known and (h != t or r in loops):
            found.append((h, r, t))
            if len(found) == k:
                break
    return seconds, list(graph.names(torch.tensor(found)))


def main() -> None:
    parser = machine.options(__doc__ or "")
    parser.add_argument("--graph", default="fb15k-237")
    parser.add_argument("--dim", type=int, default=1500)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--pairs", choices=get_args(Pairs), default="plausible", help="that are considered")
    parser.add_argument("--relations", type=int, metavar="N", help="search N relations only, spread over all")
    parser.add_argument("--run", type=Path, help="a trained run instead of random weights")
    parser.add_argument("-k", type=int, default=1000)
    parser.add_argument("--peer", action="store_true", help="also PyKEEN's predict_all; for small graphs")
    arguments = parser.parse_args()
    where, device = machine.describe(), pick_device(arguments.device)
    if arguments.run:
        run = pairre.load_run(arguments.run, str(device))
    else:
        run = random_run(pairre.load_graph(arguments.graph), arguments.dim, device)
    if arguments.peer:
        arguments.pairs, run.graph = "all", without_validation(run.graph)
    run.graph.known.side("tail", device)  # indexes and domains are of the graph, not of the search
    first, _ = timed(run, 10, "observed")  # compiles kernels
    rows, links = [], []
    for _ in range(1 if arguments.quick else arguments.rounds or 3):
        row, links = timed(run, arguments.k, arguments.pairs, arguments.relations)
        rows.append(row)
        print(row, flush=True)
    result = {
        "machine": where,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "graph": run.graph.name,
        "model": run.model.name,
        "dim": run.model.dim,
        "weights": "trained" if arguments.run else "random",
        "pairs": arguments.pairs,
        "seconds": sorted(row["seconds"] for row in rows)[len(rows) // 2],
        "with_compilation_and_domains": first,
        "rounds": rows,
    }
    if arguments.peer:
        seconds, theirs = pykeen_all(run, arguments.k)
        both = {(link.head, link.relation, link.tail) for link in links} & set(theirs)
        result["pykeen"] = {"seconds": seconds, "times_as_long": seconds / result["seconds"], "in_both": len(both)}
        print(result["pykeen"], flush=True)
    how = "peer" if arguments.peer else arguments.pairs
    machine.write(f"answers-discover-time-{run.graph.name}-{how}-{device.type}", result, arguments)


if __name__ == "__main__":
    main()
