"""kernels → kernels: uses faster, less exact arithmetic in kernels whose results are rounded to 16 bits ("fast math").

    kernel k0(input x: bf16[M, N], output out: bf16[M, N]) over i: M, reduce r: N {
      …                                    becomes  kernel k0(…) over i: M, reduce r: N relaxed {
      %5: f32[i, r] = divide %3, %4                   %5: f32[i] = reciprocal %4
                                                      %6: f32[i, r] = multiply %3, %5

A kernel is *relaxed* under two conditions. Every float that it writes is f16 or bf16, or a temporary that only relaxed
kernels read. And no discontinuous operation depends on its arithmetic: no comparison, floor, argmax or conversion to an
integer. In such a kernel x * y + z may be rounded once instead of twice. Operators may use faster instructions with a
relative error of about 2**-18 (`Operator.relaxed`). These rules rewrite slow operators:

    x / y, y without some axis of x         x * (1 / y): one division per row
    1 + tanh(x)                             2 * sigmoid(2 * x)
    exp(y * c - max(y * c))                 2**(y * k - max(y) * k): minitri/optimize/fast_math/exp2.py

An f32 ulp is 2**-16 of a bf16 ulp and 2**-13 of an f16 ulp. So a result changes only if its rounding was nearly a tie.
Kernels that write f32 or f64 are not relaxed.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from minitri.base.logs import fired
from minitri.base.operators import JUMPS, reduction
from minitri.base.types import f32, f64
from minitri.kernels import ir
from minitri.kernels.ir import Buffer, Compute, Constant, Kernel, Load, Op, Plan, Reduce, Scalar, Scan, Store
from minitri.optimize.fast_math import exp2
from minitri.optimize.fast_math.exp2 import EXACT, Emit
from minitri.optimize.online_reductions.kernels import is_one


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
    """Whether 16 bits of accuracy are enough for everything that a kernel computes in f32."""
    stores = [op for op in kernel.body if isinstance(op, Store) and op.buffer.dtype.is_float]
    if not stores or not all(op.buffer.name in narrow for op in stores):
        return False
    if any(op.dtype == f64 and not isinstance(op, (Scalar, Compute, Constant)) for op in kernel.body):
        return False  # the program computes in f64 on purpose
    return not any(_is_arithmetic(op) for op in jumped)


def _ops_before_jumps(kernel: Kernel) -> set[Op]:
    """The ops whose rounding could make a discontinuous op, such as a comparison, jump to another result."""
    behind: set[Op] = set()
    for op in reversed(kernel.body):
        if _jumps(op) or op in behind:
            behind |= set(ir.op_operands(op))
    return behind


def _is_arithmetic(op: Op) -> bool:
    """Whether an op computes a float that may be rounded differently. Loads and choices never round."""
    if isinstance(op, (Reduce, Scan)):
        return op.dtype.is_float and reduction(op.op).kind in ("sum", "product")
    return isinstance(op, ir.Dot) or isinstance(op, Compute) and op.dtype.is_float and op.op not in EXACT


def _jumps(op: Op) -> bool:
    if isinstance(op, Reduce):
        return reduction(op.op).kind in ("position", "logical")
    return isinstance(op, Compute) and (op.op in JUMPS or not (op.dtype.is_float or _tests_for_infinity(op)))


def _tests_for_infinity(op: Compute) -> bool:
    """Whether an op only tests for inf or nan. Rounding changes such a test only near the largest float."""
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
        """Adds an op to the body. Equal constants are added once."""
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
    """The op that the first matching rule makes, or None."""
    for rule in RULES:
        if (improved := rule(op, emit, add)) is not None:
            fired(rule, op, improved, op.spans)
            return improved
    return None


def divide_by_fewer(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """x / y becomes x * (1 / y) if y lacks an axis of x: one reciprocal serves a whole row."""
    if not isinstance(op, Compute) or op.op != "divide" or isinstance(op.args[0], Constant):
        return None
    if set(op.args[1].axes) >= set(op.args[0].axes):
        return None
    return emit("multiply", (op.args[0], emit("reciprocal", (op.args[1],))))


def one_plus_tanh(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """1 + tanh(x) becomes 2 * sigmoid(2 * x), which needs no special case near zero."""
    if not isinstance(op, Compute) or op.op != "add":
        return None
    for one, other in (op.args, op.args[::-1]):
        if is_one(one) and isinstance(other, Compute) and other.op == "tanh":
            two = add(Constant(dtype=f32, axes=(), spans=one.spans, value=2.0))
            sigmoid = emit("sigmoid", (emit("multiply", (other.args[0], two), other),), other)
            return emit("multiply", (sigmoid, two), one)
    return None


RULES = (divide_by_fewer, one_plus_tanh, *exp2.RULES)
