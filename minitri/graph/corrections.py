"""Corrections of rejected expressions: the program's own code, rewritten.

    x ^ 2                x is f32             x ** 2
    a if x > 0 else b    x > 0 is an array    where(x > 0, a, b)
    sum(x, axis=2)       x has two axes       sum(x, axis=-1)

In: an error, the node of the syntax tree that caused it, and the values of the node's operands. Out: the same error, with
an edit of the source and a help that shows it. The one idea: the code that finds a mistake knows values, and the syntax
tree knows the text. Only after an error are both compared, so correct programs pay nothing. rewriting.toml has the rules
that need no values. Each function here returns an `Edit`, or None if it has nothing better to say than the error itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from minitri.base.diagnostics import CompileError, Edit
from minitri.base.operators import ALIASES, COMBINE, OPERATORS
from minitri.base.spans import Span
from minitri.base.types import DTYPES, from_numpy
from minitri.graph.names import called_name, written_arguments
from minitri.graph.typing_rules import Array
from minitri.language import ast
from minitri.language.foreign import names as foreign
from minitri.language.rewriting import corrected_expression, is_operand, rewritten_call

Values = Mapping[int, Any]
Rule = Callable[[CompileError, Any, Values], Edit | None]


def correct(error: CompileError, node: ast.Node, values: Values) -> CompileError:
    """The error with a correction, if a rule has one. An error that has its own stays as it is."""
    if error.edits:
        return error
    found = (rule(error, node, values) for rule in RULES.get((error.code, type(node)), ()))
    edit = corrected_expression(error, node.span) or next(filter(None, found), None)
    if edit is None:
        return error
    reason = error.help.split("; ")[0]
    kept = f"{reason}; " if reason and not re.search("write|use|`", reason) else ""
    written = " ".join(_changed(node, edit).split())
    return error.correct(edit, help=f"{kept}write `{written}`" if len(written) < 100 else error.help)


def result_type(
    error: CompileError, function: ast.Function, declared: ast.ArrayType, k: int, array: Array
) -> CompileError:
    """The error of a result: convert it to the declared dtype, or declare the shape that it has."""
    value = function.body[-1].value if isinstance(function.body[-1], ast.Return) else None
    value = value.elements[k] if isinstance(value, ast.Tuple) else value
    if array.dtype.name != declared.dtype and value is not None:
        return error.correct(Edit(value.span, f"astype({value.span.text}, {declared.dtype})"))
    return error.write(declared.span, str(array), f"declare `-> {array}`")


def _changed(node: ast.Node, edit: Edit) -> str:
    """The text of the node with the edit made. The rest of its line is not shown."""
    start, end = min(node.span.start, edit.span.start), max(node.span.end, edit.span.end)
    text = node.span.source.text
    return text[start : edit.span.start] + edit.text + text[edit.span.end : end]


def _here(node: ast.Node, text: str) -> Edit:
    return Edit(node.span, text)


def _beside(node: ast.Expr) -> str:
    """The text of an operand, in parentheses if an operator beside it needs them."""
    return node.span.text if is_operand(node.span.text) else f"({node.span.text})"


# ---- operators -----------------------------------------------------------------------------------


def _new_axis(error: CompileError, node: ast.Binary, values: Values) -> Edit | None:
    """`x + b` of [M, N] and [M] → `x + b[:, None]`; of [M] and [N] → `x[:, None] + b`."""
    left, right = values.get(id(node.left)), values.get(id(node.right))
    if not isinstance(left, Array) or not isinstance(right, Array):
        return None
    small, large, operand = (left, right, node.left) if left.rank <= right.rank else (right, left, node.right)
    missing = len(large.shape) - len(small.shape)
    fits = small.shape == large.shape[: len(small.shape)] if missing else len(small.shape) == 1
    index = ", ".join([":"] * len(small.shape) + ["None"] * max(missing, 1))
    return _here(operand, f"{_beside(operand)}[{index}]") if fits and small.shape else None


def _transposed(error: CompileError, node: ast.Binary, values: Values) -> Edit | None:
    """The product with the one transpose that makes it fit."""
    left, right = values.get(id(node.left)), values.get(id(node.right))
    if node.op != "@" or not isinstance(left, Array) or not isinstance(right, Array):
        return None
    if right.rank >= 2 and right.shape[-1] == left.shape[-1]:
        plain = re.sub(r"\.m?T$", "", node.right.span.text)
        return _here(node.right, plain if plain != node.right.span.text else f"{_beside(node.right)}.mT")
    if left.rank >= 2 and left.shape[-2] == right.shape[-min(2, right.rank)]:
        return _here(node.left, f"{_beside(node.left)}.mT")
    return None


def _wider(error: CompileError, node: ast.Binary, values: Values) -> Edit | None:
    """`x + 300` for i8 → `astype(x, i16) + 300`."""
    for operand, number in ((node.left, node.right), (node.right, node.left)):
        x, n = values.get(id(operand)), values.get(id(number))
        if isinstance(x, Array) and x.dtype.is_integer and isinstance(n, int):
            wider = (DTYPES[f"i{bits}"] for bits in (16, 32, 64) if bits > x.dtype.bits)
            dtype = next((d for d in wider if d.limits[0] <= n <= d.limits[1]), None)
            return _here(operand, f"astype({operand.span.text}, {dtype})") if dtype else None
    return None


def _infinity(error: CompileError, node: ast.Node, values: Values) -> Edit | None:
    if error.help.startswith("write inf"):
        return _here(node, "inf")
    numbers = [n for n in ast.children(node) if isinstance(n, ast.Number) and "past the largest" in error.message]
    return _here(numbers[0], "inf") if numbers else None


# ---- calls -----------------------------------------------------------------------------------------


def _as_elsewhere(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """`std(x, ddof=1)` as numpy, torch or Python's math have it: they take these arguments."""
    if not re.search(r" takes (at most )?\d| takes its |has no argument|needs its argument", error.message):
        return None
    args, keywords = written_arguments(node)
    answer = foreign.called(node.function, len(args), list(keywords))
    written = rewritten_call(answer.row, args, keywords) if answer and answer.row.arguments else ""
    return _here(node, written) if written else None


def _arity(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """An operator with too many operands, with named ones, or with one instead of two: `maximum(x)` → `max(x)`."""
    row = OPERATORS.get(ALIASES.get(node.function, node.function))
    if row is None:
        return None
    texts = [a.span.text for a in node.args] + [v.span.text for k, v in node.keywords if k not in ("out", "dtype")]
    if len(texts) < row.arity:
        name = next((name for name, operator in COMBINE.items() if operator == row.name), None)
        return Edit(called_name(node), name) if name and len(texts) == 1 else None
    return _here(node, f"{node.function}({', '.join(texts[: row.arity])})")


def _keyword(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """A keyword that the function does not have: its nearest name, or nothing."""
    found = re.search(r"(?:has no argument|got) `(\w+)`", error.message)
    value = next((v for k, v in node.keywords if found and k == found[1]), None)
    if found is None or value is None:
        return None
    source = node.span.source
    start = source.text.rindex(found[1], 0, value.span.start)
    if guess := re.match(r"did you mean `(\w+)`", error.help):
        return Edit(Span(source, start, start + len(found[1])), guess[1])
    name = called_name(node)
    kept = [a.span.text for a in node.args if a.span.start > name.start]  # not the x of x.f()
    kept += [f"{k}={v.span.text}" for k, v in node.keywords if k != found[1]]
    return Edit(Span(source, name.end, node.span.end), f"({', '.join(kept)})")


def _option(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """`gelu(x, "tan")` → `gelu(x, "tanh")`."""
    guess = re.match(r"did you mean `(\w+)`", error.help)
    for value in (*node.args, *(v for _, v in node.keywords)):
        if guess and isinstance(value, ast.String) and f'"{value.value}"' in error.message:
            return _here(value, f'"{guess[1]}"')
    return None


def _surplus(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """More arguments than the function takes."""
    found = re.search(r"takes (?:at most )?(\d+) arguments?, not", error.message)
    if found is None or len(node.args) <= int(found[1]) or found[1] == "0":
        return None
    last = node.args[int(found[1]) - 1]
    return Edit(Span(node.span.source, last.span.end, node.args[-1].span.end), "")


def _tuple(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """`concat(x, y)` → `concat((x, y))`."""
    if "a tuple or list" not in error.message:
        return None
    arrays = [a for a in node.args if isinstance(values.get(id(a)), Array)]
    if len(arrays) < 2 or arrays != list(node.args[: len(arrays)]):
        return None
    whole = arrays[0].span.to(arrays[-1].span)
    return Edit(whole, f"({whole.text})")


def _extreme(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """`max(x, y)` → `maximum(x, y)`."""
    found = re.search(r"`(maximum|minimum)\(x, y\)`", error.help)
    return Edit(called_name(node), found[1]) if found and len(node.args) == 2 else None


def _axis(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """An axis out of range → -1; `cumsum(x)` of several axes → `cumsum(x, axis=-1)`."""
    if "needs an axis" in error.message and node.args:
        end = node.args[-1].span.end
        return Edit(Span(node.span.source, end, end), ", axis=-1")
    named = [v for k, v in node.keywords if k in ("axis", "dim")]
    for value in named or node.args[1:2]:
        if isinstance(value, ast.Tuple) and "twice" in error.message:
            return _here(value, value.elements[0].span.text)
        if isinstance(values.get(id(value)), int):
            return _here(value, "-1")
    return None


def _whole_number(error: CompileError, node: ast.Call | ast.Subscript, values: Values) -> Edit | None:
    """`zeros(3.0)` → `zeros(3)`, `x[1.5]` → `x[1]`, `axis="0"` → `axis=0`."""
    for part in ast.postorder(node):
        match part:
            case ast.Number(value=float(number)) if number == number and abs(number) < 2**31:
                return _here(part, str(int(number)))
            case ast.String(value=text) if re.fullmatch(r"-?\d+", text):
                return _here(part, text)
    return None


def _dtype(error: CompileError, node: ast.Call, values: Values) -> Edit | None:
    """`astype(x, "float16")` → `astype(x, f16)`."""
    for value in (*node.args, *(v for _, v in node.keywords)):
        if isinstance(value, ast.String) and (found := DTYPES.get(value.value) or from_numpy(value.value)):
            return _here(value, str(found))
    return None


# ---- subscripts ----------------------------------------------------------------------------------------


def _last(error: CompileError, node: ast.Subscript, values: Values) -> Edit | None:
    """An index out of range → -1, indices of more axes than there are → the ones that fit."""
    x = values.get(id(node.value))
    if "out of range" in error.message:
        found = [i for i in node.indices if isinstance(values.get(id(i)), int) and i.span.text in error.message]
        return _here(found[0], "-1") if found else None
    if isinstance(x, Array) and "indices for" in error.message and len(node.indices) > x.rank > 0:
        start = node.indices[x.rank - 1].span.end
        return Edit(Span(node.span.source, start, node.indices[-1].span.end), "")
    return None


RULES: dict[tuple[str, type[ast.Node]], tuple[Rule, ...]] = {
    ("MT0102", ast.Call): (_extreme, _as_elsewhere, _keyword, _option, _arity, _surplus, _tuple),
    ("MT0106", ast.Call): (_whole_number,),
    ("MT0201", ast.Binary): (_new_axis,),
    ("MT0202", ast.Call): (_dtype,),
    ("MT0203", ast.Binary): (_transposed,),
    ("MT0204", ast.Call): (_extreme, _axis),
    ("MT0206", ast.Subscript): (_whole_number, _last),
    ("MT0208", ast.Binary): (_infinity, _wider),
}
"""The rules by the code of the error and the kind of its node."""
