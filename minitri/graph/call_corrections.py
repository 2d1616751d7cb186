"""Corrects rejected calls. The functions are rules for graph/corrections.py.

    sum(x, axis=2)       x has two axes             sum(x, axis=-1)
    concat((x, v))       x: f32[M, N], v: f32[N]    concat((x, v[None]))
    roll(x)              there is no shift          roll(x, shift=1)

In: the match of a rule's pattern in an error message, the call that caused the error, and the values of its arguments.
Out: an `Edit`, or None. The one idea: the rule replaces a wrong or missing argument by one that fits. Examples are the
last axis, the only size that is possible, or the example that signatures.toml has for a parameter.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from math import prod
from typing import Any

from minitri.base.diagnostics import Edit
from minitri.base.operators import ALIASES, OPERATORS
from minitri.base.spans import Span
from minitri.base.types import DTYPES, DType, from_numpy
from minitri.graph.names import called_name
from minitri.graph.typing_rules import Array
from minitri.language import ast
from minitri.language.foreign import names as foreign
from minitri.language.foreign.rewriting import is_operand, rewritten_call
from minitri.language.signatures import EXAMPLES

Values = Mapping[int, Any]


def here(node: ast.Node, text: str) -> Edit:
    """Returns an edit that writes a text in place of a node."""
    return Edit(node.span, text)


def beside(node: ast.Expr) -> str:
    """Returns the source text of an operand, in parentheses if an operator beside the operand needs them."""
    return node.span.text if is_operand(node.span.text) else f"({node.span.text})"


def _arguments(node: ast.Call) -> list[ast.Expr]:
    return [*node.args, *(value for _, value in node.keywords)]


def _items(node: ast.Call) -> list[ast.Expr]:
    """Returns the arguments of a call after the first one.

    If only a tuple comes after the first argument, returns the elements of the tuple.
    """
    match _arguments(node)[1:]:
        case [ast.Tuple(elements=elements)]:
            return list(elements)
        case items:
            return items


# ---- which arguments -------------------------------------------------------------------------------


def as_elsewhere(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Rewrites a call with the arguments of numpy, torch or Python's math: `log(x, 2)` becomes `log2(x)`."""
    args, keywords = [a.span.text for a in node.args], {k: v.span.text for k, v in node.keywords}
    answer = foreign.called(node.function, args, list(keywords))
    if answer is None or not answer.row.arguments or not answer.row.takes(args, keywords):
        return None
    written = rewritten_call(answer.row, args, keywords)
    return here(node, written) if written else None


def keyword(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Renames an unknown keyword of a call to the nearest known keyword, or removes the unknown keyword."""
    wrong, guess = found.groups()
    value = next((v for k, v in node.keywords if k == wrong), None)
    if value is None:
        return None
    source = node.span.source
    start = source.text.rindex(wrong, 0, value.span.start)
    if guess:
        return Edit(Span(source, start, start + len(wrong)), guess)
    name = called_name(node)
    kept = [a.span.text for a in node.args if a.span.start > name.start]  # not the x of x.f()
    kept += [f"{k}={v.span.text}" for k, v in node.keywords if k != wrong]
    return Edit(Span(source, name.end, node.span.end), f"({', '.join(kept)})")


def surplus(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Removes arguments from a call with more arguments than the function takes."""
    kept, more = node.args[: int(found[1])], node.args[int(found[1]) :]
    return Edit(Span(node.span.source, kept[-1].span.end, more[-1].span.end), "") if kept and more else None


def as_tuple(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Puts the arguments of a call into a tuple: `concat(x, y)` becomes `concat((x, y))`."""
    arrays = [a for a in node.args if isinstance(values.get(id(a)), Array)]
    if len(arrays) < 2 or arrays != list(node.args[: len(arrays)]):
        return None
    whole = arrays[0].span.to(arrays[-1].span)
    return Edit(whole, f"({whole.text})")


def arity(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Corrects the call of an operator with too many operands, with named operands, or with one operand too few."""
    row = OPERATORS.get(ALIASES.get(node.function, node.function))
    if row is None or row.name == "clip" and node.keywords:
        return None
    texts = [a.span.text for a in node.args] + [v.span.text for k, v in node.keywords if k not in ("out", "dtype")]
    if len(texts) == row.arity - 1 and texts:
        last = EXAMPLES.get(row.name)
        return Edit(_end(node), f", {last}") if last else None
    return here(node, f"{node.function}({', '.join(texts[: row.arity])})") if len(texts) > row.arity - 1 else None


def missing(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Adds a missing argument to a call. signatures.toml has an example of an argument for each parameter."""
    if not node.args or found[1] not in EXAMPLES:
        return None
    comma = "" if node.span.text[:-1].rstrip()[-1] in "(," else ", "
    return Edit(_end(node), f"{comma}{found[1]}={EXAMPLES[found[1]].format(x=beside(node.args[0]))}")


def _end(node: ast.Call) -> Span:
    """Returns the empty span before the closing parenthesis of a call."""
    return Span(node.span.source, node.span.end - 1, node.span.end - 1)


def extreme(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Replaces a reduction of two arrays by an elementwise operator: `max(x, y)` becomes `maximum(x, y)`."""
    if len(node.args) < 2 or node.keywords:
        return None
    if len(node.args) == 2:
        return Edit(called_name(node), found[1])
    *_, text = accumulate((a.span.text for a in node.args), lambda a, b: f"{found[1]}({a}, {b})")
    return here(node, text)


def called_value(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Corrects the call of an array: `x(0)` becomes `x[0]`, and `x(y)` becomes `x * y`."""
    if not node.args or node.keywords:
        return None
    texts = [a.span.text for a in node.args]
    if all(isinstance(values.get(id(a)), int) for a in node.args):
        return here(node, f"{node.function}[{', '.join(texts)}]")
    return here(node, f"{node.function} * {beside(node.args[0])}") if len(texts) == 1 else None


# ---- what an argument is -----------------------------------------------------------------------------


def no_axis(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Adds a missing axis to a call: `cumsum(x)` of an array with several axes becomes `cumsum(x, axis=-1)`."""
    return Edit(replace(node.args[-1].span, start=node.args[-1].span.end), ", axis=-1") if node.args else None


def _axes(node: ast.Call) -> list[ast.Expr]:
    """Returns the arguments of a call that may be axis numbers."""
    return [v for k, v in node.keywords if k in ("axis", "axes", "dim", "dims")] or list(node.args[1:])


def repeated_axis(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    tuples = [v for v in _axes(node) if isinstance(v, ast.Tuple)]
    return here(tuples[0], tuples[0].elements[0].span.text) if tuples else None


def no_integer_axis(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    return here(_axes(node)[0], "-1") if _axes(node) else None


def axis(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Replaces an axis number that is out of range by the last axis that the call does not use yet."""
    parts = [p for v in _axes(node) for p in (v.elements if isinstance(v, ast.Tuple) else (v,))]
    wrong = next((p for p in parts if values.get(id(p)) == int(found[1])), None)
    rank, others = int(found[2]), {values.get(id(p)) for p in parts if p is not wrong}
    free = [k for k in range(-1, -rank - 1, -1) if not {k, k + rank} & others]
    return here(wrong, str(free[0])) if wrong is not None and free else None


def option(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Corrects an option of a call: `gelu(x, "tan")` and `gelu(x, approximate=True)` become `gelu(x, "tanh")`."""
    known, given, guess = re.findall(r'"\w+"', found[1]), found[2], found[3]
    for value in _arguments(node):
        if guess and isinstance(value, ast.String) and f'"{value.value}"' == given:
            return here(value, f'"{guess}"')
        if isinstance(values.get(id(value)), bool):
            return here(value, known[-1] if values[id(value)] else known[0])
    return None


def whole_number(found: re.Match[str], node: ast.Call | ast.Subscript, values: Values) -> Edit | None:
    """Replaces an argument or an index by an integer.

    `zeros(3.0)` becomes `zeros(3)`, `x[1.5]` becomes `x[1]`, and `axis="0"` becomes `axis=0`.
    """
    for part in ast.postorder(node):
        match part:
            case ast.Number(value=float(number)) if number == number and abs(number) < 2**31:
                return here(part, str(int(number)))
            case ast.String(value=text) if re.fullmatch(r"-?\d+", text):
                return here(part, text)
    return None


def whole_numbers(found: re.Match[str], node: ast.Call | ast.Subscript, values: Values) -> Edit | None:
    """Converts a float array v that is used as an index: `x[v]` and `take(x, v)` get the index `astype(v, i64)`."""
    parts = node.indices if isinstance(node, ast.Subscript) else node.args[1:]
    for part in parts:
        value = values.get(id(part))
        if isinstance(value, Array) and value.dtype.is_float:
            return here(part, f"astype({part.span.text}, i64)")
    return None


def dtype(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Replaces the text of a dtype by its name in the language: `astype(x, "float16")` becomes `astype(x, f16)`."""
    for value in _arguments(node):
        if isinstance(value, ast.String):
            answer = foreign.value(value.value)
            named = DTYPES.get(value.value) or from_numpy(value.value) or (answer and answer.row.instead)
            return here(value, str(named)) if str(named) in DTYPES else None
    return None


# ---- shapes ------------------------------------------------------------------------------------------


def ranks(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Gives joined arrays the same rank.

    `concat((x, v))` becomes `concat((x, v[None]))`. `stack((x, v))` becomes `stack((x, broadcast_to(v, x.shape)))`.
    """
    first = node.args[0] if node.args else None
    parts = list(first.elements) if isinstance(first, ast.Tuple) else []
    arrays = [a for p in parts if isinstance(a := values.get(id(p)), Array)]
    if not 0 < len(arrays) == len(parts):
        return None
    rank = max(len(a.shape) for a in arrays)
    largest = next(beside(p) for p, a in zip(parts, arrays) if len(a.shape) == rank)
    along = next((values.get(id(v)) for v in _arguments(node)[1:]), 0)
    at = along % rank if isinstance(along, int) and rank else 0
    index = ", ".join([*[":"] * at, "None"])
    joins = found[0] == "concat"

    def grown(part: ast.Expr, array: Array) -> str:
        if len(array.shape) == rank:
            return part.span.text
        return f"{beside(part)}[{index}]" if joins else f"broadcast_to({part.span.text}, {largest}.shape)"

    if min(len(a.shape) for a in arrays) not in (range(rank - 1, rank) if joins else range(rank)):
        return None
    return Edit(parts[0].span.to(parts[-1].span), ", ".join(map(grown, parts, arrays)))


def shape(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Replaces an array used as a shape by its shape: `reshape(x, y)` becomes `reshape(x, y.shape)`.

    torch's `x.view(f16)` becomes `astype(x, f16)`.
    """
    given = _arguments(node)
    for value in reversed(given):
        is_first = any(value is a for a in node.args[:1])
        if isinstance(values.get(id(value)), Array) and (not is_first or len(given) == 1):
            return here(value, f"{beside(value)}.shape")
        if isinstance(values.get(id(value)), DType) and len(node.args) == 2:
            return here(node, f"astype({node.args[0].span.text}, {value.span.text})")
    return None


def quotient(found: re.Match[str], node: ast.Call | ast.Subscript, values: Values) -> Edit | None:
    """Replaces `/` by floor division where an integer is needed: `x[: N / 2]` becomes `x[: N // 2]`."""
    for part in ast.postorder(node):
        if isinstance(part, ast.Binary) and part.op == "/":
            at = node.span.source.text.index("/", part.left.span.end)
            return Edit(Span(node.span.source, at, at + 1), "//")
    return None


def kept_size(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Replaces -1 in torch's `expand` by the size of the axis: `x.expand(3, -1)` becomes `x.expand(3, x.shape[-1])`."""
    items = _items(node)
    for k, item in enumerate(items if node.args else ()):
        if values.get(id(item)) == -1:
            return here(item, f"{beside(node.args[0])}.shape[{k - len(items)}]")
    return None


def sizes(found: re.Match[str], node: ast.Call, values: Values) -> Edit | None:
    """Replaces a size that does not fit in `reshape` by -1, which stands for the only size that fits."""
    items = _items(node)
    numbers = [n for i in items if isinstance(n := values.get(id(i)), int) and n > 0]
    if not 0 < len(numbers) == len(items):
        return None
    fits = [k for k in reversed(range(len(items))) if int(found[1]) % prod(numbers[:k] + numbers[k + 1 :]) == 0]
    return here(items[fits[0]], "-1") if fits else None
