"""Makes nodes while the parser reduces: one method for each rule of grammar.lark.

In: the tokens and nodes that a rule has matched. Out: a node of ast.py. The one idea: there is no parse tree. As soon
as the parser has the parts of a rule, it calls the method with the rule's name (or alias). So depth costs no recursion,
and the meaning of a rule is in one place. syntax_checks.py refuses constructs that the grammar accepts and the language
does not.

Left out: names. The typer says whether `relu` exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minitri.base.diagnostics import ParseError, Span
from minitri.language import ast, syntax_checks
from minitri.language.annotations import Reader, read_returns, read_type
from minitri.language.lexer import Word
from minitri.language.syntax_checks import Effect, Keyword


def covering(parts: Sequence[Word | ast.Node]) -> Span:
    return parts[0].span.to(parts[-1].span)


class Builder:
    """The parser's callbacks. Each takes the list of a rule's parts; absent ones are None."""

    def __init__(self, parse: Reader) -> None:
        self.parse = parse  # for annotations inside strings

    # Start symbols

    def expression(self, parts: list[Any]) -> ast.Expr:
        return syntax_checks.value(parts[0])

    def type(self, parts: list[Any]) -> ast.Expr:
        return parts[0]

    def module(self, parts: list[Any]) -> tuple[ast.Function, ...]:
        return syntax_checks.functions([part for part in parts if part is not None])

    def docstring(self, parts: list[Any]) -> None:
        return None

    # Functions

    def function(self, parts: list[Any]) -> ast.Function:
        name, params, returns, *body = parts
        kinds = read_returns(returns, self.parse) if returns is not None else None
        span = name.span.to(body[-1].span)
        return ast.Function(span, name.text, syntax_checks.params(params or []), kinds, syntax_checks.body(name, body))

    def params(self, parts: list[Any]) -> list[ast.Param]:
        return parts

    def param(self, parts: list[Any]) -> ast.Param:
        name, annotation, default = parts
        kind = read_type(annotation, self.parse) if annotation is not None else None
        span = covering([part for part in parts if part is not None])
        return ast.Param(span, name.text, kind, syntax_checks.default(name, kind, default))

    def assign(self, parts: list[Any]) -> ast.Assign:
        target, value = parts
        return ast.Assign(covering(parts), syntax_checks.targets(target), syntax_checks.value(value))

    def returns(self, parts: list[Any]) -> ast.Return:
        word, value = parts
        if value is None:
            raise ParseError("MT0002", "this `return` has no value", word.span, help="write `return y`")
        return ast.Return(word.span.to(value.span), syntax_checks.value(value))

    def effect(self, parts: list[Any]) -> Effect:
        return Effect(parts[0].span, parts[0])

    # Operators

    def conditional(self, parts: list[Any]) -> ast.Conditional:
        body, test, orelse = parts
        return ast.Conditional(covering(parts), test, body, orelse)

    def comparison(self, parts: list[Any]) -> ast.Compare:
        left, op, right = parts
        return ast.Compare(covering(parts), op.text, left, right)

    def chain(self, parts: list[Any]) -> ast.Compare:
        raise syntax_checks.chained(parts, covering(parts))

    def binary(self, parts: list[Any]) -> ast.Binary:
        left, op, right = parts
        return ast.Binary(covering(parts), op.text, left, right)

    def unary(self, parts: list[Any]) -> ast.Unary:
        op, operand = parts
        return ast.Unary(covering(parts), op.text, operand)

    # Primaries

    def attribute(self, parts: list[Any]) -> ast.Attribute:
        value, name = parts
        return ast.Attribute(covering(parts), value, name.text)

    def call(self, parts: list[Any]) -> ast.Call:
        function, arguments, close = parts
        syntax_checks.arguments(arguments or [])
        args = [part for part in arguments or [] if not isinstance(part, Keyword)]
        keywords = tuple((part.name, part.value) for part in arguments or [] if isinstance(part, Keyword))
        name, receiver = syntax_checks.callee(function)
        return ast.Call(function.span.to(close.span), name, (*receiver, *args), keywords)

    def arguments(self, parts: list[Any]) -> list[Any]:
        return parts

    def keyword(self, parts: list[Any]) -> Keyword:
        return Keyword(covering(parts), parts[0].text, parts[1])

    def subscript(self, parts: list[Any]) -> ast.Subscript:
        value, indices, close = parts
        return ast.Subscript(value.span.to(close.span), value, tuple(indices or ()))

    def indices(self, parts: list[Any]) -> list[Any]:
        match parts:
            case [ast.List(), None]:
                pass  # x[[i, j]] has one index, an array
            case [ast.Tuple(elements=elements), None] if elements:
                return list(elements)  # x[(i, j)] is x[i, j], as in Python
        return parts[:-1]  # without the last comma

    def ellipsis(self, parts: list[Any]) -> ast.EllipsisLiteral:
        return ast.EllipsisLiteral(parts[0].span)

    def pack(self, parts: list[Any]) -> ast.Pack:
        return ast.Pack(covering(parts), parts[1].text)

    def slice(self, parts: list[Any]) -> ast.Slice:
        start, _, stop, _, step = parts
        return ast.Slice(covering([part for part in parts if part is not None]), start, stop, step)

    # Atoms

    def name(self, parts: list[Any]) -> ast.Name:
        return ast.Name(parts[0].span, parts[0].text)

    def number(self, parts: list[Any]) -> ast.Number:
        return ast.Number(parts[0].span, syntax_checks.number(parts[0]))

    def string(self, parts: list[Any]) -> ast.String:
        text = parts[0].text.lstrip("rRuU")
        quotes = 3 if text[:3] in ('"""', "'''") else 1
        return ast.String(parts[0].span, text[quotes:-quotes])

    def true(self, parts: list[Any]) -> ast.Number:
        return ast.Number(parts[0].span, True)

    def false(self, parts: list[Any]) -> ast.Number:
        return ast.Number(parts[0].span, False)

    def none(self, parts: list[Any]) -> ast.NoneLiteral:
        return ast.NoneLiteral(parts[0].span)

    def group(self, parts: list[Any]) -> ast.Expr:
        """`(a)` is a, but shown with its parentheses; a tuple already has its own."""
        node = parts[1]
        return node if isinstance(node, ast.Tuple) else replace(node, span=covering(parts))

    def display(self, parts: list[Any]) -> ast.Tuple:
        kind = ast.List if parts[0].type == "LSQB" else ast.Tuple
        return kind(covering(parts), tuple(part for part in parts[1:-1] if part is not None))

    def bare_tuple(self, parts: list[Any]) -> ast.Tuple:
        return ast.Tuple(covering(parts), tuple(parts))
