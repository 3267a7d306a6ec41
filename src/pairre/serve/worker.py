"""A scorer process: it opens the runs, answers calls that come over a socket, and ends with the server.

Short calls are answered in the order they come, `predict` of one message together. Long ones have a thread of their
own, and so has what is prepared in the background, which pauses while a long call is answered.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from pairre.serve.wire import Answered, Frame, FrameReader, Tag, answers_frame, json_frame

Call = tuple[int, str, str, dict[str, Any]]  # number, run, function, arguments
_MAX_READ = 1 << 20
_LOWER_PRIORITY = 10  # of the preparation
_LONGEST_PAUSE = 1.0  # seconds after which the preparation takes a step although calls are being answered


class Worker:
    """The runs of one process, and the socket to the server."""

    def __init__(self, connection: socket.socket, rows: BinaryIO) -> None:
        self._connection, self._rows, self._reader = connection, rows, FrameReader()
        self._states: dict[str, Any] = {}
        self._sending = threading.Lock()
        self._long = ThreadPoolExecutor(1, thread_name_prefix="pairre-long")
        self._stopped, self._idle = threading.Event(), threading.Event()
        self._idle.set()

    def run(self) -> None:
        """Answer calls until the server closes the socket."""
        actions: dict[Tag, Callable[[Frame], Any]] = {
            "setup": lambda frame: self._open(frame.json()),
            "calls": lambda frame: self._answer(frame.json()),
            "long calls": lambda frame: self._long.submit(self._answer_long, frame.json()).add_done_callback(
                _end_if_broken
            ),
            "prepare": lambda _: self._begin_long(),
        }
        import pairre.serve.answers  # noqa: F401 — all processes load libraries while the first opens the runs

        while data := self._connection.recv(_MAX_READ):
            for frame in self._reader.feed(data):
                actions[frame.tag](frame)
        self._stopped.set()

    def _send(self, data: bytes) -> None:
        with self._sending:
            self._connection.sendall(data)

    # --- opening ---

    def _open(self, setup: dict[str, Any]) -> None:
        """Open the runs and say so, or say why not."""
        from pairre.support.errors import PairREError

        try:
            values = self._open_runs(setup)
        except (PairREError, OSError) as error:
            self._send(json_frame("failed", {"message": str(error)}))
        else:
            self._send(json_frame("ready", values))

    def _open_runs(self, setup: dict[str, Any]) -> dict[str, Any]:
        import torch

        from pairre.serve.rows import map_rows, write_rows
        from pairre.serve.state import RunState
        from pairre.support.plugins import load_plugin

        for plugin in setup["plugins"]:
            load_plugin(plugin)
        torch.set_num_threads(setup["threads"])
        layouts, summaries = setup["rows"], {}
        for name, path in setup["runs"].items():
            state = RunState.open(
                name, Path(path), setup["device"], verify=setup["verify"], mapped=True, notify=self._note
            )
            if name not in layouts:
                self._note(f"{name}: preparing candidates")
                layouts[name] = write_rows(state.run, self._rows)
            if layouts[name] is not None:
                state.prepared = map_rows(state.run, self._rows, layouts[name])
            summaries[name] = state.summary()
            self._states[name] = state
            _warm_up(state)
        device = next(iter(self._states.values())).run.model.device.type
        return {"summaries": summaries, "rows": layouts, "device": device}

    def _note(self, text: str) -> None:
        self._send(json_frame("note", text))

    def _begin_long(self) -> None:
        """Become the process for long calls: load what these need, and begin with the preparation."""
        self._long.submit(_warm_up_long, list(self._states.values())).add_done_callback(_end_if_broken)
        threading.Thread(target=self._prepare, daemon=True).start()

    def _prepare(self) -> None:
        from pairre.serve.parts import prepare

        os.nice(_LOWER_PRIORITY)  # on Linux of this thread alone
        for state in self._states.values():
            prepare(state.run, state.store, self._paused_and_stopped)

    def _paused_and_stopped(self) -> bool:
        """Wait until no long call is being answered, and return whether the server has ended."""
        # Two threads of Python that both compute in small pieces slow each other down far more than by half.
        self._idle.wait(_LONGEST_PAUSE)
        return self._stopped.is_set()

    # --- answering ---

    def _answer_long(self, calls: Sequence[Call]) -> None:
        """Answer calls while the preparation pauses."""
        self._idle.clear()
        try:
            self._answer(calls)
        finally:
            self._idle.set()

    def _answer(self, calls: Sequence[Call]) -> None:
        """Answer calls, those of `predict` of one run together."""
        from pairre.serve.answers import answer_json, predict_together

        answers, together = [], dict[str, list[Call]]()
        for call in calls:
            number, run, function, arguments = call
            if function == "predict":
                together.setdefault(run, []).append(call)
            else:
                answers.append(_answered(number, partial(answer_json, self._states[run], function, arguments)))
        for run, members in together.items():
            results = predict_together(self._states[run], [arguments for _, _, _, arguments in members])
            answers += [
                _answered(call[0], partial(_given, result)) for call, result in zip(members, results, strict=True)
            ]
        self._send(answers_frame(answers))


def _given(result: Any) -> bytes:
    """Return a result as JSON, or raise it if it is an error."""
    from pairre.serve.answers import as_json

    if isinstance(result, Exception):
        raise result
    return as_json(result)


def _answered(number: int, give: Callable[[], bytes]) -> Answered:
    """Return the JSON that a function gives as the answer to a call, or the values of its error."""
    from pairre.serve.contract import ServeError
    from pairre.support.text import json_text

    try:
        return Answered(number, False, give())
    except ServeError as error:
        return Answered(number, True, json_text(error.to_values(), None).encode())


def _end_if_broken(done: Future[None]) -> None:
    """End the process if a thread was ended by a bug, as the process would be if that were its main thread."""
    if error := done.exception():
        traceback.print_exception(error)
        os._exit(1)


def _warm_up(state: Any) -> None:
    """Have kernels compiled or read from their cache before the first client waits for them."""
    from pairre.serve.answers import predict_together

    if len(state.run.graph.train):
        head, relation, tail = next(state.run.graph.names(state.run.graph.train[:1]))
        predict_together(state, [{"head": head, "relation": relation}, {"relation": relation, "tail": tail}])
        predict_together(state, [{"head": head, "relation": relation, "any": True}, {"head": head, "tail": tail}])


def _warm_up_long(states: Sequence[Any]) -> None:
    """Have what explains an answer loaded and compiled."""
    from pairre.serve.answers import answer_call
    from pairre.serve.contract import ServeError

    for state in states:
        for names in state.run.graph.names(state.run.graph.train[:1]):
            with contextlib.suppress(ServeError):  # of a run whose weights have diverged
                answer_call(state, "why", dict(zip(("head", "relation", "tail"), names, strict=True)))


def main() -> None:
    """Run a scorer process: the socket and the file of prepared rows are open files that the server hands over."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for the server, which then closes the socket
        signal.signal(number, signal.SIG_IGN)
    connection, rows = socket.socket(fileno=int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "r+b")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server is gone
        Worker(connection, rows).run()
    os._exit(0)  # threads that still compute have nobody to tell


if __name__ == "__main__":
    main()
