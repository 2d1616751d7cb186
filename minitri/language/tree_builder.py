"""Makes syntax nodes while the parser runs. `Builder` has one method for each rule of grammar.lark.

A method of `Builder` takes the tokens and nodes that a rule of the grammar has matched. The method returns a node of
ast.py. The one idea: the parser makes no parse tree. As soon as the parser has matched all parts of a rule, the parser
calls the method of `Builder` that has the rule's name. If a rule has an alias in the grammar, its method in `Builder`
has the name of the alias. Because the parser calls one method of `Builder` after another, even deeply nested
expressions need no recursion. The functions below the class `Builder` raise errors for constructs that the grammar
accepts but the language does not have. The file syntax_errors.toml has the error messages.

The class `Builder` does not look up names: the graph builder finds whether a name such as `relu` exists.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, TypeVar

from minitri.base.diagnostics import Edit
from minitri.base.resource_limits import check_limit
from minitri.base.spans import Span
from minitri.language import ast, python_corrections
from minitri.language.annotations import Reader, read_returns, read_type
from minitri.language.syntax_errors import bad_target, chained_comparison, mistake, not_callable


class Effect(ast.Node):
    """An expression as a statement, such as a line `f(x)`. A docstring is the only expression that is valid as a
    statement.
    """

    value: ast.Expr


class Keyword(ast.Node):
    """A keyword argument `name=value` of a call."""

    name: str
    value: ast.Expr


Statement = ast.Assign | ast.Return | Effect
Named = TypeVar("Named", ast.Function, ast.Param, Keyword)


def covering(parts: Sequence[ast.Node | None]) -> Span:
    """Returns the smallest source range (span) that covers all of the nodes `parts`.

    If an optional node is missing, `parts` contains None.
    """
    there = [part for part in parts if part is not None]
    return there[0].span.to(there[-1].span)


# The grammar rules that need no method of `Builder`, because the last parts of the rule are the fields of a node.
NODES = {
    "effect": Effect, "conditional": ast.Conditional, "comparison": ast.Compare, "binary": ast.Binary, "unary": ast.Unary,
    "attribute": ast.Attribute, "keyword": Keyword, "name": ast.Name, "pack": ast.Pack, "none": ast.NoneLiteral,
    "ellipsis": ast.EllipsisLiteral,
}  # fmt: skip


class Callbacks:
    """Lets lark, a parser library, call the methods of a `Builder`.

    Lark passes all parts of a matched grammar rule in one list. The class `Callbacks` passes each part of a matched
    grammar rule to a method of the builder, as an argument of its own.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def __getattr__(self, rule: str) -> Callable[[list[Any]], Any]:
        if node := NODES.get(rule):
            count = len(fields(node)) - 1  # without the span
            return lambda parts: node(
                covering(parts), *(p.text if isinstance(p, ast.Word) else p for p in parts[len(parts) - count :])
            )
        method = getattr(self.builder, rule)
        return lambda parts: method(*parts)


class Builder:
    """Makes syntax nodes.

    Each method has the name of a grammar rule, and takes the matched parts of the rule as arguments. For a missing
    optional part of the rule, the argument is None.
    """

    def __init__(self, parse: Reader) -> None:
        self.parse = parse  # for annotations inside strings

    # Start symbols

    def expression(self, value: ast.Expr) -> ast.Expr:
        return checked_value(value)

    def module(self, *parts: ast.Function | ast.Word) -> tuple[ast.Function, ...]:
        functions = tuple(part for part in parts if isinstance(part, ast.Function))  # the others are docstrings
        for function in repeated(functions):
            name = replace(function.span, end=function.span.start + len(function.name))  # the span begins with the name
            raise mistake("repeated_function", name, name=function.name)
        return functions

    # Functions

    def function(self, name: ast.Word, params: Any, returns: ast.Expr | None, *body: Statement) -> ast.Function:
        kinds = read_returns(returns, self.parse) if returns is not None else None
        span = name.span.to(body[-1].span)
        return ast.Function(span, name.text, tuple(params or ()), kinds, checked_body(name, body))

    def params(self, *params: ast.Param) -> Sequence[ast.Param]:
        for param in repeated(params):
            raise mistake("repeated_parameter", param.span, name=param.name)
        for before, param in pairwise(params):
            if before.default is not None and param.default is None:
                raise mistake("default_before", param.span, name=param.name)
        return params

    def param(self, name: ast.Word, annotation: ast.Expr | None, default: ast.Expr | None) -> ast.Param:
        kind = read_type(annotation, self.parse) if annotation is not None else None
        if isinstance(kind, ast.ArrayType) and default is not None:
            text = default.span.source.text
            whole = replace(default.span, start=len(text[: text.rindex("=", 0, default.span.start)].rstrip()))
            raise mistake("array_default", default.span, name=name.text).write(whole, "")
        if default is not None and not isinstance(default, ast.String):
            checked_value(default)
        return ast.Param(covering((name, annotation, default)), name.text, kind, default)

    def assign(self, target: ast.Expr, value: ast.Expr) -> ast.Assign:
        parts = target.elements if isinstance(target, ast.Tuple) else (target,)
        names = tuple(part for part in parts if isinstance(part, ast.Name))
        if not parts or len(names) < len(parts):
            raise bad_target(next((part for part in parts if not isinstance(part, ast.Name)), target))
        return ast.Assign(target.span.to(value.span), names, checked_value(value))

    def returns(self, word: ast.Word, value: ast.Expr | None) -> ast.Return:
        if value is None:
            raise mistake("empty_return", word.span)
        return ast.Return(word.span.to(value.span), checked_value(value))

    # Operators and primaries

    def chain(self, *parts: Any) -> ast.Compare:
        raise chained_comparison(parts, covering(parts))

    def call(self, function: ast.Expr, arguments: Sequence[Any] | None, close: ast.Word) -> ast.Call:
        args = [part for part in arguments or [] if not isinstance(part, Keyword)]
        keywords = tuple((part.name, part.value) for part in arguments or [] if isinstance(part, Keyword))
        name, receiver = callee(function)
        return ast.Call(function.span.to(close.span), name, (*receiver, *args), keywords)

    def arguments(self, *arguments: ast.Expr | Keyword) -> Sequence[ast.Expr | Keyword]:
        for keyword in repeated([argument for argument in arguments if isinstance(argument, Keyword)]):
            raise mistake("repeated_keyword", keyword.span, name=keyword.name)
        for before, argument in pairwise(arguments):
            if isinstance(before, Keyword) and not isinstance(argument, Keyword):
                swapped = Edit(before.span, argument.span.text), Edit(argument.span, before.span.text)
                raise mistake("positional_after_keyword", argument.span).correct(*swapped)
        return arguments

    def subscript(self, value: ast.Expr, indices: Sequence[Any] | None, close: ast.Word) -> ast.Subscript:
        return ast.Subscript(value.span.to(close.span), value, tuple(indices or ()))

    def indices(self, first: ast.Expr, *more: Any) -> Sequence[Any]:
        if more == (None,) and type(first) is ast.Tuple and first.elements:  # None: there is no last comma
            return first.elements  # x[(i, j)] is x[i, j], as in Python; x[[i, j]] has one index, an array
        return (first, *more[:-1])

    def slice(self, *parts: Any) -> ast.Slice:
        return ast.Slice(covering(parts), *parts[::2])

    # Atoms

    def number(self, word: ast.Word) -> ast.Number:
        return ast.Number(word.span, read_number(word))

    def string(self, word: ast.Word) -> ast.String:
        text = word.text.lstrip("rRuU")
        quotes = 3 if text[:3] in ('"""', "'''") else 1
        return ast.String(word.span, text[quotes:-quotes])

    def truth(self, word: ast.Word) -> ast.Number:
        return ast.Number(word.span, word.text == "True")

    def group(self, opening: ast.Word, node: ast.Expr, closing: ast.Word) -> ast.Expr:
        """Returns the node for `(a)`: the node of `a` with a source range (span) that includes the parentheses.

        The span of a tuple already includes its parentheses.
        """
        return node if isinstance(node, ast.Tuple) else replace(node, span=opening.span.to(closing.span))

    def display(self, opening: ast.Word, *parts: Any) -> ast.Tuple:
        kind = ast.List if opening.type == "LSQB" else ast.Tuple
        return kind(opening.span.to(parts[-1].span), tuple(part for part in parts[:-1] if part is not None))

    def bare_tuple(self, *parts: ast.Expr) -> ast.Tuple:
        return ast.Tuple(covering(parts), parts)


# ---- what the grammar lets through and the language does not -----------------------------------


def checked_value(root: ast.Expr) -> ast.Expr:
    """Returns the expression `root` if a program may use it as a value.

    Raises ParseError for forms that are allowed only in annotations: strings, `x[*B]` and `x[]`.
    """
    nodes = list(ast.postorder(root))
    callers = [node for node in nodes if isinstance(node, ast.Call | ast.Compare)]
    options = {id(option) for caller in callers for option in ast.children(caller)}
    for node in nodes:
        match node:
            case ast.Pack():
                raise mistake("pack_as_index", node.span, name=node.id)
            case ast.Subscript(indices=()):
                raise mistake("empty_subscript", node.span)
            case ast.String() if id(node) not in options:
                raise mistake("string_value", node.span)
    return root


def read_number(word: ast.Word) -> int | float:
    text = word.text
    check_limit("digits", len(text), "a number has {count:,} digits, the limit is {limit:,}", word.span)
    plain = text.rstrip("jJ")
    try:
        value = float(plain) if re.match(r"[0-9_]*[.eE]", plain) else int(plain, 0)
    except ValueError:
        raise mistake("not_a_number", word.span, text=text[:40]) from None
    if plain != text:
        raise mistake("complex_number", word.span)
    if isinstance(value, int) and value >= 2**64:
        raise mistake("large_integer", word.span)
    if isinstance(value, float) and math.isinf(value):
        raise mistake("infinite", word.span, text=text[:40]).write(word.span, "inf")
    return value


def repeated(found: Sequence[Named]) -> Iterator[Named]:
    """Yields the nodes of `found` that repeat the name of an earlier node."""
    seen: set[str] = set()
    for node in found:
        if node.name in seen:
            yield node
        seen.add(node.name)


def checked_body(name: ast.Word, found: Sequence[Statement]) -> tuple[ast.Assign | ast.Return, ...]:
    """Returns the statements of a function without its docstring. The last statement of the function must be its only
    `return`.
    """
    statements: list[ast.Assign | ast.Return] = []
    is_docstring = isinstance(found[0], Effect) and isinstance(found[0].value, ast.String)
    for statement in found[is_docstring:]:
        if isinstance(statement, Effect):
            checked_value(statement.value)
            error = mistake("idle", statement.span)
            if statement is found[-1]:  # the author probably meant to return it
                start = replace(statement.span, end=statement.span.start)
                error.write(start, "return ", f"write `return {statement.span.text}`")
            raise error
        statements.append(statement)
    for statement, after in pairwise(statements):
        if isinstance(statement, ast.Return):
            raise mistake("after_return", after.span)
    if statements and isinstance(statements[-1], ast.Return):
        return tuple(statements)
    error = mistake("returns_nothing", name.span, name=name.text)
    match statements[-1:]:
        case [ast.Assign(span=span, targets=(ast.Name(id=result),))]:  # the author probably meant to return it
            text = f"\n{' ' * (span.line_column[1] - 1)}return {result}"
            error.write(replace(span, start=span.end), text, f"end it with `return {result}`")
    raise error


def callee(function: ast.Expr) -> tuple[str, tuple[ast.Expr, ...]]:
    """Returns the name and the receiver of a called function: `f` and `()` for `f()`, `f` and `(x,)` for `x.f()`.

    In `x.f()`, the receiver x becomes the first argument of the call.
    """
    match function:
        case ast.Name(id="print"):
            error = mistake("print", function.span)
            raise error.correct(python_corrections.statement(function.span), help=error.help)
        case ast.Name(id=id):
            return id, ()
        case ast.Attribute(value=value, name=name):
            return name, (value,)
    raise not_callable(function)
