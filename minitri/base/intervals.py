"""Interval arithmetic: the range of an index expression whose axes stay in ranges.

    0 <= j < N    (i*N + j) // N is i, and i*N + j is in 0 … M*N - 1 if 0 <= i < M

In: a `Dim` and the ranges of its axes. Out: its least and its greatest value as Dims in sizes, or a
simpler `Dim`. The one idea: if an axis occurs linearly with a coefficient of known sign, the extremes
of the expression are at the ends of that axis.

Left out: consequences of several conditions together (inequalities.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from minitri.base.dims import ZERO, Atom, Dim, DimLike, Pair, Quotient, Remainder, Symbol, floordiv, sign, split
from minitri.base.extremes import Largest

Range = tuple[Dim, Dim]  # smallest and largest value, both inclusive
Ranges = Mapping[Symbol, Range]


def bounds(d: Dim, ranges: Ranges, positive: frozenset[Symbol] = frozenset()) -> Range | None:
    """Smallest and largest value of `d` over the given axis ranges, as Dims in sizes.

    Interval reasoning that keeps correlations: each axis that occurs linearly, with a
    coefficient of known sign, is replaced by one end of its range. None: not provable.
    """
    d, ranges = _abstract(d, ranges, positive)
    low = high = d
    for symbol in d.symbols():
        if symbol.kind == "size":
            continue
        if symbol not in ranges:
            return None
        least, most = ranges[symbol]
        low, high = _at_end(low, symbol, least, most, positive), _at_end(high, symbol, most, least, positive)
        if low is None or high is None:
            return None
    return low, high


def _at_end(d: Dim, symbol: Symbol, rising: Dim, falling: Dim, positive: frozenset[Symbol]) -> Dim | None:
    """`d` with one number for a symbol if it rises with the symbol, another one if it falls; None if neither is known."""
    parts = d.coefficient(symbol)
    direction = sign(parts[0], positive) if parts else None
    if parts is None or direction is None:
        return None
    return parts[0] * (rising if direction >= 0 else falling) + parts[1]


def _abstract(d: Dim, ranges: Ranges, positive: frozenset[Symbol]) -> tuple[Dim, Ranges]:
    """Replaces quotients and remainders over axes by fresh axes with the ranges they have."""
    fresh: dict[Symbol, Range] = {}

    def atom(a: Atom) -> DimLike:
        if isinstance(a, Symbol) or all(s.kind == "size" for s in Dim({(a,): 1}).symbols()):
            return Dim({(a,): 1})
        range = _pair_range(a, ranges, positive)
        if range is None:
            return Dim({(Symbol("?", "value"),): 1})
        symbol = Symbol(f"#{a}", "axis")
        fresh[symbol] = range
        return Dim({(symbol,): 1})

    abstracted = d.map_atoms(atom)
    return abstracted, {**ranges, **fresh}


def _pair_range(a: Pair, ranges: Ranges, positive: frozenset[Symbol]) -> Range | None:
    if not isinstance(a, (Quotient, Remainder)) or sign(a.b, positive) != 1:
        return None
    if isinstance(a, Remainder):
        return ZERO, a.b - 1
    inner = bounds(a.a, ranges, positive)
    return None if inner is None else (floordiv(inner[0], a.b), floordiv(inner[1], a.b))


def proves_nonnegative(d: Dim, ranges: Ranges, positive: frozenset[Symbol] = frozenset()) -> bool:
    """True if d >= 0 for every axis value in range and every size."""
    found = bounds(d, ranges, positive)
    return found is not None and sign(found[0], positive) in (0, 1)


def is_natural(d: Dim, ranges: Ranges) -> bool:
    """Whether `d` is never negative; the division of the hardware then rounds down."""
    ends = (d.atom.a.constant, d.atom.b.constant) if isinstance(d.atom, Largest) else ()
    return proves_nonnegative(d, ranges) or any(n is not None and n >= 0 for n in ends)


def simplify(d: Dim, ranges: Ranges, positive: frozenset[Symbol] = frozenset()) -> Dim:
    """Removes quotients and remainders that the ranges decide: (i*N + j) // N is i if 0 <= j < N."""

    def atom(a: Atom) -> DimLike:
        if isinstance(a, Symbol):
            return Dim({(a,): 1})
        x, y = simplify(a.a, ranges, positive), simplify(a.b, ranges, positive)
        if isinstance(a, (Quotient, Remainder)):
            whole, rest = split(x, y)
            fits = proves_nonnegative(rest, ranges, positive)
            if fits and proves_nonnegative(y - rest - 1, ranges, positive):
                return whole if isinstance(a, Quotient) else rest
        return a.of(x, y)

    if all(isinstance(a, Symbol) for a in d.atoms()):
        return d
    return d.map_atoms(atom)
