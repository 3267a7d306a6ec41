"""A run that is served: its indexes, built once, and what every answer needs of them.

Names become ids here, with suggestions where there is none, and ids become what people read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pairre.evaluation import calibration_of
from pairre.graph import SPLITS
from pairre.graph.names import Names
from pairre.graph.statistics import relation_categories, relation_means
from pairre.inference import Explanation, explain
from pairre.inference.answers import Answers
from pairre.inference.prepared import PreparedRun
from pairre.runs import Run, RunFolder, load_run
from pairre.serve.contract import UnknownNameError
from pairre.serve.parts import Store, links_per_relation
from pairre.serve.schemas import Answer, Counts, Fact, Ref, RunSummary, Side, Split, Triple
from pairre.serve.search import SearchIndex
from pairre.support.reading import shortened
from pairre.support.text import visible

Kind = Literal["entity", "relation"]
Notify = Callable[[str], None]  # called with what begins now
_MAX_CACHED = 1 << 16  # names and ids that are remembered
_MAX_EXPLAINED = 512
_NUM_SUGGESTIONS = 5


@dataclass(eq=False)
class RunState:
    """A run by its name in the server, with the indexes that its answers need."""

    run: Run
    name: str
    store: Store = field(default_factory=Store.in_memory)
    stored_mrr: float | None = None  # of the test split, as the run folder says
    prepared: PreparedRun | None = None  # answers most queries faster, to the same bits

    @classmethod
    def open(
        cls,
        name: str,
        path: Path,
        device: str = "auto",
        *,
        verify: bool = True,
        mapped: bool = False,
        notify: Notify = lambda _: None,
    ) -> RunState:
        """Return the state of a run folder with all indexes built; `notify` is told what takes time.

        `mapped` is that of `load_run`.
        """
        notify(f"{name}: opening {visible(str(path))}")
        state = cls(load_run(path, device, verify=verify, mapped=mapped), name)
        stored = RunFolder.open(path).metrics() or {}
        state.stored_mrr = stored.get("both", {}).get("mrr") if isinstance(stored.get("both"), dict) else None
        state.build(notify)
        return state

    def build(self, notify: Notify = lambda _: None) -> None:
        """Build what every answer needs, and the store of what is computed in the background."""
        run, graph = self.run, self.run.graph
        if run.calibration is None and len(graph.valid):
            notify(f"{self.name}: fitting probabilities on the validation split")
        calibration_of(run)
        notify(f"{self.name}: indexing {graph.num_entities:,} names and the triples")
        for index in (self.entity_search, self.relation_search):
            index.find("a text that nothing is named", 1)  # the first search builds what is looked up exactly
        _ = self.categories, graph.domains
        for side in ("tail", "head", "relation"):
            graph.known.side(side)
        graph.split_of(graph.train[:1].long())
        if self.store.folder is None:
            self.store = Store.of(run)

    # --- indexes ---

    @cached_property
    def num_facts(self) -> np.ndarray:
        """The number of triples of all splits that each entity is in, [E]."""
        ends = torch.cat([self.run.graph.split(split)[:, (0, 2)].flatten() for split in SPLITS])
        counts: np.ndarray = torch.bincount(ends.long(), minlength=self.run.graph.num_entities).numpy()
        return counts

    @cached_property
    def num_triples(self) -> Tensor:
        """The number of triples of each relation in each split, [R, 3]."""
        graph = self.run.graph
        counts = [torch.bincount(graph.split(s)[:, 1].long(), minlength=graph.num_relations) for s in SPLITS]
        return torch.stack(counts, 1)

    @cached_property
    def entity_search(self) -> SearchIndex:
        """The names of entities by what is typed."""
        return SearchIndex(self.run.graph.entity_names, self.num_facts)

    @cached_property
    def relation_search(self) -> SearchIndex:
        """The names of relations by what is typed."""
        return SearchIndex(self.run.graph.relation_names, self.num_triples.sum(1).numpy())

    @cached_property
    def categories(self) -> list[str]:
        """The category of each relation."""
        return relation_categories(self.run.graph)

    @cached_property
    def means(self) -> tuple[Tensor, Tensor, Tensor]:
        """Distinct train triples, tails per head and heads per tail of each relation, [R] each."""
        return relation_means(self.run.graph)

    def link_rows(self, relation: int | None) -> Tensor:
        """Return the rows of the discovered links of a relation, or of the best of all relations, best first."""
        triples: Tensor = self.store.get("links")["triples"]
        if relation is not None:
            return torch.where(triples[:, 1] == relation)[0]
        return torch.arange(min(links_per_relation(self.run), len(triples)))  # of more, some may be missing

    # --- from names to ids ---

    def entity(self, text: str) -> int:
        """Return the id of the entity that a text means; an UnknownNameError suggests others."""
        return self._resolve("entity", text)

    def relation(self, text: str) -> int:
        """Return the id of the relation that a text means; an UnknownNameError suggests others."""
        return self._resolve("relation", text)

    @cached_property
    def _resolve(self) -> Callable[[Kind, str], int]:
        return lru_cache(_MAX_CACHED)(self._find)

    def _find(self, kind: Kind, text: str) -> int:
        graph = self.run.graph
        names, index = (
            (graph.entity_names, self.entity_search)
            if kind == "entity"
            else (graph.relation_names, self.relation_search)
        )
        is_text = not any("\ud800" <= c <= "\udfff" for c in text)
        if is_text and (id := names.find_or_none(text)) is not None:
            return id
        hits = index.find(text, _NUM_SUGGESTIONS)
        near = [names.vocabulary[hit.id] for hit in hits]
        several = sum(hit.match == "exact" for hit in hits) > 1
        what = f"{kind} {shortened(visible(text))!r} may mean several; give its name" if several else ""
        raise UnknownNameError(what or f"no {kind} is named {shortened(visible(text))!r}", near)

    # --- from ids to what people read ---

    def entity_ref(self, id: int) -> Ref:
        """Return an entity as people read it."""
        return self._entity_ref(id)

    def relation_ref(self, id: int) -> Ref:
        """Return a relation as people read it."""
        return self._relation_ref(id)

    @cached_property
    def _entity_ref(self) -> Callable[[int], Ref]:
        graph = self.run.graph
        return lru_cache(_MAX_CACHED)(lambda id: _ref(graph.entity_names, id, next(iter(self.types_of(id)), None)))

    @cached_property
    def _relation_ref(self) -> Callable[[int], Ref]:
        return lru_cache(_MAX_CACHED)(lambda id: _ref(self.run.graph.relation_names, id, None))

    @cached_property
    def explanation(self) -> Callable[[int, int, int, Side, int], Explanation]:
        """Why an answer is given, by ids of head, relation and tail, the side, and how many facts are wanted.

        It takes a while to find out, so the last ones are kept.
        """

        def found(head: int, relation: int, tail: int, side: Side, k: int) -> Explanation:
            graph = self.run.graph
            names = graph.entities[head], graph.relations[relation], graph.entities[tail]
            return explain(self.run, *names, side=side, k=k)

        return lru_cache(_MAX_EXPLAINED)(found)

    def types_of(self, id: int) -> list[str]:
        """Return the types of an entity, as people read them."""
        graph = self.run.graph
        return [graph.type_names.show(type) for type in graph.entity_types.of(id)] if graph.entity_types else []

    def triple(self, ids: Sequence[int]) -> Triple:
        """Return a triple by id as people read it."""
        head, relation, tail = ids
        return {"head": self.entity_ref(head), "relation": self.relation_ref(relation), "tail": self.entity_ref(tail)}

    def fact(self, ids: Sequence[int], split: Split | None) -> Fact:
        """Return a known triple by id."""
        head, relation, tail = ids
        return {
            "head": self.entity_ref(head),
            "relation": self.relation_ref(relation),
            "tail": self.entity_ref(tail),
            "split": split,
        }

    def answers(self, found: Answers) -> list[Answer]:
        """Return answers by id as people read them."""
        ranks, triples, scores, splits = (
            column.tolist() for column in (found.rank, found.triples, found.scores, found.split)
        )
        entity, relation, base_rate = self._entity_ref, self._relation_ref, found.base_rate
        rows = zip(ranks, triples, scores, found.probabilities, splits, strict=True)
        return [
            {
                "rank": rank,
                "head": entity(h),
                "relation": relation(r),
                "tail": entity(t),
                "score": score,
                "probability": probability,
                "base_rate": base_rate,
                "known": None if split < 0 else SPLITS[split],
            }
            for rank, (h, r, t), score, probability, split in rows
        ]

    # --- the run ---

    def summary(self) -> RunSummary:
        """Return what the run is."""
        run, graph = self.run, self.run.graph
        return {
            "name": self.name,
            "graph": graph.name,
            "model": run.model.name,
            "features": run.recipe.model.dim,
            "num_entities": graph.num_entities,
            "num_relations": graph.num_relations,
            "num_triples": self.counts(),
            "mrr": self._mrr(),
        }

    def _mrr(self) -> float | None:
        """Return the MRR of the test split, as it is stored or computed, or None if neither is there yet."""
        found = self.store.find("metrics") if self.stored_mrr is None else None
        return found["both"]["mrr"] if found is not None and found["split"] == "test" else self.stored_mrr

    def counts(self, relation: int | None = None) -> Counts:
        """Return how many triples each split has, of one relation or of all."""
        train, valid, test = (self.num_triples.sum(0) if relation is None else self.num_triples[relation]).tolist()
        return {"train": train, "valid": valid, "test": test}


def _ref(names: Names, id: int, type: str | None) -> Ref:
    return {"name": names.vocabulary[id], "shown": names.show(id), "label": names.label(id), "type": type}
