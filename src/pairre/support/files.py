"""Files that are written whole or not at all, checksums, locks, and disk errors as messages of one line."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pairre.support.errors import PairREError, RunError
from pairre.support.reading import check_path, parse_json, shown
from pairre.support.text import json_text

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def cache_folder() -> Path:
    """Return `$PAIRRE_CACHE`, or `pairre` in the user's cache folder (`$XDG_CACHE_HOME`, else `~/.cache`)."""
    if own := os.environ.get("PAIRRE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pairre"


def check_file(path: Path) -> None:
    """Raise a PairREError if no file can be written at a path, because it is a folder or is in none."""
    try:
        path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise PairREError(f"{path}: there is no folder {path.parent}; make it first") from None
    except OSError as error:
        raise disk_error(path, error) from error
    if path.is_dir() or path.name in ("", ".."):
        raise PairREError(f"{path}: a folder; give the name of a file, such as {path / 'result'}")


def check_new_file(path: Path, *, force: bool) -> None:
    """Raise a PairREError if no file can be written at a path, or if one is there that only `force` overwrites.

    Commands call it before the work whose result the file will hold.
    """
    check_path(path)
    check_file(path)
    if path.exists() and not force:
        raise PairREError(f"{shown(path)}: there already; write to another file, or overwrite it with --force")


# --- errors ---


def disk_error(path: Path, error: OSError) -> PairREError:
    """Return the exception that describes a failed read or write of a file."""
    if error.errno in _FULL:
        return RunError(f"{path}: the disk is full; free some space and repeat the command (what was there is kept)")
    return RunError(f"{path}: {error.strerror or error}")


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a RunError that names the path."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


# --- locks ---


def try_lock(path: Path) -> IO[str] | None:
    """Return a file that is locked until it is closed or its process ends, or None if another one holds the lock."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:
        file.close()
        raise
    return file


# --- writing ---


def part_name(path: Path) -> Path:
    """Return a new name beside `path`, for what is about to be moved there or is about to be deleted."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")


def make_part(path: Path, *, folder: bool = False) -> tuple[Path, IO[str]]:
    """Make an empty file or folder beside `path`, to be filled and moved there, and return it with its lock.

    The lock is held until it is closed or the process ends, so that `remove_orphans` can tell the parts of a living
    process from those of a killed one.
    """
    while True:
        part = part_name(path)
        if folder:
            part.mkdir(parents=True)
        file = _lock_file(part)
        with contextlib.suppress(FileNotFoundError):
            lock = try_lock(file)
            if lock and os.path.samestat(os.fstat(lock.fileno()), file.stat()):
                return part, lock
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {path.parent}")
        # Another process has just removed it as an orphan, in the moment before the lock was taken.


def remove_orphans(path: Path) -> None:
    """Remove the parts of `path` that killed processes left behind."""
    for part in path.parent.iterdir() if path.parent.is_dir() else ():
        if part.name.startswith(f".{path.name}.") and part.name.endswith(".part"):
            with contextlib.suppress(OSError):
                remove_orphan(part)


def remove_orphan(part: Path) -> None:
    """Remove a file or folder that was made by `make_part`, unless its process lives."""
    file = _lock_file(part)
    lock = try_lock(file) if file.exists() else None
    if lock or not file.exists():
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    if lock:
        lock.close()


def _lock_file(part: Path) -> Path:
    return part / "lock" if part.is_dir() else part


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, so that a file that was moved there is found after a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def written_whole(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside `path`; after the block, that file is flushed to disk and replaces `path`.

    If the block raises an exception or the process is killed, `path` is unchanged. The file has the permissions of any
    new file, whatever the library that writes it prefers. With `folder`, the temporary path is in a folder of its own,
    so that what the library writes beside it goes with it.
    """
    check_file(path)
    part, lock = None, None
    try:
        with disk_errors(path):
            remove_orphans(path)
            part, lock = make_part(path, folder=folder)
            mode = os.fstat(lock.fileno()).st_mode & 0o777
            written = part / path.name if folder else part
            yield written
            with written.open("rb+") as file:
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            written.replace(path)
            sync_folder(path.parent)
    finally:
        if part and lock:
            with contextlib.suppress(OSError):
                shutil.rmtree(part) if folder else part.unlink(missing_ok=True)
            lock.close()


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; a number that is not finite raises a PairREError, because JSON has none."""
    write_text(path, json_text(value) + "\n")


def read_json(path: Path) -> Any:
    """Return the value of a JSON file; a RunError says why it cannot be read."""
    with disk_errors(path):
        text = path.read_bytes()
    try:
        return parse_json(text.decode("utf-8"))
    except ValueError as error:
        raise RunError(f"{path}: damaged: {' '.join(str(error).split())}") from error


# --- checksums ---


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with disk_errors(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksum_faults(folder: Path, checksums: Mapping[str, Iterable[Any]], present: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with the files of a folder, a line each: missing, unexpected, or none of their checksums.

    `checksums` has the names of the files that must be there, and for each the checksums that it may have.
    """
    for name in sorted({*checksums, *present}):
        file = folder / name
        if name not in checksums:
            yield f"{file}: not a file of this run"
        elif not file.is_file():
            yield f"{file}: missing; restore it from a copy"
        elif file_checksum(file) not in checksums[name]:
            yield f"{file}: damaged or edited: its contents differ from its checksum; restore it from a copy"


def write_checked_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object atomically, with a `checksum` of its other entries."""
    write_json(path, {**value, "checksum": _json_checksum(value)})


def read_checked_json(path: Path, *, required: bool = True) -> dict[str, Any]:
    """Return the object of `write_checked_json` without its checksum; a RunError says that it is damaged.

    Without `required`, an object that has no checksum is accepted, as files of format 1 have none.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise RunError(f"{path}: damaged: not a JSON object")
    checksum = value.pop("checksum", None)
    if checksum != _json_checksum(value) and (required or checksum is not None):
        raise RunError(f"{path}: damaged: its contents differ from its checksum")
    return value


def _json_checksum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
