"""From the options of a command to a running server: names of runs, who is answered, limits, files of verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pairre.serve.contract import Engine
from pairre.serve.engine import EngineOptions, ProcessEngine
from pairre.serve.http.app import Service, build_app
from pairre.serve.http.limits import Limits
from pairre.serve.http.security import Access
from pairre.serve.http.server import address_of, run_server, take_port
from pairre.serve.reviews import Reviews
from pairre.support.errors import PairREError
from pairre.support.reading import shortened
from pairre.support.text import visible

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """What a server is started with."""

    runs: Sequence[str]  # folders, or NAME=FOLDER
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    origins: Sequence[str] = ()
    hosts: Sequence[str] = ()
    workers: int = 0  # processes that compute short answers; 0 for one less than there are cores
    device: str = "auto"
    verify: bool = True
    reviews: Path | None = None  # folder for the files of verdicts; beside each run without one
    limits: Limits = field(default_factory=Limits)


def start(options: Options, say: Say, announce: Say) -> None:
    """Serve until a signal says to stop; `say` is told what takes time, `announce` the address."""
    runs = named_runs(options.runs)
    access = Access.of(options.host, options.token, options.origins, options.hosts)
    if access.hosts and access.token is None:
        names = ", ".join(map(visible, access.hosts))
        say(f"{names}: answered without a token, so whatever passes requests on must ask who it is")
    listening = take_port(options.host, options.port)
    reviews = open_reviews(runs, options.reviews, say)
    try:
        engine = make_engine(runs, options, say)
        service = Service(engine, list(runs), access, options.limits, reviews)
        run_server(build_app(service), engine, listening, lambda: announce(address_of(listening)))
    finally:
        listening.close()
        for stored in reviews.values():
            stored.close()


def make_engine(runs: dict[str, Path], options: Options, say: Say) -> Engine:
    """Return the engine that computes the answers."""
    return ProcessEngine(runs, EngineOptions(options.workers, options.device, options.verify), say)


def named_runs(texts: Sequence[str]) -> dict[str, Path]:
    """Return the folders of runs by name: that of NAME=FOLDER, else that of the folder."""
    runs: dict[str, Path] = {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if not equals or not _NAME.fullmatch(name) or Path(text).exists():
            name, folder = Path(text).absolute().name, text
        if not _NAME.fullmatch(name):
            raise PairREError(
                f"{visible(shortened(text))}: its name in addresses would be {visible(shortened(name))!r}; "
                "write NAME=FOLDER with a name of letters, digits, '.', '_' and '-'"
            )
        if name in runs:
            raise PairREError(f"two runs are named {name}; write NAME=FOLDER for one of them")
        runs[name] = Path(folder)
    return runs


def open_reviews(runs: dict[str, Path], folder: Path | None, say: Say) -> dict[str, Reviews]:
    """Return the files of verdicts by run; one that cannot be held is said, and that run stores none."""
    found = {}
    for name, path in runs.items():
        file = (path.absolute().parent if folder is None else folder) / f"{name}.reviews.jsonl"
        try:
            found[name] = Reviews(file)
        except PairREError as error:
            say(f"{name}: no verdicts are stored: {error}")
        else:
            if number := found[name].num_skipped:
                say(f"{name}: {number:,} lines of {visible(str(file))} are no verdicts and are left out")
    return found
