"""The transport rule: how a partial sum must be corrected when a reduction that it depends on changes.

    m[i] = max over r of x[i, r]
    s[i] = sum over r of F(x[i, r], m[i])

In: the summed expression F of a graph or a kernel (`Terms`), and the reductions that F depends on. The sum and the
reductions inside the summed expression run over the same elements. Out: the transport T (correction of a partial sum),
or a refusal with its reason. The transport T turns a partial sum that was computed with an old value of the reduction m
into the partial sum for a new value of m. Because the partial sum can be corrected, one loop over blocks of elements
computes the sum s and the reduction m together. After each block, the partial sum s is corrected for the new value of
m, and the sum over the block is added. Two partial sums over separate groups of elements can be added after each of
them is corrected.

    F depends on    form of F                              transport of a partial sum s  name
    a maximum m     exp(X - h(m))                          s * exp(h(old) - h(new))      Rescale
                    F * G, F / G, G independent of m       T(F) * T(G), T(F)
                    -F, F rounded to fewer bits            T(F)
    means m, m'     (X - m) * (Y - m')                     s + n * (old - new) * (old' - new')   Shift
    anything else   refused

In an exponent X - m, m must be the maximum of X itself: then no exponent is positive, and no exponential overflows. A
mean is the sum over n elements divided by n. A deviation is the difference X - m of an element and the mean m of all
elements. Deviations from a mean add up to 0, so the correction of a sum of products of two deviations needs only the
means and the number of elements. The square of a deviation, (X - m) ** 2, is the product of two equal deviations.

The transport (correction of a partial sum) `Rescale` is the correction in the online softmax (Milakov and Gimelshein,
"Online normalizer calculation for softmax", 2018). The transport `Shift` is the correction of a sum of products of
deviations when the means change. For one added element, the formula of `Shift` is by Welford ("Note on a method for
calculating corrected sums of squares and products", 1962). For a block of added elements, the formula of `Shift` is by
Chan, Golub and LeVeque ("Updating formulae and a pairwise algorithm for computing sample variances", 1979). minitri
derives the corrections `Rescale` and `Shift` from the structure of the summed expression.

Left out: sums of where(p, F, 0). Example: for a row X that contains only -inf, F = exp(X - max(X)) is nan. For a row X
of only -inf, the sum of where(p, exp(X - max(X)), 0) is nan if the condition p is true for any element. If p is false
for every element of the row, the sum of where(p, exp(X - max(X)), 0) is 0. One correction factor serves every condition
p, so the factor cannot make the sum nan for one condition and 0 for another. A sum of third powers, such as (x -
mean(x)) ** 3, is refused: it has no transport (correction of a partial sum). To correct a sum of third powers of
deviations, the loop would also need the sum of the squared deviations.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from minitri.base.dims import Dim
from minitri.base.nodes import postorder
from minitri.graph.ir import const_value

E = TypeVar("E")


class Refused(Exception):
    """Raised if the partial sum of an expression cannot be corrected when a reduction in the expression changes. The
    message of the exception names the reason.
    """


class Terms(Generic[E]):
    """Gives access to the structure of an expression that is reduced. A broadcast is left out: the expression has the
    operand of the broadcast instead. The class `Terms` has one subclass for graphs and one for kernels.

    look     returns the operator and the operands of an expression. The operator "cast" is a cast between floats that
             are computed in the same dtype. A cast between other dtypes, such as i32 to f32, has the operator
             "conversion". The operator is "" if the expression must not be analysed further
    varies   checks whether the expression can have different values for elements that are reduced together
    made_by  returns the node or op that computes the expression
    count    the number of reduced elements
    """

    look: Callable[[E], tuple[str, tuple[E, ...]]]
    varies: Callable[[E], bool]
    made_by: Callable[[E], Any]
    count: Dim

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
    """A reduction that a sum depends on, such as the maximum m in the sum of exp(x - m).

    The field `y` is the result of the reduction, `op` is its operator, such as "max", and `x` is the operand.
    """

    y: E
    op: str
    x: E


class Rescale(NamedTuple, Generic[E]):
    """The correction of a partial sum s of exp(x - h(y)) when the maximum y grows: s is multiplied by exp(h(old y) -
    h(y)).

    The field `shifts` contains the expression h(y) of each exponential exp(x - h(y)) that is a factor of the summed
    expression.
    """

    y: Reduced[E]
    shifts: tuple[E, ...]


class Mean(NamedTuple, Generic[E]):
    """A mean of elements. The field `y` is the sum of the elements, and the field `mean` is the sum divided by the
    number of elements.
    """

    y: Reduced[E]
    mean: E


class Shift(NamedTuple, Generic[E]):
    """The correction of a partial sum of products of two deviations, when more elements change the two means. A sum s
    of n products (x - old1) * (y - old2) becomes s + n * (old1 - mean1) * (old2 - mean2), if the means change from old1
    and old2 to mean1 and mean2.
    """

    means: tuple[Mean[E], Mean[E]]


def transport(terms: Terms[E], root: E, needs: Sequence[Reduced[E]]) -> Rescale[E] | Shift[E]:
    """Returns the transport (the correction of a partial sum) of a sum whose summed expression is `root`. The
    expression `root` depends on the reductions in `needs`, such as a maximum. When more elements change the result of a
    reduction in `needs`, the partial sum must be corrected.

    Raises Refused if no correction of the partial sum is known.
    """
    ops = {n.op for n in needs}
    if not needs:
        raise Refused("it follows no other reduction")
    if others := sorted(ops - {"max", "sum"}):
        raise Refused(f"it follows a reduce.{others[0]}, and only a running maximum or mean is safe")
    if ops == {"sum"}:
        return _shift(terms, root, needs)
    if "sum" in ops:
        raise Refused("it follows a maximum and a sum")
    if len(needs) > 1:
        raise Refused("it follows two maxima")
    return Rescale(needs[0], tuple(_shifts(terms, root, needs[0])))


def above(terms: Terms[E], root: E, below: Iterable[E]) -> set[E]:
    """Returns all subexpressions of `root` that depend on an expression in `below`, and the expressions in `below`
    themselves.
    """
    found = set(below)
    for e in postorder([root], lambda e: () if e in found else terms.look(e)[1]):
        if any(o in found for o in terms.look(e)[1]):
            found.add(e)
    return found


# ---- a running maximum ---------------------------------------------------------------------


def _shifts(terms: Terms[E], root: E, y: Reduced[E]) -> list[E]:
    """Returns the expression h for each exponential exp(X - h(y)) that is a factor of `root`."""
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
    """Returns h for an exponent x - h, where h is computed from the maximum of x. Raises Refused if the exponent does
    not have the form x - h. Raises Refused if h is not computed from the maximum of x.
    """
    name, operands = terms.look(exponent)
    if name != "subtract":
        raise Refused("the exponent is not a difference from the maximum")
    x, h = operands
    if x != y.x:
        raise Refused("the exponent shifts something else than what the maximum is of")
    if terms.varies(h):
        raise Refused("the shift is not the same for all elements")
    return h


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
    if first[1] != second[1]:
        raise Refused("one deviation is from the mean, the other towards it")
    return Shift((first[0], second[0]))


def _deviation(terms: Terms[E], d: E, needs: Sequence[Reduced[E]]) -> tuple[Mean[E], bool]:
    """Returns the mean in a deviation `x - mean` or `mean - x`, and whether the deviation is `x - mean`."""
    name, operands = terms.look(d)
    if name != "subtract":
        raise Refused("a factor is not a deviation from a mean")
    for (x, mean), away in ((operands, True), (operands[::-1], False)):
        kind, parts = terms.look(mean)
        y = next((n for n in needs if kind == "divide" and n.y == parts[0]), None)
        if y is not None and terms.is_count(parts[1]):
            if x != y.x:
                raise Refused("the deviation is of something else than what the mean is of")
            return Mean(y, mean), away
    raise Refused("a factor is not a deviation from a mean of the same elements")
