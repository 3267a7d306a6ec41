"""Files of tensors in the safetensors format, written whole or not at all, with a checksum of everything in them."""

from __future__ import annotations

import errno
import hashlib
import json
import mmap
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from pairre.support.errors import RunError
from pairre.support.files import disk_errors, written_whole
from pairre.support.host_memory import on_cpu

_HASHED_AT_ONCE = 16 << 20  # bytes of a tensor that one thread hashes


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file atomically, with a checksum of all tensors and metadata in its metadata."""
    stored = {name: on_cpu(value.detach().contiguous()) for name, value in tensors.items()}
    described = {**(metadata or {}), "checksum": _tensor_checksum(stored, metadata or {})}
    # save_file first writes a temporary file of its own beside the one it is given: the folder has both.
    with written_whole(path, folder=True) as part:
        try:
            save_file(stored, part, described)
        except safetensors.SafetensorError as error:
            # safetensors reports a failed write by its text alone: "I/O error: No space left on device (os error 28)".
            number = next((n for n in errno.errorcode if f"(os error {n})" in str(error)), errno.EIO)
            raise OSError(number, os.strerror(number)) from error
        _sort_metadata(part)


def _sort_metadata(path: Path) -> None:
    """Sort the metadata in a file's header, whose order save_file draws at random: equal contents get equal bytes."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        file.seek(8)
        file.write(text.ljust(length))  # the format pads headers with spaces


def read_tensors(path: Path, *, verify: bool = True, required: bool = True) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of `write_tensors`; a RunError says that they are damaged.

    Without `verify` the checksum is not computed, which saves reading the tensors twice. Without `required`, a file
    that has no checksum is accepted, as files of format 1 have none.
    """
    try:
        with disk_errors(path), safetensors.safe_open(path, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
            metadata = dict(opened.metadata() or {})
    except safetensors.SafetensorError as error:
        raise RunError(f"{path}: damaged: {' '.join(str(error).split())}") from error
    checksum = metadata.pop("checksum", None)
    if checksum is None and required:
        raise RunError(f"{path}: damaged: it has no checksum")
    if checksum is not None and verify and checksum != _tensor_checksum(tensors, metadata):
        raise RunError(f"{path}: damaged: its contents differ from its checksum")
    return tensors, metadata


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a file without reading its tensors; a RunError says that it is damaged."""
    try:
        with disk_errors(path), safetensors.safe_open(path, framework="pt") as opened:
            return dict(opened.metadata() or {})
    except safetensors.SafetensorError as error:
        raise RunError(f"{path}: damaged: {' '.join(str(error).split())}") from error


class MappedTensors:
    """The tensors of a file as it is on disk: pages are read when something needs them, and can be given back.

    Nothing may be written to them.
    """

    def __init__(self, path: Path, *, required: bool = True) -> None:
        """Map a file of `write_tensors`; a RunError says that it is damaged. `required` is as for `read_tensors`."""
        self.path, self._required = path, required
        described, metadata = read_tensors(path, verify=False, required=required)  # their numbers are not read
        self.metadata = metadata
        with disk_errors(path), path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
            # Private, because torch takes no memory that is read-only.
            self._pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        self.tensors = {
            name: self._tensor(like, 8 + length + header[name]["data_offsets"][0]) for name, like in described.items()
        }

    def _tensor(self, like: Tensor, offset: int) -> Tensor:
        if like.numel() == 0:
            return torch.empty_like(like)
        flat = torch.frombuffer(self._pages, dtype=like.dtype, count=like.numel(), offset=offset)
        return flat.view(like.shape)

    def release(self) -> None:
        """Give back the memory of all pages; they are read again when something needs them."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._pages.madvise(mmap.MADV_DONTNEED)

    def verify(self) -> None:
        """Compare the tensors with their checksum; a RunError says that they are damaged."""
        checksum = read_metadata(self.path).get("checksum")
        if checksum is None and not self._required:
            return
        if checksum != _tensor_checksum(self.tensors, self.metadata, self.release):
            raise RunError(f"{self.path}: damaged: its contents differ from its checksum")


def _tensor_checksum(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str], after_piece: Callable[[], None] = lambda: None
) -> str:
    """Return a SHA-256 over names, types, shapes, metadata and the SHA-256 of each piece of 16 MiB.

    Pieces are hashed on all cores.
    """
    names = sorted(tensors)
    described = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    digest = hashlib.sha256(json.dumps([described, metadata], sort_keys=True).encode())
    raw = (tensors[name].flatten().view(torch.uint8).numpy() for name in names if tensors[name].numel())
    pieces = (data[start : start + _HASHED_AT_ONCE] for data in raw for start in range(0, len(data), _HASHED_AT_ONCE))
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for piece in pool.map(lambda data: hashlib.sha256(data).digest(), pieces):
            digest.update(piece)
            after_piece()
    return digest.hexdigest()
