"""Files of one's own on the command line: a doubtful header is asked about, weights are read, triples are shown."""

import json
import os
import pty
import subprocess
import sys

import pytest

ROWS = "a,r,b\nb,r,c\nc,r,a\n"


@pytest.mark.parametrize(("answer", "options", "num"), [("y", [], 3), ("n", [], 4), ("", ["--no-header"], 4)])
def test_on_a_terminal_a_doubtful_header_is_asked_about(tmp_path, answer, options, num):
    (tmp_path / "g.csv").write_text("origin,kind,goal\n" + ROWS)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-m", "pairre", "stats", "g.csv", "--json", *options]
    done = subprocess.run(command, cwd=tmp_path, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, text=True)
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0, said
    assert json.loads(done.stdout)["num_triples"]["train"] == num
    assert ("g.csv: the first row ('origin', 'kind', 'goal') may be a header" in said.replace("\r\n", "")) == (
        not options
    )


def test_elsewhere_it_is_a_note(call, tmp_path):
    (tmp_path / "g.csv").write_text("origin,kind,goal\n" + ROWS)
    code, printed, said = call("stats", tmp_path / "g.csv", "--json")
    assert code == 0
    assert json.loads(printed)["num_triples"]["train"] == 4
    assert "may be a header" in said
    assert "--header or --no-header" in said


def test_stats_shows_three_triples_as_they_were_read(call, tmp_path):
    (tmp_path / "train.csv").write_text("no,x,[b]y,z\n1,first a,[r],b\n2,b,[r],c\n3,c,[r],d\n4,d,[r],e\n")
    code, printed, _ = call("stats", tmp_path, "--columns", "2,3,4", "--header")
    assert code == 0
    shown = [line.split() for line in printed.split("\n\n")[0].splitlines()]
    first = shown.index(["head", "relation", "tail"]) + 1
    assert shown[first : first + 3] == [["first", "a", "[r]", "b"], ["b", "[r]", "c"], ["c", "[r]", "d"]]
    code, printed, _ = call("stats", tmp_path, "--columns", "2,3,4", "--header", "--json")
    assert json.loads(printed)["examples"] == [["first a", "[r]", "b"], ["b", "[r]", "c"], ["c", "[r]", "d"]]


def test_weights_from_a_file_to_a_run(call, tmp_path):
    rows = "".join(f"e{i},next,e{(i + 1) % 12},{i / 4}\n" for i in range(12))
    (tmp_path / "g.csv").write_text("head,relation,tail,weight\n" + rows)
    code, printed, _ = call("stats", tmp_path / "g.csv", "--split", "100/0/0", "--json")
    assert json.loads(printed)["weights"] == {"min": 0, "mean": 1.375, "max": 2.75}
    assert "weights in train: min 0, mean 1.375, max 2.75" in call("stats", tmp_path / "g.csv", "--split", "100/0/0")[1]
    assert json.loads(call("stats", tmp_path / "g.csv", "--weights", "none", "--json")[1])["weights"] == {}
    quick = ["--set", "train.steps=20", "--set", "model.dim=8"]
    assert call("train", tmp_path / "g.csv", "--out", tmp_path / "run", *quick)[0] == 0
    again = ("train", tmp_path / "g.csv", "--out", tmp_path / "run", *quick, "--resume")
    assert call(*again)[0] == 0
    for change in (["--weights", "none"], ["--weights", "4", "--columns", "1,2,3", "--header"]):
        code, _, said = call(*again, *change)
        assert ("another graph" in said) == (change[1] == "none")
    code, _, said = call(*again[:3], tmp_path / "other", "--weights", "trust")
    assert (code, said.count("\n")) == (2, 1)
    assert "g.csv:1: no column 'trust' for weight" in said
    wanted = ["loss.name=k-vs-all", "sampling.negatives=0", "loss.query_balance=0", "loss.subsampling=false"]
    code, _, said = call(*again[:3], tmp_path / "other", *(part for one in wanted for part in ("--set", one)))
    assert (code, said.count("\n")) == (2, 1)
    assert "k-vs-all has labels instead of weighted triples" in said
    assert not (tmp_path / "other").exists()
