"""Numbers, sizes and lists that meet an integer array must fit its dtype.

    x + N          x: i8[K]     the condition N <= 127
    x + 2 ** N     x: i8[K]     the condition N <= 6
    x + reshape([200, 1], (2, 1))     MT0208: 200 does not fit i8

In: the typer and a value that is known at compile time. Out: conditions, or a CompileError MT0208.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from minitri.base.dims import Dim, Symbol
from minitri.base.types import DType, i64
from minitri.graph.ir import Concat, Const, Node, View


@dataclass(frozen=True, slots=True)
class Power:
    """`2**N` or `1 << N`: an integer that is known once the size N is."""

    base: int
    op: str  # "**" or "<<"
    exponent: Dim

    def value(self, exponent: int) -> int:
        return self.base**exponent if self.op == "**" else self.base << exponent


@dataclass(frozen=True, slots=True)
class Bound:
    """`large` must be at least `small`; `value` is what would not fit."""

    large: Dim
    small: Dim
    value: str
    names: str


def size_bounds(value: Dim, dtype: DType) -> list[Bound]:
    """The bounds of a size that meets an integer array. None for i64, which holds every size."""
    if not dtype.is_integer or dtype == i64:
        return []
    low, high = map(Dim.of, dtype.limits)
    what = f"the dimension {value}", names_in(value)
    return [Bound(high, value, *what), Bound(value, low, *what)]


def power_bounds(power: Power, dtype: DType) -> list[Bound]:
    """The bound of the exponent of `2**N` that meets an integer array."""
    if not dtype.is_integer or dtype == i64:
        return []
    low, high = dtype.limits
    most = next((e for e in range(64) if not low <= power.value(e) <= high), 64) - 1
    shown = f"{power.base} {power.op} {power.exponent}"
    return [Bound(Dim.of(most), power.exponent, shown, names_in(power.exponent))]


def constants_in(node: Node) -> Iterator[int | float | bool]:
    """The numbers that views and concatenations move: 200 and 1 of `reshape([200, 1], (2, 1))`."""
    stack, seen = [node], {node}
    while stack:
        match stack.pop():
            case Const(value=value):
                yield value
            case View(x=x) if x not in seen:
                stack.append(x)
            case Concat(parts=parts):
                stack += [p for p in parts if p not in seen]
            case _:
                pass
        seen.update(stack)


def names_in(value: Dim) -> str:
    """The sizes in a term that is more than a name: a label in which the call puts their values, `N=3`."""
    return "" if isinstance(value.atom, Symbol) else ", ".join(sorted(s.name for s in value.symbols()))
