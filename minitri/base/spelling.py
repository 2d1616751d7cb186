"""Suggestions for a misspelt name.

The function `nearest` takes an unknown name and the known names. `nearest` returns a list of similar known names, the
most similar name first. If no known name is similar, `nearest` returns an empty list. The one idea is an edit distance
in which likely typing errors cost less than rare typing errors. The edit distance counts letters that are missing,
added, replaced or swapped with their neighbour. A likely typing error adds less than 1 to the edit distance: a
neighbouring key, a doubled letter, swapped letters or a change of case. A rare typing error, such as the letter of a
distant key instead of the right letter, adds 1 to the edit distance.
"""

from collections.abc import Iterable

_ROWS = ("1234567890-", "qwertyuiop", "asdfghjkl", "zxcvbnm_")
_PLACES = {key: (row, column) for row, keys in enumerate(_ROWS) for column, key in enumerate(keys)}
SLIP = 0.7  # cost of a likely typing error; any other error costs 1
LONGEST = 64  # characters of a name that are compared


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Returns at most three known names that are spelt most like `name`, the best first.

    A known name is similar if a single typing error changes this known name into `name`. If `name` has six letters or
    more, two typing errors are allowed. A name of one letter is similar only to the same letter in the other case, as
    `n` is similar to `N`. If `name` has at least four letters, all known names that begin with `name` are similar too:
    `softmax` is similar to `softm`.
    """
    name = name[:LONGEST]
    limit = 0.1 if len(name) < 2 else 1.0 if len(name) < 6 else 2.0
    others = sorted(set(known) - {name})
    costs = {o: limit if len(name) > 3 and o.startswith(name) else distance(name, o, limit) for o in others}
    near = sorted(costs, key=lambda other: (costs[other], other[:1] != name[:1], len(other)))
    return [other for other in near if costs[other] <= min(costs[near[0]] + 0.5, limit)][:3]


def distance(a: str, b: str, limit: float) -> float:
    """Returns the edit distance of two names, or `limit` + 1 if the distance exceeds the limit."""
    if abs(len(a) - len(b)) > limit / SLIP:
        return limit + 1
    before: list[float] = []
    last: list[float] = []
    row = [float(j) for j in range(len(b) + 1)]
    for i in range(1, len(a) + 1):
        before, last, row = last, row, [float(i)]
        for j in range(1, len(b) + 1):
            replaced = last[j - 1] + _replaced(a[i - 1], b[j - 1])
            cost = min(replaced, last[j] + _inserted(a, i), row[j - 1] + _inserted(b, j))
            if before and a[i - 1] == b[j - 2 : j - 1] and b[j - 1] == a[i - 2]:
                cost = min(cost, before[j - 2] + SLIP)
            row.append(cost)
        if min(row) > limit and min(last) > limit:
            return limit + 1
    return row[-1]


def _replaced(a: str, b: str) -> float:
    """Returns the cost of replacing one letter by another letter."""
    if a == b:
        return 0.0
    if a.lower() == b.lower():
        return 0.1
    (row, column), (other_row, other_column) = _PLACES.get(a.lower(), (9, 0)), _PLACES.get(b.lower(), (-9, 0))
    return SLIP if abs(row - other_row) <= 1 and abs(column - other_column) <= 1 else 1.0


def _inserted(text: str, at: int) -> float:
    """Returns the cost of adding or omitting one letter of a text."""
    # The cost is lower after the same letter, because doubled letters are a common typing error.
    return SLIP if at > 1 and text[at - 1] == text[at - 2] else 1.0
