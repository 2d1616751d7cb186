"""Corrects expressions that the compiler rejects. Each correction rewrites a part of the user's program.

    x ^ 2                x is f32             x ** 2
    a if x > 0 else b    x > 0 is an array    where(x > 0, a, b)
    sum(x, axis=2)       x has two axes       sum(x, axis=-1)

The function `correct` takes an error, the syntax node that caused the error, and the values of the node's operands. If
a rule has a correction, `correct` adds an edit of the source text to the error. The help text of the error shows the
edit. The one idea: the code that finds a mistake knows the values of the operands, and the syntax tree knows their
source text. A rule computes the corrected text from the values and the source text. The rules of corrections.toml run
only after an error, so they cost no time for correct programs. Each rule yields corrections (`Edit`s of the source
text) in order, the best first.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any

from minitri.base.diagnostics import CompileError, Edit
from minitri.base.toml_tables import table_beside
from minitri.base.types import DTYPES
from minitri.graph import call_corrections as calls
from minitri.graph.call_corrections import Values, beside, here, operator
from minitri.graph.typing_rules import Array
from minitri.language import ast
from minitri.language.python_corrections import refused

Rule = Callable[[re.Match[str], Any, Values], Iterable[Edit]]

# The parts of a rejected node that the rows of corrections.toml look at.
PARTS: dict[str, Callable[[Any], Iterable[ast.Node]]] = {
    "node": lambda node: [node],
    "children": ast.children,
    "indices": lambda node: node.indices,
    "only index": lambda node: node.indices if len(node.indices) == 1 else (),
    "second of two": lambda call: call.args[1:] if len(call.args) == 2 else (),
    "items": lambda call: calls.items(call) if call.args else (),
    "later arguments": lambda call: [*call.args[1:], *(value for _, value in call.keywords)] or call.args,
    "axes": calls.axes,
}


@cache
def _rules() -> list[tuple[str, re.Pattern[str], Rule]]:
    """Returns the rows of corrections.toml, each with an error code, a pattern and a rule."""
    rules = {**vars(calls), **globals()}
    return [
        (of, re.compile(pattern), partial(rewritten_part, PARTS[name], *row) if row else rules[name])
        for of, pattern, name, *row in table_beside(__file__, "corrections.toml")["rules"]
    ]


def correct(error: CompileError, node: ast.Node, values: Values) -> CompileError:
    """Returns the error, with a correction if a rule has a correction for this error.

    An error that already has a correction is returned unchanged.
    """
    if error.edits:
        return error
    for edit in _edits(error, node, values):
        if edit.text != edit.span.text:
            reason = error.help.split("; ")[0]
            kept = f"{reason}; " if reason and not re.search("write|use|`", reason) else ""
            written = " ".join(_changed(node, edit).split())
            return error.correct(edit, help=f"{kept}write `{written}`" if len(written) < 100 else error.help)
    return error


def _edits(error: CompileError, node: ast.Node, values: Values) -> Iterator[Edit]:
    """Yields possible corrections of an error, the best first."""
    if "is needed here" not in error.message and (text := refused(error.code, node.span.text)):
        yield here(node, text)
    for of, pattern, rule in _rules():
        if of == f"{error.code} {type(node).__name__}" and (found := pattern.search(f"{error.message}\n{error.help}")):
            yield from rule(found, node, values)


def rewritten_part(
    parts: Callable[[Any], Iterable[ast.Node]], kind: str, text: str, replaced: str,
    found: re.Match[str], node: ast.Node, values: Values,
) -> Iterator[Edit]:  # fmt: skip
    """Compares the parts of a syntax node with a row of corrections.toml, and yields an edit for each part that matches
    the row.

    Example: if v is an array of floats, the part v of `x[v]` becomes `astype(v, i64)`. The argument `text` is a
    template of the corrected text, such as `astype({part}, i64)`. In `text`, `{first}` stands for the first child of
    the node, such as x in `x[v]`.
    """
    for k, part in enumerate(tried := list(parts(node))):
        if kind.format(*found.groups()) in _kinds(part, values.get(id(part))):
            first, element = ((*ast.children(of), of)[0] for of in (node, part))
            words = {
                "part": part.span.text,
                "beside": beside(part),
                "first": beside(first),
                "element": element.span.text,
            }
            yield here(part if replaced == "part" else node, text.format(**words, k=k - len(tried)))


def _kinds(part: ast.Node, value: Any) -> set[str]:
    """Returns the names that corrections.toml can use for a syntax node and its value, such as `Tuple` or `f array`."""
    kinds = {"", type(part).__name__, type(value).__name__, "" if isinstance(value, Array | str) else str(value)}
    return kinds | {f"{value.dtype.kind} array"} if isinstance(value, Array) else kinds


def result_type(
    error: CompileError, function: ast.Function, declared: ast.ArrayType, k: int, array: Array
) -> CompileError:
    """Adds a correction to the error for a result of the wrong type.

    For a wrong dtype, the correction converts the result to the declared dtype. If only the shape is wrong, the
    correction declares the actual type.
    """
    value = function.body[-1].value if isinstance(function.body[-1], ast.Return) else None
    value = value.elements[k] if isinstance(value, ast.Tuple) else value
    if array.dtype.name != declared.dtype and value is not None:
        return error.correct(Edit(value.span, f"astype({value.span.text}, {declared.dtype})"))
    return error.write(declared.span, str(array), f"declare `-> {array}`")


def _changed(node: ast.Node, edit: Edit) -> str:
    """Returns the text of a syntax node after an edit."""
    start, end = min(node.span.start, edit.span.start), max(node.span.end, edit.span.end)
    text = node.span.source.text
    return text[start : edit.span.start] + edit.text + text[edit.span.end : end]


# ---- operators -----------------------------------------------------------------------------------


def new_axis(found: re.Match[str], node: ast.Binary, values: Values) -> Iterator[Edit]:
    """Adds an axis to an operand so that the operands broadcast.

    If x has the shape [M, N] and b the shape [M], `x + b` becomes `x + b[:, None]`. If x has the shape [M] and b the
    shape [N], `x + b` becomes `x[:, None] + b`.
    """
    left, right = values.get(id(node.left)), values.get(id(node.right))
    if isinstance(left, Array) and isinstance(right, Array):
        pairs = (left, node.left), (right, node.right)
        (small, operand), (large, _) = sorted(pairs, key=lambda pair: len(pair[0].shape))
        missing = len(large.shape) - len(small.shape)
        fits = small.shape == large.shape[: len(small.shape)] if missing else len(small.shape) == 1
        index = ", ".join([":"] * len(small.shape) + ["None"] * max(missing, 1))
        if fits and small.shape:
            yield here(operand, f"{beside(operand)}[{index}]")


def transposed(found: re.Match[str], node: ast.Binary, values: Values) -> Iterator[Edit]:
    """Corrects a matrix product with shapes that do not fit: adds, removes or replaces the transpose of an operand.

    If an operand is a number, the matrix product `@` becomes the elementwise product `*`.
    """
    left, right = values.get(id(node.left)), values.get(id(node.right))
    for operand in (node.left, node.right):
        if isinstance(operand, ast.Attribute) and operand.name == "T":  # it reverses all axes
            inner = values.get(id(operand.value))
            if isinstance(inner, Array) and len(inner.shape) > 2:
                yield here(operand, f"{operand.value.span.text}.mT")
    if not isinstance(left, Array) or not isinstance(right, Array) or not left.shape or not right.shape:
        yield operator(node, "*")
    elif len(right.shape) >= 2 and right.shape[-1] == left.shape[-1]:
        plain = re.sub(r"\.m?T$", "", node.right.span.text)
        yield here(node.right, plain if plain != node.right.span.text else f"{beside(node.right)}.mT")
    elif len(left.shape) >= 2 and left.shape[-2] == right.shape[-min(2, len(right.shape))]:
        yield here(node.left, f"{beside(node.left)}.mT")


def power(found: re.Match[str], node: ast.Binary, values: Values) -> Iterator[Edit]:
    """Replaces `^` by `**`, without parentheses: a user who writes `x + y^2` means `x + y**2`."""
    yield operator(node, "**")


def wider(found: re.Match[str], node: ast.Binary, values: Values) -> Iterator[Edit]:
    """Converts an array to a dtype in which a number fits.

    If x is an i8 array, `x + 300` becomes `astype(x, i16) + 300`.
    """
    for operand, number in ((node.left, node.right), (node.right, node.left)):
        x, n = values.get(id(operand)), values.get(id(number))
        if isinstance(x, Array) and x.dtype.is_integer and isinstance(n, int):
            wider = (DTYPES[f"i{bits}"] for bits in (16, 32, 64) if bits > x.dtype.bits)
            fitting = (d for d in wider if d.limits[0] <= n <= d.limits[1])
            yield from (here(operand, f"astype({operand.span.text}, {d})") for d in fitting)


def unpacked(found: re.Match[str], node: ast.Assign, values: Values) -> Iterator[Edit]:
    """Yields corrections of an assignment to several names. If x is an array, `a, b = x` becomes `a, b = x[0], x[1]`.

    If there are more values than names, `_` takes the last values: `a, b = x, y, z` becomes `a, b, _ = x, y, z`.
    """
    value, count = values.get(id(node.value)), len(node.targets)
    if isinstance(value, Array):
        yield here(node.value, ", ".join(f"{beside(node.value)}[{k}]" for k in range(count)))
    elif isinstance(value, tuple) and value:
        names = [t.span.text for t in node.targets][: len(value)] + ["_"] * (len(value) - count)
        yield Edit(node.targets[0].span.to(node.targets[-1].span), ", ".join(names))
