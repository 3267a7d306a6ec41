"""Every way a transfer can go wrong, against a real server on this machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pairre.graph.benchmarks.download import fetch
from pairre.support.errors import DownloadError

BODY = b"head\trelation\ttail\n" * 1000


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/silent":
            self.server.release.wait(5)
            return
        self.send_response(200)
        if self.path == "/chunked-cut":
            self.send_header("Transfer-Encoding", "chunked")
        elif self.path == "/absurd":
            self.send_header("Content-Length", "9" * 5000)
        elif self.path != "/unannounced":
            self.send_header("Content-Length", str(len(BODY) + (500 if self.path in {"/cut", "/reset"} else 0)))
        self.end_headers()
        self.wfile.write(b"ffff\r\n" + BODY if self.path == "/chunked-cut" else BODY)
        if self.path == "/reset":
            self.wfile.flush()
            # Linger of zero: closing sends a reset instead of a proper end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the handler that cuts its own line


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.release = threading.Event()
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.release.set()
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.mark.parametrize("path", ["/whole", "/unannounced", "/absurd"])
def test_a_whole_file_arrives_and_no_part_stays(server: str, tmp_path: Path, path: str) -> None:
    fetch(server + path, tmp_path / "file", expected_bytes=len(BODY))
    assert (tmp_path / "file").read_bytes() == BODY
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def refused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/missing", "HTTP 404"),
        ("/cut", f"cut off after {len(BODY):,} "),
        ("/reset", "cut off after"),
        ("/chunked-cut", "cut off after"),
        ("/silent", "silent for 0.2 s"),
    ],
)
def test_a_failed_transfer_says_so_in_one_line_and_leaves_nothing(
    server: str, tmp_path: Path, path: str, said: str
) -> None:
    with pytest.raises(DownloadError) as caught:
        fetch(server + path, tmp_path / "file", timeout=0.2 if path == "/silent" else 5)
    message = str(caught.value)
    assert message.startswith(server + path)
    assert said in message
    assert "PAIRRE_DATA" in message
    assert "\n" not in message
    assert not list(tmp_path.iterdir())


def test_a_refused_connection_names_the_address(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{refused_port()}/file"
    with pytest.raises(DownloadError, match=r"cannot be reached \(.*refused.*\); check the network") as caught:
        fetch(url, tmp_path / "file")
    assert str(caught.value).startswith(url)
    assert not list(tmp_path.iterdir())


def test_an_unknown_host_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"no-such-host\.invalid/file: cannot be reached"):
        fetch("http://no-such-host.invalid/file", tmp_path / "file")


def test_a_file_of_another_size_is_refused(server: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=f"{len(BODY):,} bytes, expected 7; the file there has changed"):
        fetch(f"{server}/whole", tmp_path / "file", expected_bytes=7)
    assert not list(tmp_path.iterdir())


def test_an_older_file_survives_a_failed_transfer(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("older")
    with pytest.raises(DownloadError):
        fetch(f"{server}/cut", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "older"


def test_only_web_addresses_are_fetched(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with pytest.raises(DownloadError, match="not a web address"):
        fetch((tmp_path / "secret").as_uri(), tmp_path / "file")


def test_a_folder_that_is_not_there_is_said_to_be_unwritable(server: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="cannot be written"):
        fetch(f"{server}/whole", tmp_path / "nowhere" / "file")


def test_the_bar_is_drawn_on_a_terminal_only(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(f"{server}/whole", tmp_path / "file")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    fetch(f"{server}/whole", tmp_path / "file")
    assert "whole" in capsys.readouterr().err
    fetch(f"{server}/whole", tmp_path / "file", progress=False)
    assert capsys.readouterr().err == ""
