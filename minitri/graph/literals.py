"""Numbers, sizes and lists that a program writes out: as nodes, and within the limits of a dtype.

    x + N          x: i8[K]     the condition N <= 127
    x + 2 ** N     x: i8[K]     the condition N <= 6
    x + reshape([200, 1], (2, 1))     MT0208: 200 does not fit i8

In: the typer and a value that is known at compile time. Out: nodes, conditions, or a CompileError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim, Symbol
from minitri.base.limits import MAX_RANK
from minitri.base.types import DType, i64
from minitri.graph import ir
from minitri.graph.ir import Concat, Const, Node, Shape, View

if TYPE_CHECKING:
    from minitri.graph.typer import Typer, Value


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


# ---- lists -----------------------------------------------------------------------------------


def stacked(t: Typer, items: tuple[Value, ...], dtype: DType) -> Node:
    """The array that `[[1, 2], [3, 4]]` writes out, in the compute dtype of `dtype`.

    CompileError MT0201 where rows differ in shape, MT0208 for a number that does not fit."""
    nodes = [stacked(t, v, dtype) if isinstance(v, tuple) else t.convert(v, dtype) for v in items]
    first = nodes[0].shape
    rows: list[Node] = []
    for node in nodes:
        message = f"the items of a list have one shape, not {shown(first)} and {shown(node.shape)}"
        if len(node.shape) != len(first):
            raise CompileError("MT0201", message)
        for extent, wanted in zip(node.shape, first):
            t.require(extent, "==", wanted, "MT0201", message)
        index = tuple(ir.axis(k + 1) if e != 1 else dims.ZERO for k, e in enumerate(first))
        rows.append(t.nodes.view(node, (dims.ONE, *first), index))
    return t.nodes.concat((Dim.of(len(rows)), *first), tuple(rows), 0)


def leaves(items: tuple[Value, ...]) -> list[Value]:
    """The numbers and arrays in a tuple of tuples. CompileError for one that is empty or too deep for an array."""
    found: list[Value] = list(items)
    for _ in range(MAX_RANK):
        if not found or () in [v for v in found if isinstance(v, tuple)]:
            raise CompileError("MT0205", "an empty list is no array", help="write `zeros(0)`, or `zeros(0, dtype=i64)`")
        if not any(isinstance(v, tuple) for v in found):
            return found
        found = [leaf for v in found for leaf in (v if isinstance(v, tuple) else (v,))]
    raise CompileError("MT0401", f"lists are more than {MAX_RANK} deep here, the limit of axes")


def shown(shape: Shape) -> str:
    """`[M, 4]`"""
    return f"[{', '.join(map(str, shape))}]"
