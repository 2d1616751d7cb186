"""The simplex algorithm with exact fractions: weights under which columns add up to a target.

    combine([{x: 1}, {x: 1, 1: 2}], {x: 3, 1: 2})      [2, 1]:   2 * x  +  1 * (x + 2)  =  3*x + 2

In: columns and a target, each a map from monomials to numbers. Out: a weight >= 0 for each column, or
None if there are none. The one idea: start from artificial variables that make the sum right, and
exchange them for columns until none is left. Bland's rule chooses, so it ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from minitri.base.dims import Dim, Monomial

ALMOST = Fraction(999_999, 1_000_000)


def combination(goal: Dim, columns: Sequence[Dim]) -> dict[int, Fraction] | None:
    """Weights > 0, by the number of the column, with which columns add up to the goal or to less than 1 above it."""
    useful = _useful(goal, columns)
    for slack in (Fraction(0), ALMOST):
        target = {m: Fraction(c) for m, c in goal.terms}
        target[()] = target.get((), Fraction(0)) + slack
        weights = combine([{(): 1}, *(dict(columns[k].terms) for k in useful)], target)
        if weights is not None:
            return {k: w for k, w in zip(useful, weights[1:]) if w}
    return None


def _useful(goal: Dim, columns: Sequence[Dim]) -> Sequence[int]:
    """The columns that share a product with the goal, directly or through other columns."""
    wanted = {m for m, _ in goal.terms if m}
    if not wanted:  # a contradiction may be anywhere
        return range(len(columns))
    monomials = [{m for m, _ in c.terms if m} for c in columns]
    found: set[int] = set()
    while more := {k for k, own in enumerate(monomials) if k not in found and own & wanted}:
        found |= more
        wanted.update(*(monomials[k] for k in more))
    return sorted(found)


def combine(columns: Sequence[Mapping[Monomial, int]], target: Mapping[Monomial, Fraction]) -> list[Fraction] | None:
    """Weights >= 0 under which the columns add up to the target, or None: the simplex, exactly.

    One row for each monomial; an artificial variable a row is driven to 0 (Bland's rule, so it ends).
    """
    rows = sorted({m for m in (*target, *(m for c in columns for m in c))}, key=str)
    width = len(columns)
    table: list[list[Fraction]] = []
    for m in rows:
        line = [Fraction(c.get(m, 0)) for c in columns] + [Fraction(target.get(m, 0))]
        table.append([-x for x in line] if line[-1] < 0 else line)
    basis = [width + k for k in range(len(rows))]
    cost = [sum((line[k] for line in table), Fraction(0)) for k in range(width + 1)]
    while cost[-1] > 0:
        entering = next((k for k in range(width) if cost[k] > 0), None)
        if entering is None:
            return None
        ratios = [(line[-1] / line[entering], basis[r], r) for r, line in enumerate(table) if line[entering] > 0]
        if not ratios:
            return None
        _, _, r = min(ratios)
        _pivot(table, cost, r, entering)
        basis[r] = entering
    weights = [Fraction(0)] * width
    for r, column in enumerate(basis):
        if column < width:
            weights[column] = table[r][-1]
    return weights


def _pivot(table: list[list[Fraction]], cost: list[Fraction], r: int, entering: int) -> None:
    pivot = table[r][entering]
    row = table[r] = [x / pivot for x in table[r]]
    for other in (*(line for k, line in enumerate(table) if k != r), cost):
        factor = other[entering]
        if factor:
            for k, x in enumerate(row):
                if x:
                    other[k] -= factor * x
