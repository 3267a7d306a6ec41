"""Compiled functions: the files of their cache are healed, whatever happened to them."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
from pairre.support.compiled import compiled

@compiled(nogil=True)
def twice(x):
    return x + x

print(twice(21), sum(twice.stats.cache_hits.values()))
"""


@pytest.fixture
def call_twice(tmp_path):
    """A function that compiles another one in a process of its own; it returns the result and whether it was cached."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def call() -> tuple[str, ...]:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return tuple(done.stdout.split())

    return call


def files(folder):
    return sorted(file for file in (folder / "cache").rglob("*.nb?"))


@pytest.mark.slow
def test_damaged_files_of_the_cache_are_written_again(tmp_path, call_twice):
    assert call_twice() == ("42", "0")
    assert call_twice() == ("42", "1")
    index, code = sorted(files(tmp_path), key=lambda file: file.suffix, reverse=True)
    for file in (index, code):
        whole = file.read_bytes()
        for damaged in (whole[: len(whole) // 2], bytes([whole[40] ^ 1]).join((whole[:40], whole[41:]))):
            file.write_bytes(damaged)
            assert call_twice() == ("42", "0")
            assert call_twice() == ("42", "1")
    index.write_bytes(b"")
    code.unlink()
    assert call_twice() == ("42", "0")


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, call_twice):
    (tmp_path / "cache").write_text("not a folder")
    assert call_twice()[0] == "42"


LOADED = """
import sys
import numpy as np
from pairre.support.compiled import compiled

@compiled(nogil=True)
def running(x):
    out, total = np.empty_like(x), 0.0
    for i in range(len(x)):
        if x[i] < 0:
            raise ValueError("negative")
        total += np.sqrt(x[i])
        out[i] = total
    return out

print(running(np.arange(4.0))[-1] == 1 + 2**0.5 + 3**0.5)
try:
    running(-np.ones(1))
except ValueError as error:
    print(error)
print("numba.np.linalg" in sys.modules)

@compiled(nogil=True)
def later(x):
    return x.sum()

print(later(np.ones(3, sys.argv[1])))
"""


@pytest.mark.slow
def test_what_is_compiled_already_is_loaded_without_what_only_compilation_needs(tmp_path):
    script = tmp_path / "script.py"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    script.write_text(LOADED)

    def lines(dtype: str) -> list[str]:
        done = subprocess.run([sys.executable, script, dtype], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert lines("f8") == ["True", "negative", "True", "3.0"]
    assert lines("f8") == ["True", "negative", "False", "3.0"]
    assert lines("f4") == ["True", "negative", "False", "3.0"]  # compiled after another was loaded
