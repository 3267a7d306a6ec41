"""A small graph, and a server of this machine that offers it in several forms."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pairre.graph.benchmarks import Benchmark, Source, Splits

TEXT = {
    "train": b"a\tlikes\tb\nb\tlikes\tc\na\tknows\tc\n",
    "valid": "é\tknows\ta\n".encode(),
    "test": b"c\tlikes\ta\n",
}
SHA256 = Splits(**{split: hashlib.sha256(text).hexdigest() for split, text in TEXT.items()})
TOY = Benchmark(
    name="toy",
    title="Toy",
    citation="nobody",
    licence="none",
    num_entities=4,
    num_relations=2,
    num_train=3,
    num_valid=1,
    num_test=1,
    sha256=SHA256,
)


class Server(ThreadingHTTPServer):
    """Serves `files`, promises `extra` bytes more than it sends, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.extra = 0
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path not in self.server.files:
            self.send_error(404)
            return
        body = self.server.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + self.server.extra))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve_splits(server: Server, text: dict[str, bytes] = TEXT) -> Source:
    server.files |= {f"/{split}.txt": body for split, body in text.items()}
    return Source(Splits(*(f"{server.url}/{split}.txt" for split in text)))


def tar_of(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, body in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return packed.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return packed.getvalue()


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name.removesuffix(".tsv.gz"): gzip.decompress(file.read_bytes()) for file in folder.iterdir()}


def assert_cache_is_empty(tmp_path: Path) -> None:
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.name != "graphs"]
