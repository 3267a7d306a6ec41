"""The state of a search for missing triples, and the file that it is kept in, so that it survives an interruption."""

from __future__ import annotations

import hashlib
import json
import operator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pairre.inference.top_links import Order, TopLinks
from pairre.runs import Run
from pairre.support.errors import RunError
from pairre.support.tensors import read_tensors, write_tensors

_MAX_HASHED = 1 << 20  # numbers of a table that stand for all of it


def describe_search(run: Run, order: Order, *options: Any) -> str:
    """Return a hash of everything that the result of a search depends on: graph, weights, calibration and options."""
    digest = hashlib.sha256(run.graph.fingerprint.encode())
    for source in run.model.stored.values():
        step = 1 + source.num_rows * source.width // _MAX_HASHED
        rows = source.gather(torch.arange(0, source.num_rows, step, device=run.model.device))
        digest.update(rows.detach().double().cpu().numpy().tobytes())
    for weights in run.model.dense_weights():
        digest.update(weights.detach().double().cpu().numpy().tobytes())
    values = None if order.calibration is None else order.calibration.to_values()
    digest.update(json.dumps([values, *options]).encode())
    return digest.hexdigest()


@dataclass
class SearchState:
    """How far a search is, and what it has found: the best links, or those of each relation that is done."""

    description: str  # of the search, by `describe_search`
    best: TopLinks
    relation: int = 0  # number of relations done
    chunk: int = 0  # first candidate of the chunk that is searched
    head: int = 0  # number of its heads done
    done: list[TopLinks] = field(default_factory=list)

    def finish_relation(self, floor: float) -> None:
        """Put the best links of a relation aside, and begin the list of the next with a floor."""
        self.done.append(self.best)
        self.best = TopLinks.empty(self.best.k, floor, self.best.keys.device)

    def all_links(self) -> TopLinks:
        """Return all links, of relations that are done and of the one that is searched, in order."""
        columns = self._columns()
        whole = TopLinks.empty(len(columns[0]) + 1, -torch.inf, columns[0].device)
        return whole.with_links(*columns)

    def _columns(self) -> tuple[Tensor, Tensor, Tensor]:
        parts = [*self.done, self.best]
        keys, scores, triples = ([getattr(p, name) for p in parts] for name in ("keys", "scores", "triples"))
        return torch.cat(keys), torch.cat(scores), torch.cat(triples)

    def write(self, path: Path) -> None:
        """Write the state to a file, whole or not at all."""
        tables = dict(zip(("keys", "scores", "triples"), self._columns(), strict=True))
        position = [self.relation, self.chunk, self.head]
        values = {"position": position, "sizes": [len(p.keys) for p in self.done], "floor": repr(self.best.floor)}
        write_tensors(path, tables, {"search": self.description, "state": json.dumps(values)})

    def read(self, path: Path) -> None:
        """Take over the state of a file, which must be of the same search."""
        tables, metadata = read_tensors(path)
        if metadata.get("search") != self.description:
            raise RunError(
                f"{path}: the state of another search, with other options, weights or graph; "
                "repeat that search to finish it, or delete the file"
            )
        try:
            values = json.loads(metadata["state"])
            relation, chunk, head = (operator.index(number) for number in values["position"])
            floor, sizes = float(values["floor"]), [operator.index(size) for size in values["sizes"]]
            sizes.append(len(tables["keys"]) - sum(sizes))
            device = self.best.keys.device
            columns = (torch.split(tables[name].to(device), sizes) for name in ("keys", "scores", "triples"))
            parts = [TopLinks(self.best.k, floor, *part) for part in zip(*columns, strict=True)]
        except (KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:
            raise RunError(f"{path}: damaged: it is not the state of a search; delete it to search anew") from error
        self.relation, self.chunk, self.head = relation, chunk, head
        *self.done, self.best = parts
