"""Memory: how much there is, and errors that say that it is used up."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pairre.support.errors import PairREError

if TYPE_CHECKING:
    import torch


def available_bytes(device: torch.device | None = None) -> int | None:
    """Return how many bytes can be allocated on a device, by default the host, or None where nothing says that."""
    if device is not None and device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def parse_bytes(text: str) -> int:
    """Return the number of bytes of a text such as `2GB`, `500 MB` or `1.5GiB`; a PairREError if it is none."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", text.lower())
    if not found:
        raise PairREError(f"{text!r}: an amount of memory such as 2GB or 500MB expected")
    power = " kmgt".index(found[2] or " ")
    number = float(found[1]) * (1024 if found[3] else 1000) ** power
    if number >= 2**60:
        raise PairREError(f"{text[:40]!r}: more memory than any machine has")
    return int(number)


def readable_bytes(number: float) -> str:
    """Return a number of bytes with a unit, such as `3.2 GB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.0f} PB"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that memory is used up, in the words of Python, numpy, Arrow or torch."""
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    words = ("allocate memory", "invalid buffer size", "Storage size calculation overflowed", "out of memory")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def describe_shortage(error: BaseException) -> str:
    """Return one line about an exception of that kind: what was asked for, and what can be done."""
    asked = re.search(r"allocate (\d+) bytes", str(error))
    first = str(error).strip().splitlines()[0] if str(error).strip() else "an allocation failed"
    what = f"{readable_bytes(int(asked[1]))} more were asked for" if asked else first
    return f"{what}; try a smaller graph, model.dim, train.batch or sampling.negatives"
