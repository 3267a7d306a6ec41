"""Arrays that are written piece by piece are NumPy's, and damaged ones are refused."""

import numpy as np
import pytest

from pairre.graph.stored.arrays import ArrayWriter, as_tensor, map_array, num_rows, read_pieces
from pairre.support.errors import GraphError


@pytest.mark.parametrize("num", [0, 1, 5, 1000])
@pytest.mark.parametrize(("dtype", "width"), [(np.int32, 3), (np.int64, 0), (np.uint8, 0)])
def test_what_is_written_is_read(tmp_path, num, dtype, width):
    file = tmp_path / "a.npy"
    rows = np.arange(num * max(1, width)).astype(dtype).reshape((num, width) if width else num)
    with ArrayWriter(file, dtype, width) as writer:
        for start in range(0, num, 300):
            writer.append(rows[start : start + 300])
        assert writer.length == num
    for found in (np.load(file), map_array(file, dtype, width), as_tensor(map_array(file, dtype, width)).numpy()):
        np.testing.assert_array_equal(found, rows)
        assert found.dtype == dtype
    assert num_rows(file) == num
    pieces = list(read_pieces(file, dtype, width, rows=7))
    assert [len(piece) for piece in pieces] == [min(7, num - start) for start in range(0, num, 7)]
    np.testing.assert_array_equal(np.concatenate([rows[:0], *pieces]), rows)


def test_a_mapped_array_cannot_be_changed(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))
    with pytest.raises(ValueError, match="read-only"):
        map_array(tmp_path / "a.npy", np.int64)[0] = 1


def test_pickles_and_other_arrays_are_refused(tmp_path):
    file = tmp_path / "a.npy"
    with pytest.raises(GraphError, match="no such file"):
        map_array(file, np.int64)
    for array in (np.arange(5, dtype=np.int32), np.zeros((5, 2), np.int64)):
        np.save(file, array)
        with pytest.raises(GraphError, match="damaged: it holds"):
            map_array(file, np.int64)
    np.save(file, np.zeros((5, 2, 2), np.int64))
    with pytest.raises(GraphError, match="damaged: not an array as graphs on disk have them"):
        map_array(file, np.int64)
    for data in (b"", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x09\x00" + bytes(200), b"text" * 40):
        file.write_bytes(data)
        with pytest.raises(GraphError, match="damaged"):
            map_array(file, np.int64)
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(GraphError, match="damaged"):
        map_array(file, np.int64)
    np.save(file, np.arange(5))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(GraphError, match="its size is not what it says"):
        map_array(file, np.int64)


def test_an_array_that_was_not_finished_is_no_array(tmp_path):
    def fail():
        with ArrayWriter(tmp_path / "a.npy", np.int64) as writer:
            writer.append(np.arange(5))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(GraphError, match="damaged"):
        map_array(tmp_path / "a.npy", np.int64)
