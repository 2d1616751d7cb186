"""Finds weights such that the weighted sum of columns equals a target, by the simplex algorithm with exact fractions.

    combine([{x: 1}, {x: 1, 1: 2}], {x: 3, 1: 2})      [2, 1]:   2 * x  +  1 * (x + 2)  =  3*x + 2

The function `combine` takes a list of polynomials, the columns, and another polynomial, the target. Each polynomial is
a map from monomials, such as x*y, to coefficients. `combine` returns a weight >= 0 for each polynomial of the list, so
that the weighted sum equals the target. `combine` returns None if no weights produce the target. The one idea: for each
monomial, an artificial variable is the difference between the monomial's coefficients in the target and in the weighted
sum. The simplex algorithm starts with all weights equal to 0, and changes the weights until all artificial variables
are 0. In each step, the simplex algorithm increases the weight of the first column that brings the weighted sum closer
to the target. The rule to take the first possible column (Bland's rule) guarantees that the simplex algorithm ends.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from minitri.base.dims import Dim, Monomial

ALMOST = Fraction(999_999, 1_000_000)  # a constant just below 1, which may be added to an integer goal


def combination(goal: Dim, columns: Sequence[Dim]) -> dict[int, Fraction] | None:
    """Writes the polynomial `goal` as a constant >= 0 plus a sum of polynomials in `columns`, each multiplied by a
    weight > 0. If the function finds no weights for `goal`, it tries `goal` + 0.999999 instead. If `goal` + 0.999999 is
    not negative, the integer `goal` is not negative either.

    Returns a dict from positions in `columns` to the weights of the polynomials at these positions. Returns None if the
    function finds no weights.
    """
    useful = _useful(goal, columns)
    for slack in (Fraction(0), ALMOST):
        target = {m: Fraction(c) for m, c in goal.terms}
        target[()] = target.get((), Fraction(0)) + slack
        weights = combine([{(): 1}, *(dict(columns[k].terms) for k in useful)], target)
        if weights is not None:
            return {k: w for k, w in zip(useful, weights[1:]) if w}
    return None


def _useful(goal: Dim, columns: Sequence[Dim]) -> Sequence[int]:
    """Returns the positions of columns that can help to write `goal` as a weighted sum."""
    wanted = {m for m, _ in goal.terms if m}
    if not wanted:  # the goal is a constant: any of the columns may be needed
        return range(len(columns))
    monomials = [{m for m, _ in c.terms if m} for c in columns]
    found: set[int] = set()
    # columns that share a monomial (product of symbols) with the goal or with a column found before
    while more := {k for k, own in enumerate(monomials) if k not in found and own & wanted}:
        found |= more
        wanted.update(*(monomials[k] for k in more))
    return sorted(found)


def combine(columns: Sequence[Mapping[Monomial, int]], target: Mapping[Monomial, Fraction]) -> list[Fraction] | None:
    """Returns weights >= 0 whose weighted sum of columns is the target, or None if no weights have this sum.

    The simplex tableau is a matrix. Each row is a linear equation for one monomial (a product of symbols). The
    artificial variable of a row is the amount by which the monomial's coefficient in the weighted sum misses the
    target. If the artificial variable of every row becomes 0, the weighted sum equals the target.
    """
    rows = sorted({m for m in (*target, *(m for c in columns for m in c))}, key=str)
    width = len(columns)
    table: list[list[Fraction]] = []
    for m in rows:
        line = [Fraction(c.get(m, 0)) for c in columns] + [Fraction(target.get(m, 0))]
        table.append([-x for x in line] if line[-1] < 0 else line)
    basis = [width + k for k in range(len(rows))]
    table.append([sum(column, Fraction(0)) for column in zip(*table)])  # the sum of the artificial variables
    while table[-1][-1] > 0:
        entering = next((k for k in range(width) if table[-1][k] > 0), None)
        if entering is None:
            return None
        # Some row is positive in the column, because the sum of the rows with artificial variables
        # is positive in this column.
        positive = [r for r in range(len(basis)) if table[r][entering] > 0]
        _, _, r = min((table[r][-1] / table[r][entering], basis[r], r) for r in positive)
        _pivot(table, r, entering)
        basis[r] = entering
    weights = {column: line[-1] for column, line in zip(basis, table)}
    return [weights.get(k, Fraction(0)) for k in range(width)]


def _pivot(table: list[list[Fraction]], r: int, entering: int) -> None:
    """Does one pivot step of the simplex algorithm."""
    pivot = table[r][entering]
    row = table[r] = [x / pivot for x in table[r]]
    for k, line in enumerate(table):  # eliminates the unknown of the column `entering` from all other rows
        if k != r and (factor := line[entering]):
            table[k] = [y - factor * x if x else y for x, y in zip(row, line)]
