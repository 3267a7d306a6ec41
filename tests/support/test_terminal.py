"""The consoles: whatever is printed, in whatever way, is shown as text."""

import io

import pytest

from pairre.support.errors import OutputError
from pairre.support.terminal import BarColumn, Console, Table, Text, progress, standard_output

HOSTILE = "benzo[a]pyrene [/b] :key: \x1b[2J\x9b1m\u202e\udcff"
SHOWN = "benzo[a]pyrene [/b] :key: \\x1b[2J\\x9b1m\\u202e\\xff"


def printed(show) -> str:
    console = Console(file=io.StringIO())
    console.width = 200
    show(console)
    return console.file.getvalue()


def table_of(name: str) -> Table:
    table = Table(title=name, caption=name)
    table.add_column(name)
    table.add_row(name)
    return table


@pytest.mark.parametrize(
    "show",
    [
        lambda console: console.print(HOSTILE),
        lambda console: console.print(HOSTILE, markup=True, emoji=True),
        lambda console: console.print(Text(HOSTILE)),
        lambda console: console.print_line(HOSTILE),
        lambda console: console.print(table_of(HOSTILE)),
    ],
)
def test_text_is_shown_as_text(show):
    text = printed(show)
    assert SHOWN in text
    assert not {"\x1b", "\x9b", "\u202e", "\udcff"} & set(text)


def test_spinners_and_bars_show_text(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=Terminal())
    console.width = 200
    with console.status(HOSTILE):
        pass
    with progress(console, BarColumn()) as bar:
        bar.add_task(HOSTILE, total=1)
        bar.refresh()
    text = console.file.getvalue()
    assert text.count(SHOWN) >= 2
    assert "\x1b[2J\x9b" not in text


class Broken(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_failure_of_standard_output_is_said(monkeypatch):
    monkeypatch.setattr("sys.stdout", Broken())
    with pytest.raises(OutputError, match="standard output: cannot be written: No space left"):
        Console().print("x")
    with pytest.raises(OutputError):
        standard_output.write("x")


def test_a_failure_of_standard_error_stops_nothing(monkeypatch):
    monkeypatch.setattr("sys.stderr", Broken())
    Console(stderr=True).print("x")
