"""tile → tile: computes an f32 multiplication in f16 if the result of the multiplication is rounded to f16 anyway.

    %5: f32[r, k] = cast w             becomes     %5: f16[r, k] = cast w            i8
    %6: f32[r, k] = multiply %5, %1                %6: f16[r, k] = multiply %5, %1   %1: cast of f16
    %7: f16[r, k] = cast %6                        %7: f16[r, k] = cast %6           now f16 to f16, so it does nothing

Multiplying in f16 gives the same bits as multiplying in f32 and then rounding to f16. The product of two f16 numbers is
exact in f32, so only the cast to f16 rounds. An f16 multiplication rounds the exact product only once, as the cast
does. An operand of the multiplication may also be a converted 8-bit integer, because f16 represents every 8-bit integer
exactly.

In a tile program, the pass `f16-multiplication` gives the dtype f16 to some multiplications and to their operands. A
multiplication gets the dtype f16 only if each op that uses its result casts the result to f16. A multiplication gets
the dtype f16 only if f16 represents both operands exactly. An operand gets the dtype f16 only if all ops that use the
operand are f16 multiplications. Programs without matrix products are not changed, because memory limits the speed of
such programs. Additions stay in f32, because in f16 their operands would be rounded before the addition.
Multiplications are not computed in bf16, because Triton's interpreter cannot multiply bf16 numbers.
"""

from minitri.base.types import f16, f32
from minitri.kernels.ir import Compute, Dot, Op, children
from minitri.tiles.ir import Program
from minitri.tiles.rewrite import carried, largest_subset, retyped, users


def halve(program: Program) -> Program:
    return retyped(program, dict.fromkeys(_halved(program), f16))


def _halved(program: Program) -> set[Op]:
    """Returns the f32 multiplications that can be computed in f16, and also the operands of these multiplications."""
    ops = list(program.ops())
    if not any(isinstance(op, Dot) for op in ops):
        return set()
    used_by, passed = users(program), carried(program)
    # multiplications whose results are rounded to f16 anyway
    found = {op for op in ops if _is_product(op) and all(map(_rounds, used_by[op]))} - passed

    def keeps(op: Op, kept: set[Op]) -> bool:
        # the operands become f16 too, so only f16 multiplications may use them
        return all(kept.issuperset(used_by[a]) and a not in passed for a in children(op))

    kept = largest_subset(found, used_by, keeps)
    return kept | {a for op in kept for a in children(op)}


def _is_product(op: Op) -> bool:
    return isinstance(op, Compute) and op.op == "multiply" and op.dtype == f32 and all(map(_is_half, op.args))


def _is_half(op: Op) -> bool:
    """Checks whether an op casts f16 values or 8-bit integers. f16 represents both exactly."""
    if not isinstance(op, Compute) or op.op != "cast":
        return False
    source = op.args[0].dtype
    return source == f16 or source.is_integer and source.bits == 8


def _rounds(user: Op) -> bool:
    return isinstance(user, Compute) and user.op == "cast" and user.dtype == f16
