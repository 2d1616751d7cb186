"""A canonical form for sizes with maxima and minima. This form keeps the sizes of slices of slices short.

    max(N - 1, 0) + min(N, 1)                  is N: all elements except the first, and the first
    min(2*min(N, 1) + max(N - 2, 0), 1)        is min(N, 1)

In: a `Dim` with maxima and minima. Out: an equal `Dim` in canonical form. Two Dims that are equal functions of one size
become the same `Dim`.

The one idea: max(a, b) is b + ramp(a - b), where ramp(x) is max(x, 0). Nested maxima and minima of one integer n are a
piecewise linear function of n. The function ramp(n - k) changes its slope at k only. So the whole function is a linear
function plus one ramp for each value of n at which the slope changes (a "bend"). The factor of the ramp is the change
of the slope.

Left out: nested maxima of several different sums of sizes, and maxima within products, quotients and remainders. Such
maxima stay unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from math import gcd

from minitri.base.dims import ZERO, Dim, Symbol, sign, size
from minitri.base.symbolic_minmax import Extreme, Largest, largest, smallest

Bends = Mapping[int, int]  # from each bend k to the factor of ramp(n - k)
Allows = Callable[[Symbol, int], bool]  # whether a size can have a value
MOST_SKIPPED = 8  # how many consecutive values are tested with `Allows`


@dataclass(frozen=True, slots=True)
class Ramps:
    """A piecewise linear function: `plain` plus the sum of factor * ramp(n - k), with ramp(x) = max(x, 0).

    `bends` has the ramps for each n, as a map from k to the factor. At n = k the slope changes.
    """

    plain: Dim
    bends: Mapping[Dim, Bends] = field(default_factory=dict)

    def plus(self, other: Ramps, factor: int = 1) -> Ramps:
        """Returns the sum self + factor * other."""
        bends = {n: Counter(self.bends.get(n, {})) for n in (*self.bends, *other.bends)}
        for n, more in other.bends.items():
            bends[n].update({k: factor * c for k, c in more.items()})
        kept = {n: {k: c for k, c in own.items() if c} for n, own in bends.items()}
        return Ramps(self.plain + other.plain * factor, {n: own for n, own in kept.items() if own})

    def dim(self) -> Dim:
        """Returns the function as a `Dim`.

        A ramp c * max(x - k, 0) becomes a maximum if c is above 0. Otherwise the ramp becomes a minimum.
        """
        total = self.plain
        for n, bends in self.bends.items():
            for k, c in sorted(bends.items()):
                total = total + (largest(n - k, 0) if c > 0 else n - smallest(n, k)) * c
        return total


def tidy(d: Dim) -> Dim:
    """Returns the canonical form of a size. A single maximum or minimum stays unchanged."""
    return _ramps(d).dim() if _is_nested(d) else d


def where_present(d: Dim, extents: Iterable[Dim], allows: Allows) -> Dim:
    """Returns `d`, simplified under the assumption that none of the extents is 0.

    Example: if the extent max(N - 2, 0) is not 0, then N >= 3, so min(N, 1) is 1.
    """
    if not any(isinstance(p, Extreme) for p in d.pairs()):
        return d
    least = _least_sizes(extents, allows)
    moved = tidy(d.substitute({s: size(s.name) + n for s, n in least.items()}))
    return tidy(moved.substitute({s: size(s.name) - n for s, n in least.items()}))


def never_negative(d: Dim, extents: Iterable[Dim], allows: Allows) -> bool:
    """Checks whether d >= 0 is proven under the assumption that none of the extents is 0."""
    least = _least_sizes(extents, allows)
    return sign(tidy(d.substitute({s: size(s.name) + n for s, n in least.items()}))) in (0, 1)


def _least_sizes(extents: Iterable[Dim], allows: Allows) -> dict[Symbol, int]:
    """Returns, for each size, the smallest value that makes no extent 0 and that `allows` permits."""
    least: dict[Symbol, int] = {}
    for symbol, n in (found for e in extents for found in _least(e)):
        skipped = takewhile(lambda k, s=symbol: not allows(s, k), range(n, n + MOST_SKIPPED))
        least[symbol] = max(least.get(symbol, 0), n + len(list(skipped)))
    return least


def _least(extent: Dim) -> Iterator[tuple[Symbol, int]]:
    """Yields the size on which an extent depends, and the least value of that size for which the extent is not 0.

    Yields nothing if the extent depends on several sizes.
    """
    ramps = _ramps(extent)
    base, slope = _base(ramps.plain)
    over = {*ramps.bends, *((base,) if slope else ())}
    if len(over) != 1 or not isinstance(symbol := next(iter(over)).atom, Symbol) or symbol.kind != "size":
        return
    bends = next(iter(ramps.bends.values()), {})
    places = sorted({0, 1, *bends, *(k + 1 for k in bends)})  # the function is linear between them and after the last
    values = [extent.compute({symbol: n}) for n in places]
    rises = [v - u for u, v in zip(values, values[1:])]
    for n, end, v, rise in zip(places, [*places[1:], None], values, [*rises, rises[-1]]):
        step = rise // (end - n) if end is not None else rise
        first = n if v >= 1 else n - (v - 1) // step if step > 0 else None
        if first is not None and (end is None or first < end):
            yield symbol, first
            return


def _is_nested(d: Dim) -> bool:
    """Checks whether d has several maxima and minima, or nested ones."""
    found = [a for a in d.atoms() if isinstance(a, Extreme)]
    return len(found) > 1 or any(isinstance(b, Extreme) for a in found for x in (a.a, a.b) for b in x.atoms())


def _ramps(d: Dim) -> Ramps:
    """Returns `d` as a sum of ramps, where ramp(x) is max(x, 0)."""
    found = Ramps(ZERO)
    for monomial, c in d.terms:
        alone = monomial[0] if len(monomial) == 1 else None
        found = found.plus(_of_extreme(alone) if isinstance(alone, Extreme) else Ramps(Dim({monomial: 1})), c)
    return found


def _of_extreme(a: Extreme) -> Ramps:
    """Returns a maximum or minimum as a sum of ramps.

    max(x, y) is y + ramp(x - y), and min(x, y) is y - ramp(y - x).
    """
    factor = 1 if isinstance(a, Largest) else -1
    ramp = _ramp(_ramps((a.a - a.b) * factor))
    return Ramps(Dim({(a,): 1})) if ramp is None else _ramps(a.b).plus(ramp, factor)


def _ramp(inner: Ramps) -> Ramps | None:
    """Returns max(inner, 0) as a sum of ramps. Returns None if `inner` is not a function of one sum of sizes."""
    n, slope = _base(inner.plain)
    over = {*inner.bends, *((n,) if slope else ())}
    if len(over) > 1:
        return None
    if not over:
        return Ramps(max(inner.plain, ZERO, key=int))
    (n,) = over
    constant = inner.plain - n * slope
    bends = inner.bends.get(n, {})

    def value(at: int) -> int:
        return max(0, int(constant) + slope * at + sum(c * max(at - k, 0) for k, c in bends.items()))

    return _bent(n, value, _corners(int(constant), slope, bends))


def _base(d: Dim) -> tuple[Dim, int]:
    """Returns (n, c) such that d = c * n + a constant.

    |c| is as large as possible, and n begins with a positive coefficient.
    """
    terms = [(m, c) for m, c in d.terms if m]
    if not terms:
        return ZERO, 0
    common = gcd(*(c for _, c in terms)) * (1 if terms[0][1] > 0 else -1)
    return Dim({m: c // common for m, c in terms}), common


def _corners(constant: int, slope: int, bends: Bends) -> set[int]:
    """Returns all n at which max(f(n), 0) may change its slope, for f(n) = constant + slope * n + ramps.

    The result has the values of n at which f changes its slope, and the integers next to the zeros of f.
    """
    corners = set(bends)
    for k, c in [(None, 0), *sorted(bends.items())]:
        constant, slope = (constant - c * k, slope + c) if k is not None else (constant, slope)
        if slope:
            zero = -constant // slope
            corners |= {zero, zero + 1}
    return corners


def _bent(n: Dim, value: Callable[[int], int], corners: set[int]) -> Ramps:
    """Writes a piecewise linear function of n as ramps. `corners` are all values of n at which its slope may change.

    If n cannot be negative, only corners above 0 are needed.
    """
    if sign(n) == 1:
        start, corners = 0, {k for k in corners if k > 0}
    else:
        start = min(corners, default=0) - 2
    slope = value(start + 1) - value(start)
    bends = {k: value(k + 1) - 2 * value(k) + value(k - 1) for k in corners}
    return Ramps(n * slope + value(start) - slope * start, {n: bends}).plus(Ramps(ZERO))
