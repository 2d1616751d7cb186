"""The time that a kernel is predicted to take on a chip.

    predicted_seconds(needed, asked, programs, chip)

    launch + waves * max(bytes / bandwidth, operations / rate of each unit)

In: the work of a kernel (predicted_work.py), how many programs run, a chip. Out: seconds.

Memory and arithmetic overlap, so the slower of both counts (Williams, Waterman and Patterson, "Roofline: An Insightful
Visual Performance Model for Multicore Architectures", 2009). No kernel reaches peak rates; `REACHED` holds the shares
that the fastest kernels of docs/benchmarks.json reach on an H200. `waves` says what a last, partly filled wave of
programs costs: 133 programs on 132 multiprocessors take as long as 264.

Left out: caches, the order of accesses, latency, and blocks that a loop skips.
"""

from __future__ import annotations

from minitri.hardware.chips import Chip
from minitri.hardware.predicted_work import Work

LAUNCH = 3e-6  # seconds from the start of a kernel that does nothing to the start of the next one
REACHED = {"memory": 0.89, "f16": 0.79, "tf32": 0.68, "f32": 0.7, "f64": 0.7, "special": 0.7}


def predicted_seconds(needed: Work, asked: Work, programs: int, chip: Chip) -> float | None:
    """The predicted time of one kernel.

    needed     bytes that the kernel must move; a cache serves what its tiles ask for again
    asked      operations that its tiles compute, elements past the end of an axis included
    programs   how many programs run
    None for a chip whose peak rates are not known.
    """
    if chip.peak is None:
        return None
    memory = needed.bytes / (chip.peak.bandwidth * REACHED["memory"])
    units = [n / (chip.peak.rates[u] * REACHED[u]) for u, n in asked.operations.items() if u in chip.peak.rates]
    computing = max(units, default=0.0) * waves(programs, chip)
    return LAUNCH + max(memory, computing)


def waves(programs: int, chip: Chip) -> float:
    """How much longer programs take than on multiprocessors that are all busy to the end.

    Example: 132 programs on 132 multiprocessors give 1, 33 programs give 4.
    """
    if programs == 0:
        return 0.0
    rounds = -(-programs // chip.multiprocessors)
    return rounds * chip.multiprocessors / programs
