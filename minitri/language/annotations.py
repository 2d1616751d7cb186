"""Translates the syntax tree of a type annotation, such as `f32[N]`, into a type.

A type can be written in four ways: as an expression, as a string, as an attribute of `mt`, or in jaxtyping's notation.

    f32[*B, D]      "f32[*B, D]"      mt.f32[*B, D]      Float32[Tensor, "*B D"]

The function `read_type` takes an annotation, parsed as an expression. The result is an `ArrayType` or a `ScalarType`.
The function `read_returns` returns a tuple of types, one for each output of a function. The one idea: the grammar has
no rules for types. Each spelling of a type is one `case` in this file. Each kind of mistake in a type gets its own
error message. A dimension of a type is an expression such as `N + 1`, whose value is known only in a call.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from minitri.base.diagnostics import CompileError, Edit, ParseError
from minitri.base.spans import Span
from minitri.base.types import BY_NUMPY_NAME, DTYPES, dtype
from minitri.language import ast
from minitri.language.foreign import names
from minitri.language.syntax_errors import mistake, tables

Type: TypeAlias = ast.ArrayType | ast.ScalarType
Reader: TypeAlias = Callable[[Span], ast.Expr]  # parses the text of a string annotation

_SCALARS = ("float", "int", "bool")
TUPLES = ("tuple", "Tuple")


def read_type(expr: ast.Expr | ast.Pack, parse: Reader) -> Type:
    """Returns the type that an annotation stands for. Raises ParseError if the annotation is not a type."""
    match expr:
        case ast.String():
            return read_type(parse(_string_inside(expr)), parse)
        case ast.Pack():
            raise mistake("starred_type", expr.span)
        case ast.Name(id=id) if id in _SCALARS:
            return ast.ScalarType(expr.span, id)
        case ast.Name() | ast.Attribute(value=ast.Name()):
            return ast.ArrayType(expr.span, _dtype(expr), ())
        case ast.Subscript(
            value=ast.Name() | ast.Attribute(value=ast.Name()) as head, indices=(_, ast.String() as shape)
        ) if dtype := tables()["types"]["jaxtyping"].get(_word(head)):
            dims = [d if isinstance(d, ast.Pack) else parse(d) for d in _words_of(shape)]
            return ast.ArrayType(expr.span, dtype, _dims(dims))
        case ast.Subscript(value=ast.Name() | ast.Attribute(value=ast.Name()) as head, indices=indices):
            return ast.ArrayType(expr.span, _dtype(head), _dims(_flat(indices)))
        case ast.Call(function=name, args=args, keywords=()) if args and name in DTYPES | BY_NUMPY_NAME:
            dims = args[0].span.to(args[-1].span).text
            raise mistake("brackets_of_type", expr.span).write(expr.span, f"{name}[{dims}]")
    raise mistake("not_a_type", expr.span)


def read_returns(expr: ast.Expr, parse: Reader) -> tuple[Type, ...]:
    """Returns the types in a return annotation.

    A return annotation is one type, or several types in the form `(A, B)` or `tuple[A, B]`.
    """
    match expr:
        case ast.String():
            return read_returns(parse(_string_inside(expr)), parse)
        case ast.Tuple(elements=parts) if parts:
            pass
        case ast.Subscript(value=ast.Name(id=id), indices=indices) if id in TUPLES:
            parts = _flat(indices)
        case _:
            parts = (expr,)
    return tuple(read_type(part, parse) for part in parts)


def _word(head: ast.Expr) -> str:
    """Returns the last part of a dotted name, such as `f32` for `mt.f32`."""
    assert isinstance(head, ast.Name | ast.Attribute)
    return head.id if isinstance(head, ast.Name) else head.name


def _dtype(head: ast.Expr) -> str:
    word = _word(head)
    try:
        return dtype(word).name
    except CompileError as error:
        if word in tables()["types"]["jaxtyping"] or word in tables()["types"]["shapeless"]:
            raise _without_shape(word, head.span) from None
        answer = names.value(word)  # torch's `half` and `double`
        help = f"write `{answer.row.instead}`" if answer and answer.row.instead in DTYPES else error.help
        guess = re.search(r"(?:write|mean) `(\w+)`", help)
        edit = Edit(head.span, guess[1]) if guess else None
        raise ParseError(error.code, error.message, head.span).correct(edit, help=help) from None


def _flat(indices: tuple[ast.Expr | ast.Slice | ast.Pack, ...]) -> tuple[ast.Expr | ast.Pack, ...]:
    """Returns the dimensions of a type such as `f32[(M, N)]` as a flat tuple."""
    match indices:
        case (ast.Tuple(span=span, elements=elements),) if span.text.startswith("("):
            return elements  # none for `f32[()]`, as in Python
    return indices


def _dims(dims: Sequence[ast.Expr | ast.Pack]) -> tuple[ast.Expr | ast.Pack, ...]:
    """Returns the dimensions of a type, after a check of each dimension."""
    for node in (node for dim in dims if not isinstance(dim, ast.Pack) for node in ast.postorder(dim)):
        match node:
            case ast.Name() | ast.Binary(op="+" | "-" | "*" | "//" | "%"):
                pass
            case ast.Number(value=int(value)) if not isinstance(value, bool):
                pass
            case ast.EllipsisLiteral():
                raise mistake("ellipsis", node.span).write(node.span, "*B")
            case _:  # such as `1.5` or `2 ** N`
                unnamed, name = isinstance(node, ast.Slice | ast.NoneLiteral), _unused(node)
                error = mistake("unnamed_dimension" if unnamed else "not_a_dimension", node.span, name=name)
                raise error.write(node.span, name)
    # With two packs, as in `f32[*A, *B]`, the shape of an argument would not tell where the first pack ends.
    for second in [d for d in dims if isinstance(d, ast.Pack)][1:]:
        raise mistake("second_pack", second.span, name=second.id)
    return tuple(dims)


def _unused(node: ast.Node) -> str:
    """Returns a dimension name, such as `M`, that does not appear in the source text yet."""
    used = set(re.findall(r"\w+", node.span.source.text))
    return next((name for name in ("N", "M", "K", "L", "P", "Q") if name not in used), "N")


# ---- text in strings, and jaxtyping ----------------------------------------------------------------


def _without_shape(word: str, span: Span) -> ParseError:
    """Returns the error for a type without a shape, such as `Tensor` or `np.ndarray`."""
    dtype = tables()["types"]["jaxtyping"].get(word)
    error = mistake("shapeless_jaxtyping" if dtype else "shapeless", span, word=word, dtype=dtype)
    has_brackets = dtype is None and span.source.text[span.end : span.end + 1] == "["
    return error.write(span, "f32" if has_brackets else f"{dtype or 'f32'}[M, N]")


def _string_inside(string: ast.String) -> Span:
    """Returns the source range (span) of the text between the quotes of a string."""
    match = re.fullmatch(r"""[rRuU]?("{3}|'{3}|"|')(.*)\1""", string.span.text, re.DOTALL)
    if match is None or "\\" in match[2]:
        raise mistake("unreadable_string", string.span)
    start = string.span.start + match.start(2)
    return Span(string.span.source, start, start + len(match[2]))


def _words_of(shape: ast.String) -> Iterator[ast.Pack | Span]:
    """Yields the dimensions in a string such as `"*B M N+1"`."""
    inside = _string_inside(shape)
    for match in re.finditer(r"\S+", inside.text):
        word = Span(inside.source, inside.start + match.start(), inside.start + match.end())
        if not re.match(r"[A-Za-z0-9(]|\*[A-Za-z][A-Za-z0-9_]*$", word.text):
            raise mistake("not_in_shape", word, word=word.text[:40])
        yield ast.Pack(word, word.text[1:]) if word.text.startswith("*") else word
