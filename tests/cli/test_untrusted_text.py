"""Names, paths and messages from outside are shown as text, whatever they contain, and no path is a traceback."""

import csv
import io
import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

NAMES = [
    *(
        "benzo[a]pyrene",
        "Mercury [planet]",
        "x:key:y",
        "[/b]",
        "[red]",
        "\x1b[2J",
        "\x9b31m",
        "\u202eexe",
        "line\u2028break",
        "a b",
    ),
    *("$(touch pwned)", "`id`", "it's", 'say "x"', "back\\slash", "{task}", "-rf", "\x7f"),
]
RELATIONS = ["rel[/b]", "is:smile:of", "\x1b]0;title\x07"]
HIDDEN = {"\x1b", "\x9b", "\u202e", "\u2028", "\x7f", "\x07"}
QUICK = ["model.dim=8", "train.batch=16", "train.steps=10", "sampling.negatives=4"]
SETTINGS = [part for setting in QUICK for part in ("--set", setting)]
LONG = "x" * 300


@pytest.fixture
def long_name(call, tmp_path):
    """A run with an entity whose name has 5,000 characters."""
    name = "x" * 2_500 + "y" * 2_500
    rows = [f"e{i}\tr\te{i + 1}\n" for i in range(12)] + [f"{name}\tr\te{i}\n" for i in range(12)]
    (tmp_path / "long.tsv").write_text("".join(rows))
    assert call("train", tmp_path / "long.tsv", "--out", tmp_path / "run", *SETTINGS)[0] == 0
    return name


def test_a_very_long_name_fills_no_screen(call, long_name, tmp_path):
    query = ["predict", tmp_path / "run", "--head", long_name, "--relation", "r", "--known"]
    code, printed, _ = call(*query)
    assert code == 0
    assert "…" in printed
    assert len(printed) < 20_000
    code, printed, _ = call(*query, "--format", "json")
    assert json.loads(printed)[0]["head"] == long_name
    for wrong in ([*query[:3], long_name + "z", *query[4:]], ["check", tmp_path / long_name]):
        code, _, said = call(*wrong)
        assert code == 2
        assert len(said) < 3_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph of hostile names in a folder with a hostile name."""
    made = tmp_path_factory.mktemp("graphs") / "a[b]\x1b[2J"
    made.mkdir()
    every = list(itertools.product(NAMES, RELATIONS, NAMES))
    for split, triples in (("train", every[::5]), ("valid", every[1::50]), ("test", every[2::50])):
        (made / f"{split}.tsv").write_text("".join("\t".join(t) + "\n" for t in triples), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    from pairre import cli

    path = tmp_path_factory.mktemp("runs") / "it's [b]"
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", str(folder), "--out", str(path), *SETTINGS])
    assert stop.value.code == 0
    return path


def shown(result) -> str:
    """What a command that succeeded printed, without a control character but line breaks."""
    code, printed, said = result
    assert code == 0, said
    assert not HIDDEN & set(printed + said)
    return printed


def refused(result) -> str:
    """The one line of a command that failed."""
    code, printed, said = result
    assert (code, printed) == (2, "")
    assert len(said.splitlines()) == 1, said
    assert not HIDDEN & set(said)
    said.encode()
    return said


def test_tables_show_names(call, folder, run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = shown(call("stats", folder))
    assert "a[b]\\x1b[2J: 18 entities" in text
    assert all(name in text for name in ("rel[/b]", "is:smile:of", "\\x1b]0;title\\x07"))
    text = shown(call("evaluate", run, "--by", "relation"))
    assert all(name in text for name in ("rel[/b]", "is:smile:of", "\\x1b]0;title\\x07"))
    text = shown(call("predict", run, "--head", "[/b]", "--relation", "rel[/b]", "--known", "-k", "18"))
    assert all(name in text for name in ("benzo[a]pyrene", "Mercury [planet]", "x:key:y", "[red]", "\\x9b31m"))
    options = ("--min-confidence", 0.01, "--min-support", 1, "--min-head-coverage", 0)
    assert "rel[/b](" in shown(call("rules", "mine", folder, "--out", tmp_path / "[b].tsv", *options))
    assert "[b].html" in shown(call("report", run, "--out", tmp_path / "[b].html"))
    assert "a b" in (tmp_path / "[b].html").read_text(encoding="utf-8")


def test_machine_readable_output_is_exact(call, run):
    query = ("predict", run, "--head", "\x1b[2J", "--relation", "rel[/b]", "--known", "-k", "18", "--format")
    answers = json.loads(shown(call(*query, "json")))
    assert {a["tail"] for a in answers} == set(NAMES)
    code, printed, _ = call(*query, "csv")
    assert code == 0
    assert {row["tail"] for row in csv.DictReader(io.StringIO(printed, newline=""))} == set(NAMES)
    assert json.loads(shown(call("evaluate", run, "--json", "-")))["graph"] == "a[b]\x1b[2J"


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "RUN", "--head", "no[/b]\x1b[2J", "--relation", "rel[/b]"),
        ("predict", "RUN", "--head", "\udcff", "--relation", "rel[/b]"),
        ("predict", "RUN", "--head", LONG, "--relation", "rel[/b]"),
        ("predict", "RUN", "--head", "[/b]", "--relation", "rel[/b]", "--format", "\x1b[2J[/b]"),
        ("stats", "none[/b]\x1b[2J.tsv"),
        ("stats", "\udcff"),
        ("stats", "atlas", "--split", "\x1b[2J"),
        ("stats", "atlas", "--no[/b]\x1b[2J\udcff"),
        ("stats", "atlas", "\x1b[2J"),
        ("\x1b[2J[/b]",),
        ("--plugin", "\x1b[2J", "graphs"),
        ("stats", LONG),
        ("evaluate", LONG),
        ("evaluate", "none\x1b[2J"),
        ("recipes", "\x1b[2J"),
        ("reproduce", "\x1b[2J"),
        ("train", "atlas", "--out", "\udcff"),
        ("train", "atlas", "--out", "new", "--set", "\x1b[2J=[/b]"),
        ("train", "atlas", "--out", "new", "--device", "\x1b[2J"),
        ("train", "atlas", "--out", "new", "--rules", LONG),
        ("train", "atlas", "--out", "new", "--recipe", LONG),
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[:40],
)
def test_messages_are_one_line_of_text(call, run, arguments):
    refused(call(*(str(run) if part == "RUN" else part for part in arguments)))


@pytest.mark.parametrize("place", [".", "..", LONG, "taken", "none/file"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "atlas", "--out"),
        ("merge", "RUN", "RUN", "--out"),
        ("tune", "atlas", "--out"),
        ("report", "RUN", "--out"),
        ("rules", "mine", "atlas", "--out"),
        ("evaluate", "RUN", "--json"),
        ("reproduce", "statistics", "--json"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_places_that_cannot_be_written(call, run, arguments, place, tmp_path, monkeypatch):
    """A folder is no file, a file no folder, and `.` nothing that a run can replace."""
    command = arguments[0]
    if place == "none/file" and command in ("train", "merge", "tune"):
        pytest.skip("the folders above are made")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    if command in ("train", "merge", "tune"):
        Path("taken").write_text("")
    else:
        Path("taken").mkdir()
    if command == "tune" and place == ".":
        Path("other").write_text("")  # an empty folder may hold a study
    said = refused(call(*(str(run) if part == "RUN" else part for part in arguments), place))
    assert place in said


def test_a_hint_can_be_pasted(call, folder, tmp_path):
    """Its words mean the names and the path, and nothing of them is run."""
    graph = tmp_path / "graph.tsv"
    graph.write_text("".join(f"$(touch pwned)\t`touch pwned`\ttail{i}\n" for i in range(40)))
    place = tmp_path / "it's $(touch pwned)"
    text = shown(call("train", graph, "--out", place, *SETTINGS))
    hint = next(line for line in text.splitlines() if "pairre predict" in line)
    words = shlex.split(hint)
    assert words == ["pairre", "predict", str(place), "--head", "$(touch pwned)", "--relation", "`touch pwned`"]
    lines = "\n".join(line for line in text.splitlines() if line.startswith("  pairre "))
    done = subprocess.run(["bash", "-c", f"pairre() {{ :; }}\n{lines}"], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not (tmp_path / "pwned").exists()
    assert shlex.quote(str(tmp_path / "$(x)")) in refused(call("evaluate", tmp_path / "$(x)"))


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (("stats", "atlas"), "a closed pipe"),
        (("recipes",), "/dev/full"),
        (("--help",), "/dev/full"),
    ],
)
def test_standard_output_that_cannot_be_written(arguments, target):
    if target == "/dev/full":
        output = os.open(target, os.O_WRONLY)
    else:
        reader, output = os.pipe()
        os.close(reader)
    command = [sys.executable, "-m", "pairre", *arguments]
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True)
    os.close(output)
    if target == "/dev/full":
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    else:  # as after `| head`, where nobody is left to tell
        assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_standard_error_that_cannot_be_written(tmp_path):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "pairre"]
        done = subprocess.run([*command, "stats", "none.tsv"], stdout=subprocess.PIPE, stderr=full)
        assert (done.returncode, done.stdout) == (2, b"")
        train = [*command, "train", "atlas", "--out", str(tmp_path / "run"), *SETTINGS]
        assert subprocess.run(train, stdout=subprocess.DEVNULL, stderr=full).returncode == 0
    assert (tmp_path / "run" / "metrics.json").exists()


def test_an_output_that_is_not_unicode(tmp_path):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "pairre", "models"], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("settings", [["model.dim=1000000000"], ["model.dim=8", "train.steps=1000000000000000"]])
def test_too_little_memory_is_one_line(call, tmp_path, settings):
    changed = [part for setting in settings for part in ("--set", setting)]
    said = refused(call("train", "atlas", "--out", tmp_path / "run", *changed))
    assert "needs" in said or "need" in said or "memory" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (MemoryError(), 2, "not enough memory"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000000 bytes."),
            2,
            "8 GB",
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), 2, "Tried to allocate 2 GiB"),
        (PermissionError(13, "Permission denied", "file\x1b"), 2, "file\\x1b: Permission denied"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_faults_of_the_machine_are_one_line(call, monkeypatch, error, code, words):
    def fail(*_):
        raise error

    monkeypatch.setattr("pairre.cli.stats.read_graph", fail)
    found, printed, said = call("stats", "atlas")
    assert (found, printed) == (code, "")
    assert len(said.splitlines()) == 1
    assert words in said


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch):
    from pairre import cli

    monkeypatch.setattr("pairre.cli.stats.read_graph", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["stats", "atlas"])
