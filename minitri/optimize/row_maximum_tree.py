"""tile → tile: computes the maximum of a wide row of a product in parts of 16 columns ("reduction tree").

    %5: f32[i] = reduce.max %4 {over = [j]}      becomes     {over = [j], in_parts = true}

After a product, each thread of a warp holds many elements of a row of the result. Triton compares the elements of a
thread one after another, so each comparison waits for the previous comparison. If a row is divided into parts, a thread
can compare the elements of several parts at the same time.

The maximum of each row of a product gets the hint `in_parts` if the product has at least COLUMNS (128) columns. A
maximum is computed in parts (`in_parts`) only if each warp computes complete rows. If a loop carries the product from
one iteration to the next, CARRIED_COLUMNS (32) columns are enough for the hint. If a loop carries a product and
compares the elements of a row one after another, NVIDIA's assembler makes the tensor cores wait for each instruction.
"""

from minitri.kernels.ir import Carry, Compute, Dot, Op, Reduce
from minitri.tiles.ir import Program
from minitri.tiles.verify import maximum_of_rows

COLUMNS, CARRIED_COLUMNS = 128, 32


def part(program: Program) -> Program:
    return program.hinted([op for op in program.ops() if _is_of_a_wide_product(program, op)], in_parts=True)


def _is_of_a_wide_product(program: Program, op: Op) -> bool:
    if not isinstance(op, Reduce) or not (tile := maximum_of_rows(program, op)):
        return False
    rows, columns = tile
    source, carried = _product(op.x)
    many = columns.lanes >= (CARRIED_COLUMNS if carried else COLUMNS)
    return many and rows.lanes >= 16 * program.warps and isinstance(source, Dot)


def _product(op: Op) -> tuple[Op, bool]:
    """Returns the op where a chain of elementwise ops begins. The bool says whether a loop carries the value."""
    while isinstance(op, Compute):
        op = max(op.args, key=lambda o: len(o.axes))
    # a loop carries the value of a `Carry` from one iteration to the next
    return (op.initial, True) if isinstance(op, Carry) else (op, False)
