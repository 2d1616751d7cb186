"""tile → tile: computes the maximum of a wide row of a product in parts of 16 columns ("reduction tree").

    %5: f32[i] = reduce.max %4 {over = [j]}      becomes     {over = [j], in_parts = true}

After a product, each thread of a warp has many elements of a row. Triton compares them one after another, so each
comparison waits for the one before. In parts there are several independent chains of comparisons, which a
multiprocessor overlaps.

In: a masked program. Out: the same program with hints, if each warp has complete rows of a product with at least
COLUMNS columns. If a loop carries the product, CARRIED_COLUMNS are enough. With one chain of comparisons, NVIDIA's
assembler makes the tensor cores of such a loop wait for each instruction.
"""

from __future__ import annotations

from minitri.kernels.ir import Carry, Compute, Dot, Op, Reduce
from minitri.tiles.ir import Program

COLUMNS, CARRIED_COLUMNS = 128, 32


def part(program: Program) -> Program:
    return program.hinted([op for op in program.ops() if _is_of_a_wide_product(program, op)], in_parts=True)


def _is_of_a_wide_product(program: Program, op: Op) -> bool:
    if not isinstance(op, Reduce) or op.op != "max" or op.index is not None:
        return False
    wide = [a for a in program.axes if a.block > 1 and a.name in op.x.axes]
    if len(wide) != 2 or [a for a in wide if a.name in op.over] != wide[1:]:
        return False
    source, carried = _product(op.x)
    many = wide[1].lanes >= (CARRIED_COLUMNS if carried else COLUMNS)
    return many and wide[0].lanes >= 16 * program.warps and isinstance(source, Dot)


def _product(op: Op) -> tuple[Op, bool]:
    """The op that a tile is computed from by elementwise ops, and whether a loop carries that op."""
    while isinstance(op, Compute):
        op = max(op.args, key=lambda o: len(o.axes))
    return (op.initial, True) if isinstance(op, Carry) else (op, False)
