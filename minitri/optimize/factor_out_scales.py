"""Multiplies the sums of a product with a scale of its columns, instead of each weight.

    contract x, cast (multiply w, s)             w: whole numbers of 8 bits, s: one for each column
becomes
    multiply (contract x, cast (multiply w, inside)), outside

with inside 1 and outside s; but a scale so large that weights could overflow stays inside, and so do inf and nan. Then
weights are not rounded at all. They are numbers of few digits, too, which take a tensor core less power: a chip at its
limit of power is faster for it.

In: a product. Out: the factor with what stays, and what its sums are multiplied with. In bf16 the sums could overflow
where those of the program do not: so f16 only. Left out: scales of rows, and of blocks of the depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minitri.base.dims import Dim
from minitri.base.types import bool_, f16, f32
from minitri.graph.ir import Apply, Contract, Interner, Node, View, axis, axis_symbol, operands
from minitri.graph.rewrite import copy
from minitri.graph.scalar_form import GraphTerms, element

LARGEST, EXACT = float(np.finfo(np.float16).max), 1 << 11  # of f16: whole numbers up to the latter are exact


@dataclass(frozen=True)
class Scale:
    """`product` of whole numbers and `by`, which is at `places` for an element of the second factor; `rounded`: its cast
    to f16. `most`: how large a whole number is."""

    product: Apply
    rounded: Apply
    by: Node
    places: tuple[Dim, ...]
    most: int


def find(node: Contract) -> Scale | None:
    """The scale of a second factor."""
    x, places = element(node.b, tuple(map(axis, range(node.rank))))
    rounded = None
    while isinstance(x, Apply) and x.op == "cast" and {x.dtype, x.args[0].dtype} <= {f16, f32}:
        rounded = x if x.dtype == f16 else rounded
        x, places = element(x.args[0], places)
    if rounded is None or node.b.dtype != f16 or not isinstance(x, Apply) or (x.op, x.dtype) != ("multiply", f32):
        return None
    for weights, by in (x.args, x.args[::-1]):
        most = _largest(weights)
        if most is not None and not GraphTerms(node.b, (node.rank - 2,)).varies(element(by, places)):
            return Scale(x, rounded, by, places, most)
    return None


def taken_out(i: Interner, node: Contract) -> tuple[Node, Node | None]:
    """The second factor with what stays inside, and what its sums are to be multiplied with, if there is something."""
    found = find(node)
    if found is None:
        return node.b, None
    old = found.product
    inside, _ = _halves(i, found.by, found.most)
    new = i.apply(old.op, old.dtype, old.shape, tuple(inside if a is found.by else a for a in old.args))
    first = {axis_symbol(node.rank - 2): Dim.of(0)}  # it is the same wherever it is read along the depth
    by = i.view(found.by, node.shape, tuple(d.substitute(first) for d in found.places))
    _, outside = _halves(i, by, found.most)
    return _replaced(i, node.b, old, new), outside


def scaled(i: Interner, sums: Contract, scale: Node) -> Node:
    """With 0 added: a sum of zeros is 0.0, by whatever it is multiplied."""
    made = i.apply("multiply", sums.dtype, sums.shape, (sums, scale))
    return i.apply("add", sums.dtype, sums.shape, (made, i.view(i.const(0.0, sums.dtype), sums.shape, ())))


def _largest(x: Node) -> int | None:
    """How large numbers are that are surely whole, and that f16 holds; None if they need not be."""
    stack, most = [x], 0
    while stack and most <= EXACT:
        match stack.pop():
            case View(x=inner):
                stack.append(inner)
            case Apply(op="cast", args=(inner,)) if inner.dtype.is_integer and inner.dtype.bits == 8:
                most += max(map(abs, inner.dtype.limits))  # each time that it is added
            case Apply(op="cast", args=(inner,)) as cast if {cast.dtype, inner.dtype} <= {f16, f32}:
                stack.append(inner)
            case Apply(op="add" | "subtract", args=args):
                stack += args
            case _:
                return None
    return most if most <= EXACT else None


def _halves(i: Interner, by: Node, most: int) -> tuple[Node, Node]:
    """What stays inside, and what is multiplied with the sums: their product is `by`."""

    def number(value: float) -> Node:
        return i.view(i.const(value, by.dtype), by.shape, ())

    size = i.apply("abs", by.dtype, by.shape, (by,))
    safe = i.apply("less_equal", bool_, by.shape, (size, number(LARGEST / most)))
    inside = i.apply("where", by.dtype, by.shape, (safe, number(1.0), by))
    return inside, i.apply("where", by.dtype, by.shape, (safe, by, number(1.0)))


def _replaced(i: Interner, x: Node, old: Node, new: Node) -> Node:
    """The views and casts of `old`, of `new`."""
    return new if x is old else copy(i, x, (_replaced(i, operands(x)[0], old, new),))
