"""Annotations inside strings, `"f32[M, N]"`, and those of jaxtyping.

Float32[Tensor, "*B M N+1"]     →     f32[*B, M, N+1]
"""

import re
from collections.abc import Iterator

from minitri.base.diagnostics import ParseError
from minitri.base.spans import Span
from minitri.language import ast
from minitri.language.syntax_errors import mistake

TUPLES = ("tuple", "Tuple")
SHAPELESS = (
    *TUPLES, "Tensor", "FloatTensor", "ndarray", "array", "Array", "ArrayLike", "NDArray", "Any", "object", "list", "List",
)  # fmt: skip
JAXTYPING = {"Float": "f32", "Bool": "bool", "BFloat16": "bf16"} | {
    f"{word}{bits}": f"{word[0].lower()}{bits}"
    for word, sizes in (("Float", (16, 32, 64)), ("Int", (8, 16, 32, 64)), ("UInt", (8, 16, 32, 64)))
    for bits in sizes
}


def without_shape(word: str, span: Span) -> ParseError:
    """The error for a type without a shape: `Tensor`, `np.ndarray`."""
    dtype = JAXTYPING.get(word)
    error = mistake("shapeless_jaxtyping" if dtype else "shapeless", span, word=word, dtype=dtype)
    has_brackets = dtype is None and span.source.text[span.end : span.end + 1] == "["
    return error.write(span, "f32" if has_brackets else f"{dtype or 'f32'}[M, N]")


def string_inside(string: ast.String) -> Span:
    """Where the text between the quotes is."""
    match = re.fullmatch(r"""[rRuU]?("{3}|'{3}|"|')(.*)\1""", string.span.text, re.DOTALL)
    if match is None or "\\" in match[2]:
        raise mistake("unreadable_string", string.span)
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
            raise mistake("not_in_shape", word, word=word.text[:40])
        yield ast.Pack(word, word.text[1:]) if word.text.startswith("*") else word
