"""Corrects function calls that the compiler rejects. After an error, graph/corrections.py applies the rules of this
file to the rejected call.

    sum(x, axis=2)       x has two axes             sum(x, axis=-1)
    concat((x, v))       x: f32[M, N], v: f32[N]    concat((x, v[None]))
    roll(x)              there is no shift          roll(x, shift=1)

A rule, such as the function `axis`, takes the rejected call, the values of its arguments, and the `re.Match` for the
error message. It yields possible corrections of the call (`Edit`s), the best correction first. The one idea: a rule
replaces a wrong or missing argument by an argument that fits. For example, the last axis replaces an axis that does not
exist, and -1 replaces a wrong size in `reshape`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from minitri.base.diagnostics import Edit
from minitri.base.operators import ALIASES, OPERATORS
from minitri.base.spans import Span
from minitri.base.types import BY_NUMPY_NAME, DTYPES
from minitri.graph.typing_rules import Array
from minitri.graph.unknown_names import called_name
from minitri.language import ast
from minitri.language.foreign import names as foreign
from minitri.language.foreign.names import is_operand, rewritten_call
from minitri.language.signatures import EXAMPLES

Values = Mapping[int, Any]


def here(node: ast.Node, text: str) -> Edit:
    """Returns an edit that writes a text in place of a node."""
    return Edit(node.span, text)


def operator(node: ast.Binary, op: str) -> Edit:
    """Returns an edit that replaces the operator between two operands."""
    start = node.span.source.text.index(node.op, node.left.span.end)
    return Edit(replace(node.span, start=start, end=start + len(node.op)), op)


def beside(node: ast.Node) -> str:
    """Returns the source text of an operand, in parentheses if an operator beside the operand needs them."""
    return node.span.text if is_operand(node.span.text) else f"({node.span.text})"


def arguments(node: ast.Call) -> list[ast.Expr]:
    return [*node.args, *(value for _, value in node.keywords)]


def items(node: ast.Call) -> list[ast.Expr]:
    """Returns all arguments of a call except the first argument.

    If only a tuple comes after the first argument, returns the elements of the tuple. Example: both `reshape(x, 2, 3)`
    and `reshape(x, (2, 3))` give the items 2 and 3.
    """
    match arguments(node)[1:]:
        case [ast.Tuple(elements=elements)]:
            return list(elements)
        case items:
            return items


def axes(node: ast.Call) -> list[ast.Expr]:
    """Returns those arguments of a call that are probably axis numbers."""
    return [v for k, v in node.keywords if k in ("axis", "axes", "dim", "dims")] or list(node.args[1:])


# ---- which arguments -------------------------------------------------------------------------------


def as_elsewhere(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Rewrites a call that is right in numpy, torch or Python's math, but not in minitri.

    For example, Python's `max(x, y)` becomes `maximum(x, y)`.
    """
    args, keywords = [a.span.text for a in node.args], {k: v.span.text for k, v in node.keywords}
    answer = foreign.called(node.function, args, list(keywords))
    if answer and answer.row.arguments and answer.row.takes(args, keywords):
        yield from (here(node, written) for written in [rewritten_call(answer.row, args, keywords)] if written)


def keyword(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Renames an unknown keyword of a call to the nearest known keyword, or removes the unknown keyword."""
    wrong, guess = found.groups()
    source, name = node.span.source, called_name(node)
    for value in (value for k, value in node.keywords if k == wrong):
        if guess:
            start = source.text.rindex(wrong, 0, value.span.start)
            yield Edit(Span(source, start, start + len(wrong)), guess)
        kept = [a.span.text for a in node.args if a.span.start > name.start]  # not the x of x.f()
        kept += [f"{k}={v.span.text}" for k, v in node.keywords if k != wrong]
        yield Edit(Span(source, name.end, node.span.end), f"({', '.join(kept)})")


def surplus(found: re.Match[str], node: ast.Call | ast.Subscript, values: Values) -> Iterator[Edit]:
    """If a call has too many arguments, removes the last arguments. If a subscript has too many indices, removes the
    last indices.
    """
    parts = node.args if isinstance(node, ast.Call) else node.indices
    if 0 < (count := int(found[1])) < len(parts):
        yield Edit(replace(parts[-1].span, start=parts[count - 1].span.end), "")


def as_tuple(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Puts the arguments of a call into a tuple: `concat(x, y)` becomes `concat((x, y))`."""
    arrays = [a for a in node.args if isinstance(values.get(id(a)), Array)]
    if len(arrays) > 1 and arrays == list(node.args[: len(arrays)]):
        whole = arrays[0].span.to(arrays[-1].span)
        yield Edit(whole, f"({whole.text})")


def arity(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Corrects the call of an operator: makes keyword arguments positional, removes surplus operands, or adds a missing
    operand.
    """
    row = OPERATORS.get(ALIASES.get(node.function, node.function))
    if row is None or row.name == "clip" and node.keywords:
        return
    texts = [a.span.text for a in node.args] + [v.span.text for k, v in node.keywords if k not in ("out", "dtype")]
    if len(texts) >= row.arity:
        yield here(node, f"{node.function}({', '.join(texts[: row.arity])})")
    elif len(texts) == row.arity - 1 and texts and row.name in EXAMPLES:
        yield Edit(_end(node), f", {EXAMPLES[row.name]}")


def missing(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Adds a missing argument to a call. The value of the argument is the example that signatures.toml gives for the
    missing parameter.
    """
    if node.args and found[1] in EXAMPLES:
        comma = "" if node.span.text[:-1].rstrip()[-1] in "(," else ", "
        yield Edit(_end(node), f"{comma}{found[1]}={EXAMPLES[found[1]].format(x=beside(node.args[0]))}")


def _end(node: ast.Call) -> Span:
    """Returns an empty source range (span) before the closing parenthesis of a call."""
    return Span(node.span.source, node.span.end - 1, node.span.end - 1)


def called_value(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Corrects the call of an array: `x(0)` becomes `x[0]`, and `x(y)` becomes `x * y`."""
    if node.args and not node.keywords:
        if all(isinstance(values.get(id(a)), int) for a in node.args):
            yield here(node, f"{node.function}[{', '.join(a.span.text for a in node.args)}]")
        elif len(node.args) == 1:
            yield here(node, f"{node.function} * {beside(node.args[0])}")


# ---- what an argument is -----------------------------------------------------------------------------


def axis(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Replaces an axis number that is too large or too small by the last axis that the call does not use yet."""
    parts = [p for v in axes(node) for p in (v.elements if isinstance(v, ast.Tuple) else (v,))]
    rank, used = int(found[2]), [values.get(id(p)) for p in parts]
    if (wrong := int(found[1])) in used:
        at = used.index(wrong)
        others = {*used[:at], *used[at + 1 :]}
        free = (k for k in range(-1, -rank - 1, -1) if not {k, k + rank} & others)
        yield from (here(parts[at], str(k)) for k in free)


def option(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Corrects an option of a call: `gelu(x, "tan")` and `gelu(x, approximate=True)` become `gelu(x, "tanh")`."""
    known, given, guess = re.findall(r'"\w+"', found[1]), found[2], found[3]
    for value in arguments(node):
        if guess and isinstance(value, ast.String) and f'"{value.value}"' == given:
            yield here(value, f'"{guess}"')
        if isinstance(values.get(id(value)), bool):
            yield here(value, known[-1] if values[id(value)] else known[0])


def whole_number(found: re.Match[str], node: ast.Call | ast.Subscript, values: Values) -> Iterator[Edit]:
    """Yields corrections that replace a float or a quoted number by an integer.

    `zeros(3.0)` becomes `zeros(3)`, `x[1.5]` becomes `x[1]`, and `axis="0"` becomes `axis=0`.
    """
    for part in ast.postorder(node):
        match part:
            case ast.Number(value=float(number)) if number == number and abs(number) < 2**31:
                yield here(part, str(int(number)))
            case ast.String(value=text) if re.fullmatch(r"-?\d+", text):
                yield here(part, text)


def dtype(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Replaces a dtype in quotes by the dtype's name: `astype(x, "float16")` becomes `astype(x, f16)`."""
    for value in arguments(node):
        if isinstance(value, ast.String):
            answer = foreign.value(value.value)
            named = DTYPES.get(value.value) or BY_NUMPY_NAME.get(value.value) or (answer and answer.row.instead)
            yield here(value, str(named) if str(named) in DTYPES else value.span.text)


# ---- shapes ------------------------------------------------------------------------------------------


def ranks(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Corrects a call that joins arrays of different ranks.

    If x is a matrix and v a vector, `concat((x, v))` becomes `concat((x, v[None]))`, and `stack((x, v))` becomes
    `stack((x, broadcast_to(v, x.shape)))`.
    """
    first = node.args[0] if node.args else None
    parts = list(first.elements) if isinstance(first, ast.Tuple) else []
    arrays = [a for p in parts if isinstance(a := values.get(id(p)), Array)]
    if not 0 < len(arrays) == len(parts):
        return
    rank = max(len(a.shape) for a in arrays)
    largest = next(beside(p) for p, a in zip(parts, arrays) if len(a.shape) == rank)
    along = next((values.get(id(v)) for v in arguments(node)[1:]), 0)
    at = along % rank if isinstance(along, int) and rank else 0
    index = ", ".join([*[":"] * at, "None"])
    joins = found[0] == "concat"

    def grown(part: ast.Expr, array: Array) -> str:
        if len(array.shape) == rank:
            return part.span.text
        return f"{beside(part)}[{index}]" if joins else f"broadcast_to({part.span.text}, {largest}.shape)"

    if min(len(a.shape) for a in arrays) in (range(rank - 1, rank) if joins else range(rank)):
        yield Edit(parts[0].span.to(parts[-1].span), ", ".join(map(grown, parts, arrays)))


def quotient(found: re.Match[str], node: ast.Call | ast.Subscript, values: Values) -> Iterator[Edit]:
    """Replaces `/` by floor division where an integer is needed: `x[: N / 2]` becomes `x[: N // 2]`."""
    for part in ast.postorder(node):
        if isinstance(part, ast.Binary) and part.op == "/":
            yield operator(part, "//")


def sizes(found: re.Match[str], node: ast.Call, values: Values) -> Iterator[Edit]:
    """Replaces a wrong size in a call of `reshape` by -1. The size -1 stands for the only size that fits."""
    given = items(node)
    numbers = [n for i in given if isinstance(n := values.get(id(i)), int) and n > 0]
    if len(numbers) == len(given):
        fits = (k for k in reversed(range(len(given))) if int(found[1]) % prod(numbers[:k] + numbers[k + 1 :]) == 0)
        yield from (here(given[k], "-1") for k in fits)
