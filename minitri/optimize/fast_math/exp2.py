"""Rules of relaxed kernels (minitri/optimize/fast_math/relax.py): exp(x - value of the row) becomes a power of two.

    %3: f32[i, r] = multiply %2, 0.125                 %3: f32[i] = reduce.max %2
    %4: f32[i] = reduce.max %3             becomes     %4: f32[i] = multiply %3, 0.18…        (0.125 * log2 e)
    %5: f32[i, r] = subtract %3, %4                    %5: f32[i, r] = multiply %2, 0.18…
    %6: f32[i, r] = exp %5                             %6: f32[i, r] = subtract %5, %4        (fused: one fma)
                                                       %7: f32[i, r] = exp2 %6

In: an op of a relaxed kernel. Out: the op that replaces it, or None. The hardware computes only 2**x. So exp needs one
more multiplication, and three more if it must keep denormal results. A softmax needs no denormal results. If x is
already multiplied by a constant, as a score of attention is, then log2 e is merged into that constant. For c > 0 the
maximum of c * x is exactly c times the maximum of x, because rounding is monotone.

Accuracy: the product of the row's value h and log2 e is rounded. The rounding error changes the exponent by up to
|h| * 2**-24, by the same amount for all elements of a row. The scaling of a score has a rounding error of the same
size. Values loaded from memory have none, so x - h is computed first for them. The rule also computes x - h first if
the product with log2 e could overflow. A transport exp(h(old) - h(new)) always uses the difference, because its errors
would accumulate from block to block.
"""

import math
from collections.abc import Callable

import numpy as np

from minitri.base.types import f32
from minitri.kernels import ir
from minitri.kernels.ir import Carry, Compute, Constant, Dot, Old, Op, Reduce, Spread

LOG2_E = math.log2(math.e)
BOUNDED = ("tanh", "sigmoid", "erf", "sin", "cos")  # the absolute value is at most 1
EXACT = ("negative", "abs", "minimum", "maximum", "clip", "where", "copysign", "cast")  # do not round

Emit = Callable[..., Op]  # takes an operator, its operands and the ops that the new op replaces


def scale_after_choice(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """where(p, y * c, -inf) becomes where(p, y, -inf) * c."""
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
    """max(y * c) becomes max(y) * c."""
    if not isinstance(op, Reduce) or op.op != "max":
        return None
    found = _scaled(op.x)
    if found is None or set(found[0].axes) != set(op.x.axes):
        return None
    best = add(Reduce(dtype=op.dtype, axes=op.axes, spans=op.spans, op=op.op, x=found[0], over=op.over))
    return emit("multiply", (best, _constant(found[1], op, add)), op.x)


def scale_after_old(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """`old(m * c)` becomes `old(m) * c`. `old` is the value of a running reduction before a block."""
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
    y, c = _scaled(x) or (None, 1.0)
    of_row, same = _scaled(h) or (h, 0.0)
    same = same == c
    k = _constant(c * LOG2_E, op, add)
    if y is not None and transport and same:
        exponent = emit("multiply", (emit("subtract", (y, of_row), difference), k), op)
    elif y is None or transport or not _may_be_spread(y, c):
        exponent = emit("multiply", (difference, _constant(LOG2_E, op, add)), op)
    else:
        row = (of_row, k) if same else (h, _constant(LOG2_E, op, add))
        exponent = emit("subtract", (emit("multiply", (y, k), x), emit("multiply", row, h)), difference)
    return emit("exp2", (exponent,), op)


def is_of_a_row(h: Op) -> bool:
    """Whether h depends on a reduction of the row. In a tile program, h then depends on a value that a loop carries.

    If it does, exp(x - h) is one of many terms of a row, and its denormal results do not matter.
    """
    return any(isinstance(o, (Reduce, Carry)) for o in ir.needed(h))


def _may_be_spread(y: Op, c: float) -> bool:
    """Whether y * (c * log2 e) is as accurate as y * c and overflows no earlier. Then y itself is already rounded."""
    inner = y
    while isinstance(inner, Spread) or (isinstance(inner, Compute) and inner.op in ("where", "cast")):
        inner = inner.args[1] if isinstance(inner, Compute) and inner.op == "where" else ir.op_operands(inner)[0]
    rounded = isinstance(inner, Dot) or isinstance(inner, Compute) and inner.op not in EXACT
    bounded = isinstance(inner, Compute) and inner.op in BOUNDED
    return rounded and (c * LOG2_E <= 1 or bounded and c < 1e30)


def _scaled(x: Op) -> tuple[Op, float] | None:
    """(y, c) if x is y times a positive constant c, or y divided by 1 / c. Otherwise None."""
    match x:
        case (
            Compute(op="multiply", args=(Constant() as c, y))
            | Compute(op="multiply" | "divide", args=(y, Constant() as c))
        ):
            if x.dtype != f32 or isinstance(y, Constant) or not 1e-30 < c.value < 1e30:
                return None
            return y, float(np.float32(1 / c.value)) if x.op == "divide" else float(c.value)
    return None


def _constant(value: float, op: Op, add: Callable[[Op], Op]) -> Op:
    return add(Constant(dtype=f32, axes=(), spans=op.spans, value=float(np.float32(value))))


RULES = (scale_after_choice, scale_after_maximum, scale_after_old, power_of_two)
