"""Maxima and minima of symbolic integers.

    largest(N, 0)          N, since no size is negative
    largest(N - 1, 0)      max(N - 1, 0)

In: two symbolic integers (`Dim`s). Out: the maximum or the minimum of the two, as a `Dim`. If a proof shows which of
the two `Dim`s is larger for all sizes, the result is one of these `Dim`s. If no proof shows which `Dim` is larger, the
result is a new `Dim` with the single term `max(…)` or `min(…)`.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from minitri.base.dims import ONE, Dim, DimLike, Pair, paired, sign


def largest(a: DimLike, b: DimLike) -> Dim:
    return _extreme(Largest, Dim.of(a), Dim.of(b))


def smallest(a: DimLike, b: DimLike) -> Dim:
    return _extreme(Smallest, Dim.of(a), Dim.of(b))


def _of_values(integers: Callable[..., Any], arrays: Callable[..., Any]) -> Any:
    """Returns a function of a and b, which calls `integers` for two Python integers, and `arrays` for arrays.

    Two Python integers are not passed to numpy, because numpy's integers overflow.
    """
    return staticmethod(lambda a, b: (integers if isinstance(a, int) and isinstance(b, int) else arrays)(a, b))


class Extreme(Pair):
    """A maximum or a minimum."""

    __slots__ = ()
    word: ClassVar[str]

    def __str__(self) -> str:
        return f"{self.word}({self.a}, {self.b})"


class Largest(Extreme):
    __slots__ = ()
    of, value, word = staticmethod(largest), _of_values(max, np.maximum), "max"

    def is_never_negative(self) -> bool:
        return sign(self.a) in (0, 1) or sign(self.b) in (0, 1)


class Smallest(Extreme):
    __slots__ = ()
    of, value, word = staticmethod(smallest), _of_values(min, np.minimum), "min"

    def is_never_negative(self) -> bool:
        return sign(self.a) in (0, 1) and sign(self.b) in (0, 1)


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
    """Returns a or b, whichever is proven to be the maximum (or minimum) of the two for all sizes.

    Returns None if neither a nor b is proven to be the maximum (or minimum).
    """
    difference = sign(a - b)
    return None if difference is None else a if (difference >= 0) == (kind is Largest) else b


def _shifted(kind: type[Extreme], d: Dim) -> tuple[Extreme | None, int]:
    """Returns (m, c) if d is m + c for a maximum (or minimum) m and a constant c, and otherwise (None, 0)."""
    shift = next((c for m, c in d.terms if not m), 0)
    atom = (d - shift).atom
    return (atom, shift) if isinstance(atom, kind) else (None, 0)


def at_most_one(d: Dim) -> bool:
    """Checks whether `d` has the form min(…, 1), such as the length of `x[:1]`.

    An axis of the length min(…, 1) broadcasts like an axis of size 1.
    """
    return isinstance(d.atom, Smallest) and ONE in (d.atom.a, d.atom.b)
