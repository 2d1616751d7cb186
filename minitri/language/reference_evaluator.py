"""The reference: a syntax tree evaluated by numpy, node by node. This defines the language.

In: a module, the name of its entry, numpy arrays and numbers for the parameters, and the
size of each dimension. Out: one numpy array for each output. The one idea: values are numpy
arrays and plain numbers. There is no typing pass, no graph and no shape arithmetic. So a
mistake in the compiler shows as a difference from this file.

    relu(x @ w + b)     →     Array(f32 data), by  x @ w,  + b,  the body of relu

Left out: checks that need no sizes (the graph builder makes them first, with good messages).
Expressions of any depth are fine; only calls of functions recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from minitri.base import numpy_semantics
from minitri.base.diagnostics import CompileError
from minitri.base.dtype_facts import Info
from minitri.base.operators import ALIASES, BY_SYMBOL, OPERATORS
from minitri.base.types import DTYPES, ListValue, from_numpy
from minitri.language import ast, reference_functions, reference_views
from minitri.language.constant_arithmetic import BINARY, COMPARE, CONSTANTS, UNARY
from minitri.language.reference_arrays import Array, Value, array, elementwise, rounded, settled, strong
from minitri.language.reference_functions import subscript
from minitri.language.signatures import FUNCTION_ALIASES, KEYWORD_ALIASES, SIGNATURES, Memo, bind, library_functions

NAMES: tuple[Scope, ...] = (CONSTANTS, DTYPES, {"newaxis": None})
FUNCTIONS = {**reference_functions.FUNCTIONS, **reference_views.FUNCTIONS}
SCALARS: dict[str, Callable[[Any], Any]] = {"float": float, "int": int, "bool": bool}
Scope = dict[str, Value]


def evaluate(
    module: ast.Module,
    entry: str,
    arguments: Mapping[str, Any],
    sizes: Mapping[str, int],
    packs: Mapping[str, tuple[int, ...]] = {},
) -> tuple[Any, ...]:
    """The outputs of a function. `packs` gives the sizes that each `*B` stands for."""
    calls = Calls({f.name: f for f in module.functions})
    function = calls.functions[entry]
    scope: Scope = dict(sizes)
    with np.errstate(all="ignore"):
        for param in function.params:
            if param.name in arguments:
                scope[param.name] = _entered(param, arguments[param.name], sizes, packs)
            else:
                scope[param.name] = _default(param)
        result = _body(function, scope, calls)
        results = [strong(r) for r in (result if isinstance(result, tuple) else (result,))]
        return tuple(np.asarray(numpy_semantics.cast(r.data, r.dtype)) for r in results)


def _entered(param: ast.Param, given: Any, sizes: Mapping[str, int], packs: Mapping[str, tuple[int, ...]]) -> Value:
    """An argument from outside, checked against the annotation."""
    declared = param.annotation
    if isinstance(declared, ast.ScalarType):
        return SCALARS[declared.kind](given)
    if declared is None and not isinstance(given, (np.ndarray, np.generic)):
        return given
    data = np.asarray(given)
    dtype = from_numpy(data.dtype.name)
    if dtype is None or (declared and dtype.name != declared.dtype):
        raise CompileError("MT0303", f"`{param.name}` has the dtype {data.dtype}", param.span)
    if declared and data.shape != extents(declared, sizes, packs):
        raise CompileError("MT0304", f"`{param.name}` has the shape {data.shape}", param.span)
    return Array(numpy_semantics.cast(data, dtype.compute), dtype)


def extents(type: ast.ArrayType, sizes: Mapping[str, int], packs: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of a type, for sizes and the shapes of packs by name."""
    shape: list[int] = []
    for d in type.dims:
        shape += packs[d.id] if isinstance(d, ast.Pack) else [_expression(d, dict(sizes), Calls({}))]
    return tuple(shape)


# ---- functions -------------------------------------------------------------------------


def _body(function: ast.Function, scope: Scope, calls: Calls) -> Value:
    for statement in function.body:
        value = _expression(statement.value, scope, calls)
        if isinstance(statement, ast.Return):
            return value
        if len(statement.targets) == 1:
            value = (value,)
        scope.update((target.id, item) for target, item in zip(statement.targets, value, strict=True))
    raise AssertionError("a function ends in a return")


def _call_function(function: ast.Function, args: tuple[Value, ...], keywords: Scope, calls: Calls) -> Value:
    names = [p.name for p in function.params]
    given = dict(zip(names, args)) | {k if k in names else KEYWORD_ALIASES[k]: v for k, v in keywords.items()}
    return calls.once(function, given, lambda: _inlined(function, given, calls))


def _inlined(function: ast.Function, given: Scope, calls: Calls) -> Value:
    """The value of a function's body for these arguments."""
    sizes: Scope = {}
    scope: Scope = {}
    for param in function.params:
        value = given[param.name] if param.name in given else _default(param)
        if isinstance(param.annotation, ast.ArrayType):
            value = rounded(value, DTYPES[param.annotation.dtype]) if array(value).weak else array(value)
            _bind_sizes(param.annotation, value.data.shape, sizes)
        scope[param.name] = value
    for param in function.params:
        if isinstance(param.annotation, ast.ArrayType):
            _solve_sizes(param.annotation, scope[param.name].data.shape, sizes)
    return _body(function, sizes | scope, calls)


def _default(param: ast.Param) -> Value:
    if param.default is None:
        raise CompileError("MT0102", f"the parameter `{param.name}` needs a value", param.span)
    return _expression(param.default, {}, Calls({}))


def _bind_sizes(declared: ast.ArrayType, shape: tuple[int, ...], sizes: Scope) -> None:
    for d, extents in ast.with_sizes(declared, shape):
        if isinstance(d, ast.Name):
            sizes.setdefault(d.id, extents[0])


def _solve_sizes(declared: ast.ArrayType, shape: tuple[int, ...], sizes: Scope) -> None:
    """Solves for names that occur only in dimensions such as `2 * N + 1`. It fits a straight line through three points."""
    for d, extents in ast.with_sizes(declared, shape):
        nodes = list(ast.postorder(d))
        unknown = {n.id for n in nodes if isinstance(n, ast.Name) and n.id not in sizes}
        if len(unknown) == 1 and all(n.op in ("+", "-", "*") for n in nodes if isinstance(n, ast.Binary)):
            name = unknown.pop()
            a, b, c = (_expression(d, {**sizes, name: k}, Calls({})) for k in (0, 1, 2))
            if b - a == c - b != 0:
                sizes[name] = (extents[0] - a) // (b - a)


# ---- expressions -----------------------------------------------------------------------


def _expression(root: ast.Node, scope: Scope, calls: Calls) -> Value:
    """Evaluates bottom up. Each value is dropped after its use."""
    values: dict[int, Value] = {}
    for node in ast.postorder(root, lambda c: bool(values[id(c.test)])):
        try:
            values[id(node)] = _node(node, values, scope, calls)
        except CompileError as error:
            raise error.at(node.span) from None
        except (ValueError, TypeError, IndexError, ArithmeticError) as error:
            message = f"numpy refuses this at these sizes: {str(error)[:80]}"
            raise CompileError("MT0306", message, node.span) from None
    return values[id(root)]


def _node(node: ast.Node, values: dict[int, Value], scope: Scope, calls: Calls) -> Value:
    def of(child: ast.Node | None) -> Value:
        return None if child is None else values.pop(id(child))

    match node:
        case ast.Number() | ast.String():
            return node.value
        case ast.NoneLiteral():
            return None
        case ast.EllipsisLiteral():
            return Ellipsis
        case ast.Name():
            return _name(node.id, scope)
        case ast.List():
            return ListValue(of(e) for e in node.elements)
        case ast.Tuple():
            return tuple(of(e) for e in node.elements)
        case ast.Unary():
            return _unary(node.op, of(node.operand))
        case ast.Binary():
            return _binary(node.op, of(node.left), of(node.right))
        case ast.Compare():
            return _compare(node.op, of(node.left), of(node.right))
        case ast.Conditional():
            return of(node.body if id(node.body) in values else node.orelse)
        case ast.Slice():
            return slice(of(node.start), of(node.stop), of(node.step))
        case ast.Subscript():
            return _subscript(of(node.value), tuple(of(i) for i in node.indices))
        case ast.Attribute():
            return _attribute(of(node.value), node.name)
        case ast.Call():
            args = tuple(of(a) for a in node.args)
            return _call(node.function, args, {k: of(v) for k, v in node.keywords}, calls)
    raise AssertionError(f"no rule for {type(node).__name__}")


def _name(name: str, scope: Scope) -> Value:
    for names in (scope, *NAMES):
        if name in names:
            return names[name]
    raise CompileError("MT0101", f"there is no `{name[:40]}` here")


def _subscript(x: Value, items: tuple[Any, ...]) -> Value:
    if isinstance(x, tuple):
        return x[items[0]]
    if len(items) == 1 and isinstance(items[0], tuple) and not isinstance(items[0], ListValue):
        items = items[0]
    return subscript(array(x), tuple(array(i) if isinstance(i, tuple) else i for i in items))


def _attribute(x: Value, name: str) -> Value:
    if isinstance(x, Info):
        return x.facts[name]
    data = array(x).data
    match name:
        case "shape":
            return data.shape
        case "ndim":
            return data.ndim
        case "size":
            return data.size
        case "dtype":
            return settled(x)
        case "T":
            return FUNCTIONS["permute_dims"](x, axes=None)
        case "mT":
            return FUNCTIONS["matrix_transpose"](x)
    raise CompileError("MT0103", f"arrays have no attribute `{name[:40]}`")


def _call(name: str, args: tuple[Value, ...], keywords: Scope, calls: Calls) -> Value:
    if name in calls.functions:
        return _call_function(calls.functions[name], args, keywords, calls)
    name = ALIASES.get(name, FUNCTION_ALIASES.get(name, name))
    if name == "clip":
        return _clip(*args, **keywords)
    if name in OPERATORS:
        return _operator(name, args)
    if name in SIGNATURES:
        return FUNCTIONS[name](**bind(name, args, keywords))
    if name in library_functions():  # whose own calls do not see the module's functions
        return _call_function(library_functions()[name], args, keywords, calls.for_library())
    raise CompileError("MT0101", f"there is no function `{name[:40]}`")


def _clip(x: Value, low: Value = None, high: Value = None, **bounds: Value) -> Value:
    """Either bound may be None, or be called `min` or `max`."""
    low, high = bounds.get("min", low), bounds.get("max", high)
    given = [v for v in (x, low, high) if v is not None]
    name = "clip" if len(given) == 3 else "minimum" if low is None else "maximum"
    return _operator(name, given) if len(given) > 1 else x


# ---- operators -------------------------------------------------------------------------


def _operator(name: str, args: Any) -> Value:
    """Applies an operator of the table. Numbers alone give a number."""
    result = elementwise(name, args)
    return result.data.item() if result.weak and not any(isinstance(a, (Array, tuple)) for a in args) else result


def _unary(op: str, x: Value) -> Value:
    return UNARY[op](x) if isinstance(x, (int, float)) else _operator(BY_SYMBOL[op, 1].name, [x])


def _binary(op: str, x: Value, y: Value) -> Value:
    """Python's arithmetic for numbers and for two tuples. The operator table's where Python raises or gives a complex number."""
    if op == "@":
        return FUNCTIONS["matmul"](x, y, "f32")
    if isinstance(x, tuple) and isinstance(y, tuple) and op == "+":
        return x + y
    if not isinstance(x, (Array, tuple)) and not isinstance(y, (Array, tuple)):
        try:
            result = BINARY[op](x, y)
            if not isinstance(result, complex):
                return result
        except (ArithmeticError, ValueError):
            pass
    return _operator(BY_SYMBOL[op, 2].name, [x, y])


def _compare(op: str, x: Value, y: Value) -> Value:
    if x is None or y is None:
        return (x is y) == (op == "==")
    if isinstance(x, Array) or isinstance(y, Array):
        return _operator(BY_SYMBOL[op, 2].name, [x, y])
    return COMPARE[op](x, y)


# ---- calls: a function calls another one once for equal arguments -------------------------------


class Calls:
    """The functions that a program can call, and the results of earlier calls.

    Results of functions that call no other function are not kept: they would only take memory. Two arrays count as the
    same argument if their contents are equal. A digest of the contents decides.
    """

    def __init__(self, functions: Mapping[str, ast.Function]) -> None:
        self.functions = functions
        self._results: Memo[Value] = Memo(_contents)
        self._outer: dict[ast.Function, bool] = {}

    def for_library(self) -> Calls:
        """The calls inside a library function, which does not see the module's functions."""
        return Calls({}) if self.functions else self

    def once(self, function: ast.Function, arguments: Mapping[str, Value], make: Callable[[], Value]) -> Value:
        """The result of an earlier equal call, or else of `make()`."""
        return self._results.once(function, arguments, make) if self._calls_others(function) else make()

    def _calls_others(self, function: ast.Function) -> bool:
        if function not in self._outer:
            called = {n.function for s in function.body for n in ast.postorder(s) if isinstance(n, ast.Call)}
            self._outer[function] = not called.isdisjoint({*self.functions, *library_functions()})
        return self._outer[function]


def _contents(value: Value) -> Hashable:
    if not isinstance(value, Array):
        return value
    wide = None if value.wide is None else _digest(value.wide)
    return value.dtype.name, value.weak, value.data.shape, _digest(value.data), wide


def _digest(data: np.ndarray[Any, Any]) -> bytes:
    return blake2b(np.ascontiguousarray(data).tobytes(), digest_size=16).digest()
