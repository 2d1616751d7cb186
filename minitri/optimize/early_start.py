"""tiles → tiles: lets a kernel start before the previous kernel has ended ("programmatic dependent launch", PDL).

    program k1(…) warps 4 {         becomes     program k1(…) warps 4 early_start {

The launch of a kernel takes microseconds. If a kernel starts early, its launch overlaps with the end of the previous
kernel. A kernel that starts early waits for the results of the previous kernel before it loads anything.

The pass `early-start` takes the tile programs that a call launches, in launch order. If the GPU supports programmatic
dependent launch, the pass marks all tile programs except the first as `early_start`.
"""

from dataclasses import replace

from minitri.tiles.ir import Programs


def start_early(programs: Programs, supported: bool) -> Programs:
    if not supported or len(programs.programs) < 2:
        return programs
    first, *later = programs
    return replace(programs, programs=(first, *(replace(p, early_start=True) for p in later)))
