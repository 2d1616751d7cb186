"""Interval arithmetic: computes the range of an index expression from the ranges of its axes.

    0 <= i < M, 0 <= j < N      i*N + j is in 0 … M*N - 1, and (i*N + j) // N is i

The function `bounds` takes a symbolic integer (`Dim`) and the ranges of its axes. `bounds` returns the least and the
greatest value that the integer can have, as `Dim`s that contain only sizes. If `bounds` does not find the least or the
greatest value, it returns None. The function `simplify` returns a simpler `Dim` that has the same values for all axes
in their ranges. The one idea: if an expression is linear in an axis, and the sign of the coefficient is known, the
extreme values are at the ends of the axis's range.

The file inequalities.py, not this module, proves inequalities from several conditions.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from math import gcd

from minitri.base.dims import ZERO, Atom, Dim, Division, Quotient, Remainder, Symbol, sign, split
from minitri.base.symbolic_minmax import Largest

Range = tuple[Dim, Dim]  # smallest and largest value, both inclusive
Ranges = Mapping[Symbol, Range]


def bounds(d: Dim, ranges: Ranges, positive: frozenset[Symbol] = frozenset()) -> Range | None:
    """Returns the smallest and the largest value of `d` over the ranges of its axes, as Dims that contain only sizes.

    Every occurrence of an axis is replaced by the same number, the first or the last index. For example, the largest
    value of i*N + i for 0 <= i < M is (M - 1)*N + M - 1. Returns None if `d` is not linear in an axis, or if the sign
    of the axis's coefficient is unknown. The argument `positive` contains the sizes that are assumed to be >= 1.
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
    """Replaces a symbol by `rising` if its coefficient is positive, and by `falling` if its coefficient is negative."""
    parts = d.coefficient(symbol)
    direction = sign(parts[0], positive) if parts else None
    if parts is None or direction is None:
        return None  # the sign of the symbol's coefficient is unknown
    return parts[0] * (rising if direction >= 0 else falling) + parts[1]


def _abstract(d: Dim, ranges: Ranges, positive: frozenset[Symbol]) -> tuple[Dim, Ranges]:
    """Replaces quotients and remainders by new axes; returns the new expression and all known ranges of axes."""
    fresh: dict[Symbol, Range] = {}

    def atom(a: Atom) -> Dim:
        if isinstance(a, Symbol) or all(s.kind == "size" for s in Dim({(a,): 1}).symbols()):
            return Dim({(a,): 1})
        symbol = Symbol(f"#{a}", "axis")
        # a new axis whose range is unknown is not in `fresh`
        if (range := _pair_range(a, ranges, positive)) is not None:
            fresh[symbol] = range
        return Dim({(symbol,): 1})

    # `bounds` needs an expression that is linear in the axes
    return d.map_atoms(atom), {**ranges, **fresh}


def _pair_range(a: Atom, ranges: Ranges, positive: frozenset[Symbol]) -> Range | None:
    if not isinstance(a, Division) or sign(a.b, positive) != 1:
        return None
    if isinstance(a, Remainder):
        return ZERO, a.b - 1
    inner = bounds(a.a, ranges, positive)
    return None if inner is None else (inner[0] // a.b, inner[1] // a.b)


def proves_nonnegative(d: Dim, ranges: Ranges, positive: frozenset[Symbol] = frozenset()) -> bool:
    """Checks whether d >= 0 is proven for all values of the axes in their ranges, and for all sizes."""
    found = bounds(d, ranges, positive)
    return found is not None and sign(found[0], positive) in (0, 1)


def within(ranges: Ranges, guards: Iterable[Dim]) -> Ranges:
    """Returns the ranges of the axes without the first and last indices at which a guard is negative.

    For example, if the range of i is 0 … 9, the guard `2*i - 3` narrows the range to 2 … 9. Guards with several axes
    change nothing. Guards and ranges with unknown sizes change nothing, and neither do guards that are never >= 0.
    """
    narrowed = dict(ranges)
    for guard in guards:
        for symbol in guard.symbols() & ranges.keys():
            dims = *(guard.coefficient(symbol) or (ZERO, ZERO)), *narrowed[symbol]
            if any(d.constant is None for d in dims) or dims[0] == 0:
                continue
            factor, rest, low, high = map(int, dims)
            low, high = (max(low, -(rest // factor)), high) if factor > 0 else (low, min(high, rest // -factor))
            if low <= high:
                narrowed[symbol] = Dim.of(low), Dim.of(high)
    return narrowed


def is_natural(d: Dim, ranges: Ranges) -> bool:
    """Checks whether `d` is proven to be >= 0.

    Hardware rounds quotients towards zero. If the dividend `d` is >= 0, a quotient that hardware has rounded towards
    zero is equal to the result of floor division.
    """
    ends = (d.atom.a.constant, d.atom.b.constant) if isinstance(d.atom, Largest) else ()
    return proves_nonnegative(d, ranges) or any(n is not None and n >= 0 for n in ends)


def simplify(d: Dim, ranges: Ranges, positive: frozenset[Symbol] = frozenset()) -> Dim:
    """Removes quotients and remainders whose value follows from the ranges: (i*N + j) // N is i if 0 <= j < N."""

    def atom(a: Atom) -> Dim:
        if isinstance(a, Symbol):
            return Dim({(a,): 1})
        x, y = simplify(a.a, ranges, positive), simplify(a.b, ranges, positive)
        if isinstance(a, Division):
            for unit in (y, *_units(x, y)):
                whole, rest = split(x, unit)
                found = bounds(rest, ranges, positive)
                if found is not None and (least := found[0] // unit).constant is not None:
                    # (i + 193) // 194 is 1 + (i - 1) // 194, which is 1 if 1 <= i < 195
                    whole, rest = whole + least, rest - least * unit
                fits = proves_nonnegative(rest, ranges, positive)
                if fits and proves_nonnegative(unit - rest - 1, ranges, positive):
                    whole, units = simplify(whole, ranges, positive), split(y, unit)[0]
                    return whole // units if isinstance(a, Quotient) else whole % units * unit + rest
        return a.of(x, y)

    return d if all(isinstance(a, Symbol) for a in d.atoms()) else d.map_atoms(atom)


def joined(d: Dim, ranges: Ranges = {}) -> Dim:
    """Joins a quotient and a remainder of the same number into one term.

    Examples: n*(a//n) + a % n becomes a, and n*(a//n % m) + a % n becomes a % (n*m).
    """
    for atom in d.atoms():
        if isinstance(atom, Remainder):
            for fewer in _joined_with(d, atom, ranges):
                if len([*fewer.pairs()]) < len([*d.pairs()]):
                    return joined(fewer, ranges)
    return d


def _joined_with(d: Dim, low: Remainder, ranges: Ranges) -> list[Dim]:
    """Returns other forms of a sum: for `i % 4 + 4 * (i // 4)`, the form `i`."""
    a, n, digit = low.a, low.b, Dim({(low,): 1})
    count, rest = split(d, digit)
    quotient = simplify(a // n, ranges)
    # the remainder `low` is a - n * (a // n): a % n + n * (a // n) becomes a
    found = [rest + count * (a - n * quotient)]
    for high in d.atoms():  # a % n + n * (a // n % m) becomes a % (n * m)
        if isinstance(high, Remainder) and high is not low:
            more = a + n * (high.a - quotient)
            found.append(rest + count * (more % (n * high.b) - n * Dim({(high,): 1})))
    return found


def mixed_radix(d: Dim, ranges: Ranges, whole: Dim) -> dict[Symbol, int]:
    """If the index `d` takes each value from 0 to `whole` - 1 exactly once, returns the factor of each symbol in `d`.
    Returns an empty dict if `d` repeats or skips one of the values from 0 to `whole` - 1.

    Example: if d0 has 4 values and d1 has 32 values, the index `32*d0 + d1` takes each value from 0 to 127 exactly
    once. For the index `32*d0 + d1`, the function returns the factors {d1: 1, d0: 32}. The smallest factor comes first.
    """
    d = joined(simplify(d, ranges), ranges)
    weights = {s: c for m, c in d.terms if len(m) == 1 and isinstance(s := m[0], Symbol)}
    digits: dict[Symbol, int] = {}
    step = 1
    for symbol, weight in sorted(weights.items(), key=lambda item: item[1]):
        if symbol not in ranges or weight != step or ranges[symbol][1].constant is None:
            return {}
        digits[symbol] = step
        step *= int(ranges[symbol][1]) + 1
    return digits if len(weights) == len(d.terms) > 1 and whole == step else {}


def _units(x: Dim, y: Dim) -> list[Dim]:
    """Returns common divisors of `y` and a term of `x`, such as 4 for x = 4*i + j and y = 64."""
    if len(y.terms) != 1:
        return []
    ((divisor, k),) = y.terms
    shared = ((sorted((Counter(m) & Counter(divisor)).elements(), key=str), gcd(c, k)) for m, c in x.terms if m)
    units = dict.fromkeys(Dim({tuple(m): c}) for m, c in shared if k > 0)
    # if y = u*q and x = u*p + r with 0 <= r < u, x // y is p // q: (4*i + j) // 64 is i // 16 if 0 <= j < 4
    smaller = [u for u in units if u != y and u != 1]
    return sorted(smaller, key=lambda u: (len(u.terms[0][0]), u.terms[0][1]), reverse=True)
