"""Scales of weights: multiplies the sums of a product by the scale of a column, instead of multiplying each weight.

    contract x, cast (multiply w, s)             w: whole numbers of 8 bits, s: one for each column
      becomes
    multiply (contract x, cast (multiply w, inside)), outside

The scale s of a column of weights is the product of two scales: `inside` for the weights, and `outside` for the sums of
the matrix product. Usually the scale `inside` of the weights is 1, and the scale `outside` of the sums is s, the whole
scale of the column. The weights keep the whole scale s if s is inf or nan, or if a weight times s could overflow f16.
Weights without a scale are whole numbers that f16 represents without rounding. Tensor cores need less electrical power
for small whole numbers, so a chip that runs at its power limit computes faster.

In: a product of a graph. Out: the new second factor of the product, and the scale for the sums of the product. Scales
are moved from the weights to the sums in f16 products only. In a bf16 product, the unscaled sums could overflow
although the scaled sums of the original program do not. Left out: scales of rows, and scales of blocks of the summed
axis.
"""

import numpy as np

from minitri.base.dims import Dim
from minitri.base.nodes import Record
from minitri.base.types import bool_, f16, f32
from minitri.graph.ir import Apply, Contract, Interner, Node, View, axis, axis_symbol, children
from minitri.graph.rewrite import compute, copy, number
from minitri.graph.scalar_form import GraphTerms, element

LARGEST, EXACT = float(np.finfo(np.float16).max), 1 << 11  # f16's largest number; f16 has all integers up to EXACT


class Scale(Record):
    """The scale that multiplies the weights in the second factor of a product.

    product   the node that multiplies whole numbers by the scale
    rounded   the cast of `product` to f16
    by        the graph node whose value is the scale
    places    the index of the scale for an element of the second factor
    most      the largest absolute value that a whole number in the weights can have
    """

    product: Apply
    rounded: Apply
    by: Node
    places: tuple[Dim, ...]
    most: int


def find(node: Contract) -> Scale | None:
    """Returns the scale that multiplies the second factor of a matrix product. Returns None if the second factor has no
    scale.
    """
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
    """Returns a pair for a matrix product: the second factor without its scale, and the scale that must multiply the
    sums of the product instead. If a weight times its scale could overflow f16, the scale stays in the second factor,
    and the returned scale is 1. If the second factor has no scale, returns the unchanged factor and None.
    """
    found = find(node)
    if found is None:
        return node.b, None
    old = found.product
    inside, _ = _inner_and_outer(i, found.by, found.most)
    new = i.apply(old.op, old.dtype, old.shape, tuple(inside if a is found.by else a for a in old.args))
    first = {axis_symbol(node.rank - 2): Dim.of(0)}  # the scale is constant along the depth
    by = i.view(found.by, node.shape, tuple(d.substitute(first) for d in found.places))
    _, outside = _inner_and_outer(i, by, found.most)
    return _replaced(i, node.b, old, new), outside


def scaled(i: Interner, sums: Contract, scale: Node) -> Node:
    """Returns a matrix product multiplied by the scale of its weights. At the end, the function adds 0, because this
    addition turns -0.0 into 0.0, as in a sum of zeros.
    """
    return compute(i, "add", compute(i, "multiply", sums, scale), number(i, sums, 0.0))


def _largest(x: Node) -> int | None:
    """Returns the largest absolute value that x can have. Returns None unless x certainly is a whole number that f16
    can represent.
    """
    stack, most = [x], 0
    while stack and most <= EXACT:
        match stack.pop():
            case View(x=inner):
                stack.append(inner)
            case Apply(op="cast", args=(inner,)) if inner.dtype.is_integer and inner.dtype.bits == 8:
                most += max(map(abs, inner.dtype.limits))  # once for each operand of a sum
            case Apply(op="cast", args=(inner,)) as cast if {cast.dtype, inner.dtype} <= {f16, f32}:
                stack.append(inner)
            case Apply(op="add" | "subtract", args=args):
                stack += args
            case _:
                return None
    return most if most <= EXACT else None


def _inner_and_outer(i: Interner, by: Node, most: int) -> tuple[Node, Node]:
    """Returns two scales: the first multiplies the weights of a matrix product, and the second multiplies the sums of
    the matrix product. Usually the weights have the scale 1, and the sums have the given scale `by`. If a weight times
    `by` could overflow f16, the weights have the scale `by`, and the sums have the scale 1.
    """
    one = number(i, by, 1.0)
    safe = i.apply("less_equal", bool_, by.shape, (compute(i, "abs", by), number(i, by, LARGEST / most)))
    return compute(i, "where", safe, one, by), compute(i, "where", safe, by, one)


def _replaced(i: Interner, x: Node, old: Node, new: Node) -> Node:
    """Returns the expression x with `new` in place of `old`. The views and casts that lead from `old` to x are applied
    to `new` instead.
    """
    return new if x is old else copy(i, x, (_replaced(i, children(x)[0], old, new),))
