"""tiles → tiles: lets a kernel start while the previous kernel ends ("programmatic dependent launch", PDL).

    program k1(…) warps 4 {         becomes     program k1(…) warps 4 early_start {

The launch of a kernel takes microseconds. With an early start, the launch overlaps with the end of the previous kernel.
Before the kernel reads anything, it waits until the results of the previous kernel are in memory.

In: the programs of a call, for a target that supports early starts. Out: the same programs, with `early_start` on all
programs except the first.
"""

from dataclasses import replace

from minitri.tiles.ir import Programs


def start_early(programs: Programs) -> Programs:
    first, *later = programs.programs or (None,)
    if not first or not later:
        return programs
    return replace(programs, programs=(first, *(replace(p, early_start=True) for p in later)))
