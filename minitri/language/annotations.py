"""Type annotations: from a written expression to the type that it means.

In: an annotation parsed as an expression, as in Python. Out: `ArrayType`, `ScalarType`, or a
tuple of them for several outputs. The one idea: the grammar has no types; a type is an
expression that reads as one, so each spelling is one `case` here and each mistake gets its
own sentence. Spellings of one and the same type:

    f32[*B, D]      "f32[*B, D]"      mt.f32[*B, D]      Float32[Tensor, "*B D"]

Left out: what dimensions mean; they stay expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from minitri.base.diagnostics import CompileError, ParseError
from minitri.base.spans import Span
from minitri.base.types import dtype
from minitri.language import ast

Type: TypeAlias = ast.ArrayType | ast.ScalarType
Reader: TypeAlias = Callable[[Span], ast.Expr]  # parses the text of a string annotation

_SCALARS = ("float", "int", "bool")
_TUPLES = ("tuple", "Tuple")
_FOREIGN = ("Tensor", "ndarray", "Array", "ArrayLike", "NDArray", "Any", "object")
_JAXTYPING = {"Float": "f32", "Bool": "bool", "BFloat16": "bf16"} | {
    f"{word}{bits}": f"{word[0].lower()}{bits}"
    for word, sizes in (("Float", (16, 32, 64)), ("Int", (8, 16, 32, 64)), ("UInt", (8, 16, 32, 64)))
    for bits in sizes
}
_EXAMPLE = "write for example `f32[M, N]`, `f16[*B, D]` or `float`"


def read_type(expr: ast.Expr, parse: Reader) -> Type:
    """The type that an annotation means; ParseError if it means none."""
    match expr:
        case ast.String():
            return read_type(parse(string_inside(expr)), parse)
        case ast.Name(id=id) if id in _SCALARS:
            return ast.ScalarType(expr.span, id)
        case ast.Name() | ast.Attribute(value=ast.Name()):
            return ast.ArrayType(expr.span, _dtype(expr), ())
        case ast.Subscript(value=ast.Name() | ast.Attribute(value=ast.Name()) as head, indices=indices):
            if _is_jaxtyping(head, indices):
                return ast.ArrayType(expr.span, _JAXTYPING[_word(head)], _one_pack(_shape_string(indices, parse)))
            return ast.ArrayType(expr.span, _dtype(head), _one_pack(tuple(map(_dim, _flat(indices)))))
        case _:
            raise ParseError("MT0004", "this is not a type", expr.span, help=_EXAMPLE)


def read_returns(expr: ast.Expr, parse: Reader) -> tuple[Type, ...]:
    """The types of a return annotation: one, `(A, B)` or `tuple[A, B]`."""
    match expr:
        case ast.String():
            return read_returns(parse(string_inside(expr)), parse)
        case ast.Tuple(elements=parts) if parts:
            pass
        case ast.Subscript(value=ast.Name(id=id), indices=indices) if id in _TUPLES:
            parts = _flat(indices)
        case _:
            parts = (expr,)
    return tuple(read_type(_expression(part), parse) for part in parts)


def string_inside(string: ast.String) -> Span:
    """Where the text between the quotes is."""
    match = re.fullmatch(r"""[rRuU]?("{3}|'{3}|"|')(.*)\1""", string.span.text, re.DOTALL)
    if match is None or "\\" in match[2]:
        help = "write the string without parentheses and backslashes"
        raise ParseError("MT0004", "this string cannot be read as a type", string.span, help=help)
    start = string.span.start + match.start(2)
    return Span(string.span.source, start, start + len(match[2]))


def _word(head: ast.Expr) -> str:
    """`f32` of `f32` and of `mt.f32`."""
    assert isinstance(head, ast.Name | ast.Attribute)
    return head.id if isinstance(head, ast.Name) else head.name


def _dtype(head: ast.Expr) -> str:
    word = _word(head)
    if word in _JAXTYPING:
        help = f'write `{_JAXTYPING[word]}[M, N]`, or `{word}[Tensor, "M N"]`'
        raise ParseError("MT0004", f"`{word}` does not say the shape", head.span, help=help)
    if word in _FOREIGN or word in _TUPLES:
        help = f"{_EXAMPLE}, or leave it out: the call then says the type"
        raise ParseError("MT0004", f"`{word}` does not say dtype and shape", head.span, help=help)
    try:
        return dtype(word).name
    except CompileError as error:
        raise ParseError(error.code, error.message, head.span, help=error.help) from None


def _flat(indices: tuple[ast.Expr | ast.Slice | ast.Pack, ...]) -> tuple[ast.Expr | ast.Pack, ...]:
    """`f32[()]` has no dimensions, and `f32[(M, N)]` is `f32[M, N]`, as in Python."""
    match indices:
        case (ast.Tuple(span=span, elements=elements),) if span.text.startswith("("):
            return elements
    return indices


def _expression(part: ast.Expr | ast.Pack) -> ast.Expr:
    if isinstance(part, ast.Pack):
        raise ParseError("MT0004", "`*` belongs before a dimension, not before a type", part.span)
    return part


def _dim(dim: ast.Expr | ast.Pack) -> ast.Expr | ast.Pack:
    """A dimension: names, integers and + - * // % of them."""
    for node in () if isinstance(dim, ast.Pack) else ast.postorder(dim):
        match node:
            case ast.Name():
                pass
            case ast.Number(value=int(value)) if not isinstance(value, bool):
                pass
            case ast.Binary(op="+" | "-" | "*" | "//" | "%"):
                pass
            case ast.EllipsisLiteral():
                help = "write `*B` for any number of axes, with a name of your own"
                raise ParseError("MT0004", "`...` is not a dimension", node.span, help=help)
            case ast.Slice() | ast.NoneLiteral():
                help = "give the dimension a name, such as `N`"
                raise ParseError("MT0004", "a dimension needs a name or a size", node.span, help=help)
            case _:
                help = "a dimension is a name, an integer, or + - * // % of them"
                raise ParseError("MT0004", "this is not a dimension", node.span, help=help)
    return dim


def _one_pack(shape: tuple[ast.Expr | ast.Pack, ...]) -> tuple[ast.Expr | ast.Pack, ...]:
    """Of two packs in one type no call could tell where the first ends."""
    for second in [d for d in shape if isinstance(d, ast.Pack)][1:]:
        help = "name the axes of one of them: `f32[*B, M, N]`"
        raise ParseError("MT0004", f"`*{second.id}` is a second pack of axes in one type", second.span, help=help)
    return shape


def _is_jaxtyping(head: ast.Expr, indices: tuple[ast.Expr | ast.Pack, ...]) -> bool:
    return _word(head) in _JAXTYPING and len(indices) == 2 and isinstance(indices[1], ast.String)


def _shape_string(indices: tuple[ast.Expr | ast.Pack, ...], parse: Reader) -> tuple[ast.Expr | ast.Pack, ...]:
    """The dimensions of jaxtyping's `"*B M N+1"`: separated by blanks."""
    string = indices[1]
    assert isinstance(string, ast.String)
    inside = string_inside(string)
    return tuple(
        _shape_word(Span(inside.source, inside.start + word.start(), inside.start + word.end()), parse)
        for word in re.finditer(r"\S+", inside.text)
    )


def _shape_word(word: Span, parse: Reader) -> ast.Expr | ast.Pack:
    if re.fullmatch(r"\*[A-Za-z][A-Za-z0-9_]*", word.text):
        return ast.Pack(word, word.text[1:])
    if not re.match(r"[A-Za-z0-9(]", word.text):
        help = "name every dimension; write `*B` for any number of axes"
        raise ParseError("MT0004", f"`{word.text[:40]}` is not supported in a shape", word, help=help)
    return _dim(parse(word))
