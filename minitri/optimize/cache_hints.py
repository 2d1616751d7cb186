"""tile → tile: marks loads in loops that sum columns, so that the L2 cache drops the loaded elements first.

    x @ w, x: bf16[1, 4096], w: bf16[4096, 4096]

    %1: bf16[j, r] = load w[r, j]        becomes     %1: bf16[j, r] = load w[r, j] {evict_first = true}

The kernel of `x @ w` reads each element of w once, so the elements of w need not stay in the cache. On an H200 a vector
times a matrix takes 3 to 7 % less time with the hint `evict_first`. The hint `evict_first` is written
`eviction_policy="evict_first"` in Triton and `L2::evict_first` in PTX.

The pass `cache-hints` gives the hint `evict_first` to some loads of a tile program. A kernel that writes as much as it
reads would be slower with the hint, so only kernels that write little get the hint. Reductions of rows do not get the
hint `evict_first`, because the hint can make them slower. Kernels that use tensor cores do not get the hint
`evict_first`, because their grid programs share blocks through the cache.
"""

from minitri.base.dims import Symbol
from minitri.kernels.ir import Dot, Load, Store
from minitri.tiles.ir import Loop, Program


def mark(program: Program) -> Program:
    """Adds the hint `evict_first` to the loads in loops that sum along columns, and returns the new program."""
    ops = list(program.ops())
    inside = {a.name for a in program.axes if a.role != "grid"}
    writes_much = any(inside & op.indexed_by for op in ops if isinstance(op, Store))
    if writes_much or any(isinstance(op, Dot) or isinstance(op, Load) and op.picks for op in ops):
        return program
    read = [op for loop in program.loops if _sums_columns(loop) for op in loop.body if isinstance(op, Load)]
    return program.hinted(read, evict_first=True)


def _sums_columns(loop: Loop) -> bool:
    """Checks whether a loop runs down the columns of a row-major array."""
    loads = (op for op in loop.body if isinstance(op, Load))
    steps = [op.offset.coefficient(Symbol(a, "axis")) for op in loads for a in op.indexed_by - {*loop.axes}]
    # a row has the elements that are neighbours in memory: here along another axis than the loop's
    return any(step is not None and step[0] == 1 for step in steps)
