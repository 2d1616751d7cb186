"""Derives how to correct a partial sum after the running maximum or mean inside the sum has changed.

    m[i] = max over r of x[i, r]
    s[i] = sum over r of F(x[i, r], m[i])

The function `transport` takes an expression F that is summed, and the reductions that F uses, such as the maximum m.
The sum s and the reduction m run over the same elements. The function `transport` returns T(F), a formula that corrects
(transports) partial sums of F. T(F) turns the partial sum for the old value of m into the partial sum for the new value
of m. If no correction is known, `transport` raises the error `Refused`. The correction makes it possible to compute the
sum s and the reduction m in one loop over blocks of elements. After each block of elements, the loop corrects the
partial sum s, because the maximum or mean m has changed. Then the loop adds the sum over the block to s. To add two
partial sums over different elements, both must first be corrected for the same m.

    F depends on    form of F                              transport of a partial sum s  name
    a maximum m     exp(X - h), h = m, or 0 for infinite m s * exp(h(old) - h(new))      Rescale
                    F * G, F / G, G independent of m       T(F) * T(G), T(F)
                    -F, F rounded to fewer bits            T(F)
    means m, m'     (X - m) * (Y - m')                     s + n * (old - new) * (old' - new')   Shift
    anything else   refused

In an exponent X - h, h must be the maximum m of X itself: then no exponent is positive, and no exponential overflows. A
value such as 2*m in place of m would be wrong: for negative X, exp(X - 2*m) can overflow if m is the maximum of some
elements only. But h may be 0 if m is infinite, as in a softmax that is written for rows of -inf. A mean is the sum over
n elements divided by n. A deviation is the difference X - m, where X is an element and m is the mean of all elements.
The deviations from a mean add up to 0, so the correction `Shift` needs only the means and the number of elements. The
square of a deviation, (X - m) ** 2, is the product of two equal deviations.

Online softmax uses the correction `Rescale` (Milakov and Gimelshein, "Online normalizer calculation for softmax",
2018). The correction `Shift` updates a sum of products of deviations, as in a variance or a covariance. Welford
published the formula of `Shift` for one new element ("Note on a method for calculating corrected sums of squares and
products", 1962). Chan, Golub and LeVeque published how a block of new elements changes a variance ("Updating formulae
and a pairwise algorithm for computing sample variances", 1979). The compiler derives the corrections `Rescale` and
`Shift` from the structure of the summed expression.

The function `transport` raises `Refused` for a sum of where(p, F, 0), in which p is a condition. Example: for a row X
that contains only -inf, F = exp(X - max(X)) is nan. For this row X, the sum of where(p, F, 0) is nan if p holds for an
element, and 0 otherwise. The correction factor exp(old max - new max) does not depend on p, so the corrected sum is
wrong for some p. The function `transport` also refuses a sum of (x - mean(x)) ** 3. The correction would need the sum
of (x - mean(x)) ** 2, too.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from minitri.base.dims import Dim
from minitri.base.nodes import postorder
from minitri.graph.ir import const_value

E = TypeVar("E")
INFINITE = math.inf, -math.inf


class Refused(Exception):
    """The exception for a partial sum that minitri cannot correct. The message of the exception names the reason."""


def refuse_if(fails: bool, reason: str) -> None:
    """Raises Refused with this reason if `fails` is true."""
    if fails:
        raise Refused(reason)


class Terms(Generic[E]):
    """The interface through which the function `transport` reads the expression inside a sum. One subclass of `Terms`
    reads expressions of graphs, and another subclass reads expressions of kernels. In the expressions, each broadcast
    is replaced by its operand.

    `look`: returns the operator and the operands of an expression. The operator "cast" is a cast between f32, f16 and
        bf16. Other casts, such as i32 to f32, have the operator "conversion". For an inner reduction that also
        runs over the reduced axes, `look` returns the operator "" and no operands.
    `varies`: checks whether the value of an expression can change along the reduced axes.
    `count`: the number of reduced elements.
    """

    look: Callable[[E], tuple[str, tuple[E, ...]]]
    varies: Callable[[E], bool]
    count: Dim

    def made_by(self, e: E) -> Any:
        """Returns the graph node that computes an expression of a graph. An expression of a kernel is an op, and the
        method returns this op.
        """
        return e

    def is_number(self, e: E, value: float) -> bool:
        return getattr(self.made_by(e), "value", None) == value  # only constants have a value

    def is_count(self, e: E) -> bool:
        """Checks whether the expression is the number of reduced elements, such as the divisor of a mean."""
        known = self.count.constant
        if known is not None and self.is_number(e, const_value(known, self.made_by(e).dtype)):
            return True
        while self.look(e)[0] in ("cast", "conversion"):
            (e,) = self.look(e)[1]
        return getattr(self.made_by(e), "expr", None) == self.count


class Reduced(NamedTuple, Generic[E]):
    """A reduction inside a summed expression. For example, exp(x - m) contains the maximum m.

    The field `y` is the result of the reduction, `op` is its operator, such as "max", and `x` is the operand.
    """

    y: E
    op: str
    x: E


class Rescale(NamedTuple, Generic[E]):
    """Corrects a partial sum of exp(x - h(y)) after the running maximum y has grown. Here h(y) is y, or y with 0 in
    place of infinite values. For a growth of y from y1 to y2, the correction factor of the partial sum is
    exp(h(y1) - h(y2)).

    A summed expression can have several factors exp(x - h(y)). The field `shifts` contains the expression h(y) of each
    factor.
    """

    y: Reduced[E]
    shifts: tuple[E, ...]


class Mean(NamedTuple, Generic[E]):
    """A mean, and the sum from which the mean is computed. The field `y` is the sum of the elements, and the field
    `mean` is the sum divided by the number of elements.
    """

    y: Reduced[E]
    mean: E


class Shift(NamedTuple, Generic[E]):
    """Corrects a partial sum of (x - mean(x)) * (y - mean(y)) when the two means change. The correction adds n * (old
    mean(x) - new mean(x)) * (old mean(y) - new mean(y)) to a partial sum of n elements.
    """

    means: tuple[Mean[E], Mean[E]]


def transport(terms: Terms[E], root: E, needs: Sequence[Reduced[E]]) -> Rescale[E] | Shift[E]:
    """Returns how to correct a partial sum of the expression `root` after the running maximum or mean in `root` has
    changed. The argument `needs` contains the reductions inside `root`, such as a maximum.

    Raises Refused if no correction of the partial sum is known.
    """
    ops = {n.op for n in needs}
    refuse_if(not needs, "it follows no other reduction")
    if others := sorted(ops - {"max", "sum"}):
        raise Refused(f"it follows a reduce.{others[0]}, and only a running maximum or mean is safe")
    if ops == {"sum"}:
        return _shift(terms, root, needs)
    refuse_if("sum" in ops, "it follows a maximum and a sum")
    refuse_if(len(needs) > 1, "it follows two maxima")
    return Rescale(needs[0], tuple(_shifts(terms, root, needs[0])))


def above(terms: Terms[E], root: E, below: Iterable[E]) -> set[E]:
    """Returns all expressions in `below`, and all subexpressions of `root` that contain one of these expressions."""
    found = set(below)
    for e in postorder([root], lambda e: () if e in found else terms.look(e)[1]):
        if any(o in found for o in terms.look(e)[1]):
            found.add(e)
    return found


# ---- a running maximum ---------------------------------------------------------------------


def _shifts(terms: Terms[E], root: E, y: Reduced[E]) -> list[E]:
    """Returns the values subtracted inside the exponentials of a product: `h` for `exp(x - h)`."""
    depending = above(terms, root, [y.y])
    shifts: list[E] = []
    stack = [root]
    while stack:
        e = stack.pop()
        if e not in depending:
            continue
        match terms.look(e):
            case ("cast" | "negative" | "multiply", factors):
                stack += factors
            case ("divide", (a, b)) if b not in depending:
                stack.append(a)
            case ("exp", (x,)):
                shifts.append(_exponent(terms, x, y))
            case (name, _):
                raise Refused(f"{name or 'the value'} of a running maximum has no transport")
    return shifts


def _exponent(terms: Terms[E], exponent: E, y: Reduced[E]) -> E:
    """Returns the expression that an exponent subtracts: `h` for the exponent `x - h`."""
    name, operands = terms.look(exponent)
    refuse_if(name != "subtract", "the exponent is not a difference from the maximum")
    x, h = operands
    refuse_if(x != y.x, "the exponent shifts something else than what the maximum is of")  # y must be the maximum of x
    refuse_if(terms.varies(h) or not _is_maximum(terms, h, y), "the exponent subtracts something else than the maximum")
    return h


def _is_maximum(terms: Terms[E], h: E, y: Reduced[E]) -> bool:
    """Checks whether a value is the maximum `y`, or `y` with 0 in place of infinite values."""
    match terms.look(h):
        case ("cast", (a,)):
            return _is_maximum(terms, a, y)
        case ("where", (p, *values)):
            _, compared = terms.look(p)  # the condition compares only the maximum and infinities
            known = all(_is_maximum(terms, c, y) or any(terms.is_number(c, v) for v in INFINITE) for c in compared)
            zero = any(terms.is_number(v, 0) for v in values)
            return known and zero and any(_is_maximum(terms, v, y) for v in values)
    return h == y.y


# ---- running means -------------------------------------------------------------------------


def _shift(terms: Terms[E], root: E, needs: Sequence[Reduced[E]]) -> Shift[E]:
    match terms.look(root):
        case ("square" | "power", (d, *exponent)) if all(terms.is_number(e, 2) for e in exponent):
            factors = d, d
        case ("multiply", (a, b)):
            factors = a, b
        case (name, _):
            raise Refused(f"{name or 'the value'} of a running mean has no transport, only a square has")
    first, second = (_deviation(terms, f, needs) for f in factors)
    refuse_if(first[1] != second[1], "one deviation is from the mean, the other towards it")
    return Shift((first[0], second[0]))


def _deviation(terms: Terms[E], d: E, needs: Sequence[Reduced[E]]) -> tuple[Mean[E], bool]:
    """Returns the mean in `x - mean` or `mean - x`, and True for `x - mean`."""
    name, operands = terms.look(d)
    refuse_if(name != "subtract", "a factor is not a deviation from a mean")
    for (x, mean), away in ((operands, True), (operands[::-1], False)):
        kind, parts = terms.look(mean)
        y = next((n for n in needs if kind == "divide" and n.y == parts[0]), None)
        if y is not None and terms.is_count(parts[1]):
            refuse_if(x != y.x, "the deviation is of something else than what the mean is of")
            return Mean(y, mean), away
    raise Refused("a factor is not a deviation from a mean of the same elements")
