"""Axes and values of a random program while it is written, and which of them fit together.

Two axes fit together if both sizes are written as numbers and are equal, or if one size is 1. They also fit if
their sizes in this example are equal: the program then has a condition that its arguments satisfy.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

from minitri.base.types import DTYPES


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: the text of its size in the program ("" if it has no text) and its size in this example."""

    text: str
    size: int

    @property
    def known(self) -> bool:
        return self.text.isdigit()


ONE = Axis("1", 1)


def counted(size: int, *of: Axis) -> Axis:
    """An axis of a computed size. Its size has a text if all axes `of`, from which it is computed, have numbers as
    sizes.
    """
    return Axis(str(size) if all(a.known for a in of) else "", size)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the program. `exact`: it is computed without rounding. `reach`: roughly the largest absolute
    element.
    """

    name: str
    dtype: str
    axes: tuple[Axis, ...]
    exact: bool
    reach: float

    @property
    def kind(self) -> str:
        return DTYPES[self.dtype].kind

    @property
    def summed(self) -> str:
        """The dtype of a sum of its elements."""
        return self.dtype if self.kind == "f" else "u64" if self.kind == "u" else "i64"

    @property
    def rank(self) -> int:
        return len(self.axes)

    def without(self, over: Container[int], keep: bool) -> list[Axis]:
        """The axes after a reduction over the axes `over`; with `keep` the reduced axes stay with size 1."""
        return [ONE if k in over else a for k, a in enumerate(self.axes) if keep or k not in over]

    @property
    def flat(self) -> Axis:
        """The axis of all elements in one row."""
        return counted(math.prod(a.size for a in self.axes), *self.axes)

    @property
    def superdiagonal(self) -> Axis:
        """The axis of the diagonal above the main diagonal."""
        rows, columns = self.axes[-2:]
        return counted(max(0, min(rows.size, columns.size - 1)), rows, columns)

    @property
    def measures(self) -> dict[str, float]:
        """The numbers that functions.toml names."""
        sizes = [a.size for a in self.axes]
        count = math.prod(sizes)
        named = {"first": sizes[0], "last": sizes[-1], "size": count, "known": self.axes[0].known}
        least_1 = {"depth": max(1, sizes[-1]), "count": max(1, count)}
        return named | least_1 | {"rank": self.rank, "reach": self.reach, "rows": sizes[-2:][0]}

    @property
    def transposed_axes(self) -> tuple[Axis, ...]:
        return (*self.axes[:-2], self.axes[-1], self.axes[-2])

    @property
    def axes_from_the_last(self) -> list[int]:
        return list(reversed(range(self.rank)))

    @property
    def steady(self) -> bool:
        """Whether its elements are certain enough for a function with jumps, such as a comparison."""
        return self.exact or self.kind != "f"


def joined(x: Sequence[Axis], y: Sequence[Axis]) -> tuple[Axis, ...] | None:
    """The axes of x and y broadcast together, or None if their sizes do not fit."""
    longer, shorter = (x, y) if len(x) >= len(y) else (y, x)
    lead = len(longer) - len(shorter)
    axes = list(longer[:lead])
    for a, b in zip(longer[lead:], shorter):
        if a.size != b.size and "1" not in (a.text, b.text):
            return None
        axes.append(b if a.text == "1" or (b.known and not a.known and b.text != "1") else a)
    return tuple(axes)


def product(x: Sequence[Axis], y: Sequence[Axis]) -> tuple[Axis, ...] | None:
    """The axes of x @ y, or None if their sizes do not fit."""
    if not x or not y or x[-1].size != y[-2 if len(y) > 1 else 0].size:
        return None
    batch = joined(x[:-2], y[:-2])
    return None if batch is None else (*batch, *x[-2:-1], *(y[-1:] if len(y) > 1 else ()))


def sliced(form: str, a: Axis) -> Axis:
    """The axis after slicing it with numbers as bounds; `form` is the text of the slice."""
    parts = [int(p) if p else None for p in form.split(":")]
    return a if form in (":", "::-1") else counted(len(range(a.size)[slice(*parts)]), a)
