"""Loops of products at whose beginning a program waits for tensor cores.

A tensor core of Hopper reads the first operand of a product from registers if it is computed, and goes on reading while
the program does. A loop that Triton pipelines computes the next operand meanwhile, and in Triton 3.6 nothing keeps it
from the same registers (triton-lang/triton, issue 9433): sums can be wrong, and others at each call.

    for r_start in range(0, 512, BLOCK_R):
        rt.settle()                             becomes wgmma.wait_group 0
        v3 = …

In: a tile program, and a loop of it. Out: whether it needs that. Triton waits by itself at a product whose second operand
is computed (what came before it is done then), where sums are used within the round (attention), and where the first
operand is made of another product of the round. Without Triton 3.6 all of this can go.
"""

from __future__ import annotations

from minitri.kernels.ir import Carry, Dot, Load, Op, needed
from minitri.tiles.ir import Loop, Program

ROWS = 64  # that tensor cores of Hopper take at once; fewer are multiplied by other instructions, which wait


def settles(program: Program, loop: Loop) -> bool:
    """Whether a computed first operand may be in use when the next round begins."""
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
    """Whether a second operand is computed from what each round reads. (Triton takes what is not out of the loop.)"""
    read = [op for op in needed(second) if isinstance(op, Load) and dot.over in op.axes and op in loop.body]
    return bool(read) and not isinstance(second, Load)
