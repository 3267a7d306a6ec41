"""Files written whole or not at all, disk errors said in one line, and the folder of what can be made again."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pairre.errors import PairREError, RunError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def cache_folder() -> Path:
    """Return `$PAIRRE_CACHE`, or `pairre` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."""
    if own := os.environ.get("PAIRRE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pairre"


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; when the block ends well, that file is flushed and takes `path`'s place.

    A block that fails, or a process that is killed, leaves `path` as it was.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def disk_error(path: Path, error: OSError) -> PairREError:
    """Say what went wrong with a file in words."""
    if error.errno in _FULL:
        return RunError(f"{path}: the disk is full; free some space and repeat the command (what was there is kept)")
    return RunError(f"{path}: {error.strerror or error}")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole."""
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole; a number that is not finite is a bug and refused."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
