"""The reference evaluator evaluates a syntax tree with numpy, node by node.

The results of this evaluator define what a program of the language means.

The function `evaluate` calls the entry function of a module with the given arguments and sizes of dimensions. The
function `evaluate` returns one numpy array for each output. The one idea: the evaluator stores every value as a numpy
array or a plain number. The evaluator has no typing pass, no graph and no shape arithmetic, so it shares few mistakes
with the compiler. If the compiler makes a mistake, its results differ from the results of this evaluator.

    relu(x @ w + b)     →     Array(f32 data), by  x @ w,  + b,  the body of relu

The graph builder has already made all checks that need no sizes, so the reference evaluator does not repeat them.
Expressions of any depth can be evaluated, because the evaluator recurses only for calls of functions.
"""

from collections.abc import Hashable, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import numpy as np

from minitri.base import numpy_array_operations
from minitri.base.diagnostics import CompileError
from minitri.base.operators import BY_SYMBOL
from minitri.base.spans import Span
from minitri.base.types import BY_NUMPY_NAME, DTYPES, Info, ListValue, items_of
from minitri.language import ast
from minitri.language.interpreter_base import Interpreter, Scope
from minitri.language.reference_arrays import Array, Value, array, elementwise, rounded, settled, strong
from minitri.language.reference_functions import FUNCTIONS, subscript
from minitri.language.signatures import bind, library_spans, signature_of


def evaluate(
    module: ast.Module, entry: str, arguments: Mapping[str, Any], sizes: Mapping[str, int]
) -> tuple[Any, ...]:  # fmt: skip
    """Returns the outputs of a function.

    The arguments must fit the parameters. The file minitri/runtime/call_binding.py checks whether the arguments fit the
    parameters.
    """
    reference = Reference({f.name: f for f in module.functions})
    with np.errstate(all="ignore"):
        given = {name: _entered(value) for name, value in arguments.items()}
        result = reference.inlined(reference.functions[entry], given, sizes)
        results = [strong(r) for r in items_of(result)]
        return tuple(np.asarray(numpy_array_operations.cast(r.data, r.dtype)) for r in results)


def _entered(given: Any) -> Value:
    """Converts an array or a number of a call to a value of the evaluator."""
    if not isinstance(given, (np.ndarray, np.generic)):
        return given
    dtype = BY_NUMPY_NAME[given.dtype.name]
    return Array(numpy_array_operations.cast(given, dtype.compute), dtype)


# ---- expressions and calls ---------------------------------------------------------------


class Reference(Interpreter):
    """The interpreter whose arrays are numpy arrays.

    If a function is called several times with equal arguments, the call is evaluated only once. Two arrays count as
    equal if digests (hashes) of their contents are equal. The results of a function that calls no other function are
    not stored, because stored results of such a function would only take memory.
    """

    def evaluated(self, node: ast.Node, values: dict[int, Value], scope: Scope, root: ast.Node) -> Value:
        try:
            value = super().evaluated(node, values, scope, root)
        except CompileError as error:
            raise error.at(node.span) from None
        except (ValueError, TypeError, IndexError, ArithmeticError) as error:
            message = f"numpy refuses this at these sizes: {str(error)[:80]}"
            raise CompileError("MT0306", message, node.span) from None
        for part in ast.children(node):
            values.pop(id(part), None)  # no other node uses this value
        return value

    def unknown(self, node: ast.Name | ast.Call, scope: Scope, root: ast.Node) -> CompileError:
        missing = f"`{node.id}` here" if isinstance(node, ast.Name) else f"function `{node.function}`"
        return CompileError("MT0101", f"there is no {missing}")

    def called(self, function: ast.Function, args: tuple[Value, ...], keywords: Scope, span: Span) -> Value:
        given = bind(function.name, signature_of(function), args, keywords)
        calls = {n.function for s in function.body for n in ast.postorder(s) if isinstance(n, ast.Call)}
        if calls.isdisjoint({*self.functions, *library_spans()}):
            return self.inlined(function, given)
        return self.once(function, given, lambda: self.inlined(function, given))

    def identity(self, value: Value) -> Hashable:
        if not isinstance(value, Array):
            return value
        wide = None if value.wide is None else _digest(value.wide)
        return value.dtype.name, value.weak, value.data.shape, _digest(value.data), wide

    def inlined(self, function: ast.Function, given: Scope, known: Mapping[str, int] = {}) -> Value:
        """Evaluates the body of a function with the arguments `given`.

        The argument `known` maps names of dimensions to their sizes. Every size that is not in `known` follows from the
        shapes of the arguments.
        """
        sizes: Scope = dict(known)
        given = {p.name: self.expression(p.default, {}) for p in function.params if p.default is not None} | given
        declared = {p.name: p.annotation for p in function.params if isinstance(p.annotation, ast.ArrayType)}
        for name, type in declared.items():
            value = given[name]
            given[name] = rounded(value, DTYPES[type.dtype]) if array(value).weak else array(value)
        for name, type in [*declared.items()] * 2:  # a size that one array gives can be needed for an earlier array
            _solve_sizes(type, given[name].data.shape, sizes)
        return self.body(function, sizes | given)

    # ---- operators -----------------------------------------------------------------------

    def operator(self, name: str, args: Any, keywords: Scope) -> Value:
        return _clip(*args, **keywords) if name == "clip" else _applied(name, args)

    def structured(self, name: str, arguments: Scope) -> Value:
        return FUNCTIONS[name](**arguments)

    def unary(self, op: str, x: Value) -> Value:
        return ast.UNARY[op](x) if isinstance(x, (int, float)) else _applied(BY_SYMBOL[op, 1].name, [x])

    def binary(self, node: ast.Binary, x: Value, y: Value) -> Value:
        """Evaluates a binary operator. Two numbers are combined by Python's operator, such as `*`, and two tuples are
        joined by Python's `+`.

        The operator table (operators.toml) defines the result if Python's operator raises an error, as `1 / 0` does.
        The table also defines the result if Python's result is a complex number.
        """
        if node.op == "@":
            return FUNCTIONS["matmul"](x, y, "f32")
        if isinstance(x, tuple) and isinstance(y, tuple) and node.op == "+":
            return x + y
        if not isinstance(x, (Array, tuple)) and not isinstance(y, (Array, tuple)):
            with suppress(ArithmeticError, ValueError):
                result = ast.BINARY[node.op](x, y)
                if not isinstance(result, complex):
                    return result
        return _applied(BY_SYMBOL[node.op, 2].name, [x, y])

    def compare(self, op: str, x: Value, y: Value) -> Value:
        if x is None or y is None:
            return (x is y) == (op == "==")
        if isinstance(x, Array) or isinstance(y, Array):
            return _applied(BY_SYMBOL[op, 2].name, [x, y])
        return ast.COMPARE[op](x, y)

    def subscript(self, x: Value, items: list[Value]) -> Value:
        if isinstance(x, tuple):
            return x[items[0]]
        if len(items) == 1 and isinstance(items[0], tuple) and not isinstance(items[0], ListValue):
            items = list(items[0])
        return subscript(array(x), tuple(array(i) if isinstance(i, tuple) else i for i in items))

    def attribute(self, x: Value, node: ast.Attribute) -> Value:
        if isinstance(x, Info):
            return x.facts[node.name]
        match node.name:
            case "shape" | "ndim" | "size":
                return getattr(array(x).data, node.name)
            case "dtype":
                return settled(x)
            case "T":
                return FUNCTIONS["permute_dims"](x, axes=None)
            case "mT":
                return FUNCTIONS["matrix_transpose"](x)
        raise CompileError("MT0103", f"arrays have no attribute `{node.name[:40]}`")


def _applied(name: str, args: Any) -> Value:
    """Applies an operator of the operator table, such as `add`, to values."""
    result = elementwise(name, args)
    # a number if all values are numbers
    return result.data.item() if result.weak and not any(isinstance(a, (Array, tuple)) for a in args) else result


def _clip(x: Value, low: Value = None, high: Value = None, **bounds: Value) -> Value:
    """Evaluates the function `clip`."""
    # a call can also give the bounds as the keywords `min` and `max`, as in `clip(x, min=0)`
    low, high = bounds.get("min", low), bounds.get("max", high)
    given = [v for v in (x, low, high) if v is not None]  # None means no limit
    name = "clip" if len(given) == 3 else "minimum" if low is None else "maximum"
    return _applied(name, given) if len(given) > 1 else x


def _digest(data: np.ndarray[Any, Any]) -> bytes:
    return blake2b(np.ascontiguousarray(data).tobytes(), digest_size=16).digest()


# ---- sizes of a call ------------------------------------------------------------------------


def _solve_sizes(declared: ast.ArrayType, shape: tuple[int, ...], sizes: Scope) -> None:
    """Finds the sizes of names in dimensions, such as N in `2 * N + 1`."""
    for d, extents in ast.with_sizes(declared, shape):
        nodes = list(ast.postorder(d))
        unknown = {n.id for n in nodes if isinstance(n, ast.Name) and n.id not in sizes}
        if len(unknown) == 1 and all(n.op in ("+", "-", "*") for n in nodes if isinstance(n, ast.Binary)):
            name = unknown.pop()
            # for N = 0, 1 and 2, `2 * N + 1` is 1, 3 and 5; with 9 elements, N is (9 - 1) // (3 - 1) = 4
            a, b, c = (Reference({}).expression(d, {**sizes, name: k}) for k in (0, 1, 2))
            if b - a == c - b != 0:
                sizes[name] = (extents[0] - a) // (b - a)
