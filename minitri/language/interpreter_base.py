"""Runs a minitri function by visiting the nodes of its syntax tree. The reference evaluator and the graph builder both
use this interpreter.

    return relu(x @ w) + 1      visits  x  w  x @ w  relu(…)  1  … + 1      and in the call the body of `relu`

The method `body` takes the syntax tree of a function, and the values of its parameters and dimensions. The method
`body` evaluates the function's body, and returns the function's result. The one idea: the numpy reference and the graph
builder are the same interpreter with different values. For the reference evaluator, the value of an array is a numpy
array. For the graph builder, the value of an array is a graph node. Only this file defines the order of evaluation and
the meaning of names, for both the reference evaluator and the graph builder. The subclasses of `Interpreter` define
what an operator, a subscript or a call does with values.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from minitri.base.diagnostics import CompileError
from minitri.base.operators import ALIASES, OPERATORS
from minitri.base.spans import Span
from minitri.base.types import DTYPES, ListValue
from minitri.language import ast
from minitri.language.signatures import FUNCTION_ALIASES, SIGNATURES, bind, library_function, library_spans

Value = Any
Scope = dict[str, Value]  # what each name is bound to
NAMED_VALUES: Scope = {**ast.CONSTANTS, **DTYPES, "newaxis": None}


class Interpreter:
    """Evaluates functions of a program.

    The argument `functions` maps names to the functions that the program can call, apart from functions of the
    language.
    """

    unary: Callable[[str, Value], Value]
    binary: Callable[[ast.Binary, Value, Value], Value]
    compare: Callable[[str, Value, Value], Value]
    subscript: Callable[[Value, list[Value]], Value]
    attribute: Callable[[Value, ast.Attribute], Value]
    operator: Callable[[str, tuple[Value, ...], Scope], Value]  # an elementwise operator
    structured: Callable[[str, Scope], Value]  # a function of signatures.toml, with all its arguments by name
    called: Callable[[ast.Function, tuple[Value, ...], Scope, Span], Value]
    unknown: Callable[[ast.Name | ast.Call, Scope, ast.Node], CompileError]

    def __init__(self, functions: Mapping[str, ast.Function]) -> None:
        self.functions = functions
        self.site: Span | None = None  # the span of the user's call while a library function is evaluated
        self._results: dict[Hashable, Value] = {}

    def body(self, function: ast.Function, scope: Scope) -> Value:
        """Returns the value that a function returns. Each assignment in the function's body adds a name to `scope`."""
        for statement in function.body:
            value = self.expression(statement.value, scope)
            if isinstance(statement, ast.Return):
                return value
            items = self.unpacked(statement, value) if len(statement.targets) > 1 else (value,)
            scope.update((target.id, item) for target, item in zip(statement.targets, items, strict=True))
        raise AssertionError("a function ends in a return")

    def unpacked(self, statement: ast.Assign, value: Value) -> Sequence[Value]:
        return value

    def expression(self, root: ast.Node, scope: Scope) -> Value:
        """Returns the value of an expression.

        A loop without recursion visits the nodes of the expression from the leaves up, so the expression can have any
        depth.
        """
        values: dict[int, Value] = {}
        for node in ast.postorder(root, lambda c: self.holds(c, values)):
            values[id(node)] = self.evaluated(node, values, scope, root)
        return values[id(root)]

    def holds(self, node: ast.Conditional, values: dict[int, Value]) -> bool:
        """Checks whether the condition `c` of `a if c else b` is true."""
        return bool(values[id(node.test)])

    def evaluated(self, node: ast.Node, values: dict[int, Value], scope: Scope, root: ast.Node) -> Value:
        """Returns the value of one node of the expression `root`, given the values of the node's children."""

        def of(part: ast.Node | None) -> Value:
            return None if part is None else values[id(part)]

        match node:
            case ast.Number() | ast.String() | ast.NoneLiteral() | ast.EllipsisLiteral():
                return node.value
            case ast.Name(id=name):
                if name in scope or name in NAMED_VALUES:
                    return scope[name] if name in scope else NAMED_VALUES[name]
                raise self.unknown(node, scope, root)
            case ast.Tuple():
                kind = ListValue if isinstance(node, ast.List) else tuple
                return kind(map(of, node.elements))
            case ast.Unary():
                return self.unary(node.op, of(node.operand))
            case ast.Binary():
                return self.binary(node, of(node.left), of(node.right))
            case ast.Compare():
                return self.compare(node.op, of(node.left), of(node.right))
            case ast.Conditional():
                return of(node.body if id(node.body) in values else node.orelse)
            case ast.Slice():
                return slice(of(node.start), of(node.stop), of(node.step))
            case ast.Subscript():
                return self.subscript(of(node.value), list(map(of, node.indices)))
            case ast.Attribute():
                return self.attribute(of(node.value), node)
            case ast.Call():
                return self._call(node, of, scope, root)
        raise AssertionError(f"no rule for {type(node).__name__}")

    # ---- calls -----------------------------------------------------------------------

    def _call(self, node: ast.Call, of: Callable[[ast.Node], Value], scope: Scope, root: ast.Node) -> Value:
        args, keywords = tuple(map(of, node.args)), {name: of(value) for name, value in node.keywords}
        if node.function in self.functions:
            return self.called(self.functions[node.function], args, keywords, node.span)
        name = ALIASES.get(node.function, FUNCTION_ALIASES.get(node.function, node.function))
        if name in OPERATORS:
            return self.operator(name, args, keywords)
        if name in SIGNATURES:
            defaults = {parameter.lstrip("*"): default for parameter, default in SIGNATURES[name].items()}
            return self.structured(name, defaults | bind(name, SIGNATURES[name], args, keywords))
        if name in library_spans():
            return self.library_call(library_function(name), args, keywords, node.span)
        raise self.unknown(node, scope, root)

    def library_call(self, function: ast.Function, args: tuple[Value, ...], keywords: Scope, span: Span) -> Value:
        """Calls a library function that is written in minitri's language (folder library/).

        A name in the body of a library function means a function of the language, even if the user's module redefines
        the name.
        """
        before = self.functions, self.site
        self.functions, self.site = {}, self.site or span
        try:
            return self.called(function, args, keywords, span)
        finally:
            self.functions, self.site = before

    def once(self, function: ast.Function, arguments: Scope, make: Callable[[], Value]) -> Value:
        """Returns the stored result of an earlier call of the function with equal arguments.

        If no earlier call had equal arguments, returns the result of `make()`, and stores this result.

        def f1(x): return f0(x) + f0(x)        f0(x) is evaluated once, not twice
        def f2(x): return f1(x) + f1(x)        f2(x) evaluates three functions, not seven
        """
        key = function, tuple((name, self._key(value)) for name, value in sorted(arguments.items()))
        if key not in self._results:
            self._results[key] = make()
        return self._results[key]

    def _key(self, value: Value) -> Hashable:
        """Returns a hashable key that represents a value in the table of stored results."""
        # values have equal keys if no minitri program can tell them apart
        match value:
            case tuple():
                return tuple(map(self._key, value))
            case bool() | int() | float():
                # 1, 1.0 and True have different keys, and so do 0.0 and -0.0
                return type(value).__name__, repr(value)
        return "other", self.identity(value)

    def identity(self, value: Value) -> Hashable:
        """Returns a key for a value that is neither a number nor a tuple. Different values have different keys."""
        return value
