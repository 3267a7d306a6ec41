"""Download of one URL to one file, complete or not at all."""

from __future__ import annotations

import http.client
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from pairre.support.errors import DownloadError
from pairre.support.reading import announced_bytes
from pairre.support.terminal import BarColumn, Console, DownloadColumn, Progress, TransferSpeedColumn
from pairre.support.terminal import progress as progress_bar

_CHUNK = 1 << 18
_MAX_BYTES = 2 << 30  # of one download; the largest benchmark here has a few hundred megabytes
_AGAIN = "try again, or point PAIRRE_DATA at a folder with a copy"


def fetch(
    url: str, target: Path, *, expected_bytes: int | None = None, progress: bool = True, timeout: float = 30.0
) -> None:
    """Download `url` to the file `target`, completely or not at all.

    The bytes are written to `target` + ".part" and moved when their number is the one that the server announced and, if
    it is passed, `expected_bytes`. `timeout` is the longest time without data, in seconds. A progress bar is drawn on a
    terminal only. Every failure is a DownloadError of one line and leaves no file behind.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise DownloadError(f"{url}: not a web address; expected http:// or https://")
    part = target.with_name(target.name + ".part")
    try:
        draw = progress and sys.stderr.isatty()
        with part.open("wb") as out, closing(_receive(url, expected_bytes, draw, timeout)) as chunks:
            for chunk in chunks:
                out.write(chunk)
        part.replace(target)
    except OSError as error:
        raise DownloadError(f"{target}: cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)


def _receive(url: str, expected_bytes: int | None, draw: bool, timeout: float) -> Generator[bytes, None, None]:
    """Yield the body of `url` in chunks; every network failure is raised as a DownloadError."""
    request = urllib.request.Request(url, headers={"User-Agent": "pairre"})
    received = 0
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response, _bar(draw) as bar:
            announced = announced_bytes(response.headers.get("Content-Length"))
            total = expected_bytes if announced is None else announced
            task = bar.add_task(urlsplit(url).path.rsplit("/", 1)[-1], total=total)
            while chunk := response.read(_CHUNK):
                received += len(chunk)
                if received > _MAX_BYTES:
                    raise DownloadError(f"{url}: more than {_MAX_BYTES >> 30} GiB; not what was published")
                bar.update(task, completed=received)
                yield chunk
    except urllib.error.HTTPError as error:
        with error:
            raise DownloadError(f"{url}: HTTP {error.code} {error.reason}; {_AGAIN}") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise DownloadError(f"{url}: no answer within {timeout:g} s; {_AGAIN}") from error
        raise DownloadError(f"{url}: cannot be reached ({error.reason}); check the network, {_AGAIN}") from error
    except TimeoutError as error:
        raise DownloadError(f"{url}: silent for {timeout:g} s after {received:,} bytes; {_AGAIN}") from error
    except (http.client.HTTPException, OSError) as error:
        reason = type(error).__name__
        raise DownloadError(f"{url}: cut off after {received:,} bytes ({reason}); {_AGAIN}") from error
    if total is not None and received < total:
        raise DownloadError(f"{url}: cut off after {received:,} of {total:,} bytes; {_AGAIN}")
    if expected_bytes is not None and received != expected_bytes:
        raise DownloadError(f"{url}: {received:,} bytes, expected {expected_bytes:,}; the file there has changed")


def _bar(draw: bool) -> Progress:
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return progress_bar(Console(stderr=True), *columns, disable=not draw)
