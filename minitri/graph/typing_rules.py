"""The typing rules of graph nodes, shared by the typer (which makes them) and the verifier.

In: a node kind's operands and attributes. Out: its dtype and shape; ValueError if they break
the rule. User-facing messages are the typer's business: these rules only decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from minitri.base.dims import Dim
from minitri.base.numpy_semantics import POSITIONS, reduction, running
from minitri.base.operators import OPERATORS
from minitri.base.piecewise import tidy
from minitri.base.types import DType, bool_, f32, f64, i64
from minitri.graph.ir import (  # fmt: skip
    Apply,
    Concat,
    Const,
    Contract,
    Gather,
    Index,
    Input,
    Node,
    Reduce,
    Scan,
    Shape,
    View,
)


def apply_type(op: str, dtype: DType, args: Sequence[Node]) -> DType:
    """The result dtype of an operator; `dtype` is what the operands have been converted to."""
    row = OPERATORS[op]
    _require(len(args) == row.arity, f"{op} takes {row.arity} operands")
    expected = [row.operand_dtype(dtype)] * row.arity
    if row.operands == "where":
        expected[0] = bool_
    _require([a.dtype for a in args] == expected, f"{op} of {[a.dtype for a in args]}")
    _require(dtype.kind in row.accepts, f"{op} does not take {dtype}")
    _require(dtype == dtype.compute, f"{op} computes in {dtype}")
    return row.result_dtype(dtype)


def reduce_type(op: str, x: Node, axes: tuple[int, ...]) -> tuple[DType, Shape]:
    row = reduction(op)
    _require(list(axes) == sorted(set(axes)) and all(0 <= a < x.rank for a in axes), f"axes {axes}")
    _require(op not in POSITIONS or len(axes) == 1, f"{op} over one axis")
    _require(x.dtype.kind in row.accepts, f"{op} of {x.dtype}")
    _require(x.dtype == x.dtype.compute, f"{op} computes in {x.dtype}")
    shape = tuple(e for k, e in enumerate(x.shape) if k not in axes)
    return (i64 if op in POSITIONS else x.dtype), shape


def contract_type(a: Node, b: Node) -> tuple[DType, Shape]:
    _require(a.rank == b.rank >= 2 and a.shape[:-2] == b.shape[:-2], "contract of unlike batches")
    _require(a.shape[-1] == b.shape[-2], f"contract of {a.type} with {b.type}")
    _require(a.dtype == b.dtype and a.dtype.is_float, "contract of unlike dtypes")
    return (f64 if a.dtype == f64 else f32), (*a.shape[:-1], b.shape[-1])


def concat_shape(parts: Sequence[Node], axis: int) -> Shape:
    first = parts[0]
    _require(all(p.dtype == first.dtype and p.rank == first.rank for p in parts), "concat of unlike parts")
    _require(0 <= axis < first.rank, f"concat axis {axis}")
    for p in parts:
        same = (x == y for k, (x, y) in enumerate(zip(p.shape, first.shape)) if k != axis)
        _require(all(same), "concat of unlike shapes")
    total = sum((p.shape[axis] for p in parts[1:]), first.shape[axis])
    return (*first.shape[:axis], tidy(total), *first.shape[axis + 1 :])


def check(node: Node) -> None:
    """Raises ValueError if a node's dtype or shape is not what the rules give."""
    match node:
        case Input():
            _require(not node.scalar or node.shape == (), "a scalar has no axes")
        case Const():
            _require(node.shape == (), "a constant has no axes")
        case Index():
            _require(node.dtype == i64, "an index is i64")
            _check_index(node.shape, (node.expr,), 0)
        case Apply(op="cast"):
            _require(len(node.args) == 1 and node.args[0].shape == node.shape, "cast keeps the shape")
        case Apply():
            operand = node.args[-1].dtype
            _require(apply_type(node.op, operand, node.args) == node.dtype, f"{node.op} gives {node.dtype}")
            _require(all(a.shape == node.shape for a in node.args), f"{node.op} of unlike shapes")
        case View():
            _require(node.dtype == node.x.dtype and len(node.index) == node.x.rank, "view")
            _check_index(node.shape, node.index, 0)
        case Gather():
            _require(node.dtype == node.x.dtype and len(node.index) == node.x.rank, "gather")
            _require(all(p.shape == node.shape and p.dtype.is_integer for p in node.picks), "picks")
            _check_index(node.shape, node.index, len(node.picks))
        case Concat():
            shape = concat_shape(node.parts, node.axis)
            _require(tuple(map(tidy, node.shape)) == tuple(map(tidy, shape)), "concat shape")
        case Reduce():
            _require((node.dtype, node.shape) == reduce_type(node.op, node.x, node.axes), "reduce type")
        case Scan():
            _require(node.dtype.kind in running(node.op).accepts and 0 <= node.axis < node.rank, "scan")
            _require((node.dtype, node.shape) == (node.x.dtype, node.x.shape), "scan type")
        case Contract():
            _require((node.dtype, node.shape) == contract_type(node.a, node.b), "contract type")
        case _:
            assert_never(node)


def _check_index(shape: Shape, index: Sequence[Dim], picks: int) -> None:
    legal = {f"d{k}" for k in range(len(shape))} | {f"@{k}" for k in range(picks)}
    for expr in index:
        names = {s.name for s in expr.symbols() if s.kind != "size"}
        _require(names <= legal, f"index uses {sorted(names - legal)}")


def _require(holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(rule)
