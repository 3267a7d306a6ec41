"""The command line as a user meets it: real processes for the main path, one line and exit code 2 for faults."""

import csv
import gzip
import io
import itertools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pairre import load_graph
from pairre.cli.app import summaries
from pairre.models import models

QUICK = ["model.dim=16", "train.batch=32", "train.steps=40", "sampling.negatives=8", "train.lr=0.01"]
SETTINGS = [part for setting in QUICK for part in ("--set", setting)]


@pytest.fixture
def run(call, triples_file, tmp_path):
    code, _, said = call("train", triples_file, "--out", tmp_path / "run", *SETTINGS)
    assert code == 0, said
    return tmp_path / "run"


def refused(result, *words):
    """One line on standard error, nothing on standard output, exit code 2."""
    code, printed, said = result
    assert code == 2
    assert printed == ""
    lines = said.splitlines()
    assert len(lines) == 1, said
    for word in words:
        assert word in lines[0]


def test_the_whole_path_as_a_process(triples_file, tmp_path):
    def pairre(*arguments):
        done = subprocess.run([sys.executable, "-m", "pairre", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    run = str(tmp_path / "run")
    trained = pairre("train", str(triples_file), "--out", run, *SETTINGS)
    assert "both sides" in trained.stdout
    assert f"pairre evaluate {run}" in trained.stdout
    assert "valid MRR" in trained.stderr
    assert "by category" in pairre("evaluate", run, "--by", "category").stdout
    assert "e3" in pairre("predict", run, "--head", "e3", "--relation", "next").stdout


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["models"], ["--entities", "--relations", "--dim"]),
        (["train", "atlas", "--out", "run"], ["--seeds"]),
        (["reproduce", "statistics"], ["--seeds"]),
    ],
)
def test_absurd_numbers_are_refused_at_once(call, command, options):
    for option in options:
        refused(call(*command, option, 10**20), option)


def test_every_model_is_listed_in_a_narrow_terminal(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, printed, _ = call("models", "--entities", 14_951, "--relations", 1_345, "--dim", 500)
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line[:1].strip()}
    assert code == 0
    for model in models():
        assert f"{model.num_parameters(14_951, 1_345, 500):,}" in rows[model.name]
        assert rows[model.name].count("✓") + rows[model.name].count("✗") == 5
        assert model.paper.split()[0] in printed


def test_stats(call, triples_file):
    code, printed, _ = call("stats", triples_file)
    assert code == 0
    assert "40 entities, 3 relations" in printed
    code, printed, _ = call("stats", triples_file, "--json")
    assert json.loads(printed)["num_triples"] == {"train": 128, "valid": 16, "test": 16}


def test_evaluate_writes_json(call, run, tmp_path):
    code, printed, _ = call("evaluate", run, "--split", "valid", "--by", "relation", "--json", tmp_path / "m.json")
    assert code == 0
    assert "by relation" in printed
    result = json.loads((tmp_path / "m.json").read_text())
    assert result["split"] == "valid"
    assert set(result["by_relation"]) <= {"next", "previous", "beside"}
    code, printed, _ = call("evaluate", run, "--json", "-")
    assert json.loads(printed)["both"] == json.loads((run / "metrics.json").read_text())["both"]


def test_predict_formats(call, run):
    query = ("predict", run, "--relation", "next", "--tail", "e5", "-k", "3")
    _, printed, _ = call(*query, "--format", "json")
    answers = json.loads(printed)
    assert [a["rank"] for a in answers] == [1, 2, 3]
    _, printed, _ = call(*query, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert [(r["head"], r["tail"]) for r in rows] == [(a["head"], "e5") for a in answers]
    _, printed, _ = call(*query)
    assert all(a["head"] in printed for a in answers)
    _, printed, _ = call("predict", run, "--head", "e1", "--tail", "e2", "--known", "--format", "json")
    assert {a["relation"] for a in json.loads(printed)} == {"next", "previous", "beside"}


def test_predict_leaves_out_what_makes_no_sense_and_says_so(call, run):
    code, printed, said = call("predict", run, "--head", "e1", "--relation", "next", "-k", 50)
    assert code == 0
    assert "Implausible candidates left out: 1; --any keeps them" in said
    assert "of the 50 answers" in said
    assert "e1 " not in [line.split()[-2] for line in printed.splitlines()[1:]]
    code, printed, said = call("predict", run, "--head", "e1", "--relation", "next", "-k", 40, "--any", "--known")
    assert len(printed.splitlines()) >= 41
    assert "mplausible" not in said


def test_coverage_decides_how_many_answers(call, run):
    query = ("predict", run, "--head", "e1", "--relation", "next", "--coverage")
    code, printed, said = call(*query, 0.5)
    assert code == 0, said
    num_answers = int(re.search(r"among the best (\d+)", said)[1])
    assert len(printed.splitlines()) == 1 + num_answers
    code, _, said = call(*query, 0.5, "--any")
    assert code == 0
    assert int(re.search(r"among the best (\d+)", said)[1]) >= num_answers  # among all entities, not the plausible ones
    refused(call(*query, 0.5, "--known"), "--coverage decides")
    refused(call(*query, 2), "coverage 2: a number between 0 and 1 expected")
    refused(call("predict", run, "--head", "e1", "--tail", "e2", "--coverage", 0.5), "give the relation")


def test_files_of_queries_candidates_and_triples(call, run, tmp_path):
    (tmp_path / "queries.csv").write_text("who,what,whom\ne1,next,\n,beside,e30\nnobody,next,\n")
    (tmp_path / "some.txt").write_text("e3\ne4\ne5\n")
    asked = ["predict", run, "--file", tmp_path / "queries.csv", "--columns", "who,what,whom", "-k", 2]
    refused(call(*asked, "--out", tmp_path / "a.csv"), "queries.csv: row 3: no entity named 'nobody'")
    code, printed, said = call(
        *asked, "--out", tmp_path / "a.csv", "--skip-unknown", "--candidates", tmp_path / "some.txt"
    )
    assert code == 0, said
    assert "4 answers to 2 queries are in" in printed
    assert "rows skipped for unknown names: 1" in printed
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [(row["query"], row["rank"]) for row in rows] == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    assert {row["tail"] for row in rows[:2]} | {row["head"] for row in rows[2:]} <= {"e3", "e4", "e5"}
    (tmp_path / "mine.tsv").write_text("e1\tnext\te2\ne1\tnext\te9\n")
    code, printed, _ = call("score", run, tmp_path / "mine.tsv", "--format", "json")
    assert [row["known"] for row in json.loads(printed)] == [json.loads(printed)[0]["known"], None]
    code, printed, _ = call("score", run, tmp_path / "mine.tsv", "--side", "tail")
    assert "tail rank" in printed
    code, printed, _ = call("score", run, tmp_path / "mine.tsv", "--out", tmp_path / "s.parquet")
    assert "2 scores are in" in printed
    code, printed, _ = call("evaluate", run, "--file", tmp_path / "mine.tsv", "--plausible")
    assert "mine.tsv: 2 triples" in printed
    assert "among plausible entities" in printed


def test_bad_files_of_queries(call, run, tmp_path):
    for name, text in (("all.tsv", "e1\tnext\te2\n"), ("two.tsv", "e1\tnext\n"), ("ok.tsv", "e1\tnext\t\n")):
        (tmp_path / name).write_text(text)
    out = ["--out", tmp_path / "a.csv"]
    refused(
        call("predict", run, "--file", tmp_path / "all.tsv", *out), "all.tsv: row 1: two of head, relation and tail"
    )
    refused(call("predict", run, "--file", tmp_path / "two.tsv", *out), "two.tsv:1: 2 columns, expected 3")
    refused(call("predict", run, "--file", tmp_path / "none.tsv", *out), "none.tsv: no such file")
    refused(call("predict", run, "--file", tmp_path / "ok.tsv"), "--out")
    refused(call("predict", run, "--file", tmp_path / "ok.tsv", "--head", "e1", *out), "without --head")
    refused(call("predict", run, "--file", tmp_path / "ok.tsv", "--out", tmp_path / "a.doc"), "a.doc: unknown ending")
    refused(
        call("predict", run, "--head", "e1", "--relation", "next", "--type", "city"), "no types of entities are known"
    )
    refused(
        call("predict", run, "--head", "e1", "--relation", "next", "--candidates", tmp_path / "none"), "no such file"
    )
    refused(call("score", run, tmp_path / "two.tsv"), "two.tsv:1: 2 columns, expected 3")
    refused(call("score", run, tmp_path / "all.tsv", "--out", tmp_path / "none" / "s.csv"), "there is no folder")
    refused(call("score", run, tmp_path / "all.tsv", "--columns", "1,2"), "three columns expected")
    refused(call("evaluate", run, "--file", tmp_path / "two.tsv"), "two.tsv:1: 2 columns, expected 3")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["all.tsv", "ok.tsv", "two.tsv"]


def test_one_file_is_split(call, tmp_path):
    lines = "".join(f"a{i % 13},likes,b{i % 7}\n" for i in range(91))
    (tmp_path / "g.csv").write_text("subject,predicate,object\n" + lines)
    code, printed, _ = call("stats", tmp_path / "g.csv", "--split", "80/10/10", "--json")
    assert code == 0
    assert json.loads(printed)["num_triples"] == {"train": 73, "valid": 9, "test": 9}


def test_columns_header_and_delimiter(call, tmp_path):
    (tmp_path / "g.txt").write_text("7;x;likes;y\n8;y;likes;z\n9;x;likes;z\n")
    code, printed, _ = call(
        "stats", tmp_path / "g.txt", "--columns", "2,3,4", "--no-header", "--delimiter", ";", "--json"
    )
    assert code == 0
    assert json.loads(printed)["num_entities"] == 3


def test_help_teaches(call):
    for command in (
        [],
        *([name] for name in summaries()),
        *(["rules", name] for name in ("mine", "apply", "evaluate")),
    ):
        code, printed, _ = call(*command, "--help")
        assert code == 0
        assert "Usage: pairre" in printed
        assert ("--install-completion" in printed) == (command == [])
        last = printed.rstrip().splitlines()[-1]
        assert f" {' '.join(['pairre', *command])}" in last, "the help ends with examples"
    assert "pairre 0." in call("--version")[1]
    assert "train.lr" in call("recipes")[1]
    assert "fb15k-237" in call("graphs")[1]


# --- bad input, each one line ---


@pytest.mark.parametrize(("wrong", "right"), [("predct", "predict"), ("scroe", "score"), ("rule", "rules")])
def test_a_mistyped_command_is_answered_with_the_right_one(call, wrong, right):
    refused(call(wrong, "runs/atlas", "--head", "x"), f"no command '{wrong}'; did you mean '{right}'?")


BAD_FILES = {
    "too-few": ("g.tsv", b"a\tr\tb\nc\tr\n", ["g.tsv:2: 2 columns, expected 3"]),
    "too-many": ("g.tsv", b"a\tr\tb\nc\tr\td\te\n", ["g.tsv:2: 4 columns, expected 3"]),
    "empty-name": ("g.tsv", b"a\tr\tb\n\tr\td\n", ["g.tsv:2: the head is empty"]),
    "not-utf8": ("g.tsv", b"a\tr\tb\na\tr\t\xff\n", ["g.tsv:2: invalid UTF-8"]),
    "empty": ("g.tsv", b"", ["g.tsv", "empty"]),
    "cut-gzip": ("g.tsv.gz", gzip.compress(b"a\tr\tb\n" * 1000)[:-12], ["g.tsv.gz", "cut off"]),
    "csv-quote": ("g.csv", b'\xef\xbb\xbfa,r,"b\r\nb"\r\n"c, d",r\r\n', ["g.csv:3: 2 columns, expected 3"]),
    "unknown-format": ("g.docx", b"a", ["g.docx: unknown ending '.docx'"]),
    "bad-rdf": ("g.nt", b"<http://a> <http://r> <http://b> .\n<http://a> oops\n", ["g.nt:2"]),
    "bad-parquet": ("g.parquet", b"nothing like it", ["g.parquet: not a readable Parquet file"]),
}


@pytest.mark.parametrize("case", BAD_FILES)
@pytest.mark.parametrize("command", ["stats", "train"])
def test_bad_files(call, tmp_path, case, command):
    name, content, words = BAD_FILES[case]
    (tmp_path / name).write_bytes(content)
    more = ["--out", tmp_path / "run"] if command == "train" else []
    refused(call(command, tmp_path / name, *more), *words)
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["--set", "train.epoch=3"], ["train.epoch: unknown key", "epochs"]),
        (["--set", "train.lr=high"], ["train.lr: a number expected, not a string"]),
        (["--recipe", "nowhere.toml"], ["nowhere.toml: no such recipe"]),
        (["--device", "tpu"], ["device 'tpu': unknown", "cpu, cuda"]),
        (["--device", "cuda:99"], ["device 'cuda:99': this machine has"]),
        (["--columns", "1,2"], ["--columns 1,2: three columns expected"]),
        (["--delimiter", "ab"], ["--delimiter ab: one character expected"]),
        (["--split", "90/10"], ["--split 90/10: three percentages expected"]),
        (["--resume"], ["no such run folder"]),
    ],
)
def test_bad_flags(call, triples_file, tmp_path, settings, words):
    refused(call("train", triples_file, "--out", tmp_path / "new", *settings), *words)
    assert not (tmp_path / "new").exists()


def test_bad_shares(call, tmp_path):
    (tmp_path / "g.tsv").write_text("a\tr\tb\n")
    refused(call("stats", tmp_path / "g.tsv", "--split", "50/20/20"), "add up to 100")


def test_graphs_that_are_not_there(call, tmp_path):
    refused(call("stats", "atlass"), "did you mean 'atlas'?")
    refused(call("stats", tmp_path / "none.tsv"), "no such file or folder")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "test.tsv").write_text("a\tr\tb\n")
    refused(call("stats", tmp_path / "folder"), "no train file in this folder")


def test_unseen_test_entities_are_kept_and_said(call, triples_file):
    with (triples_file / "test.tsv").open("a") as file:
        file.write("stranger\tnext\te1\n")
    code, printed, said = call("stats", triples_file, "--json")
    assert code == 0
    assert "note:" in said
    assert "1 of 17 test triples" in said
    assert json.loads(printed)["num_unseen_entities"]["test"] == 1


def test_an_existing_run_is_refused(call, run, triples_file):
    refused(call("train", triples_file, "--out", run, *SETTINGS), "exists; continue it with --resume")


def test_a_damaged_checkpoint_is_one_line(call, run, triples_file):
    (run / "checkpoint.safetensors").write_bytes(b"\x00" * 50)
    refused(call("train", triples_file, "--out", run, "--resume"), "checkpoint.safetensors: damaged")


def test_names_that_are_not_there(call, run):
    refused(call("predict", run, "--head", "e99", "--relation", "next"), "no entity named 'e99'; nearest: 'e9'")
    refused(call("predict", run, "--head", "e9"), "give two of head, relation and tail")
    refused(call("evaluate", run.parent / "none"), "no such run folder")


def test_a_missing_extra_is_named(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    (tmp_path / "g.nt").write_text("<http://a> <http://r> <http://b> .\n")
    refused(call("stats", tmp_path / "g.nt"), "pip install 'pairre[rdf]'")


def test_the_demo_asks_for_names_that_the_atlas_has():
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    atlas = load_graph("atlas")
    asked = re.findall(r"pairre (?:predict|why) runs/demo (.*?)['\n]", makefile)
    assert len(asked) >= 3
    for line in asked:
        words = shlex.split(line)
        for flag, name in itertools.pairwise(words):
            if flag in ("--head", "--tail"):
                atlas.entities.id(name)
            elif flag == "--relation":
                atlas.relations.id(name)


def test_several_seeds(call, triples_file, tmp_path):
    """Each has its own run folder, and the table their mean."""
    code, printed, said = call("train", triples_file, "--out", tmp_path / "runs", "--seeds", 2, *SETTINGS)
    assert code == 0, said
    both = [
        json.loads((tmp_path / "runs" / f"seed-{seed}" / "metrics.json").read_text())["both"]["mrr"] for seed in (0, 1)
    ]
    for words in ("2 seeds", *(f"{value:.4f}" for value in (*both, sum(both) / 2))):
        assert words in printed
    refused(call("train", triples_file, "--out", tmp_path / "more", "--seeds", 2, "--tensorboard"), "--seeds")
    refused(call("train", triples_file, "--out", tmp_path / "runs", "--seeds", 2, *SETTINGS), "--resume")
    assert call("train", triples_file, "--out", tmp_path / "runs", "--seeds", 3, "--resume", *SETTINGS)[0] == 0
    assert (tmp_path / "runs" / "seed-2" / "metrics.json").exists()


def test_names_that_look_like_markup_are_shown_as_they_are(call, tmp_path):
    file = tmp_path / "a[red].tsv"
    file.write_text("[/x]\t[/y][red]\tc\n[/x]\t[/y][red]\td\n")
    code, shown, said = call("stats", file)
    assert code == 0, said
    assert "[/y][red]" in shown


def test_seeds_and_a_seed_are_refused(call, triples_file, tmp_path):
    code, _, said = call("train", triples_file, "--out", tmp_path / "run", "--seeds", 2, "--set", "train.seed=3")
    assert code == 2
    assert "train.seed" in said


@pytest.mark.parametrize("columns", ["99999999999999999999,1,2", f"{'9' * 5_000},1,2", "0,1,2", "²,1,2", "٣,1,2"])
def test_column_numbers_without_measure(call, triples_file, columns):
    code, _, said = call("stats", triples_file / "train.tsv", "--columns", columns)
    assert code == 2
    assert said.startswith("pairre: ")
