"""Training with rules: tied relations never score below what implies them, penalties are the formulas, runs resume."""

from contextlib import nullcontext
from itertools import chain

import pytest
import torch

import pairre
from conftest import cuda_kernels_on_the_cpu, resumed
from pairre.graph import Graph, Vocabulary
from pairre.models import models
from pairre.rules import Rule, read_rules, tie_order, write_rules
from pairre.settings import override
from pairre.support.errors import RecipeError, RuleError, RunError
from pairre.training.rule_constraints import constrain_by_rules, usable_rules
from pairre.training.step import Trainer

CPU = torch.device("cpu")
NAMES = ["a", "b", "c", "d", "e", "f", "g", "h"]
CAN_TIE = [model.name for model in models() if "tie" in model.rule_modes]
CAN_SOFT = [model.name for model in models() if "soft" in model.rule_modes]

WAYS = pytest.mark.parametrize(
    "settings",
    [["rules.mode=tie"], ["rules.weight=0.1"], ["rules.mode=tie", "model.name=simple+", "loss.relation_weight=0.3"]],
    ids=" ".join,
)


def implies(body, head, kind="subrelation", confidence=1.0):
    return Rule((body,), head, kind, confidence)


# a → b → c, and d → c, e ⇔ f, f → d; g stands alone beside h ⇔ g: chains, several bodies, equivalences
TREE = [
    implies("a", "b"),
    implies("b", "c"),
    implies("d", "c"),
    implies("e", "f", "equivalence"),
    implies("f", "d"),
    implies("g", "h", "equivalence"),
]
MIXED = [
    implies("a", "b", confidence=0.9),
    implies("c", "d", "equivalence", 0.8),
    implies("e", "f", "inverse", 0.7),
    implies("g", "g", "symmetry", 0.6),
]


@pytest.fixture
def many() -> Graph:
    """Random triples of eight relations."""
    random = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(n, (300,), generator=random) for n in (30, 8, 30)], 1).to(torch.int32)
    names = Vocabulary([f"e{i}" for i in range(30)], "entity"), Vocabulary(NAMES, "relation")
    return Graph("many", *names, triples[60:], triples[:30], triples[30:60])


@pytest.fixture
def recipe(quick):
    return override(quick, ["train.steps=40", "train.validate_every=20", "train.lr=0.05", "loss.margin=2"])


def scores(model, relation, side="tail"):
    """Of every pair of entities."""
    everyone = torch.arange(30)
    pairs = torch.cartesian_prod(everyone, torch.tensor([NAMES.index(relation)]), everyone)
    return model.score(pairs.to(model.entity.device), side).cpu()


@pytest.mark.parametrize("reciprocal", ["false", "true"])
@pytest.mark.parametrize("name", CAN_TIE)
def test_what_is_implied_never_scores_lower(many, recipe, name, reciprocal):
    settings = [f"model.name={name}", f"model.reciprocal={reciprocal}", "rules.mode=tie"]
    run = pairre.train(many, override(recipe, settings), rules=TREE, progress=False)
    plain = pairre.train(many, override(recipe, settings), progress=False)
    for side in ("head", "tail"):
        for rule in TREE:
            gap = scores(run.model, rule.conclusion, side) - scores(run.model, rule.body[0], side)
            assert gap.min() >= -1e-5
            if rule.kind == "equivalence":
                assert gap.abs().max() == 0
            else:
                assert gap.max() > 1e-3
        assert any((scores(plain.model, r.conclusion) < scores(plain.model, r.body[0]) - 0.1).any() for r in TREE)


def test_a_chain_is_a_product_of_cosines(many, recipe):
    trainer = Trainer(many, override(recipe, ["rules.mode=tie"]), CPU, TREE[:2])
    trainer.advance(5)
    trainer.flush()
    a, b, c = trainer.rules.table[:3]
    assert torch.equal(trainer.model.relation[0], a)
    for part in (slice(0, 16), slice(16, 32)):
        two = a[part] * b[:16].cos()
        torch.testing.assert_close(trainer.model.relation[1][part], two)
        torch.testing.assert_close(trainer.model.relation[2][part], two * c[:16].cos())
    assert torch.equal(trainer.model.relation[3:], trainer.rules.table[3:])


@pytest.mark.parametrize("name", CAN_TIE)
def test_gradients_of_tied_rows_match_finite_differences(many, recipe, name):
    model = Trainer(many, override(recipe, [f"model.name={name}"]), CPU).model.double()
    model.relation.data.mul_(3)  # no two bodies near the same size, where the smallest changes
    tied = constrain_by_rules(TREE, model, many, override(recipe, ["rules.mode=tie"]))
    stored = tied.table[tied.ids].clone().requires_grad_()
    every = torch.arange(8)
    assert torch.autograd.gradcheck(lambda rows: tied.relation_rows(every, tied.table, rows), (stored,), eps=1e-7)


def test_the_order_of_ties():
    order = tie_order(TREE)
    assert order.position["e"] == order.position["f"]
    assert order.position["g"] == order.position["h"]
    assert [len(level) for level in order.bodies] == [2, 1]
    roots = [order.stored[place] for place in order.first]
    assert roots == ["a", "a", "g"]  # a and e meet in c
    bodies = {order.stored[len(order.first) + i]: level for i, level in enumerate(chain(*order.bodies))}
    assert sorted(order.stored[place] for place in bodies["c"]) == ["b", "d"]
    within = tie_order([implies("a", "b", "equivalence"), implies("a", "b"), implies("c", "c")])
    assert within.bodies == []


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ([implies("a", "b"), implies("b", "a")], r"a → b → a|b → a → b"),
        ([implies("a", "b"), implies("b", "c"), implies("c", "a")], r"a → b → c → a|b → c → a → b|c → a → b → c"),
        ([implies("a", "b"), implies("b", "c", "equivalence"), implies("c", "a")], r"a → b ⇔ c → a|b ⇔ c → a → b ⇔ c"),
    ],
)
def test_a_circle_is_named(many, recipe, rules, said, tmp_path):
    with pytest.raises(RuleError, match=said):
        pairre.train(many, override(recipe, ["rules.mode=tie"]), rules=rules, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


# --- soft rules ---


def penalty(term, relation_rows):
    """Return the value of the loss term, given the relation rows that a step gathered."""
    return term.penalty(relation_rows)


def by_hand(name, model):
    """Σ λ × the penalty of `MIXED`, relation by relation."""
    first, second = (dict(zip(NAMES, part, strict=True)) for part in model.relation.detach().chunk(2, -1))
    total = 0.0
    for p, q, inverse, confidence in (
        *(("a", "b", False, 0.9), ("c", "d", False, 0.8), ("d", "c", False, 0.8)),
        *(("e", "f", True, 0.7), ("g", "g", True, 0.6)),
    ):
        if name == "pairre":
            gap = first[p] * (first if inverse else second)[q] - second[p] * (second if inverse else first)[q]
            value = (gap**2).sum()
        else:
            sign = -1 if inverse else 1
            value = (first[p] - first[q]).clamp(min=0).sum() + ((second[p] - sign * second[q]) ** 2).sum()
        total += confidence * value.item()
    return total


@pytest.mark.parametrize("name", CAN_SOFT)
def test_the_penalty_is_the_formula_and_lowers_what_it_measures(many, recipe, name):
    recipe = override(recipe, [f"model.name={name}", "rules.weight=0.5"])
    trainer = Trainer(many, recipe, CPU, MIXED)
    relation = trainer.model.relation.detach()
    expected = by_hand(name, trainer.model)
    gathered = torch.cat([relation[:5], relation[trainer.rules.ids]])
    assert penalty(trainer.rules, gathered).item() == pytest.approx(0.5 * expected, rel=1e-5)
    plain = Trainer(many, recipe, CPU)
    for one in (trainer, plain):
        one.advance(1)
    assert trainer.mean_loss(1) == pytest.approx(plain.mean_loss(1) + 0.5 * expected, rel=1e-5)
    for one in (trainer, plain):
        one.advance(39)
        one.flush()
    assert by_hand(name, trainer.model) < 0.2 * by_hand(name, plain.model)


def test_without_rules_aer_is_nne(many, recipe):
    one, other = (
        pairre.train(many, override(recipe, [f"model.name={name}"]), progress=False).model
        for name in ("complex-nne", "complex-nne-aer")
    )
    assert torch.equal(one.relation, other.relation)


def test_rules_hold_for_reciprocal_rows(many, recipe):
    trainer = Trainer(many, override(recipe, ["model.reciprocal=true"]), CPU, MIXED)
    assert set(trainer.rules.ids.tolist()) == {*range(7), *range(8, 15)}
    own = trainer.model.relation.detach()[trainer.rules.ids]
    half = len(own) // 2
    twice = torch.cat([own[:half], own[:half]])
    single = penalty(Trainer(many, recipe, CPU, MIXED).rules, own[:half])
    torch.testing.assert_close(penalty(trainer.rules, twice), 2 * single)


# --- what is left out, what is refused ---


def test_what_cannot_be_obeyed_is_counted_and_left_out(many, recipe, caplog):
    rules = [
        *(implies("a", "b"), implies("a", "x1"), implies("x2", "x3"), implies("x4", "b"), implies("a", "b", "inverse")),
        Rule(("a", "b"), "c", "composition", 0.9),
    ]
    runs = pairre.train_seeds(many, override(recipe, ["rules.mode=tie"]), seeds=[0, 1], rules=rules, progress=False)
    assert runs[1].rules == [implies("a", "b")]
    assert caplog.messages == [
        "3 of 6 rules left out: many has no relations x1, x2, x3, …",
        "2 of 6 rules left out: mode tie has no composition, inverse",
    ]
    with pytest.raises(RuleError, match=r"none of 1 rules can be followed: their relations must be in many"):
        usable_rules([implies("a", "x1")], many, recipe)
    with pytest.raises(RuleError, match="none of 0 rules"):
        pairre.train(many, recipe, rules=[], progress=False)


def test_a_model_says_what_it_cannot(many, recipe):
    for name, mode, able in (
        ("distmult", "soft", "pairre, complex-nne-aer"),
        ("complex-nne-aer", "tie", "pairre, simple+"),
    ):
        settings = [f"model.name={name}", f"rules.mode={mode}"]
        with pytest.raises(
            RecipeError, match=rf"rules\.mode: {name} cannot .* {mode}; models that can: {able}".replace("+", r"\+")
        ):
            pairre.train(many, override(recipe, settings), rules=TREE, progress=False)


# --- runs ---


@WAYS
def test_a_resumed_run_ends_in_the_same_bits(many, recipe, settings):
    recipe = override(recipe, ["train.steps=8", *settings])
    resumed(lambda: Trainer(many, recipe, CPU, TREE))


@pytest.mark.parametrize("mode", ["tie", "soft"])
def test_a_run_keeps_its_rules(many, recipe, mode, tmp_path, monkeypatch):
    """Stopped after a while and continued without naming the file, it ends as one that was never stopped."""
    recipe = override(recipe, [f"rules.mode={mode}"])
    rules = tmp_path / "rules.tsv"
    write_rules(rules, TREE)
    whole = pairre.train(many, recipe, rules=rules, progress=False)
    real = Trainer.advance

    def stop(self, num):
        if self.progress.step == 20:
            raise KeyboardInterrupt
        real(self, num)

    monkeypatch.setattr(Trainer, "advance", stop)
    with pytest.raises(KeyboardInterrupt):
        pairre.train(
            many, override(recipe, ["train.checkpoint_seconds=0"]), rules=rules, out=tmp_path / "run", progress=False
        )
    monkeypatch.undo()
    assert read_rules(tmp_path / "run" / "rules.tsv") == TREE
    for other, said in ((TREE[:2], "made with 6 other rules"), ([implies("a", "c")], "leave out --rules")):
        with pytest.raises(RunError, match=said):
            pairre.train(many, rules=other, out=tmp_path / "run", resume=True, progress=False)
    run = pairre.train(many, out=tmp_path / "run", resume=True, progress=False)
    again = pairre.load_run(tmp_path / "run")
    assert torch.equal(run.model.relation, whole.model.relation)
    assert torch.equal(again.model.relation, whole.model.relation)
    assert again.rules == TREE
    assert read_rules(whole.save(tmp_path / "saved") / "rules.tsv") == TREE


def test_a_run_without_rules_gets_none_later(many, recipe, tmp_path):
    pairre.train(many, recipe, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run" / "rules.tsv").exists()
    pairre.train(many, out=tmp_path / "run", resume=True, progress=False)
    with pytest.raises(RunError, match="made without rules; leave out --rules"):
        pairre.train(many, rules=TREE, out=tmp_path / "run", resume=True, progress=False)


def test_the_command(triples_file, tmp_path, call):
    rules, run = tmp_path / "rules.tsv", tmp_path / "run"
    rules.write_text("body\thead\tkind\tconfidence\nnext\tbeside\tsubrelation\t1\nnext\tbesid\tsubrelation\t1\n")
    quick = ["--set", "train.steps=20", "--set", "model.dim=8", "--set", "rules.mode=tie"]
    code, _, said = call("train", triples_file, "--out", run, "--rules", rules, *quick)
    assert code == 0
    assert "note: 1 of 2 rules left out: ring has no relations besid" in said
    assert read_rules(run / "rules.tsv") == [implies("next", "beside")]
    rules.write_text("body\thead\tkind\tconfidence\nnext\tbeside\tsubrelation\t1\nnext\tbeside\tsubrelaton\t1\n")
    code, _, said = call("train", triples_file, "--out", tmp_path / "other", "--rules", rules, *quick)
    assert code == 2
    assert f"{rules}:3: unknown kind 'subrelaton'; did you mean 'subrelation'?" in said
    code, _, said = call("train", triples_file, "--out", tmp_path / "other", "--rules", tmp_path / "none.tsv")
    assert code == 2
    assert "none.tsv: no such file" in said


def test_the_rules_of_sports(public):
    recipe = override(pairre.load_recipe("sports"), ["train.steps=30", "train.validate_every=0", "rules.mode=tie"])
    rules = read_rules(public / "sports" / "rules.tsv")
    run = pairre.train(public / "sports", recipe, rules=rules, progress=False)
    pairs = torch.randint(run.graph.num_entities, (2000, 2), generator=torch.Generator().manual_seed(0))
    for rule in rules:
        ids = [run.graph.relations.id(name) for name in (rule.body[0], rule.conclusion)]
        body, head = (
            run.model.score(torch.stack([pairs[:, 0], pairs.new_full((2000,), i), pairs[:, 1]], 1)) for i in ids
        )
        assert (head - body).min() >= -1e-5
        assert (head - body).max() > 0


@pytest.mark.skipif(torch.cuda.is_available(), reason="the test below uses the GPU itself")
@WAYS
def test_the_kernels_of_the_gpu_obey_rules_as_those_of_the_cpu(many, recipe, settings):
    pytest.importorskip("pairre.kernels.cuda", reason="triton is not installed")
    recipe = override(recipe, ["train.batch=8", "sampling.negatives=6", "model.dim=8", *settings])
    results = []
    for kernels in (nullcontext, cuda_kernels_on_the_cpu):
        with kernels():
            trainer = Trainer(many, recipe, CPU, TREE)
            trainer.advance(2)
            trainer.flush()
        results.append(trainer.model.relation.detach())
    torch.testing.assert_close(*results, rtol=1e-2, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@WAYS
def test_a_captured_step_with_rules_is_the_step(many, recipe, settings):
    """On a GPU: replayed and launched plainly the same bits, near the CPU's loss."""
    results = []
    for device, plain in (("cuda", False), ("cuda", True), ("cpu", True)):
        trainer = Trainer(many, override(recipe, settings), torch.device(device), TREE)
        if plain:
            trainer._captured = None  # launched plainly, never captured
        trainer.advance(40)
        trainer.flush()
        results.append((trainer.model.relation.detach().cpu(), trainer.mean_loss(40)))
    (captured, loss), (launched, _), (_, there) = results
    assert torch.equal(captured, launched)
    assert loss == pytest.approx(there, rel=2e-2)
