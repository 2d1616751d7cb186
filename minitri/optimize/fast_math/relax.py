"""kernels → kernels: uses faster, less exact arithmetic in kernels whose results are rounded to 16 bits ("fast math").

    kernel k0(input x: bf16[M, N], output out: bf16[M, N]) over i: M, reduce r: N {
      …                                    becomes  kernel k0(…) over i: M, reduce r: N relaxed {
      %5: f32[i, r] = divide %3, %4                   %5: f32[i] = reciprocal %4
                                                      %6: f32[i, r] = multiply %3, %5

A kernel is *relaxed* (allowed to use fast math) if 16-bit results hide the rounding errors of fast math. A relaxed
kernel writes floats only to f16 and bf16 arrays, and to temporaries that only relaxed kernels read. Discontinuous
operations are comparisons, floor, argmax and conversions to integers. If a discontinuous operation uses the results of
a kernel's arithmetic, the kernel is not relaxed. In a relaxed kernel, the compiler is allowed to round x * y + z once
instead of twice. The operators of a relaxed kernel are allowed to use faster instructions with a relative error of
about 2**-18 (`Operator.relaxed`). In a relaxed kernel (one that may use fast math), rewrite rules replace slow
operators by faster ones, for example a division by a multiplication:

    x / y, y without some axis of x         x * (1 / y): one division per row
    1 + tanh(x)                             2 * sigmoid(2 * x)
    exp(y * c - max(y * c))                 2**(y * k - max(y) * k)

An f32 ulp is `2**-16` of a bf16 ulp and `2**-13` of an f16 ulp. A less exact f32 value changes a 16-bit result only if
the value is almost midway between two 16-bit numbers. A kernel that writes f32 or f64 arrays uses no fast math.

The rule `power_of_two` rewrites exp(x - h) to a power of two, if all elements of a row have the same h:

    %3: f32[i, r] = multiply %2, 0.125                 %3: f32[i] = reduce.max %2
    %4: f32[i] = reduce.max %3             becomes     %4: f32[i] = multiply %3, 0.18…        (0.125 * log2 e)
    %5: f32[i, r] = subtract %3, %4                    %5: f32[i, r] = multiply %2, 0.18…
    %6: f32[i, r] = exp %5                             %6: f32[i, r] = subtract %5, %4        (fused: one fma)
                                                       %7: f32[i, r] = exp2 %6

The hardware has an instruction for `2**x` but not for exp(x). On a GPU, exp(x) needs one more multiplication than
`2**x`, and three more multiplications if denormal results must be exact. A softmax does not need exact denormal
results, because denormals are too small to change the sum of a row. If the operand of exp already has a constant
factor, the rule multiplies this constant by log2 e. In attention, for example, each score already has a constant
factor. For c > 0 the maximum of c * x is exactly c times the maximum of x, because rounding is monotone.

Accuracy: in exp(x - h), h is one value for the whole row. The product of h and log2 e is rounded. The rounding error of
h * log2 e is at most `|h| * 2**-24`, and changes all exponents of a row by the same amount. Attention multiplies each
score by a constant, so a score already has a relative rounding error of up to `2**-24`. A value x loaded from memory
has no rounding error. For a loaded x, `x - h` is therefore computed first and then multiplied by log2 e. If x * log2 e
could overflow, the multiplication by log2 e comes after the subtraction x - h. The factor exp(h(old) - h(new)) corrects
a running sum after h has changed from h(old) to h(new). In exp(h(old) - h(new)), the multiplication by log2 e always
comes after the subtraction. If h(old) and h(new) were multiplied by log2 e first, rounding errors would accumulate from
block to block.
"""

import math
from dataclasses import replace

import numpy as np

from minitri.base.nodes import postorder
from minitri.base.operators import JUMPS, reduction
from minitri.base.pass_logs import fired
from minitri.base.types import f32, f64
from minitri.kernels import ir
from minitri.kernels.ir import Buffer, Compute, Constant, Kernel, Load, Op, Plan, Reduce, Scan, Store
from minitri.kernels.lower_graph import OpBuilder
from minitri.optimize.online_reductions.merge_loops import is_one

LOG2_E = math.log2(math.e)
BOUNDED = ("tanh", "sigmoid", "erf", "sin", "cos")  # the absolute value is at most 1
EXACT = ("negative", "abs", "minimum", "maximum", "clip", "where", "copysign", "cast")  # do not round


def relax(plan: Plan) -> Plan:
    narrow = {b.name for b in plan.outputs if b.dtype.is_float and b.dtype.bits == 16}
    kernels: list[Kernel] = []
    for kernel in reversed(plan.kernels):
        jumped = _ops_before_jumps(kernel)
        relaxed = _narrow(kernel, narrow, jumped)
        kernels.append(_Rewriting(replace(kernel, relaxed=True)).run() if relaxed else kernel)
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
    """Returns the ops from which a comparison or another discontinuous op is computed."""
    # an error of these ops, such as a rounding, could change the result of the comparison
    return {*postorder([o for op in kernel.body if _jumps(op) for o in ir.children(op)], ir.children)}


def _is_arithmetic(op: Op) -> bool:
    """Checks whether an op computes a float that fast math could round differently."""
    if isinstance(op, (Reduce, Scan)):
        return op.dtype.is_float and reduction(op.op).kind in ("sum", "product")
    # loads and selections never round
    return isinstance(op, ir.Dot) or isinstance(op, Compute) and op.dtype.is_float and op.op not in EXACT


def _jumps(op: Op) -> bool:
    if isinstance(op, Reduce):
        return reduction(op.op).kind in ("position", "logical")
    return isinstance(op, Compute) and (op.op in JUMPS or not (op.dtype.is_float or _tests_for_infinity(op)))


def _tests_for_infinity(op: Compute) -> bool:
    """Checks whether an op only tests for inf or nan."""
    infinite = any(isinstance(a, Constant) and a.dtype.is_float and math.isinf(a.value) for a in op.args)
    # rounding changes a test for inf only for numbers near the largest float
    return op.op in ("isfinite", "isinf", "isnan") or op.op in ("equal", "not_equal") and infinite


# ---- rules -------------------------------------------------------------------------------


class _Rewriting(OpBuilder):
    """Applies the rewrite rules to a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__([a.name for a in kernel.axes])
        self.kernel = kernel
        self.replaced: Op = kernel.body[0]  # the op of the old kernel that the rules replace at the moment

    def run(self) -> Kernel:
        new: dict[Op, Op] = {}
        for op in self.kernel.body:
            self.replaced = op
            new[op] = self._improved(ir.with_children(op, new.__getitem__))
        return replace(self.kernel, body=ir.live(self.ops))

    def _improved(self, op: Op) -> Op:
        """Returns the op that the first matching rewrite rule makes, or the op itself."""
        for rule in RULES if op.dtype == f32 else ():
            if (improved := rule(op, self)) is not None:
                fired(rule, op, improved, op.spans)
                return improved
        return self.add(op)

    def number(self, value: float) -> Op:
        return self.once(Constant(dtype=f32, axes=(), spans=self.replaced.spans, value=float(np.float32(value))))

    def instead(self, name: str, args: tuple[Op, ...], *gone: Op) -> Op:
        """Adds an elementwise op to the new kernel. The new op replaces the op `replaced` and the ops in `gone`."""
        spans = tuple(dict.fromkeys(s for o in (self.replaced, *gone) for s in o.spans))
        return self.once(replace(self.computed(name, *args), spans=spans))


def divide_by_fewer(op: Op, new: _Rewriting) -> Op | None:
    """Rewrites x / y to x * (1 / y) if y lacks an axis of x. In x * (1 / y), the reciprocal is computed only once for a
    whole row of x.
    """
    match op:
        case Compute(op="divide", args=(x, y)) if not isinstance(x, Constant) and not {*y.axes} >= {*x.axes}:
            return new.instead("multiply", (x, new.instead("reciprocal", (y,))))
    return None


def one_plus_tanh(op: Op, new: _Rewriting) -> Op | None:
    """Rewrites 1 + tanh(x) to 2 * sigmoid(2 * x). Unlike tanh, sigmoid needs no special case near zero."""
    match op:
        case Compute(op="add", args=(one, Compute(op="tanh") as tanh) | (Compute(op="tanh") as tanh, one)):
            if not is_one(one):
                return None
            two = new.number(2.0)
            sigmoid = new.instead("sigmoid", (new.instead("multiply", (tanh.args[0], two), tanh),), tanh)
            return new.instead("multiply", (sigmoid, two), one)
    return None


# ---- exp as a power of two ---------------------------------------------------------------------


def scale_last(op: Op, new: _Rewriting) -> Op | None:
    """If the operand of an op is multiplied by a positive constant c, multiplies the result of the op by c instead:

        where(p, y * c, -inf)      where(p, y, -inf) * c
        max(y * c)                 max(y) * c
        old(m * c)                 old(m) * c, if m is a reduction

    In these rules, `old` is the value of a running reduction before the current block of a loop.
    """
    match op:
        case Compute(op="where", args=(_, x, Constant(value=v)) | (_, Constant(value=v), x)) if math.isinf(v):
            pass
        case Reduce(op="max", x=x) | ir.Old(x=x):
            pass
        case _:
            return None
    y, c = _scaled(x) or (None, 1.0)
    if y is None or isinstance(op, ir.Old) and not isinstance(y, Reduce):
        return None
    inner = new.once(ir.with_children(op, lambda o: y if o is x else o))
    return new.instead("multiply", (inner, new.number(c)), x)


def power_of_two(op: Op, new: _Rewriting) -> Op | None:
    """Rewrites `exp(y * c - h)` to `2**(y * (c * log2 e) - h * log2 e)`, and `exp(x - h)` to
    `2**((x - h) * log2 e)`.
    """
    match op:
        case Compute(op="exp", args=(Compute(op="subtract", args=(x, h)) as difference,)):
            transport = any(isinstance(o, ir.Old) for o in ir.needed(x))
            if not transport and (set(h.axes) >= set(x.axes) or not is_of_a_row(h)):
                return None
        case _:
            return None
    y, c = _scaled(x) or (None, 1.0)
    of_row, factor = _scaled(h) or (h, None)
    k, log2_e = new.number(c * LOG2_E), new.number(LOG2_E)
    if y is not None and transport and factor == c:
        exponent = new.instead("multiply", (new.instead("subtract", (y, of_row), difference), k), op)
    elif y is None or transport or not _may_be_spread(y, c):
        exponent = new.instead("multiply", (difference, log2_e), op)
    else:
        row = (of_row, k) if factor == c else (h, log2_e)
        scaled = new.instead("multiply", (y, k), x), new.instead("multiply", row, h)
        exponent = new.instead("subtract", scaled, difference)
    return new.instead("exp2", (exponent,), op)


def is_of_a_row(h: Op) -> bool:
    """Checks whether h depends on a reduction of the row. The value h is subtracted from each element of the row. Loops
    carry the results of reductions, so each carried value counts as a reduction of the row.

    For example, a softmax subtracts the maximum h of a row from each element, and adds up the terms `exp(x - h)`.
    Denormal terms are too small to matter among the other terms of a row.
    """
    return any(isinstance(o, (Reduce, ir.Carry)) for o in ir.needed(h))


def _may_be_spread(y: Op, c: float) -> bool:
    """Checks whether exp(value * constant) can be computed as 2**(value * (constant * log2 e))."""
    inner = y
    while isinstance(inner, ir.Spread) or (isinstance(inner, Compute) and inner.op in ("where", "cast")):
        inner = inner.args[1] if isinstance(inner, Compute) and inner.op == "where" else ir.children(inner)[0]
    # if y has a rounding error already, the rounding error of c * log2 e matters little; a loaded value is exact
    rounded = isinstance(inner, ir.Dot) or isinstance(inner, Compute) and inner.op not in EXACT
    # y * (c * log2 e) may overflow only if y * c overflows too
    bounded = isinstance(inner, Compute) and inner.op in BOUNDED
    return rounded and (c * LOG2_E <= 1 or bounded and c < 1e30)


def _scaled(x: Op) -> tuple[Op, float] | None:
    """Returns a value and a positive constant whose product is x, or None if x has another form."""
    match x:
        case (
            Compute(op="multiply", args=(Constant() as c, y))
            | Compute(op="multiply" | "divide", args=(y, Constant() as c))
        ):
            if x.dtype != f32 or isinstance(y, Constant) or not 1e-30 < c.value < 1e30:
                return None
            return y, float(np.float32(1 / c.value)) if x.op == "divide" else float(c.value)
    return None


RULES = (divide_by_fewer, one_plus_tanh, scale_last, power_of_two)
