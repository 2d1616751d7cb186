"""Refuses what the grammar accepts and the language does not, and reads numbers.

In: parts of a node about to be made. Out: the same, in the form the node wants, or a
ParseError. The one idea: each rule that a grammar cannot say is one function here, called
at the one place where the node is made. Code MT0002 is for valid Python that the language
does not have, MT0001 for what Python refuses too.

Left out: anything that needs to know what a name means.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from minitri.base.diagnostics import ParseError, Span
from minitri.base.limits import current
from minitri.language import ast
from minitri.language.lexer import Word, too_much

_DIGITS = r"[0-9](_?[0-9])*"
_INTEGER = re.compile(r"0[xX](_?[0-9a-fA-F])+|0[oO](_?[0-7])+|0[bB](_?[01])+|0(_?0)*|[1-9](_?[0-9])*")
_EXPONENT = rf"[eE][+-]?{_DIGITS}"
_FLOAT = re.compile(rf"({_DIGITS}\.({_DIGITS})?|\.{_DIGITS})({_EXPONENT})?|{_DIGITS}{_EXPONENT}")


@dataclass(frozen=True, slots=True, eq=False)
class Effect(ast.Node):
    """An expression as a statement: a docstring, or a mistake."""

    value: ast.Expr


@dataclass(frozen=True, slots=True, eq=False)
class Keyword(ast.Node):
    """`name=value` in a call."""

    name: str
    value: ast.Expr


Statement = ast.Assign | ast.Return | Effect


def value(root: ast.Expr) -> ast.Expr:
    """An expression, without what only annotations may hold: strings, `x[*B]`, `x[]`."""
    nodes = list(ast.postorder(root))
    options = {id(option) for node in nodes for option in _options(node)}
    for node in nodes:
        match node:
            case ast.Pack():
                help = "write `...` for the leading axes of an array"
                raise ParseError("MT0002", f"`*{node.id}` belongs in types only", node.span, help=help)
            case ast.Subscript(indices=()):
                raise ParseError("MT0001", "this subscript is empty", node.span, help="write an index")
            case ast.String() if id(node) not in options:
                help = 'a string is only an argument of a call, `gelu(x, "tanh")`; dtypes are plain names, `f16`'
                raise ParseError("MT0002", "a string is no value", node.span, help=help)
            case _:
                pass
    return root


def _options(node: ast.Node) -> Sequence[ast.Expr]:
    """Where strings may stand: `f(x, "a")`, `f(x, mode="a")`, `mode == "a"`."""
    match node:
        case ast.Call(args=args, keywords=keywords):
            return [*args, *(option for _, option in keywords)]
        case ast.Compare(left=left, right=right):
            return [left, right]
        case _:
            return []


def number(word: Word) -> int | float:
    text = word.text
    if len(text) > (limit := current().digits):
        raise too_much("digits", f"a number has {len(text):,} digits, the limit is {limit:,}", word.span)
    if _INTEGER.fullmatch(text):
        value = int(text.replace("_", ""), 0) if len(text) < 4000 else 2**64  # Python reads no more digits
        if value >= 2**64:
            help = "the largest integers are those of u64"
            raise ParseError("MT0401", "this integer does not fit in 64 bits", word.span, help=help)
        return value
    if _FLOAT.fullmatch(text):
        return _finite(word)
    raise _bad_number(word)


def _finite(word: Word) -> float:
    """`1e400` is past the largest float; infinity is written `inf`."""
    value = float(word.text.replace("_", ""))
    if math.isinf(value):
        message = f"{word.text[:40]} is past the largest float, 1.7976931348623157e308"
        raise ParseError("MT0208", message, word.span, help="write `inf` for infinity")
    return value


def _bad_number(word: Word) -> ParseError:
    text = word.text
    if text[-1] in "jJ" and (_FLOAT.fullmatch(text[:-1]) or text[:-1].replace("_", "").isdigit()):
        return ParseError("MT0002", "there are no complex numbers", word.span, help="use two real arrays")
    help = "an operator may be missing, or a digit"
    if text.isdigit():
        help = f"write `{text.lstrip('0')}`"
    elif match := re.fullmatch(r"([0-9]+)([A-Za-z]\w*)", text):
        help = f"write `{match[1]} * {match[2]}` for a product"
    elif match := re.fullmatch(r"([0-9]+)\.([A-Za-z]\w*)", text):
        help = f"write `({match[1]}).{match[2]}`"
    return ParseError("MT0001", f"`{text[:40]}` is not a number", word.span, help=help)


def functions(found: list[ast.Function]) -> tuple[ast.Function, ...]:
    """The functions of a module, each name once."""
    seen: set[str] = set()
    for function in found:
        if function.name in seen:
            start = function.span.start  # a function's span begins with its name
            span = Span(function.span.source, start, start + len(function.name))
            help = "give one of the two another name"
            raise ParseError("MT0104", f"function `{function.name}` is defined twice", span, help=help)
        seen.add(function.name)
    return tuple(found)


def params(found: list[ast.Param]) -> tuple[ast.Param, ...]:
    """The parameters of a function: each name once, those with a default last."""
    seen: set[str] = set()
    for param in found:
        if param.name in seen:
            raise ParseError("MT0104", f"parameter `{param.name}` is given twice", param.span)
        seen.add(param.name)
    for before, param in pairwise(found):
        if before.default is not None and param.default is None:
            message = f"parameter `{param.name}` has no default, but follows one that has"
            raise ParseError("MT0001", message, param.span, help="move it before those with a default")
    return tuple(found)


def default(name: Word, kind: ast.ArrayType | ast.ScalarType | None, root: ast.Expr | None) -> ast.Expr | None:
    """A parameter's default: scalars and options have one, arrays have none."""
    if isinstance(kind, ast.ArrayType) and root is not None:
        help = "only a parameter without annotation, or a `float`, `int` or `bool`, has a default"
        raise ParseError("MT0002", f"array parameter `{name.text}` has a default", root.span, help=help)
    return root if root is None or isinstance(root, ast.String) else value(root)


def body(name: Word, found: list[Statement]) -> tuple[ast.Assign | ast.Return, ...]:
    """The statements of a function without its docstring, ending in its only return."""
    statements: list[ast.Assign | ast.Return] = []
    for statement in found[1:] if _is_docstring(found[0]) else found:
        if isinstance(statement, Effect):
            value(statement.value)
            help = "assign it to a name, or return it"
            raise ParseError("MT0002", "this statement does nothing", statement.span, help=help)
        statements.append(statement)
    for statement, after in pairwise(statements):
        if isinstance(statement, ast.Return):
            help = "a function has one `return`, at its end; several outputs are `return a, b`"
            raise ParseError("MT0002", "this comes after the `return`", after.span, help=help)
    if not statements or not isinstance(statements[-1], ast.Return):
        help = "end it with `return` and a value"
        raise ParseError("MT0002", f"function `{name.text}` returns nothing", name.span, help=help)
    return tuple(statements)


def _is_docstring(statement: Statement) -> bool:
    return isinstance(statement, Effect) and isinstance(statement.value, ast.String)


def targets(target: ast.Expr) -> tuple[ast.Name, ...]:
    """The names on the left of `=`."""
    parts = target.elements if isinstance(target, ast.Tuple) else (target,)
    if not parts:
        raise _bad_target(target)
    return tuple(part if isinstance(part, ast.Name) else _refuse(part) for part in parts)


def _refuse(target: ast.Expr) -> ast.Name:
    raise _bad_target(target)


def _bad_target(node: ast.Expr) -> ParseError:
    match node:
        case ast.Subscript() | ast.Attribute():
            message, help = "arrays are never changed", "build a new one, for example `y = where(mask, a, x)`"
            return ParseError("MT0002", message, node.span, help=help)
        case ast.Tuple():
            help = "unpack in two steps"
            return ParseError("MT0002", "targets cannot be nested or empty", node.span, help=help)
        case _:
            help = "a name is on the left of `=`; `==` compares"
            return ParseError("MT0001", "this cannot be assigned to", node.span, help=help)


def chained(parts: Sequence[Word | ast.Node], span: Span) -> ParseError:
    """For `a < b < c`."""
    a, first, b, second, c = (part.span.text if len(part.span.text) < 20 else "…" for part in parts[:5])
    help = f"write `({a} {first} {b}) & ({b} {second} {c})`"
    return ParseError("MT0002", "comparisons cannot be chained", span, help=help)


def callee(function: ast.Expr) -> tuple[str, tuple[ast.Expr, ...]]:
    """What is called, and the receiver of a method as its first argument."""
    match function:
        case ast.Name(id="print"):
            help = "return the value as one more output: `return y, x`"
            raise ParseError("MT0002", "a program cannot print", function.span, help=help)
        case ast.Name(id=id):
            return id, ()
        case ast.Attribute(value=value, name=name):
            return name, (value,)
        case _:
            help = "call a function by its name; `*` multiplies"
            raise ParseError("MT0002", "only a name can be called", function.span, help=help)


def arguments(found: Sequence[ast.Node]) -> None:
    """Positional arguments first, each keyword once."""
    seen: set[str] = set()
    for argument in found:
        if isinstance(argument, Keyword):
            if argument.name in seen:
                raise ParseError("MT0102", f"`{argument.name}` is given twice", argument.span)
            seen.add(argument.name)
    for before, argument in pairwise(found):
        if isinstance(before, Keyword) and not isinstance(argument, Keyword):
            help = "write positional arguments first"
            raise ParseError("MT0102", "this argument follows a named one", argument.span, help=help)
