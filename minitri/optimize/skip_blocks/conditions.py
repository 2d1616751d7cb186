"""Conditions on positions: the loop indices for which one can hold, and for which it certainly holds.

    (i >= r) & ~(r < 4)        i - r >= 0  and  r - 4 >= 0
    can hold                   4 <= r < i_start + 64        for some i of the block i_start … i_start + 63
    surely holds               4 <= r < i_start + 1         for all of them

In: a boolean op. Out: a formula in negation normal form, whose leaves are affine expressions of axes that must not be
negative; and two intervals of an axis. The first interval leaves out nothing that can hold, and the second has
nothing that can fail. Both can be smaller or larger than the truth, never wrong.

Not analysed: values that come from memory, products of positions, and numbers that 32 bits may not hold. Such a leaf
is `UNKNOWN`: it can hold everywhere, and surely holds nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Union

from minitri.base.dims import ZERO, Dim, Symbol, floordiv
from minitri.base.extremes import largest, smallest
from minitri.base.types import i64
from minitri.kernels.ir import Axis, Compute, Constant, Inside, Kernel, Op, Position, Spread, needed, op_operands
from minitri.kernels.text import comparison

SAMPLES = 8  # rows that `walked` looks at
NEAR, PLACES = 1 << 29, 4  # how large the number in a test may be, and how many indices and sizes make it
DEEPEST = 64  # operators in each other: formulas are walked recursively


# ---- formulas --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Test:
    """Holds where `expr` is not negative."""

    expr: Dim


@dataclass(frozen=True, slots=True)
class Both:
    a: Formula
    b: Formula


@dataclass(frozen=True, slots=True)
class Either:
    a: Formula
    b: Formula


@dataclass(frozen=True, slots=True)
class Unknown:
    """May hold or fail anywhere."""


Formula = Union[Test, Both, Either, Unknown]
UNKNOWN = Unknown()
NEVER, ALWAYS = Test(Dim.of(-1)), Test(ZERO)


def formula(condition: Op, holds: bool = True, depth: int = 0) -> Formula:
    """When a boolean op is `holds`."""
    if depth > DEEPEST:
        return UNKNOWN

    def inner(op: Op, value: bool = holds) -> Formula:
        return formula(op, value, depth + 1)

    match condition:
        case Spread():
            return inner(condition.x)
        case Constant():
            return ALWAYS if bool(condition.value) == holds else NEVER
        case Compute(op="logical_not" | "bitwise_invert", args=(a,)):
            return inner(a, not holds)
        case Compute(op="logical_and" | "bitwise_and" | "multiply" | "minimum", args=(a, b)):
            return (Both if holds else Either)(inner(a), inner(b))
        case Compute(op="logical_or" | "bitwise_or" | "add" | "maximum", args=(a, b)):
            return (Either if holds else Both)(inner(a), inner(b))
        case Compute(op="where", args=(c, a, b)):
            return Either(Both(inner(c, True), inner(a)), Both(inner(c, False), inner(b)))
        case _:
            return _comparison(condition, holds)


def _comparison(condition: Op, holds: bool) -> Formula:
    """One comparison, or the ends of an array."""
    found = _positive(condition)
    if found is None or not all(map(_is_near, _leaves(found))):
        return UNKNOWN
    return found if holds else _negated(found)


def _positive(condition: Op) -> Formula | None:
    match condition:
        case Inside() if not condition.picks:
            return _all(condition.conditions)
        case Compute(op="less" | "less_equal", args=(Compute(op="abs", args=(x,)), b)):
            return _distance(x, b, int(condition.op == "less"))
        case Compute(op="greater" | "greater_equal", args=(b, Compute(op="abs", args=(x,)))):
            return _distance(x, b, int(condition.op == "greater"))
        case Compute(op="greater" | "greater_equal", args=(Compute(op="abs", args=(x,)), b)):
            near = _distance(x, b, int(condition.op == "greater_equal"))
            return near and _negated(near)
        case Compute(op="less" | "less_equal", args=(b, Compute(op="abs", args=(x,)))):
            near = _distance(x, b, int(condition.op == "less_equal"))
            return near and _negated(near)
        case Compute(op=name, args=(a, b)):
            x, y = _affine(a), _affine(b)
            return None if x is None or y is None else _compared(name, x - y)
        case _:
            return None


def _compared(name: str, difference: Dim) -> Formula | None:
    """A comparison of x and y, by x - y."""
    match name:
        case "greater_equal":
            return Test(difference)
        case "greater":
            return Test(difference - 1)
        case "less_equal":
            return Test(-difference)
        case "less":
            return Test(-difference - 1)
        case "equal":
            return Both(Test(difference), Test(-difference))
        case "not_equal":
            return Either(Test(difference - 1), Test(-difference - 1))
        case _:
            return None


def _distance(x: Op, limit: Op, strict: int) -> Formula | None:
    """|x| <= limit, or < where `strict` is 1."""
    a, b = _affine(x), _affine(limit)
    return None if a is None or b is None else Both(Test(b - a - strict), Test(b + a - strict))


def _all(conditions: Sequence[Dim]) -> Formula:
    found: Formula = ALWAYS
    for k, c in enumerate(conditions):
        found = Both(found, Test(c)) if k else Test(c)
    return found


def _negated(f: Formula) -> Formula:
    match f:
        case Test():
            return Test(-f.expr - 1)
        case Both():
            return Either(_negated(f.a), _negated(f.b))
        case Either():
            return Both(_negated(f.a), _negated(f.b))
        case Unknown():
            return f


def _leaves(f: Formula) -> Iterator[Dim]:
    """The expressions of the tests."""
    match f:
        case Test():
            yield f.expr
        case Both() | Either():
            yield from _leaves(f.a)
            yield from _leaves(f.b)
        case Unknown():
            pass


def _is_near(test: Dim) -> bool:
    """Whether 32 bits hold the test and the loop bounds made of it: a sum of a few positions and a number."""
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
        case Compute(op="negative", args=(x,)) if op.dtype == i64:
            inner = _affine(x)
            return None if inner is None else -inner
        case Compute(op="add" | "subtract", args=(a, b)) if op.dtype == i64:
            x, y = _affine(a), _affine(b)
            if x is None or y is None:
                return None
            return x + y if op.op == "add" else x - y
        case Compute(op="multiply", args=(a, b)) if op.dtype == i64:
            x, y = _affine(a), _affine(b)
            return None if x is None or y is None or None is x.constant is y.constant else x * y
        case _:
            return None


def said(f: Formula) -> str:
    """A formula in words."""
    match f:
        case Test():
            return comparison(f.expr)
        case Both():
            return f"{said(f.a)} and {said(f.b)}"
        case Either():
            return f"({said(f.a)} or {said(f.b)})"
        case Unknown():
            return "a condition on values"


# ---- intervals of an axis ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Interval:
    """low <= index < high; None: as far as the axis goes."""

    low: Dim | None = None
    high: Dim | None = None


EVERYWHERE, NOWHERE = Interval(), Interval(high=ZERO)
Extreme = Callable[[Dim], Dim | None]  # the largest or the least value that an expression takes in a block


def can_hold(f: Formula, axis: Symbol, extent: Dim, most: Extreme) -> Interval:
    """Outside of it the formula fails for every element of the block."""
    match f:
        case Test():
            return _where_positive(f.expr, axis, extent, most) or EVERYWHERE
        case Both():
            return _common(can_hold(f.a, axis, extent, most), can_hold(f.b, axis, extent, most))
        case Either():
            return _hull(can_hold(f.a, axis, extent, most), can_hold(f.b, axis, extent, most))
        case Unknown():
            return EVERYWHERE


def surely_holds(f: Formula, axis: Symbol, extent: Dim, least: Extreme) -> Interval:
    """Inside of it the formula holds for every element of the block."""
    match f:
        case Test():
            return _where_positive(f.expr, axis, extent, least) or NOWHERE
        case Both():
            return _common(surely_holds(f.a, axis, extent, least), surely_holds(f.b, axis, extent, least))
        case Either():
            return _one_of(surely_holds(f.a, axis, extent, least), surely_holds(f.b, axis, extent, least))
        case Unknown():
            return NOWHERE


def _where_positive(expr: Dim, axis: Symbol, extent: Dim, extreme: Extreme) -> Interval | None:
    """Where c * index + rest >= 0, with the extreme value of the rest; None if that is not known."""
    split = expr.coefficient(axis)
    rest = extreme(split[1]) if split is not None else None
    c = split[0].constant if split is not None else None
    if rest is None or c is None:
        return None
    if c > 0:
        return Interval(low=largest(-floordiv(rest, Dim.of(c)), 0))
    if c < 0:
        return Interval(high=smallest(floordiv(rest, Dim.of(-c)) + 1, extent))
    if rest.constant is not None:
        return EVERYWHERE if rest.constant >= 0 else NOWHERE
    return Interval(high=smallest(largest(rest + 1, 0), 1) * extent)  # all of the axis, or nothing


def _common(a: Interval, b: Interval) -> Interval:
    return Interval(_of_known(largest, a.low, b.low), _of_known(smallest, a.high, b.high))


def _hull(a: Interval, b: Interval) -> Interval:
    """The least interval with both; one that is surely empty adds nothing."""
    if NOWHERE in (a, b):
        return b if a == NOWHERE else a
    low = None if a.low is None or b.low is None else smallest(a.low, b.low)
    return Interval(low, None if a.high is None or b.high is None else largest(a.high, b.high))


def _one_of(a: Interval, b: Interval) -> Interval:
    """An interval in the union: all of it, if both begin at the start of the axis, or both end at its end."""
    if NOWHERE in (a, b):
        return b if a == NOWHERE else a
    if (a.low is None) == (b.low is None) and (a.high is None) == (b.high is None) and None in (a.low, a.high):
        return _hull(a, b)
    return b if b == EVERYWHERE else a


def _of_known(choose: Callable[[Dim, Dim], Dim], a: Dim | None, b: Dim | None) -> Dim | None:
    return b if a is None else a if b is None else choose(a, b)


# ---- how much of a loop is left, on average --------------------------------------------------------


def walked(kernel: Kernel, row: Axis, loop: Axis, rows: int, steps: int) -> int:
    """The average number of loop indices, out of `steps`, that masks leave to a row.

    0 if a condition depends on positions in another way. This is an estimate: nobody asks whether skipping changes the
    result.
    """
    choices = [op for op in kernel.body if isinstance(op, Compute) and op.op == "where"]
    conditions = {op.args[0] for op in choices if isinstance(op.args[2], Constant) and is_known(formula(op.args[0]))}
    if not _only_for(kernel, loop, conditions):
        return 0
    known = [formula(c) for c in conditions]
    places = [rows * (2 * k + 1) // (2 * SAMPLES) for k in range(SAMPLES)]
    return sum(_left(known, {row.symbol: p}, loop.symbol, steps) for p in places) // SAMPLES


def is_known(f: Formula) -> bool:
    """Whether a formula says all that its condition does."""
    match f:
        case Both() | Either():
            return is_known(f.a) and is_known(f.b)
        case _:
            return isinstance(f, Test)


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


def _left(formulas: Sequence[Formula], at: Mapping[Symbol, int], loop: Symbol, steps: int) -> int:
    """The number of loop indices, out of `steps`, that can satisfy all formulas in a row."""

    def here(d: Dim) -> Dim | None:
        value = d.substitute(at)
        return None if value.constant is None else value

    first, last = 0, steps
    for f in formulas:
        found = can_hold(f, loop, Dim.of(steps), here)
        first = first if found.low is None else max(first, int(found.low))
        last = last if found.high is None else min(last, int(found.high))
    return max(0, last - first)
