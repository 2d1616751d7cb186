"""Finds two ranges of loop indices: where a condition on positions can hold, and where it certainly holds.

    (i >= r) & ~(r < 4)        i - r >= 0  and  r - 4 >= 0
    can hold                   4 <= r < i_start + 64        for some i of the block i_start … i_start + 63
    surely holds               4 <= r < i_start + 1         for all of them

The function `formula` takes a boolean op of a tile program. The function returns a formula without negations (negation
normal form). Each leaf of the formula is a test `expr >= 0` of an affine expression of axes. The function `can_hold`
returns an interval that contains every index at which the condition can hold, and possibly further indices. The
function `surely_holds` returns an interval that contains only indices at which the condition certainly holds.

Conditions on values from memory, or on products of positions, are not analysed. Conditions on numbers that could exceed
32 bits are not analysed. A condition that is not analysed becomes the formula `UNKNOWN`, which may hold or fail at
every index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from functools import reduce
from operator import and_
from typing import TypeVar, Union

from minitri.base.dims import ZERO, Dim, Symbol
from minitri.base.intervals import Range
from minitri.base.nodes import Record
from minitri.base.symbolic_minmax import largest, smallest
from minitri.base.types import i64
from minitri.kernels.ir import Axis, Compute, Constant, Inside, Kernel, Op, Position, Spread, children, needed
from minitri.kernels.text import comparison
from minitri.optimize.affine_gathers import RING

SAMPLES = 8  # rows that `average_steps` looks at
NEAR, PLACES = 1 << 29, 4  # a test has a constant below NEAR, and adds up at most PLACES indices and sizes
DEEPEST = 64  # the most nested operators, because formulas are built recursively
T = TypeVar("T")
Combine = Callable[[T, T], T]


# ---- formulas --------------------------------------------------------------------------------


class Joined(Record):
    a: Formula
    b: Formula


class Both(Joined):
    """The formula `a and b`: true where both `a` and `b` are true."""


class Either(Joined):
    """The formula "a or b", for two formulas `a` and `b`."""


Formula = Union[Dim, Both, Either, None]  # a Dim is a test, which holds where the Dim is not negative
UNKNOWN = None  # may hold or fail anywhere
NEVER, ALWAYS = Dim.of(-1), ZERO


def folded(f: Formula, test: Callable[[Dim], T], unknown: T, both: Combine[T], either: Combine[T]) -> T:
    """Evaluates a formula from its leaves to its root. The function `test` returns the value of a leaf, which is a
    single condition. The functions `both` and `either` combine the results of two formulas. The argument `unknown` is
    the result for the formula UNKNOWN, which stands for a condition that was not analysed.
    """
    if f is None or isinstance(f, Dim):
        return unknown if f is None else test(f)
    a, b = (folded(x, test, unknown, both, either) for x in (f.a, f.b))
    return both(a, b) if isinstance(f, Both) else either(a, b)


def all_of(formulas: Iterable[Formula]) -> Formula:
    """Returns a formula that holds at the indices at which all `formulas` hold."""
    return reduce(Both, [f for f in formulas if f != ALWAYS] or [ALWAYS])


def is_known(f: Formula) -> bool:
    """Checks whether a formula does not contain `UNKNOWN`."""
    return folded(f, lambda expr: True, False, and_, and_)


def as_text(f: Formula) -> str:
    """Returns a formula as text, for the reasons that the printed program gives."""
    return folded(f, comparison, "a condition on values", "{} and {}".format, "({} or {})".format)


# ---- the formula of a condition --------------------------------------------------------------


def formula(condition: Op, holds: bool = True, depth: int = 0) -> Formula:
    """Returns a formula that is true at the indices where a boolean op has the value `holds`."""

    def inner(op: Op, value: bool = holds) -> Formula:
        return formula(op, value, depth + 1) if depth < DEEPEST else UNKNOWN

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
    try:
        found = _comparison(condition)
    except NotAffine:  # a compared value is not an affine expression of positions
        return UNKNOWN
    if not folded(found, _is_near, False, and_, and_):
        return UNKNOWN
    return found if holds else folded(found, lambda expr: -expr - 1, UNKNOWN, Either, Both)


def _comparison(condition: Op) -> Formula:
    """Converts a comparison or bounds check to a `Formula` over indices."""
    match condition:
        case Inside() if not condition.picks:
            return all_of(condition.conditions)
        case Compute(op="less" | "less_equal", args=(a, b)):
            return _at_most(a, b, int(condition.op == "less"))
        case Compute(op="greater" | "greater_equal", args=(a, b)):
            return _at_most(b, a, int(condition.op == "greater"))
        case Compute(op="equal", args=(a, b)):
            return Both(_at_most(b, a), _at_most(a, b))
        case Compute(op="not_equal", args=(a, b)):
            return Either(_at_most(b, a, 1), _at_most(a, b, 1))
    return UNKNOWN


def _at_most(a: Op, b: Op, strict: int = 0) -> Formula:
    """Returns the formula of the comparison `a <= b` or `a < b` of two ops."""
    # `strict` is 1 for the comparison `a < b`
    match a, b:
        case Compute(op="abs", args=(x,)), _:
            distance, limit = affine(x), affine(b)
            return Both(limit - distance - strict, limit + distance - strict)
        case _, Compute(op="abs", args=(x,)):
            limit, distance = affine(a), affine(x)
            return Either(distance - limit - strict, -distance - limit - strict)
    return affine(b) - affine(a) - strict


def _is_near(test: Dim) -> bool:
    """Checks whether 32-bit integers can certainly hold all values in a test such as `i - r >= 0`."""
    constant = next((c for m, c in test.terms if not m), 0)
    is_sum = all(len(m) <= 1 for m, _ in test.terms)
    # 32 bits are enough for a sum of a few positions and a small constant, and for loop bounds computed from it
    return is_sum and sum(abs(c) for m, c in test.terms if m) <= PLACES and abs(constant) < NEAR


class NotAffine(Exception):
    """The error for an op that is not an affine expression of positions."""


def affine(op: Op) -> Dim:
    """Returns the value of an integer op as an affine expression of indices. Raises NotAffine if the value is not
    affine.
    """
    match op:
        case Position() if not op.picks:
            return op.expr
        case Constant() if op.dtype == i64 and abs(op.value) < NEAR:  # a sum of larger numbers may wrap around
            return Dim.of(int(op.value))
        case Spread():
            return affine(op.x)
        case Compute() if op.dtype == i64 and op.op in RING:
            args = [affine(a) for a in op.args]
            if op.op != "multiply" or any(d.constant is not None for d in args):
                return RING[op.op](*args)
    raise NotAffine


# ---- intervals of an axis ------------------------------------------------------------------------


class Interval(Record):
    """An interval of indices: low <= index < high. If `low` is None, the interval begins at the start of the axis. If
    `high` is None, the interval extends to the end of the axis.
    """

    low: Dim | None = None
    high: Dim | None = None


EVERYWHERE, NOWHERE = Interval(), Interval(high=ZERO)
Ends = Callable[[Dim], Range | None]  # the least and the largest value that an expression takes in a block


def can_hold(f: Formula, axis: Symbol, extent: Dim, ends: Ends) -> Interval:
    """Returns an interval of indices along `axis`. At every index outside of the interval, the formula `f` is false for
    all elements of a grid program's block.
    """
    return folded(f, lambda d: _where_positive(d, axis, extent, ends, 1) or EVERYWHERE, EVERYWHERE, _common, _hull)


def surely_holds(f: Formula, axis: Symbol, extent: Dim, ends: Ends) -> Interval:
    """Returns an interval of indices along `axis`. At every index in the interval, the formula `f` is true for all
    elements of a grid program's block.
    """
    return folded(f, lambda d: _where_positive(d, axis, extent, ends, 0) or NOWHERE, NOWHERE, _common, _one_of)


def _where_positive(expr: Dim, axis: Symbol, extent: Dim, ends: Ends, end: int) -> Interval | None:
    """Returns the interval of indices at which `expr` is not negative, or None if the interval is unknown."""
    linear = expr.coefficient(axis)
    if linear is None:  # the expression contains a term such as i // 2
        return None
    c, found = linear[0].constant, ends(linear[1])  # the expression is c * index + rest
    if found is None or c is None:  # the interval is unknown
        return None
    rest = found[end]  # the least value in a block if `end` is 0, the largest value if it is 1
    if c > 0:
        return Interval(low=largest(-(rest // c), 0))
    if c < 0:
        return Interval(high=smallest(rest // -c + 1, extent))
    if rest.constant is not None:
        return EVERYWHERE if rest.constant >= 0 else NOWHERE
    return Interval(high=smallest(largest(rest + 1, 0), 1) * extent)  # all of the axis, or nothing


def _common(a: Interval, b: Interval) -> Interval:
    """Returns the intersection of two intervals."""
    return Interval(_of_known(largest, a.low, b.low), _of_known(smallest, a.high, b.high))


def _hull(a: Interval, b: Interval) -> Interval:
    """Returns the smallest interval that contains both given intervals."""
    if NOWHERE in (a, b):
        return b if a == NOWHERE else a
    low = None if a.low is None or b.low is None else smallest(a.low, b.low)
    return Interval(low, None if a.high is None or b.high is None else largest(a.high, b.high))


def _one_of(a: Interval, b: Interval) -> Interval:
    """Returns an interval inside the union of two intervals."""
    # If both intervals extend to the same end of the axis, the result is their union.
    same_end = (a.low is None) == (b.low is None) and (a.high is None) == (b.high is None) and None in (a.low, a.high)
    if same_end or NOWHERE in (a, b):
        return _hull(a, b)
    return b if b == EVERYWHERE else a


def _of_known(choose: Callable[[Dim, Dim], Dim], a: Dim | None, b: Dim | None) -> Dim | None:
    return b if a is None else a if b is None else choose(a, b)


# ---- the average number of steps that masks leave --------------------------------------------------


def average_steps(kernel: Kernel, row: Axis, loop: Axis, rows: int, steps: int) -> int:
    """For an average row, estimates how many of the `steps` loop indices the masks keep. A causal mask excludes about
    half of the loop indices.

    Returns 0 if an op that is not a mask depends on the loop index. The estimate helps to choose a schedule. The
    estimate assumes that programs skip every block that is completely masked.
    """
    choices = [op for op in kernel.body if isinstance(op, Compute) and op.op == "where"]
    conditions = {op.args[0] for op in choices if isinstance(op.args[2], Constant) and is_known(formula(op.args[0]))}
    if not _only_through(kernel, loop, conditions):
        return 0
    chosen = all_of(map(formula, conditions))
    places = [rows * (2 * k + 1) // (2 * SAMPLES) for k in range(SAMPLES)]
    return sum(_remaining_steps(chosen, {row.symbol: p}, loop.symbol, steps) for p in places) // SAMPLES


def _only_through(kernel: Kernel, loop: Axis, conditions: Set[Op]) -> bool:
    """Checks whether a kernel depends on the loop index only through conditions of `where`."""
    inside = {o for c in conditions for o in needed(c) if loop.name in o.axes}
    for op in kernel.body:
        if isinstance(op, Position) and loop.symbol in op.expr.symbols() and op not in inside:
            return False
        taken = children(op)[1:] if isinstance(op, Compute) and op.op == "where" else children(op)
        if op not in inside and any(o in inside for o in taken):
            return False
    return True


def _remaining_steps(f: Formula, at: Mapping[Symbol, int], loop: Symbol, steps: int) -> int:
    """Returns for one row the number of loop indices at which a condition can be true."""
    # `at` maps the symbol of the row axis to the row's index
    found = can_hold(f, loop, Dim.of(steps), lambda d: None if (v := d.substitute(at)).constant is None else (v, v))
    return max(0, int(found.high or Dim.of(steps)) - int(found.low or ZERO))
