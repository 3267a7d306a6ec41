"""Text from outside: shown without control characters, quoted for a shell, exact in JSON."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairre.support.errors import PairREError
from pairre.support.text import json_text, shell_word, visible, visible_lines

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("benzo[a]pyrene", "benzo[a]pyrene"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\tb\nc\rd", "a\\tb\\nc\\rd"),
        ("\x7f\x9b31m", "\\x7f\\x9b31m"),
        ("\u202eexe.gnp", "\\u202eexe.gnp"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\udcff \ud800", "\\xff \\ud800"),
        ("Zürich, 東京, 👩‍🚀", "Zürich, 東京, 👩‍🚀"),
    ],
)
def test_control_characters_are_made_visible(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown


def test_line_breaks_can_be_kept():
    assert visible_lines("a\nb\x07") == "a\nb\\x07"


@given(ANY_TEXT)
def test_what_is_shown_is_one_printable_line(text):
    shown = visible(text)
    assert len(shown.splitlines()) <= 1
    shown.encode()


@given(ANY_TEXT)
def test_json_is_exact_and_has_no_control_characters(text):
    written = json_text({"name": text})
    assert json.loads(written) == {"name": text}
    assert visible_lines(written) == written


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_has_no_number_that_is_not_finite(number):
    with pytest.raises(PairREError, match="not finite"):
        json_text([number])


@pytest.mark.parametrize(
    "name",
    ["plain", "$(touch pwned)", "`id`", "it's", 'a "b"', "a\\b", "\x1b[2J$(x)'\\", "new\nline", "\udcff", "", "a b;c"],
)
def test_a_shell_reads_a_word_back(name):
    done = subprocess.run(["bash", "-c", f"printf %s {shell_word(name)}"], capture_output=True, check=True)
    assert done.stdout.decode("utf-8", "surrogateescape") == name


def test_a_path_is_not_taken_for_an_option():
    assert shell_word(Path("-rf")) == "./-rf"
    assert shell_word("-rf") == "-rf"
