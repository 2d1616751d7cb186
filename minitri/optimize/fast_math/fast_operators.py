"""tile → tile: uses faster but less exact instructions if results are rounded to 16 bits ("fast math").

    %2: f32[i] = sqrt %1           becomes     %2: f32[i] = sqrt %1 {fast = true}       tl.sqrt, not tl.sqrt_rn

The pass `fast-math` marks a kernel `relaxed` only if its results are rounded to 16 bits (relax.py). Some operators have
a faster instruction with a relative error of about 2**-18 (field `relaxed` in minitri/base/operators.py).

In `relaxed` programs, operators with a faster instruction get the hint `fast` from the pass `fast-operators`. The fast
instruction for `2**x` returns 0 instead of a denormal number. The fast instruction computes a power only if the
exponent is x - h, with the same h for the whole row. For example, h can be the row's maximum. If h is the row's
maximum, the largest of the row's powers `2**(x - h)` is 1. If the largest power `2**(x - h)` of a row is 1, the
denormal powers of the row are too small to change the row's sum.
"""

from minitri.base.operators import OPERATORS
from minitri.base.types import f32
from minitri.kernels.ir import Compute, Constant, Op
from minitri.optimize.fast_math.relax import is_of_a_row
from minitri.tiles.ir import Program


def hasten(program: Program) -> Program:
    return program.hinted([op for op in program.ops() if _is_fast(op)], fast=True) if program.relaxed else program


def _is_fast(op: Op) -> bool:
    if not isinstance(op, Compute) or op.op == "cast" or op.args[-1].dtype != f32 or not OPERATORS[op.op].relaxed:
        return False
    return op.op != "exp2" or _is_about_a_row(op.args[0])


def _is_about_a_row(exponent: Op) -> bool:
    """Checks whether an exponent has the form x - h, where h is one value for the whole row."""
    # a constant times x - h is also accepted
    if isinstance(exponent, Compute) and exponent.op == "multiply" and isinstance(exponent.args[1], Constant):
        exponent = exponent.args[0]
    return isinstance(exponent, Compute) and exponent.op == "subtract" and is_of_a_row(exponent.args[1])
