"""Atomic writes, disk errors as messages of one line, and the cache folder."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import save_file
from torch import Tensor

from pairre.support.errors import PairREError, RunError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def cache_folder() -> Path:
    """Return `$PAIRRE_CACHE`, or `pairre` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."""
    if own := os.environ.get("PAIRRE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pairre"


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; after the block, that file is flushed to disk and replaces `path`.

    If the block raises an exception or the process is killed, `path` is unchanged.
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
    """Return the exception that describes a failed read or write of a file."""
    if error.errno in _FULL:
        return RunError(f"{path}: the disk is full; free some space and repeat the command (what was there is kept)")
    return RunError(f"{path}: {error.strerror or error}")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; a number that is not finite raises a ValueError, because it is a bug."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    with written_whole(path) as part:
        try:
            save_file({k: v.detach().contiguous().cpu() for k, v in tensors.items()}, part, metadata)
        except safetensors.SafetensorError as error:
            # safetensors reports a failed write without an errno.
            full = "os error 28" in str(error) or "os error 27" in str(error)
            raise OSError(28 if full else 5, str(error)) from error
