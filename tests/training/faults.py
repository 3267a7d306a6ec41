"""A plug-in for `test_many_processes.py`: what befalls a rank of a training, as FAULT says, `what:rank:life`."""

import errno
import os
import signal

from pairre.runs import checkpoints
from pairre.support import tensors
from pairre.support.processes import place


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fill_the_disk() -> None:
    def save_file(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    tensors.save_file = save_file


def _at_checkpoint(step: int, fault):
    write_rows = checkpoints.write_rows

    def write(path, *arguments, **named) -> None:
        if int(path.parent.name.split("-")[1].split(".")[0]) >= step:
            path.write_bytes(b"half")  # of a file
            fault()
        write_rows(path, *arguments, **named)

    checkpoints.write_rows = write


FAULTS = {
    "killed in a checkpoint": lambda: _at_checkpoint(25, _die),
    "full disk": lambda: _at_checkpoint(25, _fill_the_disk),
}

here = place()
for fault in os.environ.get("FAULT", "").split(","):
    what, *where = fault.split(":")
    if here and what and [here.rank, here.life] == [int(number) for number in where]:
        FAULTS[what]()
