"""The choice of a backend, and what all kernels of the CPU must keep."""

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from score_cases import Case, cpu

from pairre import kernels
from pairre.kernels import AdamState, Backend
from pairre.kernels.cpu import CpuBackend
from pairre.support.errors import DeviceError


def digest_of_all():
    """A digest of what the CPU's kernels compute; see below."""
    digest = hashlib.sha256()
    for metric, form, scaled in (("l1", "shared", True), ("l2", "own", False), ("dot", "own", False)):
        for part in Case(metric, form, scaled, (33, 21, 200, 7)).results(cpu):
            digest.update(part.detach().numpy().tobytes())
    random = torch.Generator().manual_seed(0)
    table, mean, square = (torch.ones(9, 200), torch.zeros(9, 200), torch.zeros(9, 200))
    rates = 1 + torch.rand(20, 2, generator=random)
    adam = AdamState(table, mean, square, torch.full((9,), -1, dtype=torch.int32), rates)
    for step in (0, 7):
        gradient = torch.randn(3, 200, generator=random)
        ids, step = torch.tensor([1, 4, 1]), torch.tensor(step)
        groups = cpu.group_ids(ids)
        cpu.update_adam(adam, groups, cpu.gather_adam(adam, ids, groups, step), gradient, step)
    cpu.flush_adam(adam, torch.tensor(19))
    digest.update(table.numpy().tobytes())
    return digest.hexdigest()


def test_bits_are_the_same_from_the_compiler_and_from_its_cache(tmp_path):
    """A process that compiles the kernels and one that finds them in the cache must agree: resuming depends on it.

    Kernels that a function makes for a metric must be told apart in the cache, too.
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "import test_backend; print(test_backend.digest_of_all())"]
    options = {"env": environment, "cwd": Path(__file__).parent, "capture_output": True, "text": True, "check": True}
    said = [subprocess.run(command, **options).stdout.strip() for _ in range(2)]
    assert any(tmp_path.rglob("*.nbc")), "nothing was cached"
    assert said == [digest_of_all()] * 2


def test_a_fallback_is_said_once(monkeypatch, caplog):
    monkeypatch.setenv("PAIRRE_OPS", "reference")
    kernels.backend.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, "pairre"):
            plain = kernels.backend("cpu")
            assert type(plain) is Backend
            assert kernels.backend("cpu") is plain
        assert len(caplog.records) == 1
        monkeypatch.setenv("PAIRRE_OPS", "fastest")
        kernels.backend.cache_clear()
        with pytest.raises(DeviceError, match="PAIRRE_OPS=fastest"):
            kernels.backend("cpu")
    finally:
        kernels.backend.cache_clear()
    monkeypatch.delenv("PAIRRE_OPS")
    assert type(kernels.backend("cpu")) is CpuBackend
    kernels.backend.cache_clear()
