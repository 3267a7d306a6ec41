"""Rules: files of them, and mining against plain Python sets and against rules that were published."""

import gzip
from collections import defaultdict
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairre import load_graph
from pairre.graph import Graph, Vocabulary
from pairre.rules import KINDS, Rule, mine, read_rules, write_rules
from pairre.support.errors import RuleError

ALL = {"min_support": 1, "min_head_coverage": 0, "min_confidence": 0, "min_pca_confidence": 0}


def graph_of(triples, num_entities, num_relations):
    """A graph that has these triples in train, repeated ones too, and others in valid and test."""
    train = torch.tensor(triples, dtype=torch.int32).reshape(-1, 3)
    held = torch.tensor([[0, 0, 0]], dtype=torch.int32)
    names = [f"r{i}" for i in range(num_relations)]
    entities = Vocabulary([f"e{i}" for i in range(num_entities)], "entity")
    return Graph("drawn", entities, Vocabulary(names, "relation"), train, held, held)


def expected(graph, min_support=1, min_head_coverage=0.0, min_confidence=0.0, min_pca_confidence=0.0):
    """All kinds of rules, by the definitions."""
    facts = {name: set() for name in graph.relations.names.to_pylist()}
    for head, relation, tail in set(map(tuple, graph.train.tolist())):
        facts[graph.relations[relation]].add((head, tail))
    after = {name: defaultdict(set) for name in facts}
    for name, pairs in facts.items():
        for x, y in pairs:
            after[name][x].add(y)
    bodies = [(("subrelation", (b,)), facts[b]) for b in facts]
    bodies += [(("inverse", (b,)), {(y, x) for x, y in facts[b]}) for b in facts]
    bodies += [
        (("composition", (b, c)), {(x, z) for x, y in facts[b] for z in after[c].get(y, ())})
        for b, c in product(facts, facts)
    ]
    rules = {}
    for ((kind, body), pairs), head in product(bodies, facts):
        support = len(pairs & facts[head])
        if support < min_support or (kind, body) == ("subrelation", (head,)):
            continue
        side = int(len({t for _, t in facts[head]}) > len({h for h, _ in facts[head]}))
        ends = {pair[side] for pair in facts[head]}
        num_pca = sum(pair[side] in ends for pair in pairs)
        measures = (support / len(pairs), support / num_pca, support, support / len(facts[head]))
        if measures[0] >= min_confidence and measures[1] >= min_pca_confidence and measures[3] >= min_head_coverage:
            named = "symmetry" if (kind, body) == ("inverse", (head,)) else kind
            rules[named, body, head] = measures
    return rules


def with_equivalences(rules):
    """The same, with subrelations that hold both ways merged."""
    both = [k for k in rules if k[0] == "subrelation" and ("subrelation", (k[2],), k[1][0]) in rules]
    merged = {key: measures for key, measures in rules.items() if key not in both}
    for kind, (body,), head in both:
        if int(body[1:]) < int(head[1:]):
            pairs = zip(rules[kind, (body,), head], rules[kind, (head,), body], strict=True)
            merged["equivalence", (body,), head] = tuple(map(min, pairs))
    return merged


def mined(graph, **options):
    rules = mine(graph, **options)
    found = {
        (r.kind, r.body, r.conclusion): (r.confidence, r.pca_confidence, r.support, r.head_coverage) for r in rules
    }
    assert len(found) == len(rules)
    return found


@st.composite
def small_graphs(draw):
    num_entities, num_relations = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    entity = st.integers(0, num_entities - 1)
    triple = st.tuples(entity, st.integers(0, num_relations - 1), entity)
    return graph_of(draw(st.lists(triple, min_size=1, max_size=60)), num_entities, num_relations)


@pytest.mark.slow
@given(small_graphs())
def test_every_rule_is_found_with_exact_measures(graph):
    assert mined(graph, **ALL) == with_equivalences(expected(graph))


@given(small_graphs(), st.integers(1, 4), *[st.sampled_from([0.0, 0.25, 0.5, 1.0])] * 3)
def test_thresholds_leave_out_nothing_else(graph, support, head_coverage, confidence, pca_confidence):
    least = (support, head_coverage, confidence, pca_confidence)
    assert mined(graph, **dict(zip(ALL, least, strict=True))) == with_equivalences(expected(graph, *least))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nations", "umls"])
def test_real_graphs(public, name):
    graph = load_graph(public / name)
    found = mined(graph, **{**ALL, "min_support": 3}, kinds=[k for k in KINDS if k != "equivalence"])
    assert found == expected(graph, 3)
    assert any(kind == "composition" for kind, _, _ in found)


def test_the_published_rules_of_fb15k(public):
    """AMIE's as ComplEx-NNE-AER published them: the same rules, and their confidence is our PCA confidence."""
    published = read_rules(public / "fb15k" / "rules.tsv")
    kinds = ("subrelation", "inverse", "symmetry")
    rules = mine(
        load_graph(public / "fb15k"),
        kinds,
        min_support=50,
        min_head_coverage=0.5,
        min_confidence=0,
        min_pca_confidence=0.8,
    )
    found = {
        (r.body, r.conclusion, r.kind != "subrelation"): r.pca_confidence
        for r in rules
        if 100 * r.head_coverage <= r.support
    }
    assert found == {
        (r.body, r.conclusion, r.kind == "inverse"): pytest.approx(r.confidence, abs=1e-8) for r in published
    }


def test_kinds_order_and_progress():
    triples = [(i, 0, i + 1) for i in range(9)] + [(i, 1, i + 1) for i in range(8)] + [(i, 2, i + 2) for i in range(8)]
    graph = graph_of(triples, 12, 3)
    told = []
    rules = mine(graph, min_support=2, progress=told.append)
    assert sum(told) == pytest.approx(1)
    assert [str(r) for r in rules] == [
        "r0(x, y) ∧ r0(y, z) ⇒ r2(x, z)",
        "r1(x, y) ∧ r0(y, z) ⇒ r2(x, z)",
        "r0(x, y) ∧ r1(y, z) ⇒ r2(x, z)",
        "r1(x, y) ∧ r1(y, z) ⇒ r2(x, z)",
        "r0(x, y) ⇔ r1(x, y)",
    ]
    assert {r.kind for r in mine(graph, ["subrelation"], **ALL)} == {"subrelation"}
    assert mine(graph, ["symmetry"], **ALL) == []
    with pytest.raises(RuleError, match="unknown kind 'inverses'; did you mean 'inverse'"):
        mine(graph, ["inverses"])
    with pytest.raises(RuleError, match="min_pca_confidence 2: a number from 0 to 1"):
        mine(graph, min_pca_confidence=2)
    with pytest.raises(RuleError, match="min_support 0"):
        mine(graph, min_support=0)


# --- files ---

names = st.text(st.characters(exclude_characters="\t\r\n", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
share = st.floats(0, 1, exclude_min=True)


@st.composite
def any_rules(draw):
    kind, head = draw(st.sampled_from(KINDS)), draw(names)
    body = (head,) if kind == "symmetry" else tuple(draw(names) for _ in range(1 + (kind == "composition")))
    more = (draw(st.none() | value) for value in (share, st.integers(1), share))
    return Rule(body, head, kind, draw(share), *more)


@given(st.lists(any_rules(), max_size=5), st.sampled_from(["rules.tsv", "rules.tsv.gz", "rules.tsv.zst"]))
def test_what_is_written_is_read(tmp_path_factory, rules, name):
    path = tmp_path_factory.mktemp("rules") / name
    write_rules(path, rules)
    assert read_rules(path) == rules


def test_published_files(public):
    assert [len(read_rules(public / name / "rules.tsv")) for name in ("fb15k", "sports", "db100k")] == [535, 2, 56]


def test_columns_go_by_the_header(tmp_path):
    path = tmp_path / "rules.tsv"
    path.write_bytes(b"\xef\xbb\xbfkind\tnote\thead\tbody\tconfidence\tsupport\r\n\r\ninverse\tx\th\tb\t0.5\t\r\n")
    assert read_rules(path) == [Rule(("b",), "h", "inverse", 0.5)]
    path.write_text('body\thead\tkind\tconfidence\n["a b", "c\\"d"]\th\tcomposition\t1\n')
    assert read_rules(path) == [Rule(("a b", 'c"d'), "h", "composition", 1.0)]


HEADER = b"body\thead\tkind\tconfidence\n"
BAD = {
    "empty": (b"", "rules.tsv: the file is empty"),
    "no-header": (b"a\tb\tinverse\t1\n", "rules.tsv:1: column 'body' is missing"),
    "no-confidence": (b"body\thead\tkind\na\tb\tinverse\n", "rules.tsv:1: column 'confidence' is missing"),
    "too-few": (HEADER + b"a\tb\tinverse\t1\na\tb\tinverse\n", "rules.tsv:3: 3 columns, expected 4"),
    "too-many": (HEADER + b"a\tb\tinverse\t1\t2\n", "rules.tsv:2: 5 columns, expected 4"),
    "kind": (HEADER + b"a\tb\tinvers\t1\n", "rules.tsv:2: unknown kind 'invers'; did you mean 'inverse'"),
    "no-number": (HEADER + b"a\tb\tinverse\thigh\n", "rules.tsv:2: confidence 'high': a number expected"),
    "zero": (HEADER + b"a\tb\tinverse\t0\n", "rules.tsv:2: confidence 0.0: a number above 0 and up to 1"),
    "nan": (HEADER + b"a\tb\tinverse\tnan\n", "rules.tsv:2: confidence nan: a number above 0 and up to 1"),
    "above-1": (HEADER + b"a\tb\tinverse\t1.01\n", "rules.tsv:2: confidence 1.01"),
    "support": (HEADER[:-1] + b"\tsupport\na\tb\tinverse\t1\t2.5\n", "rules.tsv:2: support '2.5': a whole number"),
    "no-support": (HEADER[:-1] + b"\tsupport\na\tb\tinverse\t1\t0\n", "rules.tsv:2: support 0: a whole number from 1"),
    "no-name": (HEADER + b" \tb\tinverse\t1\n", "rules.tsv:2: relation ' '"),
    "one-name": (HEADER + b"a\tb\tcomposition\t1\n", "rules.tsv:2: body a: a composition has a JSON list"),
    "three-names": (HEADER + b'["a", "b", "c"]\td\tcomposition\t1\n', "rules.tsv:2: body"),
    "symmetry": (HEADER + b"a\tb\tsymmetry\t1\n", "rules.tsv:2: the body and the head of a symmetry"),
    "not-utf8": (HEADER + b"a\t\xff\tinverse\t1\n", "rules.tsv:2: invalid UTF-8"),
}


@pytest.mark.parametrize("case", BAD)
def test_malformed_files(tmp_path, case):
    content, message = BAD[case]
    (tmp_path / "rules.tsv").write_bytes(content)
    with pytest.raises(RuleError) as error:
        read_rules(tmp_path / "rules.tsv")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_no_files(tmp_path):
    with pytest.raises(RuleError, match="a folder, not a file"):
        read_rules(tmp_path)
    with pytest.raises(RuleError, match="no such file"):
        read_rules(tmp_path / "rules.tsv")
    (tmp_path / "cut.tsv.gz").write_bytes(gzip.compress(HEADER * 1000)[:-12])
    with pytest.raises(RuleError, match=r"cut\.tsv\.gz: cannot be read"):
        read_rules(tmp_path / "cut.tsv.gz")


@pytest.mark.parametrize("name", ["", "a\tb", "a\nb", "a\rb"])
def test_names_that_no_file_can_hold(name):
    with pytest.raises(RuleError, match="a name that is not empty"):
        Rule((name,), "h", "inverse", 1.0)


# --- the command ---


def test_mine_writes_and_shows(call, triples_file, tmp_path):
    file = tmp_path / "rules.tsv"
    command = ("rules", "mine", triples_file, "--out", file, "--min-confidence", "0.5")
    code, printed, said = call(*command, "--top", "3")
    assert (code, said) == (0, "")
    rules = read_rules(file)
    assert f"{len(rules)} rules" in printed
    assert "the 3 strongest" in printed
    assert str(rules[0]) in printed
    assert {"inverse", "symmetry", "subrelation"} <= {r.kind for r in rules}
    _, printed, _ = call(*command, "--force", "--kind", "symmetry", "--top", "0")
    assert [str(r) for r in read_rules(file)] == ["beside(x, y) ⇒ beside(y, x)"]
    assert "strongest" not in printed


@pytest.mark.parametrize(
    ("out", "more", "words"),
    [
        ("new.tsv", ["--kind", "cycle"], "unknown kind 'cycle'"),
        ("no/new.tsv", [], "there is no folder"),
        ("there.tsv", [], "there.tsv: there already; write to another file, or overwrite it with --force"),
    ],
)
def test_mine_refuses(call, triples_file, tmp_path, out, more, words):
    (tmp_path / "there.tsv").write_text("kept")
    code, printed, said = call("rules", "mine", triples_file, "--out", tmp_path / out, *more)
    assert (code, printed, len(said.splitlines())) == (2, "", 1)
    assert words in said
    assert (tmp_path / "there.tsv").read_text() == "kept"


@pytest.mark.parametrize("body", ["[" * 100_000, f"[{'9' * 5_000}]", r'["\ud800", "b"]', '[["a"], "b"]'])
def test_bodies_without_measure_are_one_line(tmp_path, body):
    file = tmp_path / "rules.tsv"
    file.write_text(f"body\thead\tkind\tconfidence\n{body}\tc\tcomposition\t1\n")
    with pytest.raises(RuleError, match=r"rules\.tsv:2: ") as caught:
        read_rules(file)
    assert len(str(caught.value)) < 500
    str(caught.value).encode()
