"""Syntax tree → graph: names are resolved, calls inlined, everything typed.

    return relu(x @ w + b)      becomes      %2: f32[M, N] = contract %0 %1
                                             %3: f32[M, N] = view b {index = [d1]}   …

In: an `ast.Module`, the entry function, and its parameters (`Instance`). Out: a `Graph`. Expressions are folded in a
loop, so a sum of 20,000 terms needs no deep stack. Only calls of functions recurse, and they cannot be circular.

The one idea: the body of a function is evaluated with values instead of numbers, and each value is a node. The files
beside this one do the parts: names.py resolves names, expressions.py types operators, arguments.py turns the values of
a call into parameters.
"""

from __future__ import annotations

import math
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.limits import MAX_CALLS, MAX_ELEMENTS, MAX_RANK, check_time, current, exceeded
from minitri.base.operators import ALIASES, BY_SYMBOL, OPERATORS
from minitri.base.spans import Span
from minitri.base.types import ListValue, f64
from minitri.graph import expressions, parameters
from minitri.graph.arguments import array_argument, typed_arguments
from minitri.graph.functions import FUNCTIONS, reductions
from minitri.graph.indexing import EllipsisValue, SliceValue
from minitri.graph.ir import Graph, Input, Shape
from minitri.graph.names import function_names, unknown_function, value_of_name
from minitri.graph.parameters import Instance, Sizes, static
from minitri.graph.typer import Array, Scope, Typer, Value, describe
from minitri.language import ast
from minitri.language.arithmetic import CONSTANTS, UNARY
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES, Memo, bind, library_functions


def build(module: ast.Module, entry: str, instance: Instance = Instance()) -> Graph:
    """The graph of one function of a module. CompileError for every rejection."""
    function = next(f for f in module.functions if f.name == entry)
    builder = _Builder(module)
    return builder.graph(function, instance)


class _Builder:
    def __init__(self, module: ast.Module) -> None:
        self.typer = Typer()
        self.module = {f.name: f for f in module.functions}
        self.calls: list[ast.Function] = []
        self.site: Span | None = None  # the call of a library function whose body this is: errors stand there
        self.calls_made: Memo[Value] = Memo(lambda value: value)  # nodes are interned: equal ones are the same

    # ---- the entry -------------------------------------------------------------------

    def graph(self, function: ast.Function, instance: Instance) -> Graph:
        sizes = parameters.sizes_of(function, instance.packs)
        scope: Scope = {name: d for name, d in sizes.items() if isinstance(d, Dim)}
        inputs: list[Input] = []
        for param in function.params:
            try:
                scope[param.name] = self._parameter(function, param, sizes, instance, inputs)
            except CompileError as error:
                raise error.at(param.span) from None
        value = self._body(function, scope)
        results = list(value) if isinstance(value, tuple) else [value]
        parameters.require_count(function, len(results))
        outputs = [self._output(r, function, k, sizes) for k, r in enumerate(results)]
        t = self.typer
        t.span = None
        graph = Graph(function.name, tuple(inputs), tuple(outputs), tuple(dict.fromkeys(t.conditions)), t.spans)
        return graph.numbered()

    def _parameter(
        self, function: ast.Function, param: ast.Param, sizes: Sizes, instance: Instance, inputs: list[Input]
    ) -> Value:
        t = self.typer
        match param.annotation:
            case ast.ArrayType():
                type = parameters.array_type(param.annotation, sizes)
            case ast.ScalarType(kind="float"):
                node = t.nodes.input(param.name, f64, (), True)
                inputs.append(node)
                t.place(node, param.span)
                return Array(node, f64, weak=True)
            case _ if param.name in instance.statics:
                return parameters.static_argument(param, instance.statics[param.name], function)
            case ast.ScalarType():
                return self._default(param, function)
            case None if param.name in instance.types:
                type = instance.types[param.name]
            case None if param.default is not None:
                return self._default(param, function)
            case _:
                help = f'give it one (`{param.name}: "f32[M, N]"`) or call the program with arrays'
                raise CompileError("MT0106", f"the parameter `{param.name}` has no type yet", param.span, help=help)
        _check_size(type.shape, param.span)
        node = t.nodes.input(param.name, type.dtype, type.shape)
        inputs.append(node)
        array = Array(t.cast_node(node, type.dtype.compute), type.dtype)
        for made in dict.fromkeys((node, array.node)):
            t.place(made, param.span)
        return array

    def _output(self, result: Value, function: ast.Function, k: int, sizes: Sizes) -> Any:
        t = self.typer
        t.span = function.body[-1].span
        try:
            array = parameters.declared_result(t, t.strong(result), function, k, sizes)
            node = t.rounded(array)
            if node not in t.spans:
                t.place(node, function.body[-1].span)
            return node
        except CompileError as error:
            raise error.at(t.span) from None

    # ---- functions -------------------------------------------------------------------

    def _body(self, function: ast.Function, scope: Scope) -> Value:
        for statement in function.body:
            value = self._expression(statement.value, scope)
            if isinstance(statement, ast.Return):
                return value
            self._assign(statement, value, scope)
        raise AssertionError("a function ends in a return")

    def _assign(self, statement: ast.Assign, value: Value, scope: Scope) -> None:
        if len(statement.targets) == 1:
            scope[statement.targets[0].id] = value
            return
        if not isinstance(value, tuple) or len(value) != len(statement.targets):
            message = f"cannot unpack {describe(value)} into {len(statement.targets)} names"
            raise CompileError("MT0102", message, statement.span)
        for name, item in zip(statement.targets, value):
            scope[name.id] = item

    def _call_function(self, function: ast.Function, args: tuple[Value, ...], keywords: Scope, span: Span) -> Value:
        if function in self.calls:
            chain = " -> ".join(f.name for f in [*self.calls, function])
            raise CompileError("MT0105", f"{function.name} calls itself: {chain}", span)
        if len(self.calls) >= MAX_CALLS:
            raise CompileError("MT0401", f"calls are more than {MAX_CALLS} deep here", span)
        given = parameters.bind_arguments(function, args, keywords)
        return self.calls_made.once(function, given, lambda: self._inlined(function, given))

    def _inlined(self, function: ast.Function, given: Scope) -> Value:
        """The value of a function's body for these arguments."""
        sizes: Sizes = {}
        scope: Scope = {}
        typed = [p for p in function.params if isinstance(p.annotation, ast.ArrayType)]
        for param in function.params:
            if param.name in given:
                value = parameters.static_argument(param, given[param.name], function)
            else:
                value = self._default(param, function)
            scope[param.name] = array_argument(self.typer, param, value, sizes, function) if param in typed else value
        if typed:
            scope |= typed_arguments(self.typer, function, scope, sizes)  # now that every dimension is bound
        scope = {**{n: d for n, d in sizes.items() if isinstance(d, Dim)}, **scope}
        self.calls.append(function)
        value = self._body(function, scope)
        self.calls.pop()
        results = value if isinstance(value, tuple) else (value,)
        parameters.require_count(function, len(results))
        results = tuple(
            parameters.declared_result(self.typer, r, function, k, sizes) if isinstance(r, Array) else r
            for k, r in enumerate(results)
        )
        return results if isinstance(value, tuple) else results[0]

    def _call_library(self, function: ast.Function, args: tuple[Value, ...], keywords: Scope, span: Span) -> Value:
        """A library function calls its own kind, whatever the module defines under those names."""
        before = self.module, self.site
        self.module, self.site = {}, self.site or span
        try:
            return self._call_function(function, args, keywords, span)
        finally:
            self.module, self.site = before

    def _default(self, param: ast.Param, function: ast.Function) -> Value:
        if param.default is None:
            raise CompileError("MT0102", f"{function.name} needs its argument `{param.name}`")
        try:
            return parameters.static_argument(param, self._expression(param.default, {}), function)
        except CompileError as error:
            raise error.at(param.default.span) from None

    # ---- expressions -----------------------------------------------------------------

    def _expression(self, root: ast.Expr, scope: Scope) -> Value:
        """Folds a tree bottom up; the value of each node by identity."""
        values: dict[int, Any] = {}
        for node in ast.postorder(root, lambda c: _holds(c, values[id(c.test)])):
            here = self.typer.span = self.site or node.span
            check_time()
            made = len(self.typer.nodes.made)
            try:
                values[id(node)] = self._node(node, values, scope, root)
            except CompileError as error:
                raise error.at(here) from None
            self._place(made, values[id(node)], node.span)
        return values[id(root)]

    def _place(self, made: int, value: Value, span: Span) -> None:
        """Nodes made since come from this span, and a node that was there before if it is the value. What
        a function made has its place in the function first, then that of the call."""
        nodes = self.typer.nodes.made
        if len(nodes) > (limit := current().operations):
            raise exceeded("operations", f"the program has more than {limit:,} operations", span)
        for node in nodes[made:]:
            _check_size(node.shape, span)
        came = nodes[made:]
        if isinstance(value, Array) and span not in self.typer.spans.get(value.node, ()):
            came = dict.fromkeys((*came, value.node))
        for node in came:
            self.typer.place(node, span)

    def _node(self, node: ast.Node, values: dict[int, Any], scope: Scope, root: ast.Expr) -> Any:
        def of(child: ast.Node | None) -> Any:
            return None if child is None else values[id(child)]

        match node:
            case ast.Number() | ast.String():
                return node.value
            case ast.NoneLiteral():
                return None
            case ast.EllipsisLiteral():
                return EllipsisValue()
            case ast.Name():
                return scope[node.id] if node.id in scope else value_of_name(node, self.module, scope, root)
            case ast.List():
                return ListValue(of(e) for e in node.elements)
            case ast.Tuple():
                return expressions.bounded(tuple(of(e) for e in node.elements))
            case ast.Unary():
                return _unary(self.typer, node.op, of(node.operand))
            case ast.Binary():
                self.typer.operands = _written(node.left), _written(node.right)
                return _binary(self.typer, node.op, of(node.left), of(node.right))
            case ast.Compare():
                return expressions.compare(self.typer, node.op, of(node.left), of(node.right))
            case ast.Conditional():
                return of(node.body if id(node.body) in values else node.orelse)
            case ast.Slice():
                return SliceValue(of(node.start), of(node.stop), of(node.step))
            case ast.Subscript():
                return expressions.subscript(self.typer, of(node.value), [of(i) for i in node.indices])
            case ast.Attribute():
                return expressions.attribute(self.typer, of(node.value), node.name)
            case ast.Call():
                keywords = {name: of(value) for name, value in node.keywords}
                return self._call(node, tuple(of(a) for a in node.args), keywords, scope)
            case _:
                raise AssertionError(f"no rule for {type(node).__name__}")

    def _call(self, node: ast.Call, args: tuple[Value, ...], keywords: Scope, scope: Scope) -> Value:
        name, span = node.function, node.span
        if name in self.module:
            return self._call_function(self.module[name], args, keywords, span)
        plain = ALIASES.get(name, FUNCTION_ALIASES.get(name, name))
        if plain in OPERATORS:
            return _operator_call(self.typer, plain, args, keywords)
        if plain in SIGNATURES:
            return FUNCTIONS[plain](self.typer, **bind(plain, args, keywords))
        if plain in library_functions():
            return self._call_library(library_functions()[plain], args, keywords, span)
        if name in scope or name in CONSTANTS:
            help = "an element is `x[0]`, a product `x * y`"
            raise CompileError("MT0101", f"`{name[:40]}` is a value, not a function", help=help)
        raise unknown_function(node, self.module, function_names())


def _holds(node: ast.Conditional, test: Value) -> bool:
    """Whether `a if c else b` is a."""
    if isinstance(test, (Array, Dim)):
        help = "for arrays and sizes write where(condition, a, b)"
        raise CompileError("MT0106", "the condition of if … else must be known now", node.span, help=help)
    return bool(test)


def _check_size(shape: Shape, span: Span) -> None:
    """What has more axes or elements than numpy can number is refused before sizes are asked for."""
    if len(shape) > MAX_RANK:
        message = f"this has {len(shape)} axes, the limit is {MAX_RANK}"
        raise CompileError("MT0401", message, span, help="reshape it to fewer axes")
    known = [e.constant for e in shape if e.constant is not None]
    if max(known, default=0) > MAX_ELEMENTS or 0 not in known and math.prod(known) > MAX_ELEMENTS:
        raise CompileError("MT0401", "this has more elements than 64 bits can number", span, help="take smaller sizes")


def _written(node: ast.Expr) -> str:
    """An operand as the source has it, for messages; long ones are named by their place."""
    text = node.span.text
    return text if len(text) <= 24 and "\n" not in text else f"`{text[:20]}…`".replace("\n", " ")


def _unary(t: Typer, op: str, x: Value) -> Value:
    """`-x`, `+x`, `~x`."""
    if isinstance(x, (int, float, Dim)) and not (op == "~" and not isinstance(x, int)):
        return static(lambda: UNARY[op](x))
    return t.elementwise(BY_SYMBOL[op, 1].name, [x])


def _binary(t: Typer, op: str, x: Value, y: Value) -> Value:
    """`x op y`."""
    if op == "@":
        return reductions.matmul(t, x, y, "ieee")
    if isinstance(x, Array) or isinstance(y, Array):
        return t.elementwise(BY_SYMBOL[op, 2].name, [x, y])
    return expressions.binary(t, op, x, y)


def _operator_call(t: Typer, name: str, args: tuple[Value, ...], keywords: Scope) -> Value:
    """An elementwise operator called by its name: `exp(x)`, `clip(x, 0, 1)`."""
    if name != "clip" and not keywords and any(isinstance(a, Array) for a in args):
        return t.elementwise(name, args)
    return expressions.operator_call(t, name, args, keywords)
