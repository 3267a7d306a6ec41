"""A scorer process from within: what waits for what."""

import io
import socket
import threading

from pairre.serve import worker


def test_the_preparation_pauses_while_a_long_call_is_answered(monkeypatch):
    monkeypatch.setattr(worker, "_LONGEST_PAUSE", 30.0)
    ours, theirs = socket.socketpair()
    answering, finish, went_on = threading.Event(), threading.Event(), threading.Event()

    def answer(_):
        answering.set()
        finish.wait(30)

    def step():
        found._paused_and_stopped()
        went_on.set()

    with ours, theirs:
        found = worker.Worker(ours, io.BytesIO())
        assert not found._paused_and_stopped()
        monkeypatch.setattr(found, "_answer", answer)
        call = threading.Thread(target=found._answer_long, args=([],))
        call.start()
        assert answering.wait(30)
        preparation = threading.Thread(target=step)
        preparation.start()
        assert not went_on.wait(0.1)
        finish.set()
        assert went_on.wait(10)
        call.join()
        preparation.join()


def test_the_preparation_takes_a_step_now_and_then_under_load(monkeypatch):
    monkeypatch.setattr(worker, "_LONGEST_PAUSE", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = worker.Worker(ours, io.BytesIO())
        found._idle.clear()
        assert not found._paused_and_stopped()
