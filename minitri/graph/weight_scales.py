"""Moves the scale of quantised weights from the weights to the result of the matrix product.

    contract x, cast (multiply w, s)             w: whole numbers of 8 bits, s: one for each column
      becomes
    multiply (contract x, cast (multiply w, inside)), outside

The scale s of a column of weights is the product of two scales, `inside` and `outside`. The weights are multiplied by
`inside`, and the sums of the matrix product are multiplied by `outside`. Usually only the sums are scaled: `inside` is
1, and `outside` is the scale s. If s is inf or nan, only the weights are scaled: `inside` is s and `outside` is 1. If a
weight times s could overflow f16, `inside` is s and `outside` is 1, too. Weights without a scale are whole numbers that
f16 represents without rounding. Tensor cores need less electrical power for small whole numbers, so a chip that runs at
its power limit computes faster.

The function `taken_out` changes only products of f16 arrays. Elements of bf16 arrays can be so large that a sum of
their products with unscaled weights overflows. A scale of the first factor is not moved to the result. A scale that
changes along the summed axis is not moved either.
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
    """The scale of quantised weights. A matrix product has the scaled weights as its second factor.

    `product`: the node that multiplies the weights by the scale.
    `rounded`: the node that casts `product` to f16.
    `by`: the node that computes the scale.
    `places`: the index of the scale that belongs to an element of the second factor.
    `most`: the largest absolute value that a weight can have.
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
    """Takes the scale s out of the second factor w * s of a matrix product. Returns the new second factor, and the
    scale by which the product must be multiplied. If a weight times its scale could overflow f16, all weights in its
    column keep the scale. For a column that keeps its scale, the returned scale is 1. If the second factor has no
    scale, the returned scale is None.
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
    """Returns a matrix product multiplied by the scale of its weights. The final addition of 0 turns -0.0 into 0.0,
    because a sum of zeros is 0.0, not -0.0.
    """
    return compute(i, "add", compute(i, "multiply", sums, scale), number(i, sums, 0.0))


def _largest(x: Node) -> int | None:
    """Returns an upper bound of |x|, or None if x is not known to be an integer that f16 holds without rounding."""
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
                # not known to be an integer
                return None
    return most if most <= EXACT else None  # f16 could round larger integers


def _inner_and_outer(i: Interner, by: Node, most: int) -> tuple[Node, Node]:
    """Splits the scale of the weights into a scale for the weights and a scale for the sums of the matrix product."""
    one = number(i, by, 1.0)
    # usually 1 and `by`, but `by` and 1 where a weight times `by` could overflow f16
    safe = i.apply("less_equal", bool_, by.shape, (compute(i, "abs", by), number(i, by, LARGEST / most)))
    return compute(i, "where", safe, one, by), compute(i, "where", safe, by, one)


def _replaced(i: Interner, x: Node, old: Node, new: Node) -> Node:
    """Returns `x` with `old` replaced by `new`. There are only views and casts between `old` and `x`."""
    return new if x is old else copy(i, x, (_replaced(i, children(x)[0], old, new),))
