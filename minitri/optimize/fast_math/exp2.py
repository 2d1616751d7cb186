"""Rules of relaxed kernels (minitri/optimize/fast_math/relax.py): exp(x - value of the row) becomes a power of two.

    %3: f32[i, r] = multiply %2, 0.125                 %3: f32[i] = reduce.max %2
    %4: f32[i] = reduce.max %3             becomes     %4: f32[i] = multiply %3, 0.18…        (0.125 * log2 e)
    %5: f32[i, r] = subtract %3, %4                    %5: f32[i, r] = multiply %2, 0.18…
    %6: f32[i, r] = exp %5                             %6: f32[i, r] = subtract %5, %4        (fused: one fma)
                                                       %7: f32[i, r] = exp2 %6

In: an op of a relaxed kernel. Out: what it becomes, or None. The hardware has 2**x alone; exp is a
product more, and where denormal results are kept three more still. Of 2**(x - max) they are not needed.
The factor log2 e goes where one is already: that of a score is a constant, and a maximum of
numbers times c > 0 is c times their maximum, exactly, because rounding keeps the order.

What it costs: the row's value times log2 e is rounded, which is |h| * 2**-24 of the exponent, for all
elements of a row the same. Such a score was itself rounded by as much when it was scaled, so it is done
to products only; what is read from memory is exact, and x - h comes first there. Where the product with
log2 e could overflow and the score does not, x - h comes first as well. A transport exp(h(old) - h(new))
is made of the difference always: its errors would add up, block after block.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from minitri.base.types import f32
from minitri.kernels import ir
from minitri.kernels.ir import Carry, Compute, Constant, Dot, Old, Op, Reduce, Spread

LOG2_E = math.log2(math.e)
BOUNDED = ("tanh", "sigmoid", "erf", "sin", "cos")  # to at most 1
EXACT = ("negative", "abs", "minimum", "maximum", "clip", "where", "copysign", "cast")  # no rounding of their own

Emit = Callable[..., Op]  # (operator, operands, ops that it is made instead of)


def scale_after_choice(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """where(p, y * c, -inf) is where(p, y, -inf) * c."""
    if not isinstance(op, Compute) or op.op != "where":
        return None
    condition, a, b = op.args
    for scaled, other, turned in ((a, b, False), (b, a, True)):
        found = _scaled(scaled)
        if found is not None and isinstance(other, Constant) and math.isinf(other.value):
            chosen = emit("where", (condition, *((other, found[0]) if turned else (found[0], other))), scaled)
            return emit("multiply", (chosen, _constant(found[1], op, add)), scaled)
    return None


def scale_after_maximum(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """max(y * c) is max(y) * c."""
    if not isinstance(op, Reduce) or op.op != "max":
        return None
    found = _scaled(op.x)
    if found is None or set(found[0].axes) != set(op.x.axes):
        return None
    best = add(Reduce(dtype=op.dtype, axes=op.axes, spans=op.spans, op=op.op, x=found[0], over=op.over))
    return emit("multiply", (best, _constant(found[1], op, add)), op.x)


def scale_after_old(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """The old m * c is the old m, times c."""
    found = _scaled(op.x) if isinstance(op, Old) else None
    if found is None or not isinstance(found[0], Reduce):
        return None
    before = add(Old(dtype=op.dtype, axes=op.axes, spans=op.spans, x=found[0]))
    return emit("multiply", (before, _constant(found[1], op, add)))


def power_of_two(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """exp(y * c - h) is 2**(y * (c * log2 e) - h * log2 e), and exp(x - h) is 2**((x - h) * log2 e)."""
    match op:
        case Compute(op="exp", args=(Compute(op="subtract", args=(x, h)) as difference,)):
            transport = any(isinstance(o, Old) for o in ir.needed(x))
            if not transport and (set(h.axes) >= set(x.axes) or not is_of_a_row(h)):
                return None
        case _:
            return None
    mine, its = _scaled(x), _scaled(h)
    if mine is not None and its is not None and mine[1] == its[1]:
        k = _constant(mine[1] * LOG2_E, op, add)
        if transport:
            exponent = emit("multiply", (emit("subtract", (mine[0], its[0]), difference), k), op)
            return emit("exp2", (exponent,), op)
    if transport or mine is None or not _may_be_spread(*mine):
        exponent = emit("multiply", (difference, _constant(LOG2_E, op, add)), op)
        return emit("exp2", (exponent,), op)
    k = _constant(mine[1] * LOG2_E, op, add)
    row = (its[0], k) if its is not None and its[1] == mine[1] else (h, _constant(LOG2_E, op, add))
    exponent = emit("subtract", (emit("multiply", (mine[0], k), x), emit("multiply", row, h)), difference)
    return emit("exp2", (exponent,), op)


def is_of_a_row(h: Op) -> bool:
    """Whether it follows a reduction (in a tile: its running value), so that exp(x - h) is one of many that are
    compared."""
    return any(isinstance(o, (Reduce, Carry)) for o in ir.needed(h))


def _may_be_spread(y: Op, c: float) -> bool:
    """Whether y * (c * log2 e) is as right as y * c: it is rounded in itself, and does not overflow before it."""
    inner = y
    while isinstance(inner, Spread) or (isinstance(inner, Compute) and inner.op in ("where", "cast")):
        inner = inner.args[1] if isinstance(inner, Compute) and inner.op == "where" else ir.op_operands(inner)[0]
    rounded = isinstance(inner, Dot) or isinstance(inner, Compute) and inner.op not in EXACT
    bounded = isinstance(inner, Compute) and inner.op in BOUNDED
    return rounded and (c * LOG2_E <= 1 or bounded and c < 1e30)


def _scaled(x: Op) -> tuple[Op, float] | None:
    """(y, c), where x is y times a positive number c, or divided by one."""
    match x:
        case (
            Compute(op="multiply", args=(Constant() as c, y))
            | Compute(op="multiply" | "divide", args=(y, Constant() as c))
        ):
            if x.dtype != f32 or isinstance(y, Constant) or not 1e-30 < c.value < 1e30:
                return None
            return y, float(np.float32(1 / c.value)) if x.op == "divide" else float(c.value)
        case _:
            return None


def _constant(value: float, op: Op, add: Callable[[Op], Op]) -> Op:
    return add(Constant(dtype=f32, axes=(), spans=op.spans, value=float(np.float32(value))))


RULES = (scale_after_choice, scale_after_maximum, scale_after_old, power_of_two)
