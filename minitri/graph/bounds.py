"""How far two right ways to compute a graph can lie apart: running error analysis.

In: a graph, its inputs and sizes. Out: for each output an array of bounds, element by element.
The one idea: carry with every value v a radius e, so that whatever a right implementation
computes there lies in [v - e, v + e]; each kind of node says what becomes of e.

    x - max(x)         e = 0                  inputs are exact, and so is what follows from them exactly
    exp(that)          e = ulps of exp        how far two good libraries differ
    sum(that)          e = sum(e) + (n-1) eps sum|v|            any order of adding

An operator is taken at the corners of the box v ± e of its operands: its e is the farthest
that a corner moves the result. That serves jumps too: where the box of `floor` or `<` holds
the jump e is the height of it, so a `where` on such a condition gets the distance of its
branches. inf means "cannot tell" (overflow that depends on the order, an index that is not
certain): such elements are not checked.

Left out: correlations (x - x of an inexact x gets 2e, not 0): bounds are on the safe side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minitri import arrays
from minitri.graph import evaluate
from minitri.graph.ir import Apply, Concat, Const, Contract, Gather, Graph, Index, Input, Node, Reduce, Scan, View
from minitri.ops import OPERATORS, float_to_int
from minitri.types import DType

REFERENCE_ULP = 4.0  # numpy's own error in a function that is not correctly rounded
ERRATIC = ("remainder", "floor_divide", "power")  # with the bit operators: integers that jump about

Values = dict[Node, Any]


def bounds(graph: Graph, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """For each output the largest difference, element by element, that rounding explains."""
    values: Values = {}
    errors: Values = {}
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            values[node] = np.asarray(evaluate.value(node, values, inputs, sizes), node.dtype.numpy)
            errors[node] = _error(node, values, errors, sizes, node in graph.outputs)
    return tuple(errors[o] for o in graph.outputs)


def _error(node: Node, values: Values, errors: Values, sizes: Mapping[str, int], last: bool) -> Any:
    v = values[node]
    match node:
        case Input() | Const() | Index():
            return np.zeros(v.shape)
        case Apply(op="cast"):
            return _cast(node, values, errors, last)
        case Apply():
            return _apply(node, values, errors)
        case View() | Concat():
            return evaluate.value(node, errors, {}, sizes)
        case Gather():
            picks = {p: values[p] for p in node.picks}
            picked = evaluate.value(node, {**picks, node.x: errors[node.x]}, {}, sizes)
            unsure = np.logical_or.reduce([errors[p] > 0 for p in node.picks])
            return np.where(unsure, np.inf, np.where(np.isnan(picked), 0, picked))
        case Reduce():
            return _reduce(node, values[node.x], errors[node.x], v)
        case Scan():
            return _scan(node, values[node.x], errors[node.x])
        case Contract():
            return _contract(node, values, errors)


# ---- elementwise -----------------------------------------------------------------------


def _corners(args: list[Any], errors: list[Any]) -> list[list[Any]]:
    """The operands moved to each corner of their box; those without error stay."""
    choices = [[x] if not e.any() else [_moved(x, e, -1), _moved(x, e, 1)] for x, e in zip(args, errors)]
    return [list(c) for c in itertools.product(*choices)]


def _moved(x: Any, e: Any, sign: int) -> Any:
    """x + sign * e, rounded to the dtype of x (rounding keeps order, so the corner stays the outermost)."""
    if x.dtype.kind == "b":
        return np.where(e > 0, sign > 0, x)
    wide = np.where(e > 0, x.astype(np.float64) + sign * e, 0)
    moved = float_to_int(wide, x.dtype) if x.dtype.kind in "iu" else wide.astype(x.dtype)
    return np.where(e > 0, moved, x)


def distance(a: Any, b: Any) -> Any:
    """|a - b|; 0 for equal infinities and for two nans, inf where only one is finite."""
    same = (a == b) | ((a != a) & (b != b))
    far = np.abs(a.astype(np.float64) - b.astype(np.float64))
    far = far if a.dtype.kind == "f" else np.maximum(far, 1)  # f64 cannot tell large integers apart
    return np.where(same, 0, np.where(np.isnan(far), np.inf, far))


def _farthest(v: Any, corners: list[Any]) -> Any:
    return np.max([distance(np.asarray(c), v) for c in corners], axis=0, initial=0)


def _apply(node: Apply, values: Values, errors: Values) -> Any:
    row, v = OPERATORS[node.op], values[node]
    args, radii = [values[a] for a in node.args], [errors[a] for a in node.args]
    moved = _farthest(v, [row.numpy(*c) for c in _corners(args, radii)])
    operand = node.args[-1].dtype
    if operand.is_integer and (row.name in ERRATIC or row.name.startswith("bitwise")):
        moved = np.where(np.logical_or.reduce([e > 0 for e in radii]), np.inf, moved)
    if row.ulp <= 0.5 or not node.dtype.is_float:
        return moved
    return moved + (row.ulp + REFERENCE_ULP) * _unit(v, node.dtype)


def _unit(v: Any, dtype: DType) -> Any:
    """One unit in the last place of |v|, and never less than the smallest normal number (GPUs may flush)."""
    info = np.finfo(dtype.numpy)
    size = np.abs(v.astype(np.float64))
    return np.where(np.isfinite(size), np.maximum(size * float(info.eps), float(info.tiny)), 0)


def _cast(node: Apply, values: Values, errors: Values, last: bool) -> Any:
    """Rounding keeps order, so corners say it all, unless a fused kernel rounds at another scale.

    `softmax(x) @ v` may divide after the product: an inexact value gets one more unit there.
    """
    (x,) = node.args
    v, e = values[node], errors[x]
    moved = _farthest(v, [arrays.cast(c, node.dtype) for (c,) in _corners([values[x]], [e])])
    if last or not node.dtype.is_float or node.dtype.bits >= x.dtype.bits:
        return moved
    eps = {"f16": 2.0**-10, "bf16": 2.0**-7}.get(node.dtype.name, 2.0**-23)
    size = np.abs(v.astype(np.float64))
    return moved + np.where((e > 0) & np.isfinite(size), size * eps, 0)


# ---- reductions ------------------------------------------------------------------------


def _reduce(node: Reduce, x: Any, e: Any, v: Any) -> Any:
    match node.op:
        case "sum" | "prod":
            count = int(np.prod([x.shape[k] for k in node.axes]))
            combine = _summed if node.op == "sum" else _multiplied
            return combine(x, e, node.dtype, count - 1, lambda y: y.sum(node.axes), lambda y: y.prod(node.axes))
        case "argmax" | "argmin":
            return _argument(node, x, e, v)
        case _:  # max, min, any and all keep order
            return _farthest(v, [arrays.reduce(node.op, _moved(x, e, s), node.axes) for s in (-1, 1)])


def _scan(node: Scan, x: Any, e: Any) -> Any:
    k = node.axis
    rounds = _along(k, x)
    combine = _summed if node.op == "sum" else _multiplied
    return combine(x, e, node.dtype, rounds, lambda y: y.cumsum(k), lambda y: y.cumprod(k))


def _along(k: int, x: Any) -> Any:
    """0, 1, 2, … along axis k."""
    return np.arange(x.shape[k]).reshape([-1 if j == k else 1 for j in range(x.ndim)])


Fold = Callable[[Any], Any]


def _summed(x: Any, e: Any, dtype: DType, rounds: Any, total: Fold, product: Fold) -> Any:
    size = np.abs(x.astype(np.float64))
    known = np.isfinite(size)
    return _rounded(total(e), total(np.where(known, size, 0)), total(~known), rounds, dtype)


def _rounded(e: Any, size: Any, specials: Any, rounds: Any, dtype: DType) -> Any:
    """The error of a sum from that of its terms, their sizes, and how many are infinite or nan."""
    if not dtype.is_float:
        return 1.0 * e
    info = np.finfo(dtype.numpy)
    error = np.where(specials, e, e + np.maximum(rounds, 0) * float(info.eps) * size)
    return np.where(size > float(info.max) / 2, np.inf, error)  # in some order it overflows


def _multiplied(x: Any, e: Any, dtype: DType, rounds: Any, total: Fold, product: Fold) -> Any:
    if not dtype.is_float:
        return np.where(total(e) > 0, np.inf, 0.0)
    info = np.finfo(dtype.numpy)
    size = np.abs(x.astype(np.float64))
    known = np.isfinite(size) & ((size > 0) | (e > 0))  # 0, inf and nan decide the product whatever the order
    low, high = np.where(known, np.maximum(size - e, 0), 1), np.where(known, size + e, 1)
    error = product(high) * (1 + np.maximum(rounds, 0) * float(info.eps)) - product(np.where(known, size, 1))
    risky = (product(np.maximum(high, 1)) > float(info.max) / 2) | (product(np.minimum(low, 1)) < 2 * float(info.tiny))
    return np.where(risky, np.inf, np.where(total(~known) > 0, np.where(total(e) > 0, np.inf, 0), error))


def _contract(node: Contract, values: Values, errors: Values) -> Any:
    """K products and K - 1 sums, each rounded."""
    a, b = (np.abs(values[n].astype(np.float64)) for n in (node.a, node.b))
    ea, eb = errors[node.a], errors[node.b]
    specials = np.matmul(1.0 * ~np.isfinite(a), np.ones(b.shape)) + np.matmul(np.ones(a.shape), 1.0 * ~np.isfinite(b))
    a, b = (np.where(np.isfinite(x), x, 0) for x in (a, b))
    e = np.matmul(ea, b + eb) + np.matmul(a, eb)
    e = np.where(np.isnan(e) | ((specials > 0) & (e > 0)), np.inf, e)  # inf * something that may be 0
    return _rounded(e, np.matmul(a, b), specials > 0, 2 * a.shape[-1] - 1, node.dtype)


def _argument(node: Reduce, x: Any, e: Any, v: Any) -> Any:
    """How far the winner's place may move: to any element whose range reaches the winner's."""
    (k,) = node.axes
    if not e.any():
        return np.zeros(v.shape)
    sign = 1.0 if node.op == "argmax" else -1.0
    place = np.expand_dims(v, k)
    score = np.where(np.isnan(x), np.inf, sign * x.astype(np.float64))
    rival = score + e >= np.take_along_axis(score - e, place, k)
    unsure = (rival & ((e > 0) | np.take_along_axis(e > 0, place, k)) & (_along(k, x) != place)).any(k)
    return np.where(unsure, np.where(rival, np.abs(_along(k, x) - place), 0).max(k, initial=0), 0.0)
