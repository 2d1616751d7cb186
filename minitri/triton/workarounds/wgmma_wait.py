"""tile → tile: loops of products in which each iteration first waits for the tensor cores.

A tensor core of Hopper reads a computed first operand from registers, and continues reading while the program runs on.
In a loop that Triton pipelines, the program computes the next operand meanwhile. Nothing in Triton 3.6 keeps it from
writing the same registers (triton-lang/triton, issue 9433). Sums can then be wrong, and differ from call to call.

    for r_start in range(0, 512, BLOCK_R):
        rt.settle()                             becomes wgmma.wait_group 0
        v3 = …

In: a masked program. Out: the same with the hint `wait` for the loops that need it. Triton waits by itself in three cases: at a
product whose second operand is computed; if the same iteration uses the sums (attention); and if the first operand
comes from another product of the iteration. Without Triton 3.6 this file can go.
"""

from __future__ import annotations

from minitri.kernels.ir import Carry, Dot, Load, Op, needed
from minitri.tiles.ir import Loop, Program

ROWS = 64  # that tensor cores of Hopper take at once; fewer are multiplied by other instructions, which wait


def settle(program: Program) -> Program:
    loops = [s for s in program.body if isinstance(s, Loop)]
    return program.hinted([loop for loop in loops if settles(program, loop)], wait=True)


def settles(program: Program, loop: Loop) -> bool:
    """Whether a computed first operand may be in use when the next iteration begins."""
    dots = [op for op in loop.body if isinstance(op, Dot) and op.on_tensor_cores]
    factors = [program.factors(d) for d in dots]
    risky = [n for n, (d, (first, _)) in enumerate(zip(dots, factors)) if _is_left_alone(program, loop, d, first)]
    waits = [n for n, (d, (_, second)) in enumerate(zip(dots, factors)) if _is_made_each_round(loop, d, second)]
    return max(risky, default=-1) > max(waits, default=-1)


def _is_left_alone(program: Program, loop: Loop, dot: Dot, first: Op) -> bool:
    """Whether nothing of the loop waits for a product whose first operand it computes."""
    row = next(a for a in dot.tile if a in first.axes)
    computed = first in loop.body and not isinstance(first, Load)
    of_product = any(isinstance(op, Dot) for op in needed(first) if op in loop.body)  # which has been waited for
    return computed and not of_product and isinstance(dot.acc, Carry) and program.axis(row).lanes >= ROWS


def _is_made_each_round(loop: Loop, dot: Dot, second: Op) -> bool:
    """Whether a second operand is computed from loads of the iteration. (Triton moves any other out of the loop.)"""
    read = [op for op in needed(second) if isinstance(op, Load) and dot.over in op.axes and op in loop.body]
    return bool(read) and not isinstance(second, Load)
