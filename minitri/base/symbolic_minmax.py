"""Maxima and minima of symbolic integers.

    largest(N, 0)          N, since no size is negative
    largest(N - 1, 0)      max(N - 1, 0)

The function `largest` returns the maximum of two symbolic integers (`Dim`s), and `smallest` returns the minimum. If a
proof shows which of the two `Dim`s is larger for all sizes, the result is one of these `Dim`s. If no proof shows which
`Dim` is larger, the result is a new `Dim` with the single term `max(…)` or `min(…)`.

The function `tidy` rewrites a size that contains maxima and minima in a canonical form. For example, `tidy` simplifies
two expressions of the size N:

    max(N - 1, 0) + min(N, 1)                  is N: the lengths of x[1:] and x[:1], added
    min(2*min(N, 1) + max(N - 2, 0), 1)        is min(N, 1)

If two sums of maxima and minima of one size N are equal for all N, they have the same canonical form.

The one idea: max(a, b) is b + ramp(a - b), where ramp(x) is max(x, 0). Nested maxima and minima of one integer n are a
piecewise linear function of n. The slope of ramp(n - k) is 0 for n < k and 1 for n > k. Any piecewise linear function
of n is a linear function plus one ramp for each value of n at which the slope changes (a "bend"). At n = k, a term c *
ramp(n - k) changes the slope of the function by c.

`tidy` does not change nested maxima of different sizes, such as max(max(M, 1), N). `tidy` does not change a maximum
inside a product, a quotient or a remainder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from itertools import takewhile
from math import gcd
from typing import Any, ClassVar

import numpy as np

from minitri.base.dims import ONE, ZERO, Dim, DimLike, Pair, Symbol, paired, sign, size
from minitri.base.nodes import Record

Bends = Mapping[tuple[Dim, int], int]  # from (n, k) to the factor of ramp(n - k)
Allows = Callable[[Symbol, int], bool]  # allows(M, 3) says whether the size M can be 3
MOST_SKIPPED = 8  # how many consecutive values are tested with `Allows`


def largest(a: DimLike, b: DimLike) -> Dim:
    return _extreme(Largest, Dim.of(a), Dim.of(b))


def smallest(a: DimLike, b: DimLike) -> Dim:
    return _extreme(Smallest, Dim.of(a), Dim.of(b))


def _of_values(integers: Callable[..., Any], arrays: Callable[..., Any]) -> Any:
    """Returns a function that calls `integers` for two Python integers, and `arrays` otherwise."""
    # Two Python integers are not passed to numpy, because numpy's integers overflow.
    return staticmethod(lambda a, b: (integers if isinstance(a, int) and isinstance(b, int) else arrays)(a, b))


class Extreme(Pair):
    """The maximum or the minimum of two symbolic integers."""

    __slots__ = ()
    word: ClassVar[str]
    enough: ClassVar[Callable[[Iterable[bool]], bool]]  # `any`: one operand >= 0 makes the result >= 0; `all`: both

    def __str__(self) -> str:
        return f"{self.word}({self.a}, {self.b})"

    def is_never_negative(self) -> bool:
        return type(self).enough(sign(x) in (0, 1) for x in (self.a, self.b))


class Largest(Extreme):
    __slots__ = ()
    of, value, word, enough = staticmethod(largest), _of_values(max, np.maximum), "max", any


class Smallest(Extreme):
    __slots__ = ()
    of, value, word, enough = staticmethod(smallest), _of_values(min, np.minimum), "min", all


def _extreme(kind: type[Extreme], a: Dim, b: Dim) -> Dim:
    if (winner := _winner(kind, a, b)) is not None:
        return winner
    for x, y in ((a, b), (b, a)):
        inner, shift = _shifted(kind, x)
        for p, q in ((inner.a, inner.b), (inner.b, inner.a)) if inner else ():
            winner = _winner(kind, p + shift, y)
            if winner is not None:  # max(max(p, q) + c, y) with p + c <= y is max(q + c, y)
                return _extreme(kind, q + shift, y) if winner == y else x
    a, b = sorted((a, b), key=str, reverse=True)
    return paired(kind, a, b)


def _winner(kind: type[Extreme], a: Dim, b: Dim) -> Dim | None:
    """Returns the operand that is the maximum (or minimum) for all sizes, or None."""
    difference = sign(a - b)
    # None: no proof is found.
    return None if difference is None else a if (difference >= 0) == (kind is Largest) else b


def _shifted(kind: type[Extreme], d: Dim) -> tuple[Extreme | None, int]:
    """Splits an expression such as `max(M, N) + 2` into its maximum (or minimum) and constant."""
    shift = next((c for m, c in d.terms if not m), 0)
    atom = (d - shift).atom
    return (atom, shift) if isinstance(atom, kind) else (None, 0)


def at_most_one(d: Dim) -> bool:
    """Checks whether `d` has the form min(…, 1), such as the length of `x[:1]`.

    An axis of the length min(…, 1) broadcasts like an axis of size 1.
    """
    return isinstance(d.atom, Smallest) and ONE in (d.atom.a, d.atom.b)


# ---- the canonical form --------------------------------------------------------------------


class Ramps(Record):
    """A piecewise linear function: a linear function `plain` plus terms c * max(n - k, 0) with integers c and k.

    The dict `bends` stores a term c * max(n - k, 0) as `bends[n, k] == c`. The term c * max(n - k, 0) adds c to the
    slope of the function for n > k.
    """

    plain: Dim
    bends: Bends = field(default_factory=dict)

    def plus(self, other: Ramps, factor: int = 1) -> Ramps:
        """Returns the sum self + factor * other."""
        bends = Counter(self.bends)
        bends.update({bend: factor * c for bend, c in other.bends.items()})
        return Ramps(self.plain + other.plain * factor, {bend: c for bend, c in bends.items() if c})

    def dim(self) -> Dim:
        """Converts the piecewise linear function to a `Dim` (an integer expression).

        A term c * max(n - k, 0) with c > 0 is not changed. A term c * max(n - k, 0) with c < 0 becomes c * (n - min(n,
        k)), which has the same value.
        """
        total = self.plain
        for (n, k), c in self.bends.items():
            total = total + (largest(n - k, 0) if c > 0 else n - smallest(n, k)) * c
        return total

    def of_one_sum(self) -> tuple[Dim, Callable[[int], int], set[int]] | None:
        """Writes the piecewise linear function as f(n), where n is a sum of sizes, such as `M + N`. Returns n, f and
        the set `corners`. The slope of max(f(n), 0) can change only at the integers in `corners`. Returns None if the
        piecewise linear function depends on two or more different sums of sizes, such as `M` and `M + N`.

        The set `corners` contains the integers at which the slope of f changes, and the integers next to the zeros of
        f.
        """
        n, slope = _base(self.plain)
        over = {*(m for m, _ in self.bends), *((n,) if slope else ())}
        if len(over) > 1:
            return None
        n = next(iter(over), n)
        constant, bends = int(self.plain - n * slope), {k: c for (_, k), c in self.bends.items()}

        def value(at: int) -> int:
            return constant + slope * at + sum(c * max(at - k, 0) for k, c in bends.items())

        corners = set(bends)
        for k in (min(bends, default=0) - 1, *bends):  # f is linear before the first bend, and after each bend
            if rise := value(k + 1) - value(k):
                zero = k + -value(k) // rise
                corners |= {zero, zero + 1}
        return n, value, corners


def tidy(d: Dim) -> Dim:
    """Returns the canonical form of a size. A size with at most one maximum or minimum is returned unchanged."""
    return _ramps(d).dim() if _is_nested(d) else d


def where_present(d: Dim, extents: Iterable[Dim], allows: Allows) -> Dim:
    """Returns `d`, simplified under the assumption that none of the axis lengths `extents` is 0.

    Example: if the extent max(N - 2, 0) is not 0, then N >= 3, so min(N, 1) is 1.
    """
    if not any(isinstance(p, Extreme) for p in d.pairs()):
        return d
    least = _least_sizes(extents, allows)
    moved = tidy(d.substitute({s: size(s.name) + n for s, n in least.items()}))
    return tidy(moved.substitute({s: size(s.name) - n for s, n in least.items()}))


def never_negative(d: Dim, extents: Iterable[Dim], allows: Allows) -> bool:
    """Checks whether `d` >= 0 can be proven if no axis length in `extents` is 0."""
    least = _least_sizes(extents, allows)
    return sign(tidy(d.substitute({s: size(s.name) + n for s, n in least.items()}))) in (0, 1)


def _least_sizes(extents: Iterable[Dim], allows: Allows) -> dict[Symbol, int]:
    """Returns for each symbolic size, such as `N`, the smallest value for which no axis length in `extents` is 0."""
    least: dict[Symbol, int] = {}
    for symbol, n in filter(None, map(_least, extents)):
        # Values that `allows` rejects are skipped.
        skipped = takewhile(lambda k, s=symbol: not allows(s, k), range(n, n + MOST_SKIPPED))
        least[symbol] = max(least.get(symbol, 0), n + len(list(skipped)))
    return least


def _least(extent: Dim) -> tuple[Symbol, int] | None:
    """Returns a size and its least value for which an axis length is positive: (N, 3) for the length `N - 2`."""
    # None: the length depends on several sizes, or is always 0.
    found = _ramps(extent).of_one_sum()
    if found is None or not isinstance(symbol := found[0].atom, Symbol) or symbol.kind != "size":
        return None
    _, value, corners = found
    least = min((n for n in {0, *corners} if n >= 0 and value(n) >= 1), default=None)
    return None if least is None else (symbol, least)


def _is_nested(d: Dim) -> bool:
    """Checks whether an expression has two or more maxima or minima, side by side or nested."""
    found = [a for a in d.atoms() if isinstance(a, Extreme)]
    return len(found) > 1 or any(isinstance(b, Extreme) for a in found for x in (a.a, a.b) for b in x.atoms())


def _ramps(d: Dim) -> Ramps:
    """Returns an expression as a sum of terms such as `max(x, 0)`, called ramps."""
    found = Ramps(ZERO)
    for monomial, c in d.terms:
        alone = monomial[0] if len(monomial) == 1 else None
        found = found.plus(_of_extreme(alone) if isinstance(alone, Extreme) else Ramps(Dim({monomial: 1})), c)
    return found


def _of_extreme(a: Extreme) -> Ramps:
    """Returns a maximum or minimum as a sum of terms such as `max(x, 0)`."""
    # With ramp(x) = max(x, 0), max(x, y) is y + ramp(x - y), and min(x, y) is y - ramp(y - x).
    factor = 1 if isinstance(a, Largest) else -1
    ramp = _ramp(_ramps((a.a - a.b) * factor))
    return Ramps(Dim({(a,): 1})) if ramp is None else _ramps(a.b).plus(ramp, factor)


def _ramp(inner: Ramps) -> Ramps | None:
    """Returns `max(inner, 0)` as a sum of terms such as `max(M - 2, 0)`, or None."""
    found = inner.of_one_sum()
    if found is None:
        return None  # `inner` depends on two or more different sums of sizes
    # The result is a linear function of n, a sum of sizes, plus terms c * max(n - k, 0).
    n, f, corners = found

    def value(at: int) -> int:
        return max(0, f(at))

    start = min(corners, default=0) - 2
    # If n is never negative, max(n - k, 0) is n - k for k <= 0, so these terms are not needed.
    if sign(n) == 1:
        start, corners = 0, {k for k in corners if k > 0}
    slope = value(start + 1) - value(start)
    bends = {(n, k): value(k + 1) - 2 * value(k) + value(k - 1) for k in corners}
    return Ramps(n * slope + value(start) - slope * start, bends).plus(Ramps(ZERO))


def _base(d: Dim) -> tuple[Dim, int]:
    """Splits off the constant and the common factor: `2*M + 4*N + 1` gives `(M + 2*N, 2)`."""
    terms = [(m, c) for m, c in d.terms if m]
    if not terms:
        return ZERO, 0
    # The sign makes the first coefficient of the result positive.
    common = gcd(*(c for _, c in terms)) * (1 if terms[0][1] > 0 else -1)
    return Dim({m: c // common for m, c in terms}), common
