"""tile → tile: computes maxima of a matrix product's wide rows in parts of 16 columns ("reduction tree").

    %5: f32[i] = reduce.max %4 {over = [j]}      becomes     {over = [j], in_parts = true}

After a matrix product, each thread of a warp holds many elements from a row of the result. Triton compares the elements
of a thread one after another, so each comparison waits for the previous comparison. If a row is divided into parts, a
thread can compare the elements of several parts at the same time.

If a matrix product has at least COLUMNS (128) columns, the maximum of each row is computed in parts of the row (hint
`in_parts`). A maximum is computed in parts (`in_parts`) only if each warp computes complete rows. If a loop carries the
product to its next iteration, CARRIED_COLUMNS (32) columns are enough instead of COLUMNS. A loop that carries a product
should not compare the elements of a row one after another. Otherwise, NVIDIA's assembler makes the tensor cores wait
for each instruction to end.
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
    """Returns the op where a chain of elementwise ops begins, and whether a loop carries the value of this op."""
    while isinstance(op, Compute):
        op = max(op.args, key=lambda o: len(o.axes))
    # a loop carries the value of a `Carry` from one iteration to the next
    return (op.initial, True) if isinstance(op, Carry) else (op, False)
