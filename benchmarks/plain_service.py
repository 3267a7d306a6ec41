"""A plain service of a PairRE model, which `benchmarks/serve.py` measures beside `pairre serve`.

FastAPI and torch as a practitioner would put them together: tables in memory, names in dictionaries, a query scored
against every entity in torch, known answers left out, the best k returned through a Pydantic model.

    PAIRRE_RUN=runs/fb uvicorn plain_service:app

PAIRRE_FORM=cdist is another way to score. PAIRRE_ENDPOINT=async answers one request after the other in the event loop,
instead of many at a time in the threads that FastAPI has for functions that compute.
"""

import os
from collections import defaultdict

import torch
from fastapi import FastAPI, HTTPException, Query
from pydantic import BaseModel

import pairre

run = pairre.load_run(os.environ["PAIRRE_RUN"], "cpu")
graph = run.graph
entity_names = graph.entities.names.to_pylist()
relation_names = graph.relations.names.to_pylist()
entity_ids = {name: id for id, name in enumerate(entity_names)}
relation_ids = {name: id for id, name in enumerate(relation_names)}
entities = torch.nn.functional.normalize(run.model.entity.detach(), dim=-1)  # [E, D]
head_scale, tail_scale = run.model.relation.detach().chunk(2, dim=-1)  # [R, D] each
tails, heads = defaultdict(list), defaultdict(list)
for h, r, t in torch.cat([graph.train, graph.valid, graph.test]).tolist():
    tails[h, r].append(t)
    heads[r, t].append(h)
known_tails = {pair: torch.tensor(ids) for pair, ids in tails.items()}
known_heads = {pair: torch.tensor(ids) for pair, ids in heads.items()}


def norm_scores(q: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return the scores of all entities as the paper's code computes them."""
    return -torch.norm(q - w * entities, p=1, dim=-1)


def cdist_scores(q: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return the same scores by the quickest function of torch that we know of."""
    return -torch.cdist(q[None], w * entities, p=1)[0]


score_all = {"norm": norm_scores, "cdist": cdist_scores}[os.environ.get("PAIRRE_FORM", "norm")]


class Answer(BaseModel):
    """One answer."""

    rank: int
    head: str
    relation: str
    tail: str
    score: float


class Prediction(BaseModel):
    """The answers to a query, best first."""

    answers: list[Answer]


app = FastAPI()


def predict(
    relation: str, head: str | None = None, tail: str | None = None, k: int = Query(10, ge=1, le=1000)
) -> Prediction:
    """Return the best new tails of (head, relation), or heads of (relation, tail)."""
    if relation not in relation_ids or (head or tail) not in entity_ids:
        raise HTTPException(404, "unknown name")
    r = relation_ids[relation]
    with torch.inference_mode():
        if tail is None:
            anchor = entity_ids[str(head)]
            scores = score_all(entities[anchor] * head_scale[r], tail_scale[r])
            known = known_tails.get((anchor, r))
        else:
            anchor = entity_ids[tail]
            scores = score_all(entities[anchor] * tail_scale[r], head_scale[r])
            known = known_heads.get((r, anchor))
        if known is not None:
            scores[known] = -torch.inf
        best, ids = scores.topk(k)
    answers = []
    for rank, (score, id) in enumerate(zip(best.tolist(), ids.tolist(), strict=True), start=1):
        h, t = (head, entity_names[id]) if tail is None else (entity_names[id], tail)
        answers.append(Answer(rank=rank, head=str(h), relation=relation, tail=str(t), score=score))
    return Prediction(answers=answers)


async def predict_alone(
    relation: str, head: str | None = None, tail: str | None = None, k: int = Query(10, ge=1, le=1000)
) -> Prediction:
    """Return what `predict` returns."""
    return predict(relation, head, tail, k)


async def nothing() -> dict[str, str]:
    """Return nothing: the least that any function of FastAPI takes."""
    return {}


app.get("/nothing")(nothing)
app.get("/predict")({"def": predict, "async": predict_alone}[os.environ.get("PAIRRE_ENDPOINT", "def")])
