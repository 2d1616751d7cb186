"""For each output element of a graph, computes an interval that contains the results of all correct implementations.

The function `enclosures` takes a graph, its inputs, and its sizes. For each output of the graph, the function returns
an `Enclosure`: a value and a radius for each element. The value of an element is computed in f64. For f64 results, a
longer float type is used if there is one. The radius of an element is at least the largest error that rounding can
cause, for any order of addition and any fusion. The method is known as running error analysis. A node's value and
radius follow from the values and radii of the node's operands:

    x - max(x)         radius 0                   exact inputs, and one IEEE operation
    exp(that)          ulps of exp                from its row in the operator table
    sum(that)          sum(e) + (n-1) u sum|v|    n terms that are not 0, in any order

If all operands of an element are exact and the operator is correctly rounded, the element has only one correct result.
An element with only one correct result is computed in the operator's own dtype, and has the radius (error bound) 0.
Sums of small whole numbers are also exact, because no partial sum is rounded. Each rounding adds a multiple of the
rounding unit u to the radius (error bound) of an inexact element. The rounding unit u of a dtype is half a unit in the
last place of 1. The file error_propagation.py computes how much the result of an operator can change if its operands
change.

A radius of inf means that the result can be any number. For example, the radius is inf if some order of additions
overflows, or if rounding can change an index. An element whose error bound is inf is not checked. The analysis ignores
correlations between operands. For example, for an inexact x with radius e, `x - x` gets the radius 2e, although the
result is exactly 0. Because the analysis ignores correlations, a bound can be too large, but never too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from minitri.base import numpy_array_operations
from minitri.base.operators import OPERATORS, Operator, reduction
from minitri.base.operators_unlike_numpy import round_to_tf32
from minitri.base.tf32_splitting import BLOCK, FACTOR_ERROR, LEAST_DEPTH
from minitri.base.types import DType, bf16, f32
from minitri.graph import evaluate
from minitri.graph.ir import Apply, Concat, Const, Contract, Gather, Graph, Index, Input, Node, Reduce, Scan, View
from minitri.graph.roundable_products import is_discontinuous, roundable_products
from minitri.graph.scalar_form import deviations
from minitri.graph.weight_scales import find
from minitri.trust import error_propagation
from minitri.trust.error_propagation import BITS, GRID, Fold, corners, farthest, moved, on_grid, rounded, shifted, unit

NUMPY_ULP = 4.0  # the error of numpy's functions that are not correctly rounded, in every dtype
SLACK = 1 + 2.0**-8  # for errors of second order, and for the rounding of the f64 reference itself
MOVES = {"where", "next_float", "maximum", "minimum", "clip", "abs", "negative", "positive", "copysign", "sign", "floor", "ceil",
         "trunc", "round"}  # fmt: skip
RELAXED = 64.0  # error of an operator with fast math, in units of f32: 64 * 2**-23 = 2**-17
# Relative error of a factor by the precision of the product (graph/ir.py): a tensor core ignores the lowest bits.
FACTOR_ERRORS = {"tf32": 2.0**-10, "tf32x3": FACTOR_ERROR}


class Enclosure(NamedTuple):
    """The values that a correct result can have: each element differs from `value` by at most `radius`."""

    value: Any
    radius: Any
    dtype: DType


def enclosures(graph: Graph, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[Enclosure, ...]:
    """Returns for each output an `Enclosure` (a value and a largest possible error for each element); the inputs count
    as exact. For 16-bit outputs, the largest possible errors include the errors of fast math.
    """
    kinds = {o: o.dtype.is_float and o.dtype.bits == 16 for o in graph.outputs}
    strict = _Analysis(graph, inputs, sizes).run()
    relaxed = _Analysis(graph, inputs, sizes, strict).run() if any(kinds.values()) else strict
    return tuple((relaxed if kinds[o] else strict).enclosure(o) for o in graph.outputs)


def widened(x: Any, dtype: DType) -> Any:
    """Converts f64 to numpy's longdouble, and smaller floats to f64. Returns integers and bools unchanged."""
    if not dtype.is_float:
        return np.asarray(x, dtype.numpy)
    return np.asarray(x).astype(np.longdouble if dtype.name == "f64" else np.float64)


class Terms(NamedTuple):
    """Two numbers for each element of a matrix product, from which the error bound of the element is computed. Each
    element is a sum of terms.

    `rounds` is the largest number of times that a term is rounded. `size` is the sum of the absolute values of the
    terms.
    """

    rounds: Any
    size: Any


class _Analysis:
    """The value and the radius (largest possible error) of each node of a graph."""

    def __init__(
        self, graph: Graph, inputs: Mapping[str, Any], sizes: Mapping[str, int], strict: _Analysis | None = None
    ) -> None:
        # Kernels that write only 16-bit results use fast math, so their f32 operators have larger errors
        # (minitri/optimize/fast_math/relax.py). For them, `strict` is the analysis of the same graph without fast math.
        self.graph, self.inputs, self.sizes, self.strict = graph, inputs, sizes, strict
        self.values: dict[Node, Any] = {}
        self.radii: dict[Node, Any] = {}
        self.terms: dict[Node, Terms] = {}
        scales = [find(n) for n in graph.nodes() if isinstance(n, Contract)]
        self.stored = roundable_products(graph) if strict is not None else set[Node]()
        self.unrounded = {s.rounded for s in scales if s is not None}

    @np.errstate(all="ignore")
    def run(self) -> _Analysis:
        for node in self.graph.nodes():
            if self.strict is not None and is_discontinuous(node):
                # kernels compute the operands of such functions, for example floor, without fast math
                self.values[node], self.radii[node] = self.strict.values[node], self.strict.radii[node]
            else:
                self.add(node)
        return self

    def enclosure(self, node: Node) -> Enclosure:
        return Enclosure(self.values[node], self.radii[node] * SLACK, node.dtype)

    def add(self, node: Node) -> None:
        value, radius = self.node(node)
        value = widened(value, node.dtype)
        radius = np.broadcast_to(np.asarray(radius, np.float64), value.shape)
        limited = _within_range(value, radius, node.dtype) if node.dtype.is_float else (value, radius)
        self.values[node], self.radii[node] = limited

    def node(self, node: Node) -> tuple[Any, Any]:
        """Returns a node's value and largest possible error, computed from the values and errors of its operands."""
        match node:
            case Input() | Const() | Index():
                return np.asarray(evaluate.value(node, {}, self.inputs, self.sizes), node.dtype.numpy), 0.0
            case Apply(op="cast"):
                return self.cast(node)
            case Apply():
                return self.apply(node)
            case View() | Concat():
                if isinstance(node, View) and (terms := self.terms.get(node.x)):
                    self.terms[node] = Terms(*(evaluate.value(node, {node.x: t}, {}, self.sizes) for t in terms))
                return tuple(evaluate.value(node, known, {}, self.sizes) for known in (self.values, self.radii))
            case Gather():
                return self.gather(node)
            case Reduce():
                return self.reduce(node)
            case Scan():
                return self.folded(node, lambda op, y: numpy_array_operations.scan(op, y, node.axis))
            case Contract():
                return self.contract(node)

    # ---- elementwise -----------------------------------------------------------------

    def apply(self, node: Apply) -> tuple[Any, Any]:
        row, operand = OPERATORS[node.op], node.args[-1].dtype
        args, radii = [self.values[a] for a in node.args], [self.radii[a] for a in node.args]
        certain = np.logical_and.reduce([e == 0 for e in radii])
        value = widened(row.numpy(*args), node.dtype)
        radius = unrounded = moved(row, operand, args, radii, value)
        if node.dtype.is_float:
            radius = radius + _rounding(row, node.dtype, np.abs(value) + radius)
        if self.strict is not None and node.dtype == f32 and row.name not in MOVES:
            return value, radius + _fast_math_error(row, value, args) + self._exp2_error(node, value)
        early = sum(map(self._accumulator_start_error, node.args, node.args[::-1])) if node.op == "add" else 0.0
        if row.ulp > 0.5 and node.dtype.is_float or not certain.any():
            return value, radius + early
        fixed = row.numpy(*[x.astype(a.dtype.numpy) for x, a in zip(args, node.args)])  # in the node's own dtype
        return np.where(certain, widened(fixed, node.dtype), value), np.where(certain, unrounded, radius) + early

    def _accumulator_start_error(self, product: Node, start: Node) -> Any:
        """Returns the rounding error to add for `a @ b + c`, because kernels can start the sum of products with `c`."""
        # Triton's pass triton-combine makes the kernel do so: it rewrites `dot(a, b, 0) + c` to `dot(a, b, c)`.
        if product not in self.terms:
            return 0.0
        (rounds, size), c = self.terms[product], np.abs(self.values[start])
        # every partial sum includes c, so the rounding errors are larger
        size = size + np.where(np.isfinite(c), c, 0)
        whole = on_grid(self.values[start], self.radii[start], GRID) & (self.radii[product] == 0)
        exact = whole & (size * GRID <= 2 ** BITS[product.dtype.name])
        return np.where(exact, 0, np.maximum(rounds, 0) * unit(product.dtype) * size)

    def _exp2_error(self, node: Apply, value: Any) -> Any:
        """Returns the extra error of an exponential that a kernel computes as a power of 2."""
        if node.op not in ("exp", "exp2"):
            return 0.0
        exponents = 0.0
        match node.args[0]:
            case Apply(op="subtract", args=args) if not isinstance(_origin(args[0]), Input):
                # exp(x - h) becomes 2**(x * log2 e - h * log2 e) with rounded products
                # (minitri/optimize/fast_math/relax.py)
                sizes = [np.abs(np.asarray(self.values[a], np.float64)) for a in args]
                exponents = sum(np.where(np.isfinite(s), s, 0) for s in sizes) * 2.0**-23
        size = np.abs(np.where(np.isfinite(value), value, 0))
        # a kernel can replace a denormal result by 0
        return size * exponents + float(np.finfo(np.float32).tiny)

    def cast(self, node: Apply) -> tuple[Any, Any]:
        """Returns each element's value and radius (largest possible error) after a conversion to another dtype.

        Rounding is monotone, so it is enough to round both ends of the operand's interval. A fused kernel can keep a
        value unrounded if the value is not an output, and round a later result instead. For example, a kernel for
        `softmax(x) @ v` can divide after the product, and a kernel for `x @ (w * s)` can multiply the sums by s. For a
        node that is not an output, the value stays unrounded, and the radius (largest possible error) grows by one
        rounding error.
        """
        (x,) = node.args
        v, e = self.values[x], self.radii[x]

        def narrowed(y: Any) -> Any:
            return widened(numpy_array_operations.cast(y.astype(x.dtype.numpy), node.dtype), node.dtype)

        value = narrowed(v)
        ends = [narrowed(c) for (c,) in corners([v], [e])]
        narrows = node.dtype.is_float and (not x.dtype.is_float or node.dtype.bits < x.dtype.bits)
        if not x.dtype.is_float or not node.dtype.is_float or (narrows and node in self.graph.outputs):
            return value, np.where(np.isinf(e), np.inf, farthest(value, ends))
        if not narrows:
            return v, e
        least = float(ml_dtypes.finfo(node.dtype.numpy).smallest_subnormal) / 2
        reach = np.maximum(farthest(v, ends), e + unit(node.dtype) * (np.abs(v) + e) + least)
        free = e > 0 if node not in self.unrounded else np.ones(e.shape, bool)
        return np.where(free, v, value), np.where(free, reach, 0)

    def gather(self, node: Gather) -> tuple[Any, Any]:
        picks = {p: self.values[p] for p in node.picks}
        radius = evaluate.value(node, {**picks, node.x: self.radii[node.x]}, {}, self.sizes)
        unsure = np.logical_or.reduce([self.radii[p] > 0 for p in node.picks])
        radius = np.where(unsure, np.inf, np.where(np.isnan(radius), 0, radius))
        return evaluate.value(node, self.values, {}, self.sizes), radius

    # ---- reductions ------------------------------------------------------------------

    def reduce(self, node: Reduce) -> tuple[Any, Any]:
        value, radius = self.folded(node, lambda op, y: numpy_array_operations.reduce(op, y, node.axes))
        return value, radius + self.running_means_error(node) if node.op == "sum" else radius

    def folded(self, node: Reduce | Scan, fold: Fold) -> tuple[Any, Any]:
        """Returns the values of a reduction or scan, and the largest possible error of each value.

        `fold(name, array)` applies the reduction `name` to an array.
        """
        x, e = self.values[node.x], self.radii[node.x]
        value = fold(node.op, x)
        match reduction(node.op).kind:
            case "sum":
                return value, error_propagation.summed(x, e, node.dtype, fold)
            case "product":
                return value, error_propagation.multiplied(x, e, node.dtype, fold)
            case "extreme" | "logical":  # monotone: the ends of the intervals bound the result
                return value, farthest(value, [fold(node.op, shifted(x, e, s)) for s in (-1, 1)])
            case "bits":
                return value, np.where(fold("sum", e) > 0, np.inf, 0.0)
            case "position":
                assert isinstance(node, Reduce)
                return value, _argument(node, x, e, value)

    def running_means_error(self, node: Reduce) -> Any:
        """Returns the extra error of a variance or covariance that a kernel computes in parts.

        Online reductions compute variances in parts (minitri/graph/partial_sum_correction.py). For each part, the
        kernel uses the mean of the elements so far (the running mean). A running mean is rounded, so a variance that
        uses it has an extra error even if every term is exact.

        The returned error also includes the rounding errors of the sums from which the variance is computed.
        """
        means = deviations(node)
        if means is None:
            return 0.0
        u, shape = unit(node.dtype), self.values[node.x].shape
        n = float(np.prod([shape[k] for k in node.axes]))
        spread, off = zip(*[self._spread(y) for y in means])
        # If the mean of m elements changes by d, the error grows by at most m |d| times the error of the mean.
        # For n elements with V = sum (x - mean)^2, the sum of all m |d| is at most sqrt(2 n V).
        lost = off[0] * np.sqrt(2 * n * spread[1]) + off[1] * np.sqrt(2 * n * spread[0]) + n * off[0] * off[1]
        return np.where(n > 1, lost + 2 * (n + 8) * u * np.sqrt(spread[0] * spread[1]), 0)

    def _spread(self, y: Reduce) -> tuple[Any, Any]:
        """Returns the sum of squared deviations from the mean, and the running mean's largest error."""
        x = self.values[y.x].astype(np.float64)
        x = np.where(np.isfinite(x), x, 0)
        n = np.prod([x.shape[k] for k in y.axes])
        off = unit(y.dtype) * np.abs(x).max(y.axes, initial=0) + self.radii[y] / max(n, 1)
        return np.square(x - x.mean(y.axes, keepdims=True)).sum(y.axes) if n else 0.0 * off, off

    def contract(self, node: Contract) -> tuple[Any, Any]:
        """Returns the value of a matrix product, and the radius (error bound) of each element.

        An element of a matrix product is a sum of products. In a sum with m nonzero products, each product is rounded
        at most m times. For 16-bit operands a tensor core truncates instead of rounding, which doubles the error. If a
        kernel rounds the factors before the multiplication, as in TF32, the returned error bound includes these
        rounding errors. A kernel with the precision "f32" can compute long sums in "tf32x3", so the bound for long sums
        assumes "tf32x3". A bf16 matrix product can be rounded to bf16 before another kernel reads it.
        """
        wide = widened(0, node.dtype).dtype
        a, b = (self.values[n].astype(wide) for n in (node.a, node.b))
        ea, eb = self.radii[node.a], self.radii[node.b]
        value = np.matmul(a, b)
        special_a, special_b = (1.0 * ~np.isfinite(x) for x in (a, b))
        specials = np.matmul(special_a, np.ones(b.shape)) + np.matmul(np.ones(a.shape), special_b)
        kept_a, kept_b = self.never_skipped(node.a), self.never_skipped(node.b)
        seen = np.matmul(special_a, kept_b) + np.matmul(kept_a, special_b)
        nan_a, nan_b = (1.0 * (np.isnan(x) & ~(r > 0)) for x, r in ((a, ea), (b, eb)))
        surely_nan = np.matmul(nan_a, kept_b) + np.matmul(kept_a, nan_b) > 0
        a, b = (np.where(np.isfinite(x), np.abs(x), 0).astype(np.float64) for x in (a, b))
        e = np.matmul(ea, b + eb) + np.matmul(a, eb)
        e = np.where(np.isnan(e) | ((specials > 0) & (e > 0)), np.inf, e)  # nan is inf * 0
        size, count = np.matmul(a + ea, b + eb), np.matmul(1.0 * (a + ea > 0), 1.0 * (b + eb > 0))
        size = np.where(np.isnan(size), np.inf, size)  # nan is inf * 0, from a factor without a bound
        parts = node.precision == "tf32x3" or node.precision == "f32" and a.shape[-1] >= LEAST_DEPTH
        kind = "tf32x3" if parts else node.precision
        cut = 2 if node.a.dtype.bits == 16 or kind == "tf32" else 1
        rounds = np.minimum(4 * count, count + BLOCK) if parts else cut * count
        short = not parts or all((x == round_to_tf32(x.astype(np.float32))).all() for x in (a, b))
        whole = on_grid(a, ea, GRID**0.5).all() and on_grid(b, eb, GRID**0.5).all()
        e = e + count * float(np.finfo(node.dtype.numpy).smallest_subnormal)  # products may underflow
        e = e + 2 * FACTOR_ERRORS[kind] * size if kind in FACTOR_ERRORS else e  # 0 * inf would be nan
        exact = (kind != "tf32") & whole & short & (size * GRID <= 2 ** BITS[node.dtype.name])
        self.terms[node] = Terms(rounds, size)
        radius = rounded(e, size, specials > 0, rounds, exact, node.dtype)
        radius = radius + unit(bf16) * (size + e) if node in self.stored else radius
        return value, np.where(surely_nan, 0, np.where(seen == specials, radius, np.inf))

    def never_skipped(self, factor: Node) -> Any:
        """Returns 1 for each element that a kernel must multiply, and 0 for each element that a kernel can skip.

        A kernel can skip zeros that the program computes, and zeros of padding (minitri/optimize/skip_blocks). A
        skipped product 0 * inf or 0 * NaN does not make the sum NaN. Kernels never skip zeros in input arrays.
        """
        return 1.0 * ((self.values[factor] != 0) | (not isinstance(_origin(factor), (Apply, Concat))))


def _origin(x: Node) -> Node:
    """Returns the node that remains after all views and casts around `x` are removed."""
    while isinstance(x, View) or isinstance(x, Apply) and x.op == "cast":
        x = x.x if isinstance(x, View) else x.args[0]
    return x


def _rounding(row: Operator, dtype: DType, size: Any) -> Any:
    """Returns the largest rounding error of an operator if the result's absolute value is at most `size`."""
    if row.name in MOVES:
        return 0.0
    size = np.where(np.isfinite(size), size, 0).astype(np.float64)
    info = np.finfo(dtype.numpy)
    if row.ulp <= 0.5:
        return unit(dtype) * size + 3 * float(info.smallest_subnormal)  # see minitri/triton/rt_float_division.py
    own = (max(row.ulp, NUMPY_ULP) * 2 + 1) * unit(dtype)  # a unit in the last place is 2u at most
    return own * np.maximum(size, float(info.tiny)) + NUMPY_ULP * 2.0**-52 * size  # and the error of the f64 reference


def _fast_math_error(row: Operator, value: Any, args: list[Any]) -> Any:
    """Returns the extra error of an operator in a kernel with fast math."""
    size, tiny = np.abs(value), float(np.finfo(np.float32).tiny)
    # `RELAXED` is for operators for which fast math has a faster instruction
    loose = (RELAXED if row.relaxed or row.cost == "special" else 1) * 2.0**-23 * np.maximum(size, tiny)
    loose = np.where(np.isfinite(size), loose, 0)
    if row.name not in ("divide", "reciprocal"):
        return loose
    # the reciprocal of a very small or large divisor can overflow or become 0
    nearly = (np.abs(args[-1]) < 4 * tiny) & (args[-1] != 0)
    return np.where(nearly | (np.abs(args[-1]) > 1 / (4 * tiny)) & np.isfinite(args[-1]), np.inf, loose)


def _within_range(value: Any, radius: Any, dtype: DType) -> tuple[Any, Any]:
    """Replaces values that certainly exceed the largest number of the dtype by inf."""
    largest, size = float(ml_dtypes.finfo(dtype.numpy).max), np.abs(value)
    over = np.isfinite(value) & (size - radius > largest)
    # may or may not exceed the largest number
    near = np.isfinite(value) & (size + radius > largest) & ~over & (radius > 0)
    value = np.where(over, np.copysign(np.inf, value), value)
    return value, np.where(near, np.inf, np.where(over, 0, radius))


def _argument(node: Reduce, x: Any, e: Any, v: Any) -> Any:
    """Returns how far rounding can move the index that argmax or argmin returns."""
    (k,) = node.axes
    sign = 1.0 if reduction(node.op).combine == "greater" else -1.0
    place = np.expand_dims(v, k)
    score = np.where(np.isnan(x), np.inf, sign * x.astype(np.float64))
    # elements that can be the largest or smallest because of rounding
    rival = score + e >= np.take_along_axis(score - e, place, k)
    along = np.arange(x.shape[k]).reshape([-1 if j == k else 1 for j in range(x.ndim)])
    unsure = (rival & ((e > 0) | np.take_along_axis(e > 0, place, k)) & (along != place)).any(k)
    return np.where(unsure, np.where(rival, np.abs(along - place), 0).max(k, initial=0), 0.0)
