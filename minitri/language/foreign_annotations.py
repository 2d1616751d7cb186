"""Annotations inside strings, `"f32[M, N]"`, and those of jaxtyping.

Float32[Tensor, "*B M N+1"]     →     f32[*B, M, N+1]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from minitri.base.diagnostics import ParseError
from minitri.base.spans import Span
from minitri.language import ast

TUPLES = ("tuple", "Tuple")
SHAPELESS = (
    *TUPLES, "Tensor", "FloatTensor", "ndarray", "array", "Array", "ArrayLike", "NDArray", "Any", "object", "list", "List",
)  # fmt: skip
JAXTYPING = {"Float": "f32", "Bool": "bool", "BFloat16": "bf16"} | {
    f"{word}{bits}": f"{word[0].lower()}{bits}"
    for word, sizes in (("Float", (16, 32, 64)), ("Int", (8, 16, 32, 64)), ("UInt", (8, 16, 32, 64)))
    for bits in sizes
}
EXAMPLE = "write for example `f32[M, N]`, `f16[*B, D]` or `float`"


def without_shape(word: str, span: Span) -> ParseError:
    """The error for a type without a shape: `Tensor`, `np.ndarray`."""
    if word in JAXTYPING:
        help = f'write `{JAXTYPING[word]}[M, N]`, or `{word}[Tensor, "M N"]`'
        error = ParseError("MT0004", f"`{word}` does not say the shape", span)
        return error.write(span, f"{JAXTYPING[word]}[M, N]", help)
    help = f"{EXAMPLE}, or leave it out: the call then says the type"
    text = "f32" if span.source.text[span.end : span.end + 1] == "[" else "f32[M, N]"
    return ParseError("MT0004", f"`{word}` does not say dtype and shape", span).write(span, text, help)


def string_inside(string: ast.String) -> Span:
    """Where the text between the quotes is."""
    match = re.fullmatch(r"""[rRuU]?("{3}|'{3}|"|')(.*)\1""", string.span.text, re.DOTALL)
    if match is None or "\\" in match[2]:
        help = "write the string without parentheses and backslashes"
        raise ParseError("MT0004", "this string cannot be read as a type", string.span, help=help)
    start = string.span.start + match.start(2)
    return Span(string.span.source, start, start + len(match[2]))


def jaxtyping_shape(indices: tuple[ast.Expr | ast.Pack, ...]) -> ast.String | None:
    """The shape of `Float32[Tensor, "M N"]`; None for another type."""
    return indices[1] if len(indices) == 2 and isinstance(indices[1], ast.String) else None


def words_of(shape: ast.String) -> Iterator[ast.Pack | Span]:
    """The dimensions of `"*B M N+1"`, which blanks separate."""
    inside = string_inside(shape)
    for match in re.finditer(r"\S+", inside.text):
        word = Span(inside.source, inside.start + match.start(), inside.start + match.end())
        if not re.match(r"[A-Za-z0-9(]|\*[A-Za-z][A-Za-z0-9_]*$", word.text):
            help = "name every dimension; write `*B` for any number of axes"
            raise ParseError("MT0004", f"`{word.text[:40]}` is not supported in a shape", word, help=help)
        yield ast.Pack(word, word.text[1:]) if word.text.startswith("*") else word
