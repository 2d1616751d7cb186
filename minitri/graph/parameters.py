"""The types of parameters: annotations and the sizes their names stand for.

In: the annotations of a function and how many axes its packs have. Out: `ArrayType`s over
dimension symbols, and dimension names bound to the sizes of actual shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from minitri.base import dims
from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import Dim
from minitri.base.limits import check_time
from minitri.base.types import ArrayType, dtype
from minitri.graph.compile_time_numbers import fold_numbers
from minitri.graph.ir import Shape
from minitri.language import ast


@dataclass(frozen=True, slots=True)
class Instance:
    """What the parameters of the entry are, where its annotations leave it open.

    packs    name of `*B` → its number of axes
    types    type of each parameter without annotation
    statics  value of each int, bool (or other compile-time) parameter
    """

    packs: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, ArrayType] = field(default_factory=dict)
    statics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[Any, ...]:
        """What the graphs of one program differ in."""
        statics = tuple((name, repr(value)) for name, value in self.statics.items())  # 1, 1.0 and True differ
        return tuple(self.packs.items()), tuple(self.types.items()), statics


Sizes = dict[str, Union[Dim, Shape]]  # a dimension, or the axes of a pack


def sizes_of(function: ast.Function, packs: Mapping[str, int]) -> Sizes:
    """A symbol for each dimension name in the signature, and axes for each pack."""
    sizes: Sizes = {}
    for param in function.params:
        if not isinstance(param.annotation, ast.ArrayType):
            continue
        for d in param.annotation.dims:
            for node in ast.postorder(d):
                if isinstance(node, ast.Name):
                    sizes.setdefault(node.id, dims.size(node.id))
                elif isinstance(node, ast.Pack):
                    count = packs.get(node.id, 1)
                    sizes[node.id] = tuple(dims.size(f"{node.id}{k}") for k in range(count))
    for name, axes in list(sizes.items()):
        clash = next((str(a) for a in axes if str(a) in sizes), None) if isinstance(axes, tuple) else None
        if clash:
            message = f"the axes of `*{name}` are called {name}0, {name}1, …, and `{clash}` is a dimension too"
            raise CompileError("MT0104", message, function.span, help="rename one of the two")
    return sizes


def array_type(annotation: ast.ArrayType, sizes: Sizes) -> ArrayType:
    shape: list[Dim] = []
    for d in annotation.dims:
        if isinstance(d, ast.Pack):
            axes = sizes.get(d.id)
            if not isinstance(axes, tuple):
                raise CompileError("MT0101", f"`*{d.id}` is not an axis pack of the parameters", d.span)
            shape += axes
        else:
            shape.append(eval_dim(d, sizes))
    return ArrayType(dtype(annotation.dtype), tuple(shape))


def eval_dim(expr: ast.Expr, sizes: Sizes) -> Dim:
    """A dimension expression of an annotation. Iterative: a text may nest deeper than Python calls."""
    values: dict[int, Dim] = {}
    for node in ast.postorder(expr):
        check_time()
        values[id(node)] = _eval_node(node, values, sizes)
    return values[id(expr)]


def _eval_node(expr: ast.Node, values: Mapping[int, Dim], sizes: Sizes) -> Dim:
    match expr:
        case ast.Number() if isinstance(expr.value, int) and not isinstance(expr.value, bool):
            if expr.value < 0:
                raise CompileError("MT0004", "a size cannot be negative", expr.span)
            return Dim.of(expr.value)
        case ast.Name():
            found = sizes.get(expr.id)
            if not isinstance(found, Dim):
                known = [n for n, d in sizes.items() if isinstance(d, Dim)]
                raise CompileError(
                    "MT0101", f"there is no dimension `{expr.id}` here", expr.span, help=suggest(expr.id, known)
                )
            return found
        case ast.Binary() if expr.op in ("+", "-", "*", "//", "%"):
            folded = fold_numbers(expr.op, values[id(expr.left)], values[id(expr.right)])
            if folded is not None and not isinstance(folded, float):
                return Dim.of(folded)
    raise CompileError("MT0004", "a dimension is a name, an integer, or + - * // % of them", expr.span)


def match_sizes(declared: ast.ArrayType, shape: Shape, sizes: Sizes, wrong_rank: Callable[[], CompileError]) -> None:
    """Binds dimension names and packs of an annotation to the sizes of an actual shape."""
    packs = [k for k, d in enumerate(declared.dims) if isinstance(d, ast.Pack)]
    extra = len(shape) - (len(declared.dims) - len(packs))
    if extra < 0 or (extra and not packs):
        raise wrong_rank()
    position = 0
    for d in declared.dims:
        if isinstance(d, ast.Pack):
            axes = shape[position : position + extra]
            if sizes.setdefault(d.id, axes) != axes and len(sizes[d.id]) != len(axes):  # type: ignore[arg-type]
                raise wrong_rank()
            position += extra
            continue
        if isinstance(d, ast.Name):
            sizes.setdefault(d.id, shape[position])
        position += 1


def solve_sizes(declared: ast.ArrayType, shape: Shape, sizes: Sizes) -> list[tuple[Dim, int]]:
    """Binds the names that stand only in dimensions such as `G * H + 1`, once all others are bound.

    Out: the dimensions that must not be less than a number for that to have been right."""
    solved: list[tuple[Dim, int]] = []
    position = 0
    for d in declared.dims:
        if isinstance(d, ast.Pack):
            position += len(sizes[d.id])  # type: ignore[arg-type]
            continue
        unknown = unbound(d, sizes)
        found = _solved(d, unknown[0].id, shape[position], sizes) if len({n.id for n in unknown}) == 1 else None
        if found is not None:
            size, divisor = found
            sizes[unknown[0].id] = size
            solved += [(size, 0), (divisor, 1)]
        position += 1
    return solved


def unbound(d: ast.Node, sizes: Sizes) -> list[ast.Name]:
    return [n for n in ast.postorder(d) if isinstance(n, ast.Name) and n.id not in sizes]


def _solved(d: ast.Expr, name: str, extent: Dim, sizes: Sizes) -> tuple[Dim, Dim] | None:
    """The value of `name` for which `d` is `extent`, if `d` is a multiple of it and something more; and
    the size of that multiple."""
    x = dims.value("?")
    split = eval_dim(d, {**sizes, name: x}).coefficient(next(iter(x.symbols())))
    sign = dims.sign(split[0]) if split is not None else None
    if split is None or not sign or split[0] == 0:
        return None
    return sign * (extent - split[1]) // (sign * split[0]), sign * split[0]
