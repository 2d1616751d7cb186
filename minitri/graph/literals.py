"""Turns lists in the program text into graph nodes, and checks that numbers and sizes fit their dtypes.

    x + N          x: i8[K]     the condition N <= 127
    x + 2 ** N     x: i8[K]     the condition N <= 6
    x + reshape([200, 1], (2, 1))     MT0208: 200 does not fit i8

The function `stacked` makes a graph node from a list such as `[200, 1]`. The functions `require_size_fits` and
`require_power_fits` add conditions such as N <= 127, which each call checks. A number that cannot fit its dtype raises
a CompileError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minitri.base.diagnostics import CompileError, ensure
from minitri.base.dims import ONE, Dim, Symbol
from minitri.base.nodes import Record
from minitri.base.resource_limits import MAX_RANK
from minitri.base.types import DType, items_of
from minitri.graph.ir import Concat, Const, Node, Shape, View, along, children, postorder

if TYPE_CHECKING:
    from minitri.graph.typing_rules import Typer, Value


class Power(Record):
    """An integer such as `2**N` or `1 << N`, where the exponent depends on a size."""

    base: int
    op: str  # "**" or "<<"
    exponent: Dim

    def value(self, exponent: int) -> int:
        return self.base**exponent if self.op == "**" else self.base << exponent


def require_size_fits(t: Typer, value: Dim, dtype: DType) -> None:
    """Requires that a size fits an integer dtype. A call with a size that does not fit raises CompileError MT0208."""
    low, high = map(Dim.of, dtype.limits)
    for large, small in ((high, value), (value, low)):
        message = f"the dimension {value} does not fit {dtype}"
        t.require(large, ">=", small, "MT0208", message, label=names_in(value))


def require_power_fits(t: Typer, power: Power, dtype: DType, help: str = "") -> None:
    """Requires that the power `2**N` fits an integer dtype.

    A call raises CompileError MT0208 if its size N makes `2**N` too large for the dtype.
    """
    low, high = dtype.limits
    most = next((e for e in range(64) if not low <= power.value(e) <= high), 64) - 1
    message = f"{power.base} {power.op} {power.exponent} does not fit {dtype}"
    t.require(Dim.of(most), ">=", power.exponent, "MT0208", message, label=names_in(power.exponent), help=help)


def constants_in(node: Node) -> list[int | float | bool]:
    """Returns the constants in a node that consists of constants, views and concatenations.

    Example: the constants of `reshape([200, 1], (2, 1))` are 200 and 1.
    """
    nodes = postorder([node], lambda n: children(n) if isinstance(n, (View, Concat)) else ())
    return [n.value for n in nodes if isinstance(n, Const)]


def names_in(value: Dim) -> str:
    """Returns the names of the sizes in an expression, such as "M, N". An error message shows the names of the sizes
    next to the carets (^^^) that mark the error.

    When a call breaks a condition, the sizes are known, and the text beside the carets shows them: "M=2, N=3". For a
    single name such as N, returns "", because the error message already shows the size of N.
    """
    return "" if isinstance(value.atom, Symbol) else ", ".join(sorted(s.name for s in value.symbols()))


# ---- lists -----------------------------------------------------------------------------------


def stacked(t: Typer, items: tuple[Value, ...], dtype: DType) -> Node:
    """Returns the array for a list such as `[[1, 2], [3, 4]]`.

    The dtype of the returned node is the compute dtype of `dtype`: f32 for f16 and bf16, otherwise `dtype` itself.

    Raises CompileError MT0201 if the rows of the list differ in shape. Raises MT0208 for a number that does not fit the
    dtype.
    """
    nodes = [stacked(t, v, dtype) if isinstance(v, tuple) else t.convert(v, dtype) for v in items]
    first = nodes[0].shape
    rows: list[Node] = []
    for node in nodes:
        message = f"the items of a list have one shape, not {shown(first)} and {shown(node.shape)}"
        ensure(len(node.shape) == len(first), "MT0201", message)
        for extent, wanted in zip(node.shape, first):
            t.require(extent, "==", wanted, "MT0201", message)
        rows.append(t.nodes.view(node, (ONE, *first), tuple(along(k + 1, e) for k, e in enumerate(first))))
    return t.nodes.concat((Dim.of(len(rows)), *first), tuple(rows), 0)


def leaves(items: tuple[Value, ...]) -> list[Value]:
    """Returns the numbers and arrays in nested tuples as one flat list.

    Raises CompileError if a tuple is empty, or if tuples are nested too deeply.
    """
    found: list[Value] = list(items)
    for _ in range(MAX_RANK):
        is_empty = not found or () in [v for v in found if isinstance(v, tuple)]
        ensure(not is_empty, "MT0205", "an empty list is no array", "write `zeros(0)`, or `zeros(0, dtype=i64)`")
        if not any(isinstance(v, tuple) for v in found):
            return found
        found = [leaf for v in found for leaf in items_of(v)]
    raise CompileError("MT0401", f"lists are more than {MAX_RANK} deep here, the limit of axes")


def shown(shape: Shape) -> str:
    """Returns a shape as text, such as `[M, 4]`."""
    return f"[{', '.join(map(str, shape))}]"
