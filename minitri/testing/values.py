"""Axes and values as the writer of random programs knows them, and which of them fit together.

Two axes go together if both are known integers and equal (or 1), or if their sizes in this
example are equal: the program then carries a condition that the call satisfies.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from minitri.base.types import DTYPES


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: how the program writes its size ("" if it has no name for it), and what it is here."""

    text: str
    size: int

    @property
    def known(self) -> bool:
        return self.text.isdigit()


ONE = Axis("1", 1)


def counted(size: int, *of: Axis) -> Axis:
    """An axis of a computed size. The program can write it if it knows what it is made of."""
    return Axis(str(size) if all(a.known for a in of) else "", size)


@dataclass(frozen=True, slots=True)
class Value:
    """`exact`: what it holds follows from the inputs without rounding; `reach`: about its largest |element|."""

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
        """The dtype of a sum."""
        return self.dtype if self.kind == "f" else "u64" if self.kind == "u" else "i64"

    @property
    def rank(self) -> int:
        return len(self.axes)

    def without(self, over: Container[int], keep: bool) -> list[Axis]:
        """The axes after a reduction over some of them; with `keep` those have the size 1."""
        return [ONE if k in over else a for k, a in enumerate(self.axes) if keep or k not in over]

    @property
    def axes_from_the_last(self) -> list[int]:
        return list(reversed(range(self.rank)))

    @property
    def steady(self) -> bool:
        """Whether a jump may depend on it."""
        return self.exact or self.kind != "f"


def joined(x: Sequence[Axis], y: Sequence[Axis]) -> tuple[Axis, ...] | None:
    """The axes of x and y broadcast together; None if they do not go together for all that is known."""
    longer, shorter = (x, y) if len(x) >= len(y) else (y, x)
    lead = len(longer) - len(shorter)
    axes = list(longer[:lead])
    for a, b in zip(longer[lead:], shorter):
        if "1" in (a.text, b.text):
            axes.append(b if a.text == "1" else a)
        elif a.size == b.size:
            axes.append(a if a.known or not b.known else b)
        else:
            return None
    return tuple(axes)


def product(x: Sequence[Axis], y: Sequence[Axis]) -> tuple[Axis, ...] | None:
    """The axes of x @ y, or None."""
    if not x or not y or x[-1].size != y[-2 if len(y) > 1 else 0].size:
        return None
    batch = joined(x[:-2], y[:-2])
    if batch is None:
        return None
    return (*batch, *([x[-2]] if len(x) > 1 else []), *([y[-1]] if len(y) > 1 else []))


def sliced(form: str, a: Axis) -> Axis:
    """The axis that is left of a slice with numbers as bounds."""
    parts = [int(p) if p else None for p in form.split(":")]
    return a if form in (":", "::-1") else counted(len(range(a.size)[slice(*parts)]), a)
