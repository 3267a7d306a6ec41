"""Random numbers as a function of (seed, purpose, counter).

Nothing has to be stored, and a resumed run draws what an unbroken one would have drawn.
"""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *purpose: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that depends on its arguments alone."""
    text = "/".join(str(part) for part in (seed, *purpose))
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest))
