"""tile → tile: marks loads of elements that are read once. The L2 cache may drop such elements before others.

    %0: f32[i, r] = load x[i, r]         becomes     %0: f32[i, r] = load x[i, r] {evict_first = true}

A sum of rows reads each element once. If these elements stay in the cache, they only replace elements that are read
again, such as the vector x in the program `x @ w` with w: bf16[4096, 4096]. The hint is `eviction_policy="evict_first"`
in Triton and `L2::evict_first` in PTX.

In: a masked program. Out: the same program with hints. Only kernels that read much and write little have hints, because
a hint costs time if a kernel writes as much as it reads. Left out: kernels with tensor cores, whose programs share
blocks through the cache.
"""

from collections import Counter

from minitri.kernels.ir import Dot, Load, Store
from minitri.tiles.ir import Program


def mark(program: Program) -> Program:
    """Returns the program in which each load of elements that are read once has the hint `evict_first`."""
    ops = list(program.ops())
    loads = [op for op in ops if isinstance(op, Load)]
    inside = {a.name for a in program.axes if a.role != "grid"}
    writes_much = any(inside & op.indexed_by for op in ops if isinstance(op, Store))
    if not inside or writes_much or any(isinstance(op, Dot) or isinstance(op, Load) and op.picks for op in ops):
        return program
    reads = Counter(op.buffer.name for op in loads)
    wanted = {a.name for a in program.axes}
    return program.hinted(
        [op for op in loads if reads[op.buffer.name] == 1 and wanted <= op.indexed_by], evict_first=True
    )
