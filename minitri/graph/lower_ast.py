"""Builds the graph from the syntax tree: resolves names, inlines calls and finds the type of every expression.

    return relu(x @ w + b)      becomes      %2: f32[M, N] = contract %0 %1
                                             %3: f32[M, N] = view b {index = [d1]}   …

The function `build` takes an `ast.Module`, the name of the entry function, and an `Instance`. It returns a `Graph`. An
`Instance` has facts that come from the arguments of a call, such as the dtypes of parameters. The builder (class
`_Builder`) recurses only for calls of functions, at most `MAX_CALLS` deep.

The one idea: the builder is an interpreter of the program (minitri/language/interpreter_base.py), but every array is a
graph node instead of data. Other files do parts of the builder's work: unknown_names.py explains unknown names, and
partial_evaluation.py evaluates operators. The file shape_unification.py gives the arguments of a call the sizes that
the parameters declare. After an error, the builder goes on with the next expression. After the last expression, the
builder raises the error that comes first in the program text. A wrong expression has the value `BROKEN`. An expression
that uses a `BROKEN` value has the value `BROKEN` too. Thanks to the value `BROKEN`, the builder finds mistakes after
the first wrong expression too, and reports each mistake only once.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from minitri.base.diagnostics import CompileError, together
from minitri.base.dims import Dim
from minitri.base.operators import BY_SYMBOL
from minitri.base.resource_limits import MAX_CALLS, MAX_ELEMENTS, MAX_RANK, check_limit, check_time
from minitri.base.spans import Span
from minitri.base.types import ArrayType, f64, items_of
from minitri.graph import parameter_binding, partial_evaluation
from minitri.graph.corrections import correct
from minitri.graph.functions import FUNCTIONS
from minitri.graph.ir import Graph, Input, Shape
from minitri.graph.parameter_binding import Instance, Sizes, static
from minitri.graph.shape_unification import array_argument, typed_arguments
from minitri.graph.typing_rules import Array, Scope, Strong, Typer, Value, describe, ensure
from minitri.graph.unknown_names import is_method, unknown_function, unknown_name
from minitri.language import ast, syntax_repairs
from minitri.language.interpreter_base import Interpreter
from minitri.language.signatures import bind, function_names, signature_of

BROKEN: Any = object()
MOST_ERRORS = 20


def build(module: ast.Module, entry: str, instance: Instance = Instance()) -> Graph:
    """Returns the graph of one function of a module. Raises CompileError if the program is invalid."""
    function = next(f for f in module.functions if f.name == entry)
    return _Builder(module, entry).graph(function, instance)


def errors_in(module: ast.Module) -> list[CompileError]:
    """Returns the errors that the builder finds in the last function of a module.

    A parameter without a type is no error. A parameter without a type has the value `BROKEN`, so that expressions with
    this parameter cause no error.
    """
    builder = _Builder(module, module.functions[-1].name)
    builder.errors.append(CompileError("MT0106", "some types are not known yet"))
    with suppress(CompileError):
        builder.graph(module.functions[-1], Instance())
    return builder.errors[1:]


syntax_repairs.errors_in = errors_in


def default(function: ast.Function, param: ast.Param) -> Value:
    """Returns the value of a parameter's default. Raises CompileError for a default that the parameter cannot take."""
    module = ast.Module(function.span, function.span.source, (function,))
    return _Builder(module, function.name).default(param, function)


class _Builder(Interpreter):
    """An interpreter whose arrays are graph nodes."""

    def __init__(self, module: ast.Module, entry: str) -> None:
        super().__init__({f.name: f for f in module.functions})
        self.typer, self.entry = Typer(), entry
        self.inputs: list[Input] = []
        # The interpreter goes on after an error, so that it reports several mistakes: after `y = x + 1 / z` without a
        # `z`, y is BROKEN, and no further error is reported for a product with y.
        self.errors: list[CompileError] = []
        self.calls: list[tuple[ast.Function, Span]] = []  # the calls that are being inlined, with their spans
        self.compare = partial(partial_evaluation.compare, self.typer)
        self.subscript = partial(partial_evaluation.subscript, self.typer)
        self.attribute = partial(partial_evaluation.attribute, self.typer)

    # ---- the entry -------------------------------------------------------------------

    def graph(self, function: ast.Function, instance: Instance) -> Graph:
        sizes = parameter_binding.sizes_of(function, instance.packs)
        scope: Scope = {name: d for name, d in sizes.items() if isinstance(d, Dim)}
        for param in function.params:
            try:
                scope[param.name] = self._parameter(function, param, sizes, instance)
            except CompileError as error:
                raise error.at(param.span) from None
        value = self.body(function, scope)
        if self.errors:
            raise together(self.errors)
        results = items_of(value)
        parameter_binding.require_count(function, len(results))
        outputs = [self._output(r, function, k, sizes) for k, r in enumerate(results)]
        t = self.typer
        t.span = None
        graph = Graph(function.name, tuple(self.inputs), tuple(outputs), tuple(dict.fromkeys(t.conditions)), t.spans)
        return graph.numbered()

    def _parameter(self, function: ast.Function, param: ast.Param, sizes: Sizes, instance: Instance) -> Value:
        t = self.typer
        match param.annotation:
            case ast.ArrayType():
                type = parameter_binding.array_type(param.annotation, sizes)
            case ast.ScalarType(kind="float"):
                type = ArrayType(f64, ())
            case _ if param.name in instance.statics:
                return parameter_binding.static_argument(param, instance.statics[param.name], function)
            case None if param.name in instance.types:
                type = instance.types[param.name]
            case ast.ScalarType() | None if param.annotation or param.default:
                return self.default(param, function)
            case _ if self.errors:
                return BROKEN
            case _:
                help = f'give it one (`{param.name}: "f32[M, N]"`) or call the program with arrays'
                raise CompileError("MT0106", f"the parameter `{param.name}` has no type yet", param.span, help=help)
        _check_size(type.shape, param.span)
        is_float = isinstance(param.annotation, ast.ScalarType)
        node = t.nodes.input(param.name, type.dtype, type.shape, scalar=is_float)
        self.inputs.append(node)
        array = Array(t.nodes.cast(node, type.dtype.compute), type.dtype, weak=is_float)
        for made in dict.fromkeys((node, array.node)):
            t.place(made, param.span)
        return array

    def _output(self, result: Value, function: ast.Function, k: int, sizes: Sizes) -> Any:
        t = self.typer
        t.span = function.body[-1].span
        try:
            array = parameter_binding.declared_result(t, function, sizes, k, t.strong(result))
            if (node := t.rounded(array)) not in t.spans:
                t.place(node, function.body[-1].span)
            return node
        except CompileError as error:
            raise error.at(t.span) from None

    # ---- functions -------------------------------------------------------------------

    def unpacked(self, statement: ast.Assign, value: Value) -> Sequence[Value]:
        if isinstance(value, tuple) and len(value) == len(statement.targets):
            return value
        if value is not BROKEN:
            message = f"cannot unpack {describe(value)} into {len(statement.targets)} names"
            self.refuse(CompileError("MT0102", message), statement, {id(statement.value): value})
        return (BROKEN,) * len(statement.targets)

    def called(self, function: ast.Function, args: tuple[Value, ...], keywords: Scope, span: Span) -> Value:
        callers = [f for f, _ in self.calls]
        if function in callers:
            chain = " -> ".join(f.name for f in [*callers, function])
            raise CompileError("MT0105", f"{function.name} calls itself: {chain}", span)
        ensure(len(self.calls) < MAX_CALLS, "MT0401", f"calls are more than {MAX_CALLS} deep here", span=span)
        given = bind(function.name, signature_of(function), args, keywords)
        # A call with the same arguments gets the stored result, because nodes with equal fields are one object.
        return self.once(function, given, lambda: self._inlined(function, given, span))

    def _inlined(self, function: ast.Function, given: Scope, span: Span) -> Value:
        """Adds the body of a called function to the graph, and returns the result of the function."""
        sizes: Sizes = {}
        scope: Scope = {}
        for param in function.params:
            if param.name in given:
                value = parameter_binding.static_argument(param, given[param.name], function)
            else:
                value = self.default(param, function)
            is_array = isinstance(param.annotation, ast.ArrayType)
            scope[param.name] = array_argument(self.typer, param, value, sizes, function) if is_array else value
        if any(isinstance(p.annotation, ast.ArrayType) for p in function.params):
            scope |= typed_arguments(self.typer, function, scope, sizes)  # now that every dimension is bound
        scope = {**{n: d for n, d in sizes.items() if isinstance(d, Dim)}, **scope}
        self.calls.append((function, span))
        try:
            value = self.body(function, scope)
        finally:
            self.calls.pop()
        if value is BROKEN:
            return value
        results = items_of(value)
        parameter_binding.require_count(function, len(results))
        typed_result = partial(parameter_binding.declared_result, self.typer, function, sizes)
        results = tuple(typed_result(k, r) if isinstance(r, Array) else r for k, r in enumerate(results))
        return results if isinstance(value, tuple) else results[0]

    def default(self, param: ast.Param, function: ast.Function) -> Value:
        if param.default is None:
            raise CompileError("MT0102", f"{function.name} needs its argument `{param.name}`")
        if (value := self.expression(param.default, {})) is BROKEN:
            raise together(self.errors)
        try:
            return parameter_binding.static_argument(param, value, function)
        except CompileError as error:
            raise error.at(param.default.span) from None

    # ---- expressions -----------------------------------------------------------------

    def evaluated(self, node: ast.Node, values: dict[int, Any], scope: Scope, root: ast.Node) -> Value:
        self.typer.span = self.site or node.span
        check_time()
        named = scope.get(node.function) if isinstance(node, ast.Call) else None
        if self.errors and BROKEN in (named, *(values.get(id(child)) for child in ast.children(node))):
            return self.broken(node, values, scope, root)
        made = len(self.typer.nodes.made)
        try:
            value = super().evaluated(node, values, scope, root)
            if isinstance(node, ast.Tuple):
                partial_evaluation.check_length(value)
        except CompileError as error:
            value = self.refuse(error, node, values)
        self._place(made, value, node.span)
        return value

    def holds(self, node: ast.Conditional, values: dict[int, Any]) -> bool:
        test = values[id(node.test)]
        if not isinstance(test, (Array, Dim)):
            return bool(test)
        help = "for arrays and sizes write where(condition, a, b)"
        error = CompileError("MT0106", "the condition of if … else must be known now", help=help)
        values[id(node.test)] = self.refuse(error, node, values)
        return True

    def _place(self, made: int, value: Value, span: Span) -> None:
        """Adds the source range of an expression to the nodes that the expression created."""
        nodes = self.typer.nodes.made
        check_limit("operations", len(nodes), "the program has more than {limit:,} operations", self.site or span)
        # `made` nodes existed before the expression was evaluated. A node that was created in the body of a called
        # function has several spans: first the expression in the body, later the call.
        placed = dict.fromkeys(nodes[made:])
        if isinstance(value, Array) and span not in self.typer.spans.get(value.node, ()):
            placed[value.node] = None
        for node in placed:
            _check_size(node.shape, self.site or span)
            self.typer.place(node, span)

    def unknown(self, node: ast.Name | ast.Call, scope: Scope, root: Any) -> CompileError:
        if isinstance(node, ast.Name):
            return unknown_name(node, root, scope, self.functions)
        if (node.function in scope or node.function in ast.CONSTANTS) and not is_method(node):
            help = "an element is `x[0]`, a product `x * y`"
            return CompileError("MT0101", f"`{node.function[:40]}` is a value, not a function", help=help)
        own = self.functions.keys() - {self.entry}  # the entry function cannot call itself
        return unknown_function(node, own, function_names(), root)

    # ---- operators -------------------------------------------------------------------

    def unary(self, op: str, x: Value) -> Value:
        if isinstance(x, (int, float, Dim)) and not (op == "~" and not isinstance(x, int)):
            return static(lambda: ast.UNARY[op](x))
        return self.typer.elementwise(BY_SYMBOL[op, 1].name, [x])

    def binary(self, node: ast.Binary, x: Value, y: Value) -> Value:
        if node.op == "@":
            self.typer.operands = _written(node.left), _written(node.right)
            return self.structured("matmul", {"a": x, "b": y, "precision": "f32"})
        if isinstance(x, Array) or isinstance(y, Array):
            return self.typer.elementwise(BY_SYMBOL[node.op, 2].name, [x, y])
        return partial_evaluation.binary(self.typer, node.op, x, y)

    def operator(self, name: str, args: tuple[Value, ...], keywords: Scope) -> Value:
        if name != "clip" and not keywords and any(isinstance(a, Array) for a in args):
            return self.typer.elementwise(name, args)
        return partial_evaluation.operator_call(self.typer, name, args, keywords)

    def structured(self, name: str, arguments: Scope) -> Value:
        """Calls a function of the language that is not elementwise.

        If a parameter has the annotation `Array` or `Strong`, the method converts the argument to this type.
        """
        function = FUNCTIONS[name]
        kinds = (function.func if isinstance(function, partial) else function).__annotations__
        convert = {Array: self.typer.array, Strong: self.typer.strong}
        given = {p: convert[kinds[p]](v) if kinds[p] in convert else v for p, v in arguments.items()}
        return function(self.typer, **given)

    # ---- errors ----------------------------------------------------------------------

    def refuse(self, error: CompileError, node: ast.Node, values: dict[int, Any]) -> Any:
        """Stores an error and returns `BROKEN`, the value of the wrong expression.

        An error inside a library function is raised again with the span of the user's call. Outside of the library
        function, the builder catches and stores the raised error.
        """
        if self.site is not None:
            error.notes = error.notes or (f"in `{_short(node.span)}` at {node.span}",)
            raise error.at(self.site)
        correct(error.at(node.span), node, values)
        if self.calls and error.code != "MT0105":
            call = self.calls[-1][1]
            error.notes = (f"called at {call}: `{_short(call)}`",)
        if error.code == "MT0401":
            raise error
        if (error.span, error.message) not in [(e.span, e.message) for e in self.errors]:
            self.errors.append(error)
        if len(self.errors) == MOST_ERRORS:
            raise together(self.errors)
        return BROKEN

    def broken(self, node: ast.Node, values: dict[int, Any], scope: Scope, root: Any) -> Any:
        """Returns `BROKEN` for an expression that has `BROKEN` as an operand.

        An unknown function name is reported even if the call also has a wrong operand.
        """
        if not isinstance(node, ast.Call) or node.function in {*scope, *self.functions, *function_names()}:
            return BROKEN
        of_library = is_method(node) and node.args[0].span.text.split(".")[0] not in scope  # `np.random.foo()`
        if of_library or any(isinstance(a, ast.Name) and a.id in function_names() for a in node.args):
            return BROKEN
        return self.refuse(unknown_function(node, self.functions, function_names(), root), node, values)


def _check_size(shape: Shape, span: Span) -> None:
    """Raises an error if an array has more axes or elements than numpy supports."""
    message = f"this has {len(shape)} axes, the limit is {MAX_RANK}"
    ensure(len(shape) <= MAX_RANK, "MT0401", message, "reshape it to fewer axes", span)
    known = [e.constant for e in shape if e.constant is not None]  # unknown sizes are ignored
    fits = max(known, default=0) <= MAX_ELEMENTS and (0 in known or math.prod(known) <= MAX_ELEMENTS)
    ensure(fits, "MT0401", "this has more elements than 64 bits can number", "take smaller sizes", span)


def _written(node: ast.Expr) -> str:
    """Returns the source text of an operand for error messages, cut if long."""
    text = node.span.text
    return text if len(text) <= 24 and "\n" not in text else f"`{text[:20]}…`".replace("\n", " ")


def _short(span: Span) -> str:
    """Returns a part of the source as one line of text, cut if long."""
    text = " ".join(span.text.split())
    return text if len(text) <= 60 else f"{text[:57]}…"
