"""graph → graph: estimates the scale of the rounding errors of each result, to tell rounding errors from wrong results.

    sum(x - y)        becomes    sum(2 * abs(x - y))
    exp(x - y)                   exp(x - y) * (1 + abs(x - y)), about

The function `magnitude` takes a graph. It returns a graph that has the same inputs and returns the magnitude of each
float output. The magnitude of an output tells how large its rounding errors can be. The results of two correct
implementations, with any orders of addition, differ by a few units in the last place of the output's magnitude. If
large terms of a sum cancel each other, the sum is small, but its rounding errors have the scale of the terms.

The method is called "running error analysis" (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition,
section 3.3). The analysis is written as a second graph, which runs on the same device as the program. The file
error_bounds.py computes guaranteed bounds, but takes more time than this estimate. The magnitude (scale of the rounding
errors) of an input is 0, because inputs are exact. For each operator, a rule computes the magnitude of the result from
the magnitudes e(x) of its operands x.

    f(a, b)           |result|, and the change of f when a or b changes by units of its magnitude:
    a * b             |result| + |b| e(a) + |a| e(b)
    max, where, ...   only the change of f: nothing is rounded
    sum, scan         the sum or scan of |a| + e(a)
    a @ b             |a| @ |b| + |a| @ e(b) + e(a) @ |b|

Outputs of the graph that are not floats stay the same. The analysis ignores errors of second order, which are products
of errors. The analysis assumes that discontinuous operators, such as floor and ==, give the same result in two correct
implementations.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

from minitri.base.operators import JUMPS, reduction
from minitri.base.types import bool_, f32
from minitri.graph import ir
from minitri.graph.ir import Apply, Concat, Const, Contract, Gather, Graph, Interner, Node, Reduce, Scan, View, children
from minitri.graph.rewrite import compute, copy, number

UNITS = {"f64": 2.0**-52, "f32": 2.0**-23}  # a unit in the last place of 1
NARROW = {"f16": 2.0**-10, "bf16": 2.0**-7}
ROUNDED = 1 / 16  # share of a rounding error: two results seldom round to different neighbours
EXACT = ("negative", "positive", "abs", "maximum", "minimum", "where")  # operators that do not round
STEP = 64  # units by which an argument moves; f then changes by more than its own rounding error


def magnitude(graph: Graph) -> Graph:
    """Returns the graph whose outputs are the magnitudes of the float outputs of `graph`.

    The float outputs of the new graph are f32, or f64 if the old output is f64.
    """
    made = _Magnitudes(graph)
    return replace(graph, inputs=made.inputs, outputs=tuple(map(made.output, graph.outputs)), spans={})


class _Magnitudes:
    """Builds the graph that computes the scale of the rounding errors of each output."""

    def __init__(self, graph: Graph) -> None:
        self.i = Interner()
        self.op = partial(compute, self.i)
        self.value: dict[Node, Node] = {}  # from each old node to its copy in the new graph
        # from each old node with rounding errors to the new node that computes their scale
        self.size: dict[Node, Node] = {}
        self.inputs = tuple(self.i.input(x.name, x.dtype, x.shape, x.scalar) for x in graph.inputs)
        for node in graph.nodes():
            self.value[node] = copy(self.i, node, tuple(self.value[o] for o in children(node)))
            if node.dtype.is_float and (size := self.of(node)) is not None:
                self.size[node] = size

    def output(self, node: Node) -> Node:
        """For a float node, returns the magnitude (the scale of its rounding errors), or 0 if the node is exact. For
        any other node, returns its value.
        """
        if not node.dtype.is_float:
            return self.value[node]
        return self.size[node] if node in self.size else number(self.i, self.absolute(node), 0.0)

    def of(self, node: Node) -> Node | None:
        match node:
            case Apply(op="cast"):
                return self.cast(node)
            case Apply():
                return self.apply(node)
            case View() | Gather() | Concat() if any(x in self.size for x in children(node)):
                return copy(self.i, node, tuple(map(self.output, children(node))))
            case Reduce():
                return self.folded(node, lambda op, x: self.i.reduce(op, x, node.axes))
            case Scan():
                return self.folded(node, lambda op, x: self.i.scan(op, x, node.axis))
            case Contract(a=a, b=b):
                one, other = self.absolute(a), self.absolute(b)
                pairs = [(one, other), *((e, other) for e in self.sizes(a)), *((one, e) for e in self.sizes(b))]
                return self.total(*(self.contract(node, *pair) for pair in pairs))
        return None

    def folded(self, node: Reduce | Scan, fold: Callable[[str, Node], Node]) -> Node | None:
        """Returns the magnitude (the scale of the rounding errors) of the result of a reduction or scan.

        `fold(name, x)` makes a node that reduces or scans x along the same axes as `node`, with the operation `name`.
        """
        match reduction(node.op).kind:
            case "sum":
                return fold("sum", self.total(self.absolute(node.x), *self.sizes(node.x)))
            case "product":
                return self.op("multiply", self.absolute(node), fold("sum", self.of_factor(node.x)))
            case "extreme":
                return next((fold("max", e) for e in self.sizes(node.x)), None)
        raise AssertionError(f"{node.op} gives no floats")

    def cast(self, node: Apply) -> Node | None:
        """Returns the magnitude (the scale of the rounding errors) of the result of a cast.

        A cast to fewer bits rounds, so the cast increases the scale of the rounding errors. A cast to more bits is
        exact, and leaves the scale of the rounding errors unchanged.
        """
        (x,) = node.args
        made = [self.i.cast(e, node.dtype.compute) for e in self.sizes(x)]
        if x.dtype.bits > node.dtype.bits or not x.dtype.is_float:
            narrow = NARROW.get(node.dtype.name)
            units = ROUNDED * narrow / UNITS[node.dtype.compute.name] if narrow else 1.0
            made.append(self.scaled(self.absolute(node), units))
        return self.total(*made) if made else None

    def apply(self, node: Apply) -> Node | None:
        exact = node.op in EXACT or node.op == "multiply" and any(map(_is_power_of_two, node.args))
        inexact = [k for k, x in enumerate(node.args) if x in self.size and node.op not in JUMPS]
        sizes = [self.absolute(node)] * (not exact) + [self.moved(node, k) for k in inexact]
        return self.total(*sizes) if sizes else None

    def moved(self, node: Apply, k: int) -> Node:
        """Returns how much argument k adds to the magnitude (the scale of the rounding errors) of the result.

        The estimate is a numerical derivative. The operator of `node` is evaluated with a slightly larger, and with a
        slightly smaller, value of the argument at position k. The change of argument k is the magnitude of the argument
        times s. The fraction s is `STEP` units in the last place of 1. The estimate is the larger of the two changes of
        the result, divided by the fraction s.
        """
        dtype = node.dtype.compute
        args = [self.i.cast(self.value[a], dtype) if a.dtype.is_float else self.value[a] for a in node.args]
        here = self.i.apply(node.op, dtype, node.shape, tuple(args))
        step = self.scaled(self.i.cast(self.size[node.args[k]], dtype), STEP * UNITS[dtype.name])
        changes: list[Node] = []
        for way in ("add", "subtract"):
            there = [*args[:k], self.op(way, args[k], step), *args[k + 1 :]]
            far = self.op("abs", self.op("subtract", self.i.apply(node.op, dtype, node.shape, tuple(there)), here))
            known = self.i.apply("isfinite", bool_, node.shape, (far,))
            changes.append(self.op("where", known, far, number(self.i, far, 0.0)))
        return self.scaled(self.op("maximum", *changes), 1 / (STEP * UNITS[dtype.name]))

    def of_factor(self, x: Node) -> Node:
        """Returns 1 + e(x) / |x| for a factor x of a product. Here, e(x) is the scale of the errors that rounding
        causes in x. The sum of the returned numbers for all factors is an approximate bound on the relative error of
        the product.
        """
        size = self.absolute(x)
        one = number(self.i, size, 1.0)
        return self.op("add", one, self.op("divide", self.size[x], size)) if x in self.size else one

    def contract(self, node: Contract, a: Node, b: Node) -> Node:
        """Returns a node for the matrix product a @ b, where a and b contain absolute values or magnitudes. The
        magnitude (the scale of the rounding errors) of a matrix product is itself a sum of matrix products.

        f32 products are computed in the faster format TF32, because the magnitude need not be exact.
        """
        precision = "tf32" if node.dtype == f32 else node.precision
        a, b = (self.i.cast(x, node.dtype) for x in (a, b))
        return self.i.contract(a, b, precision)

    def sizes(self, node: Node) -> list[Node]:
        """Returns a list that contains the magnitude of `node` (the scale of its rounding errors). Returns an empty
        list if rounding cannot change the value of `node`.
        """
        return [self.size[node]] if node in self.size else []

    def absolute(self, node: Node) -> Node:
        return self.op("abs", self.i.cast(self.value[node], node.dtype.compute if node.dtype.is_float else f32))

    def total(self, *sizes: Node) -> Node:
        return reduce(partial(self.op, "add"), sizes)

    def scaled(self, x: Node, factor: float) -> Node:
        return self.op("multiply", x, number(self.i, x, factor))


def _is_power_of_two(x: Node) -> bool:
    """Checks whether a node is a constant power of two."""
    constant = ir.viewed(x)
    # multiplying by a power of two is exact
    return isinstance(constant, Const) and abs(math.frexp(constant.value)[0]) == 0.5
