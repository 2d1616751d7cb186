"""tile → tile: products of f32 that are rounded to f16 anyway are made in f16.

    %5: f32[r, k] = cast w             becomes     %5: f16[r, k] = cast w            i8
    %6: f32[r, k] = multiply %5, %1                %6: f16[r, k] = multiply %5, %1   %1: cast of f16
    %7: f16[r, k] = cast %6                        %7: f16[r, k] = cast %6           nothing is left to do

The product of two f16 is exact in f32, so that rounding it is what a multiplication of f16 does; integers of 8 bits
are f16 as they are. In: a masked program. Out: the same with other dtypes for such products, and for their factors if
nothing else asks for those. Left out: programs that multiply no matrices (they wait for memory); sums, in which a
product would no longer be rounded by itself; bf16, which Triton's interpreter keeps as bits and cannot multiply.
"""

from __future__ import annotations

from minitri.base.types import f16, f32
from minitri.kernels.ir import Compute, Dot, Op, op_operands
from minitri.tiles.ir import Program
from minitri.tiles.rewrite import carried, retyped, users


def halve(program: Program) -> Program:
    return retyped(program, dict.fromkeys(_halved(program), f16))


def _halved(program: Program) -> set[Op]:
    """The ops of f32 that are computed in f16."""
    ops = list(program.ops())
    if not any(isinstance(op, Dot) for op in ops):
        return set()
    used_by, passed = users(program), carried(program)
    found = {op for op in ops if _is_product(op) and all(map(_rounds, used_by[op]))} - passed
    kept, last = found, set[Op]()
    while kept != last:
        last = kept
        kept = {op for op in last if all(set(used_by[a]) <= last and a not in passed for a in op_operands(op))}
    return kept | {a for op in kept for a in op_operands(op)}


def _is_product(op: Op) -> bool:
    return isinstance(op, Compute) and op.op == "multiply" and op.dtype == f32 and all(map(_is_half, op.args))


def _is_half(op: Op) -> bool:
    """Whether f16 has all its values."""
    if not isinstance(op, Compute) or op.op != "cast":
        return False
    source = op.args[0].dtype
    return source == f16 or source.is_integer and source.bits == 8


def _rounds(user: Op) -> bool:
    return isinstance(user, Compute) and user.op == "cast" and user.dtype == f16
