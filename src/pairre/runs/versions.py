"""The versions of the program and of what it computes with, for run folders and files of results."""

from __future__ import annotations

import platform

import numba
import numpy
import pyarrow
import torch

from pairre.support.version import __version__


def versions() -> dict[str, str]:
    """Return the versions that computed a result, for run folders and benchmark files."""
    return {
        "pairre": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
        "pyarrow": pyarrow.__version__,
    }
