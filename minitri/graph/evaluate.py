"""Evaluates a graph with numpy, one operation for each node. The result of the evaluation defines what a graph means.

The function `evaluate` takes a graph, an array (or number) for each input, and the sizes. It returns a tuple with an
array for each output.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from minitri.base import numpy_array_operations
from minitri.base.dims import Dim, Symbol
from minitri.graph import ir
from minitri.graph.ir import Graph, Input, Node, Shape, axis_symbol, pick


@np.errstate(all="ignore")
def evaluate(graph: Graph, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """Returns the outputs of a graph as numpy arrays.

    The argument `inputs` maps the name of each input to its array or number. The argument `sizes` maps the name of each
    dimension to an integer.
    """
    values: dict[Node, Any] = {}
    for node in graph.nodes():
        values[node] = np.asarray(value(node, values, inputs, sizes), dtype=node.dtype.numpy)
    return tuple(values[o] for o in graph.outputs)


def value(node: Node, values: Mapping[Node, Any], inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """Returns the value of one node, given the values of its operands."""
    match node:
        case Input():
            return inputs[node.name]
        case ir.Const():
            return node.value
        case ir.Index():
            return np.broadcast_to(_index(node.expr, node.shape, sizes), _concrete(node.shape, sizes))
        case ir.Apply():
            return numpy_array_operations.apply(node.op, node.dtype, [values[a] for a in node.args])
        case ir.View() if 0 in (shape := _concrete(node.shape, sizes)):
            return np.zeros(shape)
        case ir.View():
            where = tuple(_index(e, node.shape, sizes) for e in node.index)
            return np.broadcast_to(values[node.x][where], _concrete(node.shape, sizes))
        case ir.Gather():
            picks = {pick(k).atom: values[p] for k, p in enumerate(node.picks)}
            where = [_index(e, node.shape, sizes, picks) for e in node.index]
            return numpy_array_operations.take(values[node.x], where, _concrete(node.shape, sizes))
        case ir.Concat():
            return np.concatenate([values[p] for p in node.parts], axis=node.axis)
        case ir.Reduce():
            return numpy_array_operations.reduce(node.op, values[node.x], node.axes)
        case ir.Scan():
            return numpy_array_operations.scan(node.op, values[node.x], node.axis)
        case ir.Contract():
            return numpy_array_operations.contract(values[node.a], values[node.b], node.dtype, node.precision)


def _concrete(shape: Shape, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(e.evaluate(sizes) for e in shape)


def _index(expr: Dim, shape: Shape, sizes: Mapping[str, int], picks: Mapping[Any, Any] = {}) -> Any:
    """Returns the values of an index expression for all indices of a shape."""
    env: dict[Symbol, Any] = {Symbol(name): size for name, size in sizes.items()}
    # The result broadcasts to the shape.
    grids = np.ogrid[tuple(map(slice, _concrete(shape, sizes)))]
    axes = {axis_symbol(k): grid for k, grid in enumerate(grids)}
    return expr.compute({**env, **axes, **picks})
