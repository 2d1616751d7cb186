"""kernels → kernels: uses faster, less exact arithmetic in kernels whose results are rounded to 16 bits ("fast math").

    kernel k0(input x: bf16[M, N], output out: bf16[M, N]) over i: M, reduce r: N {
      …                                    becomes  kernel k0(…) over i: M, reduce r: N relaxed {
      %5: f32[i, r] = divide %3, %4                   %5: f32[i] = reciprocal %4
                                                      %6: f32[i, r] = multiply %3, %5

A kernel is *relaxed* under two conditions. Every float that the kernel writes must be f16 or bf16, or a temporary that
only relaxed kernels read. And no discontinuous operation may depend on the kernel's arithmetic: no comparison, floor,
argmax or conversion to an integer. In a relaxed kernel x * y + z may be rounded once instead of twice. Operators may
use faster instructions with a relative error of about 2**-18 (`Operator.relaxed`). In a relaxed kernel, these rules
rewrite slow operators:

    x / y, y without some axis of x         x * (1 / y): one division per row
    1 + tanh(x)                             2 * sigmoid(2 * x)
    exp(y * c - max(y * c))                 2**(y * k - max(y) * k)

An f32 ulp is 2**-16 of a bf16 ulp and 2**-13 of an f16 ulp. So a result changes only if its rounding was nearly a tie.
Kernels that write f32 or f64 are not relaxed.

The last rule makes exp(x - value of the row) a power of two:

    %3: f32[i, r] = multiply %2, 0.125                 %3: f32[i] = reduce.max %2
    %4: f32[i] = reduce.max %3             becomes     %4: f32[i] = multiply %3, 0.18…        (0.125 * log2 e)
    %5: f32[i, r] = subtract %3, %4                    %5: f32[i, r] = multiply %2, 0.18…
    %6: f32[i, r] = exp %5                             %6: f32[i, r] = subtract %5, %4        (fused: one fma)
                                                       %7: f32[i, r] = exp2 %6

The hardware computes only 2**x. So exp(x) needs one more multiplication than 2**x, and three more multiplications if
denormal results must be exact. A softmax needs no denormal results. If x is already multiplied by a constant, as a
score of attention is, log2 e is merged into that constant. For c > 0 the maximum of c * x is exactly c times the
maximum of x, because rounding is monotone.

Accuracy: the product of the row's value h and log2 e is rounded. This rounding error changes the exponent by up to |h|
* 2**-24, and by the same amount for all elements of a row. The scaling of a score of attention has a rounding error of
the same size. Values loaded from memory have no rounding error, so for loaded values x - h is computed first. The rule
also computes x - h first if the product with log2 e could overflow. The factor exp(h(old) - h(new)) that corrects a
running sum is always computed from the difference. Without the difference, rounding errors would accumulate from block
to block.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from minitri.base.operators import JUMPS, reduction
from minitri.base.pass_logs import fired
from minitri.base.types import f32, f64
from minitri.kernels import ir
from minitri.kernels.ir import Buffer, Compute, Constant, Kernel, Load, Op, Plan, Reduce, Scan, Store
from minitri.optimize.online_reductions.kernels import is_one

LOG2_E = math.log2(math.e)
BOUNDED = ("tanh", "sigmoid", "erf", "sin", "cos")  # the absolute value is at most 1
EXACT = ("negative", "abs", "minimum", "maximum", "clip", "where", "copysign", "cast")  # do not round

Emit = Callable[..., Op]  # takes an operator, its operands and the ops that the new op replaces


def relax(plan: Plan) -> Plan:
    narrow = {b.name for b in plan.outputs if b.dtype.is_float and b.dtype.bits == 16}
    kernels: list[Kernel] = []
    for kernel in reversed(plan.kernels):
        jumped = _ops_before_jumps(kernel)
        relaxed = _narrow(kernel, narrow, jumped)
        kernels.append(_rewritten(replace(kernel, relaxed=True)) if relaxed else kernel)
        read = {op.buffer for op in kernel.body if isinstance(op, Load) and op.buffer.role == "temporary"}
        exact = {op.buffer for op in jumped if isinstance(op, Load)}
        for b in read:  # a temporary may be rounded if its only reader allows it
            least = relaxed and b not in exact and _only_reader(b, kernel, plan)
            (narrow.add if least else narrow.discard)(b.name)
    return replace(plan, kernels=tuple(reversed(kernels)))


def _only_reader(buffer: Buffer, kernel: Kernel, plan: Plan) -> bool:
    others = (op for k in plan.kernels if k is not kernel for op in k.body)
    return not any(isinstance(op, Load) and op.buffer.name == buffer.name for op in others)


def _narrow(kernel: Kernel, narrow: set[str], jumped: set[Op]) -> bool:
    """Checks whether 16 bits of accuracy are enough for everything that a kernel computes in f32."""
    stores = [op for op in kernel.body if isinstance(op, Store) and op.buffer.dtype.is_float]
    if not stores or not all(op.buffer.name in narrow for op in stores):
        return False
    if any(op.dtype == f64 and not isinstance(op, (ir.Scalar, Compute, Constant)) for op in kernel.body):
        return False  # the program computes in f64 on purpose
    return not any(_is_arithmetic(op) for op in jumped)


def _ops_before_jumps(kernel: Kernel) -> set[Op]:
    """Returns the ops whose rounding could change the result of a discontinuous op, such as a comparison."""
    behind: set[Op] = set()
    for op in reversed(kernel.body):
        if _jumps(op) or op in behind:
            behind |= set(ir.op_operands(op))
    return behind


def _is_arithmetic(op: Op) -> bool:
    """Checks whether an op computes a float that may be rounded differently. Loads and selections never round."""
    if isinstance(op, (Reduce, Scan)):
        return op.dtype.is_float and reduction(op.op).kind in ("sum", "product")
    return isinstance(op, ir.Dot) or isinstance(op, Compute) and op.dtype.is_float and op.op not in EXACT


def _jumps(op: Op) -> bool:
    if isinstance(op, Reduce):
        return reduction(op.op).kind in ("position", "logical")
    return isinstance(op, Compute) and (op.op in JUMPS or not (op.dtype.is_float or _tests_for_infinity(op)))


def _tests_for_infinity(op: Compute) -> bool:
    """Checks whether an op only tests for inf or nan. Rounding changes a test for inf only near the largest float."""
    infinite = any(isinstance(a, Constant) and a.dtype.is_float and math.isinf(a.value) for a in op.args)
    return op.op in ("isfinite", "isinf", "isnan") or op.op in ("equal", "not_equal") and infinite


# ---- rules -------------------------------------------------------------------------------


def _rewritten(kernel: Kernel) -> Kernel:
    body: list[Op] = []
    new: dict[Op, Op] = {}
    made: dict[tuple[object, ...], Op] = {}

    def once(key: tuple[object, ...], op: Op) -> Op:
        if key not in made:
            made[key] = op
            body.append(op)
        return made[key]

    def add(op: Op) -> Op:
        """Adds an op to the body of the new kernel. Equal constants are added once."""
        return once(("const", op.value) if isinstance(op, Constant) else ("op", op), op)

    def emit(op: Op, name: str, args: tuple[Op, ...], *gone: Op) -> Op:
        axes = tuple(a.name for a in kernel.axes if any(a.name in x.axes for x in args))
        spans = tuple(dict.fromkeys(s for o in (op, *gone) for s in o.spans))
        return once((name, args), Compute(dtype=f32, axes=axes, spans=spans, op=name, args=args))

    for op in kernel.body:
        moved = ir.with_operands(op, new.__getitem__)
        improved = _improved(moved, partial(emit, op), add) if moved.dtype == f32 else None
        new[op] = improved or moved
        if improved is None:
            body.append(moved)
    return replace(kernel, body=ir.live(body))


def _improved(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """Returns the op that the first matching rewrite rule makes, or None if no rule matches."""
    for rule in RULES:
        if (improved := rule(op, emit, add)) is not None:
            fired(rule, op, improved, op.spans)
            return improved
    return None


def divide_by_fewer(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """Rewrites x / y to x * (1 / y) if y does not have all axes of x, so that one reciprocal serves a whole row."""
    if not isinstance(op, Compute) or op.op != "divide" or isinstance(op.args[0], Constant):
        return None
    if set(op.args[1].axes) >= set(op.args[0].axes):
        return None
    return emit("multiply", (op.args[0], emit("reciprocal", (op.args[1],))))


def one_plus_tanh(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """Rewrites 1 + tanh(x) to 2 * sigmoid(2 * x), which needs no special case near zero."""
    if not isinstance(op, Compute) or op.op != "add":
        return None
    for one, other in (op.args, op.args[::-1]):
        if is_one(one) and isinstance(other, Compute) and other.op == "tanh":
            two = add(Constant(dtype=f32, axes=(), spans=one.spans, value=2.0))
            sigmoid = emit("sigmoid", (emit("multiply", (other.args[0], two), other),), other)
            return emit("multiply", (sigmoid, two), one)
    return None


# ---- exp as a power of two ---------------------------------------------------------------------


def scale_after_choice(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """Rewrites where(p, y * c, -inf) to where(p, y, -inf) * c for a positive constant c."""
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
    """Rewrites max(y * c) to max(y) * c for a positive constant c."""
    if not isinstance(op, Reduce) or op.op != "max":
        return None
    found = _scaled(op.x)
    if found is None or set(found[0].axes) != set(op.x.axes):
        return None
    best = add(Reduce(dtype=op.dtype, axes=op.axes, spans=op.spans, op=op.op, x=found[0], over=op.over))
    return emit("multiply", (best, _constant(found[1], op, add)), op.x)


def scale_after_old(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """Rewrites `old(m * c)` to `old(m) * c`. `old` is the value of a running reduction before the current block of a
    loop.
    """
    found = _scaled(op.x) if isinstance(op, ir.Old) else None
    if found is None or not isinstance(found[0], Reduce):
        return None
    before = add(ir.Old(dtype=op.dtype, axes=op.axes, spans=op.spans, x=found[0]))
    return emit("multiply", (before, _constant(found[1], op, add)))


def power_of_two(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """Rewrites exp(y * c - h) to 2**(y * (c * log2 e) - h * log2 e), and exp(x - h) to 2**((x - h) * log2 e)."""
    match op:
        case Compute(op="exp", args=(Compute(op="subtract", args=(x, h)) as difference,)):
            transport = any(isinstance(o, ir.Old) for o in ir.needed(x))
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
    """Checks whether h depends on a reduction of the row. In a tile program, an h that depends on a reduction of the
    row depends on a value that a loop carries.

    If h depends on a reduction of the row, exp(x - h) is one of many terms of the row. So denormal results of exp(x -
    h) do not matter.
    """
    return any(isinstance(o, (Reduce, ir.Carry)) for o in ir.needed(h))


def _may_be_spread(y: Op, c: float) -> bool:
    """Checks whether y * (c * log2 e) is as accurate as y * c and does not overflow for smaller y. The rewrite also
    requires that y is already a rounded result.
    """
    inner = y
    while isinstance(inner, ir.Spread) or (isinstance(inner, Compute) and inner.op in ("where", "cast")):
        inner = inner.args[1] if isinstance(inner, Compute) and inner.op == "where" else ir.op_operands(inner)[0]
    rounded = isinstance(inner, ir.Dot) or isinstance(inner, Compute) and inner.op not in EXACT
    bounded = isinstance(inner, Compute) and inner.op in BOUNDED
    return rounded and (c * LOG2_E <= 1 or bounded and c < 1e30)


def _scaled(x: Op) -> tuple[Op, float] | None:
    """Returns (y, c) if x is y times a positive constant c, or y divided by 1 / c. Returns None for any other x."""
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


RULES = (
    divide_by_fewer, one_plus_tanh, scale_after_choice, scale_after_maximum, scale_after_old, power_of_two
)  # fmt: skip
