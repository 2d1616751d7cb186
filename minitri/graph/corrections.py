"""Corrects rejected expressions. Each correction rewrites the program's own code.

    x ^ 2                x is f32             x ** 2
    a if x > 0 else b    x > 0 is an array    where(x > 0, a, b)
    sum(x, axis=2)       x has two axes       sum(x, axis=-1)

In: an error, the node of the syntax tree that caused it, and the values of the node's operands. Out: the same error,
with an edit of the source and a help that shows this edit. The one idea: the code that finds a mistake knows values,
and the syntax tree knows the text. The rules combine the values and the text only after an error, so correct programs
cost no time. Each rule returns an `Edit`, or None if the rule has no correction.
"""

import re
from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import Any

from minitri.base.diagnostics import CompileError, Edit
from minitri.base.spans import Span
from minitri.base.toml_tables import table_beside
from minitri.base.types import DTYPES, bool_
from minitri.graph import call_corrections as calls
from minitri.graph.call_corrections import Values, beside, here
from minitri.graph.typing_rules import Array
from minitri.language import ast
from minitri.language.python_corrections import refused

Rule = Callable[[re.Match[str], Any, Values], Edit | None]


@cache
def _rules() -> list[tuple[str, re.Pattern[str], Rule]]:
    """Returns the rows of corrections.toml. Each row has an error code, a pattern for the message, and a rule."""
    rows = table_beside(__file__, "corrections.toml")["rules"]
    rules = {**vars(calls), **globals()}
    return [(of, re.compile(pattern), rules[name]) for of, pattern, name in rows]


def correct(error: CompileError, node: ast.Node, values: Values) -> CompileError:
    """Returns the error with a correction, if a rule has one.

    An error that already has a correction stays unchanged.
    """
    if error.edits:
        return error
    of, text = f"{error.code} {type(node).__name__}", f"{error.message}\n{error.help}"
    found = ((rule, match) for kind, pattern, rule in _rules() if kind == of and (match := pattern.search(text)))
    for edit in chain([_by_table(error, node)], (rule(match, node, values) for rule, match in found)):
        if edit is not None and edit.text != edit.span.text:
            reason = error.help.split("; ")[0]
            kept = f"{reason}; " if reason and not re.search("write|use|`", reason) else ""
            written = " ".join(_changed(node, edit).split())
            return error.correct(edit, help=f"{kept}write `{written}`" if len(written) < 100 else error.help)
    return error


def result_type(
    error: CompileError, function: ast.Function, declared: ast.ArrayType, k: int, array: Array
) -> CompileError:
    """Corrects the error for a result of the wrong type.

    The correction converts the result to the declared dtype, or declares the actual shape.
    """
    value = function.body[-1].value if isinstance(function.body[-1], ast.Return) else None
    value = value.elements[k] if isinstance(value, ast.Tuple) else value
    if array.dtype.name != declared.dtype and value is not None:
        return error.correct(Edit(value.span, f"astype({value.span.text}, {declared.dtype})"))
    return error.write(declared.span, str(array), f"declare `-> {array}`")


def _changed(node: ast.Node, edit: Edit) -> str:
    """Returns the text of the node after the edit. The text does not show the rest of the node's line."""
    start, end = min(node.span.start, edit.span.start), max(node.span.end, edit.span.end)
    text = node.span.source.text
    return text[start : edit.span.start] + edit.text + text[edit.span.end : end]


def _by_table(error: CompileError, node: ast.Node) -> Edit | None:
    text = None if "is needed here" in error.message else refused(error.code, node.span.text)
    return here(node, text) if text else None


# ---- operators -----------------------------------------------------------------------------------


def _operator(node: ast.Binary, op: str) -> Edit:
    source, start = node.span.source, node.left.span.end
    at = source.text.index(node.op, start, node.right.span.start)
    return Edit(Span(source, at, at + len(node.op)), op)


def new_axis(found: re.Match[str], node: ast.Binary, values: Values) -> Edit | None:
    """Adds an axis to an operand so that the operands broadcast.

    `x + b` of [M, N] and [M] becomes `x + b[:, None]`. With [M] and [N] it becomes `x[:, None] + b`.
    """
    left, right = values.get(id(node.left)), values.get(id(node.right))
    if not isinstance(left, Array) or not isinstance(right, Array):
        return None
    small, large, operand = (
        (left, right, node.left) if len(left.shape) <= len(right.shape) else (right, left, node.right)
    )
    missing = len(large.shape) - len(small.shape)
    fits = small.shape == large.shape[: len(small.shape)] if missing else len(small.shape) == 1
    index = ", ".join([":"] * len(small.shape) + ["None"] * max(missing, 1))
    return here(operand, f"{beside(operand)}[{index}]") if fits and small.shape else None


def transposed(found: re.Match[str], node: ast.Binary, values: Values) -> Edit | None:
    """Corrects a matrix product whose shapes do not fit, by adding, removing or replacing a transpose of one operand.

    A product with a number becomes an elementwise product.
    """
    left, right = values.get(id(node.left)), values.get(id(node.right))
    for operand in (node.left, node.right):
        if isinstance(operand, ast.Attribute) and operand.name == "T":  # it reverses all axes
            inner = values.get(id(operand.value))
            if isinstance(inner, Array) and len(inner.shape) > 2:
                return here(operand, f"{operand.value.span.text}.mT")
    if not isinstance(left, Array) or not isinstance(right, Array) or not left.shape or not right.shape:
        return _operator(node, "*")
    if len(right.shape) >= 2 and right.shape[-1] == left.shape[-1]:
        plain = re.sub(r"\.m?T$", "", node.right.span.text)
        return here(node.right, plain if plain != node.right.span.text else f"{beside(node.right)}.mT")
    if len(left.shape) >= 2 and left.shape[-2] == right.shape[-min(2, len(right.shape))]:
        return here(node.left, f"{beside(node.left)}.mT")
    return None


def wider(found: re.Match[str], node: ast.Binary, values: Values) -> Edit | None:
    """Converts an array to a dtype in which a number fits: `x + 300` for i8 becomes `astype(x, i16) + 300`."""
    for operand, number in ((node.left, node.right), (node.right, node.left)):
        x, n = values.get(id(operand)), values.get(id(number))
        if isinstance(x, Array) and x.dtype.is_integer and isinstance(n, int):
            wider = (DTYPES[f"i{bits}"] for bits in (16, 32, 64) if bits > x.dtype.bits)
            dtype = next((d for d in wider if d.limits[0] <= n <= d.limits[1]), None)
            return here(operand, f"astype({operand.span.text}, {dtype})") if dtype else None
    return None


def infinity(found: re.Match[str], node: ast.Node, values: Values) -> Edit | None:
    return here(node, "inf")


def infinite_number(found: re.Match[str], node: ast.Node, values: Values) -> Edit | None:
    return next((here(n, "inf") for n in ast.children(node) if isinstance(n, ast.Number)), None)


def unpacked(found: re.Match[str], node: ast.Assign, values: Values) -> Edit | None:
    """Corrects an assignment to several names: `a, b = x` becomes `a, b = x[0], x[1]`.

    `a, b = x, y, z` becomes `a, b, _ = x, y, z`.
    """
    value, count = values.get(id(node.value)), len(node.targets)
    if isinstance(value, Array):
        return here(node.value, ", ".join(f"{beside(node.value)}[{k}]" for k in range(count)))
    if not isinstance(value, tuple) or not value:
        return None
    names = [t.span.text for t in node.targets][: len(value)] + ["_"] * (len(value) - count)
    return Edit(node.targets[0].span.to(node.targets[-1].span), ", ".join(names))


# ---- subscripts and attributes -------------------------------------------------------------------------


def mask(found: re.Match[str], node: ast.Subscript, values: Values) -> Edit | None:
    """Replaces an index of booleans by `where`: `x[x > 0]` becomes `where(x > 0, x, 0)`."""
    index = values.get(id(node.indices[0])) if len(node.indices) == 1 else None
    if not isinstance(index, Array) or index.dtype != bool_:
        return None
    return here(node, f"where({node.indices[0].span.text}, {node.value.span.text}, 0)")


def last_item(found: re.Match[str], node: ast.Subscript, values: Values) -> Edit | None:
    """Replaces an index of a tuple that is out of range by -1, the last item."""
    is_number = len(node.indices) == 1 and isinstance(values.get(id(node.indices[0])), int)
    return here(node.indices[0], "-1") if is_number else None


def last(found: re.Match[str], node: ast.Subscript, values: Values) -> Edit | None:
    """Replaces an array index that is out of range by -1, the last element of the axis."""
    wrong = [i for i in node.indices if isinstance(values.get(id(i)), int) and i.span.text in found.string]
    return here(wrong[0], "-1") if wrong else None


def fewer(found: re.Match[str], node: ast.Subscript, values: Values) -> Edit | None:
    """Removes the last indices of a subscript that has more indices than the array has axes."""
    x = values.get(id(node.value))
    if not isinstance(x, Array) or not len(node.indices) > len(x.shape) > 0:
        return None
    start = node.indices[len(x.shape) - 1].span.end
    return Edit(Span(node.span.source, start, node.indices[-1].span.end), "")


def ellipses(found: re.Match[str], node: ast.Subscript, values: Values) -> Edit | None:
    """Corrects a subscript: `x[..., ...]` becomes `x[...]`, and `x[True]` becomes `x[None]`."""
    several = [i for i in node.indices if isinstance(i, ast.EllipsisLiteral)]
    if len(several) > 1:
        before = node.indices[node.indices.index(several[1]) - 1]
        return Edit(Span(node.span.source, before.span.end, several[1].span.end), "")
    truths = [i for i in node.indices if values.get(id(i)) is True]
    return here(truths[0], "None") if truths else None
