"""Syntax tree → graph: names are resolved, calls inlined, everything typed.

In: an `ast.Module`, the entry function, and what its parameters are (`Instance`). Out: a
`Graph`. The fold is iterative over expressions (a 20,000-term sum is no deeper than a
one-term one) and recursive only over calls of functions, which cannot be circular.

    return relu(x @ w + b)      becomes      %2: f32[M, N] = contract %0 %1
                                             %3: f32[M, N] = view b {index = [d1]}   …
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from minitri.base import dims
from minitri.base.diagnostics import CompileError, Span, listed, suggest
from minitri.base.dims import Dim
from minitri.base.limits import MAX_CALLS, MAX_ELEMENTS, MAX_RANK, check_time, current, exceeded
from minitri.base.operators import ALIASES, BY_SYMBOL, OPERATORS
from minitri.base.types import DTYPES, ArrayType, DType, Info, ListValue, f64
from minitri.graph import indexing
from minitri.graph.compile_time_numbers import (
    COMPARE,
    NUMBERS,
    UNARY,
    decide,
    fold_numbers,
    fold_operator,
    plain,
    static,
)
from minitri.graph.functions import FUNCTIONS, contractions, views
from minitri.graph.functions.registry import view
from minitri.graph.indexing import EllipsisValue, SliceValue
from minitri.graph.ir import Graph, Input, Shape, axis
from minitri.graph.parameters import Instance, Sizes, array_type, match_sizes, sizes_of, solve_sizes, unbound
from minitri.graph.typer import Array, Power, Typer, Value, as_int, describe, names_in
from minitri.graph.unknown_names import unknown_attribute, unknown_function, unknown_name
from minitri.language import ast, library
from minitri.language.memo import Memo
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES, bind

CONSTANTS: dict[str, float] = {
    "inf": float("inf"), "nan": float("nan"), "pi": 3.141592653589793, "e": 2.718281828459045,
}  # fmt: skip
ATTRIBUTES = ("T", "mT", "shape", "ndim", "size", "dtype")


def build(module: ast.Module, entry: str, instance: Instance = Instance()) -> Graph:
    """The graph of one function of a module. CompileError for every rejection."""
    function = next(f for f in module.functions if f.name == entry)
    builder = _Builder(module)
    return builder.graph(function, instance)


Scope = dict[str, Value]


class _Builder:
    def __init__(self, module: ast.Module) -> None:
        self.typer = Typer()
        self.module = {f.name: f for f in module.functions}
        self.calls: list[ast.Function] = []
        self.site: Span | None = None  # the call of a library function whose body this is: errors stand there
        self.calls_made: Memo[Value] = Memo(lambda value: value)  # nodes are interned: equal ones are the same

    # ---- the entry -------------------------------------------------------------------

    def graph(self, function: ast.Function, instance: Instance) -> Graph:
        sizes = sizes_of(function, instance.packs)
        scope: Scope = {name: d for name, d in sizes.items() if isinstance(d, Dim)}
        inputs: list[Input] = []
        for param in function.params:
            try:
                scope[param.name] = self._parameter(function, param, sizes, instance, inputs)
            except CompileError as error:
                raise error.at(param.span) from None
        value = self._body(function, scope)
        results = list(value) if isinstance(value, tuple) else [value]
        self._require_count(function, len(results))
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
                type = array_type(param.annotation, sizes)
            case ast.ScalarType(kind="float"):
                node = t.nodes.input(param.name, f64, (), True)
                inputs.append(node)
                t.place(node, param.span)
                return Array(node, f64, weak=True)
            case _ if param.name in instance.statics:
                return self._static(param, instance.statics[param.name], function)
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
            array = self._declared(t.strong(result), function, k, sizes)
            node = t.rounded(array)
            if node not in t.spans:
                t.place(node, function.body[-1].span)
            return node
        except CompileError as error:
            raise error.at(t.span) from None

    def _declared(self, array: Array, function: ast.Function, k: int, sizes: Sizes) -> Array:
        """The k-th result as its type says it."""
        declared = None if function.returns is None else function.returns[k]
        if not isinstance(declared, ast.ArrayType):
            return array
        return self._typed(array, array_type(declared, sizes), f"{function.name} returns", declared.span)

    def _require_count(self, function: ast.Function, given: int) -> None:
        if function.returns is not None and len(function.returns) != given:
            message = f"{function.name} declares {len(function.returns)} results and returns {given}"
            raise CompileError("MT0207", message, function.body[-1].span)

    def _typed(self, array: Array, type: ArrayType, what: str, span: Span) -> Array:
        """The array with the sizes that its type declares. Where others were derived, the call checks that they are equal."""
        message = f"{what} {array}, which is declared as {type}"
        if array.dtype != type.dtype:
            help = f"convert it: `astype(…, {type.dtype})`"
            raise CompileError("MT0207", message, span, help=help)
        if len(array.shape) != len(type.shape):
            raise CompileError("MT0207", message, span)
        self.typer.span = span
        for a, b in zip(array.shape, type.shape):
            self.typer.require(a, "==", b, "MT0207", message)
        if array.shape == type.shape:
            return array
        index = [dims.ZERO if e == 1 else axis(k) for k, e in enumerate(array.shape)]
        return view(self.typer, array, type.shape, index)

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
        given = _bind_function(function, args, keywords)
        return self.calls_made.once(function, given, lambda: self._inlined(function, given))

    def _inlined(self, function: ast.Function, given: Scope) -> Value:
        """The value of a function's body for these arguments."""
        sizes: Sizes = {}
        scope: Scope = {}
        for param in function.params:
            value = (
                self._static(param, given[param.name], function)
                if param.name in given
                else self._default(param, function)
            )
            scope[param.name] = self._argument(param, value, sizes, function)
        self._solve_arguments(function, scope, sizes)
        scope |= self._typed_arguments(function, scope, sizes)  # now that every dimension is bound
        scope = {**{n: d for n, d in sizes.items() if isinstance(d, Dim)}, **scope}
        self.calls.append(function)
        value = self._body(function, scope)
        self.calls.pop()
        results = value if isinstance(value, tuple) else (value,)
        self._require_count(function, len(results))
        results = tuple(
            self._declared(r, function, k, sizes) if isinstance(r, Array) else r for k, r in enumerate(results)
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
            return self._static(param, self._expression(param.default, {}), function)
        except CompileError as error:
            raise error.at(param.default.span) from None

    def _static(self, param: ast.Param, value: Value, function: ast.Function) -> Value:
        """A value for a parameter that takes a number or an option, if it is one that it takes."""
        wanted = {"float": (int, float, Dim, Array), "int": (int, Dim), "bool": (bool,)}
        if isinstance(param.annotation, ast.ScalarType) and not isinstance(value, wanted[param.annotation.kind]):
            kind = param.annotation.kind
            message = f"`{param.name}` of {function.name} takes {'an' if kind == 'int' else 'a'} {kind}, not {describe(value)}"
            raise CompileError("MT0102", message)
        words = _choices(function, param)
        if len(words) > 1 and value not in words:  # one word alone: any other is the other case
            shown = listed([f'"{w}"' for w in words], "or")
            given = f'"{value[:40]}"' if isinstance(value, str) else describe(value)
            raise CompileError("MT0102", f"`{param.name}` of {function.name} is {shown}, not {given}")
        return value

    def _argument(self, param: ast.Param, value: Value, sizes: Sizes, function: ast.Function) -> Value:
        """The argument as its annotation wants it; binds the callee's dimension names."""
        declared = param.annotation
        if not isinstance(declared, ast.ArrayType):
            return value
        t = self.typer
        wanted = DTYPES[declared.dtype]
        array = t.cast(value, wanted) if t.promoted([value])[1] else t.array(value)
        match_sizes(declared, array.shape, sizes, lambda: CompileError(
            "MT0207", f"argument `{param.name}` of {function.name} has rank {len(array.shape)}: {array}"))  # fmt: skip
        return array

    def _solve_arguments(self, function: ast.Function, scope: Scope, sizes: Sizes) -> None:
        """Binds what no dimension of the callee says alone; a name may need what another parameter says."""
        before = -1
        while before != len(sizes):
            before = len(sizes)
            for param in function.params:
                if isinstance(param.annotation, ast.ArrayType):
                    array = self.typer.array(scope[param.name])
                    what = f"argument `{param.name}` of {function.name} is {array}"
                    message = f"{what}, too small for {param.annotation.span.text}"
                    for size, least in solve_sizes(param.annotation, array.shape, sizes):
                        self.typer.require(size, ">=", Dim.of(least), "MT0207", message)

    def _typed_arguments(self, function: ast.Function, scope: Scope, sizes: Sizes) -> Scope:
        typed: Scope = {}
        for param in function.params:
            if isinstance(param.annotation, ast.ArrayType):
                what = f"argument `{param.name}` of {function.name} is"
                missing = [n for d in param.annotation.dims for n in unbound(d, sizes)]
                if missing:
                    help = "use the dimension alone in the type of some parameter"
                    raise CompileError(
                        "MT0304", f"no argument tells the size of `{missing[0].id}`", missing[0].span, help=help
                    )
                type = array_type(param.annotation, sizes)
                typed[param.name] = self._typed(self.typer.array(scope[param.name]), type, what, param.span)
        return typed

    # ---- expressions -----------------------------------------------------------------

    def _expression(self, root: ast.Expr, scope: Scope) -> Value:
        """Folds a tree bottom up; the value of each node by identity."""
        values: dict[int, Any] = {}
        for node in ast.evaluated(root, lambda c: _holds(c, values[id(c.test)])):
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
                return self._name(node, scope, root)
            case ast.List():
                return ListValue(of(e) for e in node.elements)
            case ast.Tuple():
                return _bounded(tuple(of(e) for e in node.elements))
            case ast.Unary():
                return self._unary(node.op, of(node.operand))
            case ast.Binary():
                self.typer.operands = _written(node.left), _written(node.right)
                return self._binary(node.op, of(node.left), of(node.right))
            case ast.Compare():
                return self._compare(node.op, of(node.left), of(node.right))
            case ast.Conditional():
                return of(node.body if id(node.body) in values else node.orelse)
            case ast.Slice():
                return SliceValue(of(node.start), of(node.stop), of(node.step))
            case ast.Subscript():
                return self._subscript(of(node.value), [of(i) for i in node.indices])
            case ast.Attribute():
                return self._attribute(of(node.value), node.name)
            case ast.Call():
                keywords = {name: of(value) for name, value in node.keywords}
                return self._call(node, tuple(of(a) for a in node.args), keywords, scope)
            case _:
                raise AssertionError(f"no rule for {type(node).__name__}")

    def _name(self, node: ast.Name, scope: Scope, root: ast.Expr) -> Value:
        name = node.id
        if name in scope:
            return scope[name]
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name == "newaxis":
            return None
        if name in DTYPES:
            return DTYPES[name]
        if name in self.module or is_function(name):
            raise CompileError("MT0101", f"`{name}` is a function: call it", help=f"`{name}(…)`")
        raise unknown_name(node, root, [*scope, *self.module], [*CONSTANTS, *DTYPES, *function_names()])

    def _unary(self, op: str, x: Value) -> Value:
        if isinstance(x, (int, float, Dim)) and not (op == "~" and not isinstance(x, int)):
            return static(lambda: UNARY[op](x))
        return self.typer.elementwise(BY_SYMBOL[op, 1].name, [x])

    def _binary(self, op: str, x: Value, y: Value) -> Value:
        if op == "@":
            return contractions.matmul(self.typer, x, y, "ieee")
        if isinstance(x, tuple) and isinstance(y, tuple) and op == "+":
            return _bounded(x + y)
        if isinstance(x, NUMBERS) and isinstance(y, NUMBERS):
            if op == "**" and isinstance(x, Dim) and isinstance(y, int) and y < 0:
                y = float(y)  # N ** -1 is a fraction, as 4 ** -1 is
            folded = fold_numbers(op, x, y)
            if folded is not None:
                return folded
            if isinstance(x, (int, Dim)) and isinstance(y, Dim):
                self._require_exact(op, x, y)
        if op == "*" and (isinstance(x, (int, Dim)) or isinstance(y, (int, Dim))):
            _refuse_list(op, x, y)
        made = self.typer.elementwise(BY_SYMBOL[op, 2].name, [x, y])
        if isinstance(x, int) and isinstance(y, Dim) and op in ("**", "<<"):
            self.typer.powers[made.node] = Power(x, op, y)
        return made

    def _require_exact(self, op: str, x: int | Dim, y: Dim) -> None:
        """`2**N` and `1 << N` are integers of 64 bits and not, as in Python, of any size; nor fractions."""
        help = "write a float: `2.0 ** N`"
        if op == "**":
            message = f"the exponent {y} of an integer is negative"
            self.typer.require(y, ">=", Dim.of(0), "MT0208", message, label=names_in(y), help=help)
        if isinstance(x, int) and op in ("**", "<<") and abs(x) > (op == "**"):
            most = math.ceil(63 / math.log2(abs(x))) - 1 if op == "**" else 63 - x.bit_length()
            message = f"{x} {op} {y} does not fit i64"
            self.typer.require(Dim.of(most), ">=", y, "MT0208", message, label=names_in(y), help=help)

    def _compare(self, op: str, x: Value, y: Value) -> Value:
        if x is None or y is None:
            return (x is y) == (op == "==")
        if isinstance(x, Array) or isinstance(y, Array):
            return self.typer.elementwise(BY_SYMBOL[op, 2].name, [x, y])
        if isinstance(x, tuple) and isinstance(y, tuple):
            return self._compare_tuples(op, x, y)
        if isinstance(x, DType) and isinstance(y, DType) and op not in ("==", "!="):
            raise CompileError("MT0102", f"dtypes are compared by == and !=, not {op}")
        _refuse_list(op, x, y)
        if isinstance(x, Dim) or isinstance(y, Dim):
            if isinstance(x, (int, Dim)) and isinstance(y, (int, Dim)):
                decided = decide(op, Dim.of(x) - Dim.of(y))
                if decided is not None:
                    return decided
            return self.typer.elementwise(BY_SYMBOL[op, 2].name, [x, y])
        return static(lambda: COMPARE[op](x, y))

    def _compare_tuples(self, op: str, x: tuple[Value, ...], y: tuple[Value, ...]) -> bool:
        """Shapes: equal or not, for all sizes."""
        if op not in ("==", "!="):
            raise CompileError("MT0102", f"tuples are compared by == and !=, not {op}")
        equal: Value = len(x) == len(y) and all(self._compare("==", a, b) is True for a, b in zip(x, y))
        if not equal and len(x) == len(y) and all(self._compare("==", a, b) is not False for a, b in zip(x, y)):
            raise CompileError("MT0106", "whether these shapes are equal depends on the sizes of a call")
        return bool(equal) == (op == "==")

    def _subscript(self, x: Value, items: list[Any]) -> Value:
        if isinstance(x, tuple):
            if len(items) == 1 and isinstance(items[0], SliceValue):
                s = items[0]
                return static(
                    lambda: x[
                        slice(*(b if b is None else as_int(b, "a slice bound") for b in (s.start, s.stop, s.step)))
                    ]
                )
            if len(items) == 1 and isinstance(items[0], int) and -len(x) <= items[0] < len(x):
                return x[items[0]]
            help = "an array of numbers can be indexed by an array: `asarray([1, 2])[i]`"
            raise CompileError("MT0206", f"{describe(x)} of {len(x)} items has no such index", help=help)
        if len(items) == 1 and isinstance(items[0], tuple) and not isinstance(items[0], ListValue):
            items = list(items[0])
        items = [self.typer.array(i) if isinstance(i, tuple) else i for i in items]
        return indexing.subscript(self.typer, self.typer.array(x), items)

    def _attribute(self, x: Value, name: str) -> Value:
        if isinstance(x, Info):
            return _fact(x, name)
        array = self.typer.array(x)
        match name:
            case "T":
                return views.permute_dims(self.typer, array, None)
            case "mT":
                return views.matrix_transpose(self.typer, array)
            case "shape":
                return tuple(e if e.constant is None else int(e) for e in array.shape)
            case "ndim":
                return len(array.shape)
            case "size":
                return plain(dims.product(array.shape))
            case "dtype":
                return self.typer.settled([array])
            case _:
                there = f"arrays have {listed([f'.{a}' for a in ATTRIBUTES])}"
                raise unknown_attribute(name, ATTRIBUTES, f"call it: `.{name}()`" if is_function(name) else there)

    def _call(self, node: ast.Call, args: tuple[Value, ...], keywords: Scope, scope: Scope) -> Value:
        name, span = node.function, node.span
        if name in self.module:
            return self._call_function(self.module[name], args, keywords, span)
        plain = ALIASES.get(name, FUNCTION_ALIASES.get(name, name))
        if plain in OPERATORS:
            return self._call_operator(plain, args, keywords)
        if plain in SIGNATURES:
            return FUNCTIONS[plain](self.typer, **bind(plain, args, keywords))
        if plain in library.functions():
            return self._call_library(library.functions()[plain], args, keywords, span)
        if name in scope or name in CONSTANTS:
            help = "an element is `x[0]`, a product `x * y`"
            raise CompileError("MT0101", f"`{name[:40]}` is a value, not a function", help=help)
        raise unknown_function(node, self.module, function_names())

    def _call_operator(self, name: str, args: tuple[Value, ...], keywords: Scope) -> Value:
        if keywords and not (name == "clip" and set(keywords) <= {"min", "max"}):
            raise CompileError("MT0102", f"{name} takes its operands by position, not `{next(iter(keywords))}=`")
        if name == "clip":
            return self._clip(args, keywords)
        if all(isinstance(a, NUMBERS) and not isinstance(a, Dim) for a in args) and args:
            return fold_operator(self.typer, name, args)
        return self.typer.elementwise(name, args)

    def _clip(self, args: tuple[Value, ...], keywords: Scope) -> Value:
        """`clip(x, lo, hi)`, where either bound may be None."""
        given = [*args, *([None] * (3 - len(args)))][:3]
        if not args or len(args) > 3:
            raise CompileError("MT0102", f"clip takes 3 arguments, not {len(args)}")
        x, low, high = given[0], keywords.get("min", given[1]), keywords.get("max", given[2])
        if low is None and high is None:
            return x
        if low is None:
            return self.typer.elementwise("minimum", [x, high])
        if high is None:
            return self.typer.elementwise("maximum", [x, low])
        return self.typer.elementwise("clip", [x, low, high])


def _refuse_list(op: str, *operands: Value) -> None:
    """In Python `2 * [1, 2]` repeats a list and `[1, 2] == 1` is False: neither is arithmetic of arrays."""
    for value in operands:
        if isinstance(value, tuple):
            message = f"{op} of {describe(value)} and a number is no arithmetic of arrays in Python"
            raise CompileError("MT0202", message, help="make an array of the numbers first: `2 * asarray([1, 2])`")


def _holds(node: ast.Conditional, test: Value) -> bool:
    """Whether `a if c else b` is a."""
    if isinstance(test, (Array, Dim)):
        help = "for arrays and sizes write where(condition, a, b)"
        raise CompileError("MT0106", "the condition of if … else must be known now", node.span, help=help)
    return bool(test)


def _fact(info: Info, name: str) -> Value:
    if name not in info.facts:
        help = suggest(name, info.facts) or f"it has {', '.join(info.facts)}"
        raise CompileError("MT0103", f"{info} has no attribute `{name[:40]}`", help=help)
    return info.facts[name]


def _check_size(shape: Shape, span: Span) -> None:
    """What has more axes or elements than numpy can number is refused before sizes are asked for."""
    if len(shape) > MAX_RANK:
        message = f"this has {len(shape)} axes, the limit is {MAX_RANK}"
        raise CompileError("MT0401", message, span, help="reshape it to fewer axes")
    known = [e.constant for e in shape if e.constant is not None]
    if max(known, default=0) > MAX_ELEMENTS or 0 not in known and math.prod(known) > MAX_ELEMENTS:
        raise CompileError("MT0401", "this has more elements than 64 bits can number", span, help="take smaller sizes")


def _bounded(value: tuple[Value, ...]) -> tuple[Value, ...]:
    """The tuple. `s = (s, s)` or `s = s + s` doubles the items, so what has too many is refused before it is walked."""
    most, count = current().operations, 0
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        count += 1
        if count > most:
            raise exceeded("operations", f"a tuple has more than {most:,} items, those of the tuples in it counted")
        stack.extend(item if isinstance(item, tuple) else ())
    return value


def _written(node: ast.Expr) -> str:
    """An operand as the source has it, for messages; long ones are named by their place."""
    text = node.span.text
    return text if len(text) <= 24 and "\n" not in text else f"`{text[:20]}…`".replace("\n", " ")


def function_names() -> list[str]:
    """Every function of the language: operators, structured functions, the library, aliases."""
    return [*OPERATORS, *ALIASES, *SIGNATURES, *FUNCTION_ALIASES, *library.functions()]


def is_function(name: str) -> bool:
    return name in function_names()


def _bind_function(function: ast.Function, args: tuple[Value, ...], keywords: Scope) -> Scope:
    names = [p.name for p in function.params]
    if len(args) > len(names):
        raise CompileError("MT0102", f"{function.name} takes {len(names)} arguments, not {len(args)}")
    given = dict(zip(names, args))
    for key, value in keywords.items():
        key = "axis" if key == "dim" and "axis" in names else "keepdims" if key == "keepdim" else key
        if key not in names:
            raise CompileError("MT0102", f"{function.name} has no argument `{key[:40]}`", help=suggest(key, names))
        if key in given:
            raise CompileError("MT0102", f"{function.name} got `{key}` twice")
        given[key] = value
    return given


@lru_cache(maxsize=256)
def _choices(function: ast.Function, param: ast.Param) -> tuple[str, ...]:
    """The words that an option may be: its default and those it is compared with; () if it is used otherwise."""
    if param.annotation is not None or not isinstance(param.default, ast.String):
        return ()
    words = [param.default.value]
    compared = 0
    nodes = [node for statement in function.body for node in ast.postorder(statement)]
    for node in nodes:
        match node:
            case (
                ast.Compare(left=ast.Name(id=name), right=ast.String(value=word))
                | ast.Compare(left=ast.String(value=word), right=ast.Name(id=name))
            ) if name == param.name:
                words.append(word)
                compared += 1
    used = sum(isinstance(node, ast.Name) and node.id == param.name for node in nodes)
    return tuple(dict.fromkeys(words)) if used == compared else ()
