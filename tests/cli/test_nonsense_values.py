"""Values that no option can have: one clear line, exit code 2, and nothing half-written."""

import pytest

DIGITS = "1" + "0" * 5000
HUGE = str(10**30)
LONG = "x" * 5000
OPTIONS = {  # of commands that are given everything else that they need; what is refused for every value below
    ("rules", "mine", "{graph}", "--out", "{out}"): ("--min-support", "--top", "--min-confidence", "--kind"),
    ("rules", "apply", "{graph}", "{rules}", "--out", "{out}.csv"): ("-k", "--min-confidence", "--combine"),
    ("tune", "{graph}", "--out", "{out}"): ("--trials", "--timeout", "--space", "--device", "--recipe"),
    ("extend", "{graph}", "{rules}", "--out", "{out}"): ("--epochs", "--rate", "--move"),
    ("ingest", "{graph}", "--out", "{out}"): ("--memory", "--split", "--split-seed"),
    ("plan", "{graph}"): ("--nproc", "--recipe", "--set"),
    ("train", "{graph}", "--out", "{out}"): ("--time", "--effort", "--nproc", "--seeds", "--device", "--init-from"),
    ("ensemble", "{graph}", "{graph}", "--out", "{out}"): ("--combine", "--rules"),
    ("export", "{graph}", "--out", "{out}.npy"): ("--table", "--format"),
    ("similar", "{graph}", "e1"): ("-k", "--threshold"),
}
VALUES = {
    "nan": "nan",
    "−∞": "-inf",
    "negative": "-1e308",
    "digits": DIGITS,
    "huge": HUGE,
    "empty": "",
    "long": LONG,
    "markup": "[/b][red]x",
    "control": "a\x1b[2J\nb",
    "no UTF-8": "\udcff",
    "folder": "{folder}",
    "full": "/dev/full",
}
FITS = {  # where a value means something
    "--timeout": {"digits", "huge"},  # an infinity, or longer than anybody waits
    "--rate": {"huge", "digits"},
    "--kind": set(),
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("command", OPTIONS, ids=lambda words: " ".join(words[:2]).partition(" {")[0])
def test_a_value_that_an_option_cannot_have_is_one_line(call, triples_file, tmp_path, command, value):
    places = {"graph": triples_file, "out": tmp_path / "out", "rules": tmp_path / "rules.tsv", "folder": tmp_path}
    (tmp_path / "rules.tsv").write_text("body\thead\tkind\tconfidence\nnext\tbeside\tsubrelation\t0.9\n")
    before = sorted(tmp_path.rglob("*"))
    for option in OPTIONS[command]:
        if value in FITS.get(option, ()):
            continue
        code, printed, said = call(*(word.format(**places) for word in command), option, VALUES[value].format(**places))
        assert (code, printed, len(said.splitlines())) == (2, "", 1), f"{option}: {said}"
        assert len(said) < 2100
        assert "\x1b" not in said
        assert sorted(tmp_path.rglob("*")) == before, option


def test_more_processes_than_a_machine_has_are_refused(call, triples_file, tmp_path):
    code, _, said = call("train", triples_file, "--out", tmp_path / "run", "--nproc", 100_000)
    assert (code, len(said.splitlines())) == (2, 1)
    assert "--nproc 100,000: at most" in said
    assert not (tmp_path / "run").exists()
