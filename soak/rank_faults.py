"""A plug-in of `soak.processes`: the N-th file operation of one rank kills it, or finds the disk full.

RANK_FAULT says `rank:at:error:folder`; operations of that rank in the folder are counted from the start of its first
life. `faults.c` is preloaded.
"""

import ctypes
import os

from pairre.support.processes import place

here = place()
rank, at, error, folder = os.environ["RANK_FAULT"].split(":", 3)
if here and here.rank == int(rank) and here.life == 0:
    ctypes.CDLL(None).fault_arm(folder.encode(), ctypes.c_long(int(at)), int(error))
