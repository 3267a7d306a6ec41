"""Files of tensors: what a killed process leaves beside them is removed by the next one."""

import os
import signal

import pytest
import torch

from pairre.support import tensors
from pairre.support.tensors import read_tensors, write_tensors


def test_what_the_library_left_in_the_middle_of_a_write_is_removed(tmp_path):
    file = tmp_path / "model.safetensors"
    write_tensors(file, {"a": torch.ones(3)})

    def killed(_stored, path, _metadata):
        path.with_name(".tmpAbC123").write_bytes(b"half")  # as safetensors names its temporary file
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        tensors.save_file = killed
        write_tensors(file, {"a": torch.zeros(3)})
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert list(tmp_path.rglob(".tmp*"))
    assert read_tensors(file)[0]["a"].tolist() == [1, 1, 1]

    write_tensors(file, {"a": torch.zeros(3)})
    assert list(tmp_path.iterdir()) == [file]
    assert read_tensors(file)[0]["a"].tolist() == [0, 0, 0]


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def failing(_stored, path, _metadata):
        path.with_name(".tmpAbC123").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(tensors, "save_file", failing)
    with pytest.raises(KeyboardInterrupt):
        write_tensors(tmp_path / "model.safetensors", {"a": torch.zeros(3)})
    assert not list(tmp_path.iterdir())


def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    write_tensors(tmp_path / "a", {"a": torch.zeros(3)})
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_equal_contents_get_equal_bytes(tmp_path):
    """The library draws the order of metadata at random for each file it writes."""
    metadata = {name: f'{name}: "é" \x1f {"x" * i}' for i, name in enumerate("abcdefgh")}
    values = {"b": torch.arange(5), "a": torch.zeros(2, 3)}
    for i in range(4):
        write_tensors(tmp_path / str(i), values, metadata)
    assert len({(tmp_path / str(i)).read_bytes() for i in range(4)}) == 1
    tensors_read, metadata_read = read_tensors(tmp_path / "0")
    assert metadata_read == metadata
    assert tensors_read["b"].tolist() == [0, 1, 2, 3, 4]
