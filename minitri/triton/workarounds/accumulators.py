"""tile → tile: accumulators whose first value is kept from Triton's compiler.

    m = rt.unknown(tl.full((8, ), float("-inf"), tl.float32))
    for r_start in range(0, 66, BLOCK_R):
        v5 = rt.reduce_max(v4, 1)               v4 is what tl.load gives
        m = rt.maximum(m, v5)
    ... two more loops read m

Triton's pass `OptimizeThreadLocality` looks for a loop that reduces a loaded block and adds the result to an accumulator
that starts at a constant. It expects that one op reads the accumulator after the loop. If several do, Triton 3.6 stops with
"PassManager::run failed" (triton-lang/triton, pull request 11305). An accumulator that starts at an unknown value is left
alone. LLVM sees through `rt.unknown`, so the machine code has no more instructions.

In: a masked program. Out: the same with the hint `unknown_start` for the accumulators that need it.
"""

from __future__ import annotations

from minitri.kernels.ir import Carry, Compute, Load, Op, Reduce, needed
from minitri.tiles.ir import Loop, Program


def hide_starts(program: Program) -> Program:
    return program.hinted(_unknown_starts(program), unknown_start=True)


def _unknown_starts(program: Program) -> set[Carry]:
    """Accumulators of reduced loads that several later loops read."""
    loops = [stmt for stmt in program.body if isinstance(stmt, Loop)]
    return {
        carry
        for k, loop in enumerate(loops)
        for carry, following in loop.carries
        if _reduces_a_load(loop, following) and sum(_reads(later, carry) for later in loops[k + 1 :]) > 1
    }


def _reduces_a_load(loop: Loop, following: Op) -> bool:
    added = following.args if isinstance(following, Compute) else ()
    return any(isinstance(op, Reduce) and isinstance(op.x, Load) and op in loop.body for op in added)


def _reads(loop: Loop, carry: Carry) -> bool:
    values = [*loop.body, *(following for _, following in loop.carries)]
    return any(carry in needed(op) for op in values)
