"""Files that someone else wrote: what is no regular file, not text, or nested without end is one line."""

import os

import pytest

from pairre.support import reading
from pairre.support.errors import GraphError
from pairre.support.reading import file_fault, parse_json, parse_toml, path_fault, read_text, shortened, shown


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "text").write_text("a")
    assert file_fault(tmp_path / "text") is None
    assert "not a regular file" in file_fault(tmp_path / "pipe")
    assert "circle" in file_fault(tmp_path / "loop")
    assert file_fault(tmp_path) == "a folder, not a file"
    assert file_fault(tmp_path / "none") == file_fault(tmp_path / "text" / "none") == "no such file"
    assert "too long" in file_fault(tmp_path / ("x" * 300))
    for name in ("pipe", "loop", "none", "\0", "\udcff"):
        with pytest.raises(GraphError) as caught:
            read_text(tmp_path / name, GraphError)
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied(tmp_path):
    (tmp_path / "text").write_text("a")
    (tmp_path / "text").chmod(0)
    assert file_fault(tmp_path / "text") == "permission denied"


def test_names_that_no_file_has(tmp_path):
    assert path_fault(tmp_path) is None
    assert "NUL" in path_fault(tmp_path / "a\0b")
    assert "UTF-8" in path_fault(tmp_path / os.fsdecode(b"\xff"))
    assert shown(os.fsdecode(b"a\xff\n")) == "a\\xff\\n"


def test_texts(tmp_path, monkeypatch):
    file = tmp_path / "text"
    file.write_bytes(b"ab\xff")
    with pytest.raises(GraphError, match=r"text: invalid UTF-8 \(byte 0xff at 3\)"):
        read_text(file, GraphError)
    monkeypatch.setattr(reading, "MAX_TEXT", 2)
    with pytest.raises(GraphError, match="more than"):
        read_text(file, GraphError)


@pytest.mark.parametrize("parse", [parse_json, lambda text: parse_toml(f"x = {text}")])
@pytest.mark.parametrize("text", ["[" * 100_000, "9" * 5_000, "{", "\0"])
def test_parsers_raise_value_errors_only(parse, text):
    with pytest.raises(ValueError, match=r"."):
        parse(text)


def test_long_texts_are_cut_in_the_middle():
    assert shortened("abc", 3) == "abc"
    assert shortened("0123456789", 5) == "01…89"
