"""Verifies a graph: every node must be well typed, and every input must be declared.

The function `verify` takes a graph. It raises a ValueError if the graph is wrong. The compiler verifies the graph after
each pass that makes a graph. The function `verify` does not check for cycles, because a graph of immutable nodes cannot
have cycles.
"""

from collections.abc import Sequence
from typing import assert_never

from minitri.base.dims import Dim
from minitri.base.operators import OPERATORS, running
from minitri.base.symbolic_minmax import tidy
from minitri.base.types import ArrayType, DType, bool_, i64
from minitri.graph import ir
from minitri.graph.typing_rules import concat_shape, contract_type, reduce_type, require


def verify(graph: ir.Graph) -> None:
    """Raises ValueError if a node breaks a typing rule. The message names the first node that breaks a rule."""
    declared = set(graph.inputs)
    for position, node in enumerate(graph.nodes()):
        try:
            check(node)
        except ValueError as error:
            raise ValueError(f"node {position} ({type(node).__name__} {node.type}): {error}") from None
        if isinstance(node, ir.Input) and node not in declared:
            raise ValueError(f"input {node.name} is not declared")


def check(node: ir.Node) -> None:
    """Raises ValueError if the dtype or shape of a node breaks the typing rule of the node's class."""
    match node:
        case ir.Input():
            require(not node.scalar or node.shape == (), "a scalar has no axes")
        case ir.Const():
            require(node.shape == (), "a constant has no axes")
        case ir.Index():
            require(node.dtype == i64, "an index is i64")
            _check_index(node.shape, (node.expr,), 0)
        case ir.Apply(op="cast"):
            require(len(node.args) == 1 and node.args[0].shape == node.shape, "cast keeps the shape")
        case ir.Apply():
            operands = [a.dtype for a in node.args]
            require(operator_dtype(node.op, operands) == node.dtype, f"{node.op} gives {node.dtype}")
            require(operands[-1] == operands[-1].compute, f"{node.op} computes in {operands[-1]}")
            require(all(a.shape == node.shape for a in node.args), f"{node.op} of unlike shapes")
        case ir.View() | ir.Gather():
            picks = node.picks if isinstance(node, ir.Gather) else ()
            _check_type(node, node.x.dtype, node.shape)
            require(len(node.index) == node.x.rank, f"{len(node.index)} indices for {node.x.rank} axes")
            require(all(p.shape == node.shape and p.dtype.is_integer for p in picks), "picks")
            _check_index(node.shape, node.index, len(picks))
        case ir.Concat():
            shape = concat_shape(node.parts, node.axis)
            same = tuple(map(tidy, node.shape)) == tuple(map(tidy, shape))
            _check_type(node, node.parts[0].dtype, node.shape if same else shape)
        case ir.Reduce():
            _check_type(node, *reduce_type(node.op, node.x, node.axes))
        case ir.Scan():
            require(node.dtype.kind in running(node.op).accepts and 0 <= node.axis < node.rank, "scan")
            _check_type(node, node.x.dtype, node.x.shape)
        case ir.Contract():
            _check_type(node, *contract_type(node.a, node.b))
        case _:
            assert_never(node)


def _check_type(node: ir.Node, dtype: DType, shape: ir.Shape) -> None:
    require((node.dtype, node.shape) == (dtype, shape), f"the type of this is {ArrayType(dtype, shape)}")


def _check_index(shape: ir.Shape, index: Sequence[Dim], picks: int) -> None:
    """Checks that an index map uses only axes and index arrays of the node."""
    legal = {f"d{k}" for k in range(len(shape))} | {f"@{k}" for k in range(picks)}
    for expr in index:
        names = {s.name for s in expr.symbols() if s.kind != "size"}
        require(names <= legal, f"index uses {sorted(names - legal)}")


def operator_dtype(op: str, operands: Sequence[DType]) -> DType:
    """Returns the dtype of an operator's result. Raises ValueError if the operands' dtypes break the typing rule."""
    row, dtype = OPERATORS[op], operands[-1]
    require(len(operands) == row.arity, f"{op} takes {row.arity} operand{'s' * (row.arity > 1)}")
    expected = [row.operand_dtype(dtype)] * row.arity
    if row.operands == "where":
        expected[0] = bool_
    require(operands == expected, f"{op} of {operands}")
    require(dtype.kind in row.accepts, f"{op} does not take {dtype}")
    return row.result_dtype(dtype)
