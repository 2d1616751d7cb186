"""Facts about an index that follow from the ranges of its axes: 0 <= i < M.

    simplify((4*i + 1) // 4)                i
    open_guards([i, i - 2])                 [i - 2]: i is never negative
    narrowed([i - 2], [1 - i])              None: no i is both at least 2 and at most 1

In: the axes of a part, with their extents, and what is known of the sizes. Out: shorter indices and
fewer guards. A guard is an expression that is not negative where an element is needed. The one idea: an
index keeps its first simplified form, because the form tells which demands are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minitri.base import dims, intervals
from minitri.base.dims import Dim, Symbol
from minitri.base.piecewise import Allows, where_present


class AxisRanges:
    """The ranges of `axes`, which may get more of them later. `allows`: which numbers the sizes can be."""

    def __init__(self, axes: Mapping[str, Dim], allows: Allows) -> None:
        self.axes, self.allows = axes, allows
        self._simple: dict[Dim, Dim] = {}
        self._closed: dict[Dim, bool] = {}

    @property
    def ranges(self) -> intervals.Ranges:
        return {Symbol(a, "axis"): (dims.ZERO, e - 1) for a, e in self.axes.items()}

    @property
    def extents(self) -> frozenset[Symbol]:
        """Sizes that are at least 1 wherever any program runs."""
        return frozenset(s for e in self.axes.values() if isinstance(s := e.atom, Symbol))

    def simplify(self, d: Dim) -> Dim:
        """The same for the same index from the first time on, though axes that come later might allow more."""
        if all(isinstance(a, Symbol) for a in d.atoms()):
            return d
        if d not in self._simple:
            present = [self.axes[s.name] for s in d.symbols() if s.name in self.axes and s.kind == "axis"]
            self._simple[d] = where_present(intervals.simplify(d, self.ranges, self.extents), present, self.allows)
        return self._simple[d]

    def open_guards(self, conditions: Sequence[Dim]) -> tuple[Dim, ...]:
        """The conditions that are not always true."""
        for c in conditions:
            if c not in self._closed:
                self._closed[c] = intervals.proves_nonnegative(c, self.ranges, self.extents)
        return tuple(c for c in conditions if not self._closed[c])

    def narrowed(self, guards: tuple[Dim, ...], conditions: Sequence[Dim]) -> tuple[Dim, ...] | None:
        """The guards with those of the conditions that do not follow from one of them; None if nothing meets them all."""
        for c in self.open_guards(conditions):
            rooms = [room for g in guards if (room := (c - g).constant) is not None]
            sums = [total for g in guards if (total := (c + g).constant) is not None]
            if any(total < 0 for total in sums) or intervals.proves_nonnegative(-c - 1, self.ranges, self.extents):
                return None
            if not any(room >= 0 for room in rooms):
                guards = merged(guards, [c])
        return guards


def merged(a: tuple[Dim, ...], b: Iterable[Dim]) -> tuple[Dim, ...]:
    """Both, each expression once."""
    return tuple(dict.fromkeys((*a, *b)))
