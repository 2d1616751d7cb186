"""tiles → tiles: each kernel but the first starts while the kernel before it ends.

    program k1(…) warps 4 {         becomes     program k1(…) warps 4 early_start {

NVIDIA calls it programmatic dependent launch (PDL). The launch of a kernel takes microseconds. With an early
start this time passes while the kernel before is still at work. The kernel itself waits, before it reads anything,
until what the kernel before wrote can be read.

In: the programs of a call, for a target that has early starts. Out: the same, `early_start` from the second on.
"""

from __future__ import annotations

from dataclasses import replace

from minitri.tiles.ir import Programs


def start_early(programs: Programs) -> Programs:
    first, *later = programs.programs or (None,)
    if not first or not later:
        return programs
    return replace(programs, programs=(first, *(replace(p, early_start=True) for p in later)))
