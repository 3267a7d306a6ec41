"""Messages between the server and its scorer processes: whole however they are cut, and nothing else is read."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairre.serve.wire import MAX_FRAME, Answered, FrameReader, answers_frame, json_frame, read_answers

names = st.text(max_size=20)
answers = st.lists(st.builds(Answered, st.integers(0, 1 << 40), st.booleans(), st.binary(max_size=50)), max_size=6)


@given(st.lists(st.dictionaries(names, names, max_size=4), max_size=5), st.lists(st.integers(1, 30), max_size=20))
def test_messages_are_whole_however_they_are_cut(values, sizes):
    data = b"".join(json_frame("calls", value) for value in values)
    reader, found = FrameReader(), []
    for size in [*sizes, len(data)]:
        found += [frame.json() for frame in reader.feed(data[:size])]
        data = data[size:]
    assert found == values


@given(answers)
def test_answers_come_back(given_answers):
    [frame] = FrameReader().feed(answers_frame(given_answers))
    assert frame.tag == "answers"
    assert list(read_answers(frame.data)) == given_answers


@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\n", struct.pack("<BI", 0, MAX_FRAME + 1), b"\xff" * 8])
def test_what_is_no_message_is_not_read(data):
    with pytest.raises(ValueError, match="not a message"):
        list(FrameReader().feed(data))
