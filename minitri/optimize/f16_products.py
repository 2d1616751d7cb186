"""Finds f32 products of elements that a kernel can compute in f16, because they are rounded to f16 anyway.

    %5: f32[r, k] = cast w           i8                  v5 = rt.byte_to_f16(v4)
    %6: f32[r, k] = multiply %5, %1  %1: cast of f16     v6 = v5 * v1[None, :]      of tl.float16
    %7: f16[r, k] = cast %6

The product of two f16 is exact in f32, so that rounding it is what a multiplication of f16 does; integers of 8 bits are
f16 as they are. In: a program. Out: the products, and what they are made of, if nothing else asks for them. Left out:
programs that multiply no matrices (they wait for memory); sums, in which a product would no longer be rounded by itself;
bf16, which Triton's interpreter keeps as bits and cannot multiply.
"""

from __future__ import annotations

from minitri.base.types import f16, f32
from minitri.kernels.ir import Compute, Dot, Op, op_operands
from minitri.tiles.ir import Program


def halved(program: Program) -> set[Op]:
    """The ops of f32 that are computed in f16."""
    ops = list(program.ops())
    if not any(isinstance(op, Dot) for op in ops):
        return set()
    users, carried = program.users(), program.carried
    found = {op for op in ops if _is_product(op) and all(_rounds(u) for u in users[op])} - carried
    kept, last = found, set[Op]()
    while kept != last:
        last = kept
        kept = {op for op in last if all(set(users[a]) <= last and a not in carried for a in op_operands(op))}
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
