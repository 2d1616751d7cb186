"""kernels → kernels: faster arithmetic in kernels whose results are rounded to 16 bits.

    kernel k0(input x: bf16[M, N], output out: bf16[M, N]) over i: M, reduce r: N {
      …                                    becomes  kernel k0(…) over i: M, reduce r: N relaxed {
      %5: f32[i, r] = divide %3, %4                   %5: f32[i] = reciprocal %4
                                                      %6: f32[i, r] = multiply %3, %5

A kernel is *relaxed* if two things hold. Every float that it writes is f16 or bf16, or a temporary that only relaxed
kernels read. And no jump depends on its arithmetic: no comparison, floor, argmax or conversion to an integer. In such
a kernel x * y + z may round once. Operators use their shorter spelling, good to about 2**-18 (`Operator.relaxed`).
These rules rewrite slow operators:

    x / y, y without some axis of x         x * (1 / y): one division a row
    1 + tanh(x)                             2 * sigmoid(2 * x)
    exp(y * c - max(y * c))                 2**(y * k - max(y) * k): minitri/optimize/fast_math/exp2.py

An f32 unit is 2**-16 of a bf16 one and 2**-13 of an f16 one. So a result changes only where rounding was nearly a tie.
Kernels that write f32 or f64 are not relaxed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from minitri.base.logs import fired
from minitri.base.operators import JUMPS, reduction
from minitri.base.types import f32, f64
from minitri.kernels import ir
from minitri.kernels.ir import Buffer, Compute, Constant, Kernel, Load, Op, Plan, Reduce, Scalar, Scan, Spread, Store
from minitri.optimize.fast_math import exp2
from minitri.optimize.fast_math.exp2 import EXACT, Emit


def relax(plan: Plan) -> Plan:
    narrow = {b.name for b in plan.outputs if _rounded(b)}
    kernels: list[Kernel] = []
    for kernel in reversed(plan.kernels):
        jumped = _behind_jumps(kernel)
        relaxed = _narrow(kernel, narrow, jumped)
        kernels.append(_rewritten(replace(kernel, relaxed=True)) if relaxed else kernel)
        read = {op.buffer for op in kernel.body if isinstance(op, Load) and op.buffer.role == "temporary"}
        exact = {op.buffer for op in jumped if isinstance(op, Load)}
        for b in read:  # a temporary is as narrow as the least of its readers
            least = relaxed and b not in exact and _only_reader(b, kernel, plan)
            (narrow.add if least else narrow.discard)(b.name)
    return replace(plan, kernels=tuple(reversed(kernels)))


def _only_reader(buffer: Buffer, kernel: Kernel, plan: Plan) -> bool:
    return all(k is kernel or all(b.name != buffer.name or _writes(k, b) for b in k.buffers) for k in plan.kernels)


def _writes(kernel: Kernel, buffer: Buffer) -> bool:
    return any(isinstance(op, Store) and op.buffer.name == buffer.name for op in kernel.body)


def _rounded(buffer: Buffer) -> bool:
    return buffer.dtype.is_float and buffer.dtype.bits == 16


def _narrow(kernel: Kernel, narrow: set[str], jumped: set[Op]) -> bool:
    """Whether what a kernel computes in f32 is only needed to 16 bits."""
    stores = [op for op in kernel.body if isinstance(op, Store) and op.buffer.dtype.is_float]
    if not stores or not all(op.buffer.name in narrow for op in stores):
        return False
    if any(op.dtype == f64 and not isinstance(op, (Scalar, Compute, Constant)) for op in kernel.body):
        return False  # sums of f64 are asked for
    return not any(_is_arithmetic(op) for op in jumped)


def _behind_jumps(kernel: Kernel) -> set[Op]:
    """What a jump depends on."""
    behind: set[Op] = set()
    for op in reversed(kernel.body):
        if _jumps(op) or op in behind:
            behind |= set(ir.op_operands(op))
    return behind


def _is_arithmetic(op: Op) -> bool:
    """Whether it makes a float that may be rounded; what is loaded or chosen is what it is."""
    match op:
        case Compute():
            return op.dtype.is_float and op.op not in EXACT
        case Reduce() | Scan():
            return op.dtype.is_float and reduction(op.op).kind in ("sum", "product")
        case _:
            return isinstance(op, ir.Dot)


def _jumps(op: Op) -> bool:
    match op:
        case Compute():
            return op.op in JUMPS or not (op.dtype.is_float or _asks_for_infinity(op))
        case Reduce():
            return reduction(op.op).kind in ("position", "logical")
        case _:
            return False


def _asks_for_infinity(op: Compute) -> bool:
    """Comparisons that rounding does not change, except for a number at the very end of the range."""
    infinite = [a for a in op.args if isinstance(a, Constant) and a.dtype.is_float and math.isinf(a.value)]
    return op.op in ("isfinite", "isinf", "isnan") or op.op in ("equal", "not_equal") and bool(infinite)


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
        """Constants are made once, everything else as often as it is asked for."""
        return once(("const", op.value) if isinstance(op, Constant) else ("op", op), op)

    def emit(op: Op) -> Emit:
        def compute(name: str, args: tuple[Op, ...], *gone: Op) -> Op:
            axes = tuple(a.name for a in kernel.axes if any(a.name in x.axes for x in args))
            spans = tuple(dict.fromkeys(s for o in (op, *gone) for s in o.spans))
            return once((name, args), Compute(dtype=f32, axes=axes, spans=spans, op=name, args=args))

        return compute

    for op in kernel.body:
        moved = ir.with_operands(op, new.__getitem__)
        better = _improved(moved, emit(op), add) if moved.dtype == f32 else None
        new[op] = better or moved
        if better is None:
            body.append(moved)
    return replace(kernel, body=ir.live(body))


def _improved(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """What the first rule that fires makes."""
    for rule in RULES:
        better = rule(op, emit, add)
        if better is not None:
            fired(rule, op, better, op.spans)
            return better
    return None


def divide_by_fewer(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """x / y where y lacks an axis of x: one reciprocal serves a whole row."""
    if not isinstance(op, Compute) or op.op != "divide" or isinstance(op.args[0], Constant):
        return None
    if set(op.args[1].axes) >= set(op.args[0].axes):
        return None
    return emit("multiply", (op.args[0], emit("reciprocal", (op.args[1],))))


def one_plus_tanh(op: Op, emit: Emit, add: Callable[[Op], Op]) -> Op | None:
    """1 + tanh(x) is 2 * sigmoid(2 * x), and needs no care near zero."""
    if not isinstance(op, Compute) or op.op != "add":
        return None
    for one, other in (op.args, op.args[::-1]):
        if _is_one(one) and isinstance(other, Compute) and other.op == "tanh":
            two = add(Constant(dtype=f32, axes=(), spans=one.spans, value=2.0))
            sigmoid = emit("sigmoid", (emit("multiply", (other.args[0], two), other),), other)
            return emit("multiply", (sigmoid, two), one)
    return None


def _is_one(op: Op) -> bool:
    while isinstance(op, Spread):
        op = op.x
    return isinstance(op, Constant) and op.value == 1


RULES = (divide_by_fewer, one_plus_tanh, *exp2.RULES)
