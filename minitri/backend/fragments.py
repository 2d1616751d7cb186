"""Products whose rows stand in a loop as tensor cores hold them, so that bytes are read four at a time.

A warp gives a tensor core of Hopper 16 rows of a first operand from its registers, and a thread has two of them, eight
apart (PTX, "Register Fragments for wgmma.mma_async.m64nNk16"); of the next 64 rows it has two more. Weights of 8 bits lie
in memory row beside row: of four neighbours, four threads would read a byte each. Which rows of a tile a tensor core calls
its first is nobody's business, as long as the sums are put back. So neighbours become the rows of one thread:

    v7 = rt.dot(rt.to_fragments(v6, 4), v3, v2, "ieee")        row 0, 8, 64, 72 of what is multiplied: rows 0, 1, 2, 3
    v2 = v7
    v2 = rt.from_fragments(v2, 4)                              after the loop

Triton moves the order to where bytes are read: a read of 32 bits takes the place of four. In: a tile program and a loop
of it. Out: the products of which that holds. Elsewhere than on Hopper the two functions do nothing.
"""

from __future__ import annotations

from minitri.backend.pipelined import operands, settles
from minitri.kernel.ir import Carry, Dot, Load, Op, needed, op_operands
from minitri.tile.ir import Loop, Program


def in_fragments(program: Program, loop: Loop) -> dict[Dot, Carry]:
    """The products, and what carries their sums."""
    if not settles(program, loop):
        return {}
    sums = {n: c for c, n in loop.carries if isinstance(n, Dot) and n.acc is c and _is_alone(loop, c, n)}
    return {dot: carry for dot, carry in sums.items() if _is_of_bytes(program, dot)}


def warps_of(program: Program, dot: Dot) -> int:
    """Those that share the rows of the first operand, 16 each."""
    return min(program.warps, program.axis(_row(program, dot)).lanes // 16)


def _is_alone(loop: Loop, carry: Carry, dot: Dot) -> bool:
    """Whether nothing else of the loop sees the sums."""
    users = [op for op in loop.body if {carry, dot} & {*op_operands(op)}]
    return users == [dot] and [n for _, n in loop.carries].count(dot) == 1


def _is_of_bytes(program: Program, dot: Dot) -> bool:
    """Whether the first operand is made of 8 bits that lie row beside row in memory, for whole warps of rows."""
    first, _ = operands(program, dot)
    row = program.axis(_row(program, dot))
    whole = program.warps in (4, 8) and row.lanes % (16 * warps_of(program, dot)) == 0
    return whole and any(_lies_along(op, row.name) for op in needed(first))


def _lies_along(op: Op, row: str) -> bool:
    if not isinstance(op, Load) or op.dtype.bytes > 1 or len(op.axes) < 2:
        return False
    last = op.index[-1]
    return op.buffer.strides[-1] == 1 and row in {s.name for s in last.symbols()}


def _row(program: Program, dot: Dot) -> str:
    """The axis of the rows of the first operand."""
    first, _ = operands(program, dot)
    return next(a for a in dot.tile if a in first.axes)
