"""Conditions on places: for which indices they hold.

    arange(T)[:, None] >= arange(S)        i - r >= 0
    abs(i - r) < 512                       511 - i + r >= 0  and  511 + i - r >= 0

In: the condition of a `where`. Out: affine expressions of axes, none of which is negative wherever it holds; how
much of a loop that leaves of it. Left out: conditions on what is read from memory, what is not affine or far from 0,
`~c`, and `where(c, -inf, s)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from minitri.dims import Dim, Symbol
from minitri.kernel.ir import Axis, Compute, Constant, Inside, Kernel, Op, Position, Spread, needed, op_operands
from minitri.types import i64

SAMPLES = 8  # rows that `walked` looks at
NEAR, PLACES = 1 << 29, 4  # how large the number in a test may be, and how many indices and sizes make it


def conjuncts(condition: Op) -> Iterator[Dim]:
    """Affine expressions that are not negative wherever the condition holds."""
    match condition:
        case Spread():
            yield from conjuncts(condition.x)
        case Compute(op="logical_and" | "bitwise_and", args=(a, b)):
            yield from conjuncts(a)
            yield from conjuncts(b)
        case _:
            tests = _tests(condition)
            yield from tests if all(map(_is_near, tests)) else ()


def _tests(condition: Op) -> tuple[Dim, ...]:
    """Those of one comparison, or one end of an array."""
    match condition:
        case Inside() if not condition.picks:
            return condition.conditions
        case Compute(op="less" | "less_equal", args=(Compute(op="abs", args=(x,)), b)):
            x, y = _affine(x), _affine(b)
            strict = int(condition.op == "less")
            return () if x is None or y is None else (y - x - strict, y + x - strict)
        case Compute(op="greater" | "greater_equal" | "less" | "less_equal", args=(a, b)):
            x, y = _affine(a), _affine(b)
            if x is None or y is None:
                return ()
            room = x - y if condition.op.startswith("greater") else y - x
            return (room if condition.op.endswith("equal") else room - 1,)
        case _:
            return ()


def _is_near(test: Dim) -> bool:
    """Whether 32 bits hold it, and the bounds of a loop that are made of it: so many places, and a number."""
    return sum(abs(c) for m, c in test.terms if m) <= PLACES and sum(abs(c) for m, c in test.terms if not m) < NEAR


def _affine(op: Op) -> Dim | None:
    """An integer op as an expression of indices, if it is no more than that."""
    match op:
        case Position() if not op.picks:
            return op.expr
        case Constant() if op.dtype == i64 and abs(op.value) < NEAR:  # of larger ones a sum may wrap
            return Dim.of(int(op.value))
        case Spread():
            return _affine(op.x)
        case Compute(op="negative", args=(x,)):
            inner = _affine(x)
            return None if inner is None else -inner
        case Compute(op="add" | "subtract", args=(a, b)) if op.dtype == i64:
            x, y = _affine(a), _affine(b)
            if x is None or y is None:
                return None
            return x + y if op.op == "add" else x - y
        case _:
            return None


def is_known(condition: Op) -> bool:
    """Whether `conjuncts` says all that a condition does."""
    match condition:
        case Spread():
            return is_known(condition.x)
        case Compute(op="logical_and" | "bitwise_and", args=(a, b)):
            return is_known(a) and is_known(b)
        case _:
            return any(True for _ in conjuncts(condition))


def walked(kernel: Kernel, row: Axis, loop: Axis, rows: int, steps: int) -> int:
    """How many of so many indices of a loop the choices of a constant elsewhere leave to a row, on average; 0 if places
    count in any other way. A rule of thumb: whether what is left out changes anything is not asked."""
    choices = [op for op in kernel.body if isinstance(op, Compute) and op.op == "where"]
    conditions = {op.args[0] for op in choices if isinstance(op.args[2], Constant) and is_known(op.args[0])}
    if not _only_for(kernel, loop, conditions):
        return 0
    tests = [t for c in conditions for t in conjuncts(c) if loop.symbol in t.symbols() <= {row.symbol, loop.symbol}]
    places = [rows * (2 * k + 1) // (2 * SAMPLES) for k in range(SAMPLES)]
    return sum(_left(tests, {row.symbol: p}, loop.symbol, steps) for p in places) // SAMPLES


def _only_for(kernel: Kernel, loop: Axis, conditions: Set[Op]) -> bool:
    """Whether nothing but what is chosen by these conditions depends on where in the loop it is."""
    inside = {o for c in conditions for o in needed(c) if loop.name in o.axes}
    for op in kernel.body:
        if isinstance(op, Position) and loop.symbol in op.expr.symbols() and op not in inside:
            return False
        taken = op_operands(op)[1:] if isinstance(op, Compute) and op.op == "where" else op_operands(op)
        if op not in inside and any(o in inside for o in taken):
            return False
    return True


def _left(tests: Sequence[Dim], at: Mapping[Symbol, int], loop: Symbol, steps: int) -> int:
    """How many of so many indices of a loop pass all tests."""
    first, last = 0, steps
    for t in tests:
        start = t.compute({**at, loop: 0})
        slope = t.compute({**at, loop: 1}) - start
        if slope > 0:
            first = max(first, -(start // slope))
        elif slope < 0:
            last = min(last, start // -slope + 1)
    return max(0, last - first)
