"""Which patterns a model can express, measured on small planted graphs; the models declare what is found here.

A pattern is expressed if rows of relations can make it hold for all entities, and still tell facts from non-facts. Two
players find out. One moves the relations and the entities of a planted graph, whose non-facts must score two margins
below its facts. The other moves entities of no graph, up to four times as large, to where the pattern is broken:
- symmetry, inverse, subrelation: the conclusion scores below its premise;
- composition: the conclusion misses the score of planted facts by more than twice what its premises miss it by;
- antisymmetry concludes that something is no fact, which the planted graph shows already.
What is measured is the worse of what the graph lacks and how far the pattern is broken, in margins, at the best of
several starts: about 0 where the pattern can hold, and 1 or more where it cannot. Why not, in short:
- symmetry: under a translation by r the loops (x, r, x) score −‖r‖, and one of (x, r, y), (y, r, x) no more, as norms
  are convex; KG2E has the same, as logarithms are concave.
- antisymmetry, inverse: DistMult scores both directions the same.
- composition: in bilinear scores y₁ + y₂ or −y₃ stands between x₁ and z₂ if y₁ does between x₁ and z₁, y₂ between x₂
  and z₂, y₃ between x₃ and z₃.
- symmetry, inverse, composition: ConvE's bias of a tail is in one score and not in the other.
- subrelation: the difference of two bilinear scores changes its sign with the sign of h, unless entities are ≥ 0; under
  a translation or rotation whatever is exactly true for r₁ must be so for r₂, which makes them equal.
R-GCN and GC-OTE score entities without links as DistMult and OTE do: what holds for all entities, holds for these.
The full GC-OTE scores them as the mean of OTE's two sides, which are the same where relations only turn.
"""

import pytest
import torch
from torch.nn.functional import leaky_relu

from pairre.graph import Graph, Vocabulary
from pairre.models import PATTERNS, LocalRows, model_class, models
from pairre.models.bilinear import DistMult
from pairre.models.graph_context import GCOTE
from pairre.models.neighbourhood import RGCN, Neighbourhood
from pairre.models.rotation import OTE

MARGIN, REACH, STARTS, RIVALS = 0.25, 4.0, 8, 32
ENTITIES, RELATIONS, SLOTS = 12, 3, 3  # of a planted graph; entities of a rival
LURE = 0.03  # what true premises are worth to a rival: where nothing is broken, it looks there
TICK, CROSS = 0.6, 0.9  # below, above: what is between decides nothing
# Of a first search, and of those after it until all that is declared is found: 2 of 9 found OTE's composition, and
# which ones, rounding decides, so that it differs between machines. So many give no false ticks: of five crosses (OTE's
# and RotatE's subrelation, TransE's symmetry, ComplEx's composition, DistMult's inverse) none came below 1.1 in 23.
STEPS = (600, 1500, 3000, *[1500] * 20)


def pairs(relation, heads, tails):
    return [(h, relation, t) for h, t in zip(heads, tails, strict=True)]


def others(relation, heads, tails):
    return [(h, relation, t) for h in heads for t in tails if h % len(heads) != t % len(tails)]


def num_examples(pattern):
    return 3 if pattern == "composition" else 2  # two could be told apart by a sign, which bilinear scores compose


def planted(pattern):
    """Facts, non-facts, and the pattern as premises and conclusion between entities 0, 1 and 2 of a rival."""
    n = num_examples(pattern)
    x, y, z, u = (range(i * n, (i + 1) * n) for i in range(4))
    match pattern:
        case "symmetry":
            facts = pairs(0, x, y) + pairs(0, y, x)
            return facts, pairs(0, x, x) + pairs(0, y, y) + others(0, x, y), [(0, 0, 1), (1, 0, 0)]
        case "antisymmetry":
            return pairs(0, x, y), pairs(0, y, x) + others(0, x, y), []
        case "inverse":
            facts = pairs(0, x, y) + pairs(1, y, x)
            return facts, pairs(0, y, x) + pairs(1, x, y) + others(0, x, y), [(0, 0, 1), (1, 1, 0)]
        case "composition":
            facts = pairs(0, x, y) + pairs(1, y, z) + pairs(2, x, z)
            different = pairs(0, x, z) + pairs(1, x, z) + pairs(2, x, y) + pairs(2, y, z)
            different += others(0, x, y) + others(1, y, z) + others(2, x, z)
            return facts, different, [(0, 0, 1), (1, 1, 2), (0, 2, 2)]
        case "subrelation":
            facts = pairs(0, x, y) + pairs(1, x, y) + pairs(1, z, u)
            return facts, pairs(0, z, u) + others(0, x, y) + others(1, x, y) + others(1, z, u), [(0, 0, 1), (0, 1, 1)]


def unlinked(model_type, num_entities, num_relations, seed):
    """A model of entities without links."""
    model = model_type(num_entities, num_relations, 6 if model_type.name == "conve" else 4)
    model.initialise(1.0, seed)
    words = [Vocabulary([str(i) for i in range(n)], "name") for n in (num_entities, num_relations)]
    graph = Graph("no triples", *words, *[torch.zeros(0, 3, dtype=torch.int32)] * 3)
    model.attach(graph, 1.0, seed)
    model.init_from_graph(graph, seed)
    return model.double()


class Game:
    """Both players' rows, all patterns (K) and starts (S) at once; P rivals."""

    def __init__(self, model_type, patterns, seed):
        self.random = torch.Generator().manual_seed(seed)
        self.patterns = {pattern: planted(pattern) for pattern in patterns}
        number = len(patterns) * STARTS
        self.model = unlinked(model_type, number * (ENTITIES + RIVALS * SLOTS), number * RELATIONS, seed)
        entity = self.model.entity.detach()
        self.mine = entity[: number * ENTITIES].clone().requires_grad_()
        self.theirs = entity[number * ENTITIES :].clone().requires_grad_()
        self.own = [table for name, table in self.model.named_parameters() if name != "entity"]
        with torch.no_grad():  # relations small and large, unlike and alike
            rows = self.model.relation[: number * RELATIONS].view(len(patterns), STARTS, RELATIONS, -1)
            rows[:, 1::2] = 0.9 * rows[:, 1::2, :1] + 0.1 * rows[:, 1::2]
            rows *= torch.tensor([0.1, 0.3, 1, 3]).repeat_interleave(2).view(-1, 1, 1)
        triples = []
        for i, (facts, different, atoms) in enumerate(self.patterns.values()):
            start = torch.arange(i * STARTS, (i + 1) * STARTS).view(-1, 1, 1)
            rival = len(self.mine) + SLOTS * (start * RIVALS + torch.arange(RIVALS).view(-1, 1))  # [S, P, 1]
            asked = torch.cat([rival, (start * RELATIONS).expand_as(rival), rival], 2)
            known = torch.tensor(facts + different) + start * torch.tensor([ENTITIES, RELATIONS, ENTITIES])
            triples += [known.view(-1, 3), *((asked + torch.tensor(atom)).view(-1, 3) for atom in atoms)]
        self.parts, self.triples = [len(t) for t in triples], torch.cat(triples)
        self.draw(1.0)

    def draw(self, share):
        """Set some rivals near planted examples, or near any planted entities."""
        shape = (STARTS, RIVALS, SLOTS)
        near = []
        for pattern, (facts, _, _) in self.patterns.items():
            n, size = num_examples(pattern), 1 + max(tail for _, _, tail in facts)
            example = torch.randint(n, (STARTS, RIVALS, 1), generator=self.random) + n * torch.arange(SLOTS)
            example[:, ::2] = torch.randint(size, shape, generator=self.random)[:, ::2]
            near.append(example)
        own = ENTITIES * torch.arange(len(near) * STARTS).view(-1, 1, 1)
        rows = self.mine.detach()[(torch.cat(near) + own).flatten()]
        how = torch.rand(2, len(rows) // SLOTS, generator=self.random).repeat_interleave(SLOTS, 1)
        noise = torch.randn(rows.shape, generator=self.random, dtype=torch.float64)
        chosen = how[0] < share
        self.theirs.data[chosen] = (rows + noise * 10 ** (2 * how[1, :, None] - 1.5))[chosen]
        self.keep()

    def keep(self):
        """Rows within bounds and as the model allows them."""
        for name, rows, bound in (
            ("entity", self.mine, 1.0),
            ("entity", self.theirs, REACH),
            ("relation", self.model.relation, 3.2),
        ):
            self.model.constrain(name, rows.data.clamp_(-bound, bound))

    def play(self):
        """For each pattern by how much [S, ·] facts stand out too little, it is broken, and its premises' scores."""
        self.model.set_rows(LocalRows(torch.cat([self.mine, self.theirs])))
        scores = iter(self.model.score(self.triples).split(self.parts))
        for facts, _, atoms in self.patterns.values():
            known = next(scores).view(STARTS, -1)
            true = known[:, : len(facts)].amin(1, keepdim=True)
            near = known[:, len(facts) :] - true + 2 * MARGIN
            if not atoms:
                yield near, near, near
                continue
            *premises, conclusion = (next(scores).view(STARTS, RIVALS) for _ in atoms)
            missed = [true - p if len(premises) == 1 else 2 * (true - p).clamp(min=0) for p in premises]
            yield near, true - conclusion - sum(missed), sum(premises)

    def run(self, steps):
        """What is measured, for each pattern: both play, then fresh rivals alone."""
        mine, theirs = {"params": [self.mine, *self.own]}, {"params": [self.theirs], "maximize": True}
        optimiser = torch.optim.Adam([mine, theirs], lr=0.03, betas=(0.9, 0.99), fused=True)
        for step in range(steps):
            if step % 50 == 49:
                self.draw(0.3)
            optimiser.param_groups[0]["lr"] = 0.03 * (1 - step / steps) ** 2
            optimiser.zero_grad()
            losses = [near.clamp(min=0).sum() + 4 * leaky_relu(b, 0.01).mean(1).sum() for near, b, _ in self.play()]
            sum(losses).backward()
            optimiser.step()
            self.keep()
        self.draw(1.0)
        optimiser = torch.optim.Adam([self.theirs], lr=0.1, maximize=True, fused=True)
        for _ in range(200):
            goal = sum((broken + LURE * premises).sum() for _, broken, premises in self.play())
            (self.theirs.grad,) = torch.autograd.grad(goal, self.theirs)
            optimiser.step()
            self.keep()
        with torch.no_grad():
            worst = [torch.maximum(near.amax(1), broken.amax(1)).min().item() for near, broken, _ in self.play()]
        return {pattern: value / MARGIN for pattern, value in zip(self.patterns, worst, strict=True)}


def measure(model_type):
    """The value of every pattern; a tick must be shown, so one that a model declares is searched for longer."""
    values = {}
    for seed, steps in enumerate(STEPS):
        missing = [p for p in PATTERNS if p not in values or (p in model_type.patterns and values[p] >= TICK)]
        if missing:
            found = Game(model_type, missing, seed).run(steps)
            values |= {p: min(value, values.get(p, value)) for p, value in found.items()}
    return values


@pytest.mark.slow
@pytest.mark.parametrize("model_type", [m for m in models() if not issubclass(m, Neighbourhood)], ids=lambda m: m.name)
def test_a_model_expresses_the_patterns_it_declares(model_type):
    """A tick is an example found; a cross a search that fails, and the reason above."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        values = measure(model_type)
    finally:
        torch.set_num_threads(threads)
    assert not [pattern for pattern, value in values.items() if TICK <= value <= CROSS], values
    assert {pattern for pattern, value in values.items() if value < TICK} == model_type.patterns, values


@pytest.mark.parametrize(("model_type", "scorer", "times"), [(GCOTE, OTE, 2), (RGCN, DistMult, 1)])
def test_entities_without_links_are_scored_by_the_scorer_alone(model_type, scorer, times):
    """So what a model of neighbourhoods expresses for all entities is what its scorer does."""
    model, other = (unlinked(k, 9, 8, seed=0) for k in (model_type, scorer))
    other.entity.data.copy_(model.entity)
    other.relation.data.copy_(model.relation[:, : other.relation.shape[1]])
    triples = torch.tensor([(0, 1, 2), (3, 4, 5), (6, 7, 8)])
    torch.testing.assert_close(model.score(triples), times * other.score(triples))
    assert model_type.patterns == scorer.patterns


def test_the_first_table_of_the_paper():
    """Its ticks are found. So are three for TransR that it does not give: with M = 1 it is TransE, and M scales."""
    paper = {
        "transe": {"antisymmetry", "inverse", "composition"},
        "transr": {"antisymmetry"},
        "rotate": {"symmetry", "antisymmetry", "inverse", "composition"},
        "pairre": set(PATTERNS),
    }
    beyond = {"transr": {"inverse", "composition", "subrelation"}}
    for name, ticks in paper.items():
        assert model_class(name).patterns == ticks | beyond.get(name, set())
