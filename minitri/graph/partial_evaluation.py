"""Evaluates operators, subscripts and attributes. The operands can be arrays, numbers, dimensions or tuples.

    2 * N       N a dimension      →    the dimension 2*N, known before the graph runs
    x.shape     x: f32[M, 4]       →    the tuple (M, 4)

Functions such as `binary` and `subscript` take the values of the operands, and a `Typer` that makes graph nodes. Each
function returns the value of the expression. The one idea: an expression of numbers and dimensions is computed at
compile time. An expression that cannot be computed at compile time becomes a graph node. The CompileErrors of this file
have no source span, so minitri/graph/lower_ast.py adds a span to each error.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minitri.base.diagnostics import CompileError, suggest
from minitri.base.dims import ONE, Dim, product, sign
from minitri.base.operators import BY_SYMBOL, OPERATORS
from minitri.base.resource_limits import MAX_BITS, check_limit
from minitri.base.types import DType, Info, ListValue, i64
from minitri.graph.functions import indexing, views
from minitri.graph.literals import Power, names_in, require_power_fits
from minitri.graph.parameter_binding import as_int, plain, static
from minitri.graph.typing_rules import Array, Typer, Value, describe, ensure
from minitri.graph.unknown_names import unknown_attribute
from minitri.language import ast

NUMBERS = (int, float, Dim)


def fold_numbers(op: str, x: int | float | Dim, y: int | float | Dim) -> int | float | Dim | None:
    """Returns `x op y` as a number or a `Dim`.

    Returns None if the function cannot compute the result before the sizes are known.
    """
    if isinstance(x, Dim) or isinstance(y, Dim):
        if isinstance(x, float) or isinstance(y, float):
            return None
        if op in ("+", "-", "*") or (op in ("//", "%") and sign(Dim.of(y)) in (0, 1)):
            return plain(ast.BINARY[op](Dim.of(x), Dim.of(y)))
        if op == "**" and isinstance(y, int) and 0 <= y <= 16:
            return plain(product([Dim.of(x)] * y))
        return None
    refusal = "MT0208", f"{op} of these constants is past all floats", "write inf"
    ensure(isinstance(x, float) or isinstance(y, float) or _bits(op, x, y) <= MAX_BITS, *refusal)
    folded = static(lambda: ast.BINARY[op](x, y))
    overflows = isinstance(folded, float) and math.isinf(folded) and math.isfinite(x) and math.isfinite(y)
    ensure(not overflows, *refusal)
    return folded


def _bits(op: str, x: int, y: int) -> int:
    """Returns an upper bound on the number of bits of an integer operation's result."""
    # The result itself is not computed, because it can be too large.
    m, n = x.bit_length(), y.bit_length()
    grown = {"**": m * abs(y) if abs(x) > 1 else 1, "<<": m + y, "*": m + n}
    return grown.get(op, max(m, n) + 1)


def binary(t: Typer, op: str, x: Value, y: Value) -> Value:
    """Returns the value of `x op y`.

    The operands x and y are numbers or dimensions. For the operator `+`, x and y can also be tuples.
    """
    if isinstance(x, tuple) and isinstance(y, tuple) and op == "+":
        check_length(x + y)
        return x + y
    if isinstance(x, NUMBERS) and isinstance(y, NUMBERS):
        if op in ("//", "%") and Dim in (type(x), type(y)) and not isinstance(y, float) and sign(Dim.of(y)) in (0, 1):
            t.require(Dim.of(y), ">=", ONE, "MT0208", f"the divisor {y} is 0", label=names_in(Dim.of(y)))
        if op == "**" and isinstance(x, Dim) and isinstance(y, int) and y < 0:
            y = float(y)  # N ** -1 is a fraction, as 4 ** -1 is
        if (folded := fold_numbers(op, x, y)) is not None:
            return folded
        if isinstance(x, (int, Dim)) and isinstance(y, Dim):
            _require_exact(t, op, x, y)
    if op == "*" and (isinstance(x, (int, Dim)) or isinstance(y, (int, Dim))):
        _refuse_list(op, x, y)
    made = t.elementwise(BY_SYMBOL[op, 2].name, [x, y])
    if isinstance(x, int) and isinstance(y, Dim) and op in ("**", "<<"):
        t.powers[made.node] = Power(x, op, y)
    return made


def _require_exact(t: Typer, op: str, x: int | Dim, y: Dim) -> None:
    """Adds a condition that each call checks: an integer such as `2**N` or `1 << N` must fit i64."""
    help = "write a float: `2.0 ** N`"
    # In Python, `2 ** -1` is a fraction.
    if op == "**":
        message = f"the exponent {y} of an integer is negative"
        t.require(y, ">=", Dim.of(0), "MT0208", message, label=names_in(y), help=help)
    # In Python, an integer can have any size; in i64, `2**N` or `1 << N` can overflow.
    if isinstance(x, int) and op in ("**", "<<") and abs(x) > (op == "**"):
        require_power_fits(t, Power(x, op, y), i64, help)


def compare(t: Typer, op: str, x: Value, y: Value) -> Value:
    """Returns the value of a comparison.

    If the result of the comparison is known at compile time, it is a Python bool. Otherwise, it is an array of bools.
    """
    if x is None or y is None:
        return (x is y) == (op == "==")
    if isinstance(x, Array) or isinstance(y, Array):
        return t.elementwise(BY_SYMBOL[op, 2].name, [x, y])
    if isinstance(x, tuple) and isinstance(y, tuple):
        return _compare_tuples(t, op, x, y)
    if isinstance(x, DType) and isinstance(y, DType):
        ensure(op in ("==", "!="), "MT0102", f"dtypes are compared by == and !=, not {op}")
    _refuse_list(op, x, y)
    if not isinstance(x, Dim) and not isinstance(y, Dim):
        return static(lambda: ast.COMPARE[op](x, y))
    if isinstance(x, (int, Dim)) and isinstance(y, (int, Dim)):
        difference = Dim.of(x) - Dim.of(y)
        if difference.constant is not None:
            return ast.COMPARE[op](difference.constant, 0)
    return t.elementwise(BY_SYMBOL[op, 2].name, [x, y])


def _compare_tuples(t: Typer, op: str, x: tuple[Value, ...], y: tuple[Value, ...]) -> bool:
    """Returns the value of `==` or `!=` for two tuples, such as shapes."""
    ensure(op in ("==", "!="), "MT0102", f"tuples are compared by == and !=, not {op}")
    found = [len(x) == len(y), *(compare(t, "==", a, b) for a, b in zip(x, y))]
    equal, known = all(e is True for e in found), any(e is False for e in found)
    ensure(equal or known, "MT0106", "whether these shapes are equal depends on the sizes of a call")
    return equal == (op == "==")


def subscript(t: Typer, x: Value, items: list[Any]) -> Value:
    """Returns the value of `x[items]`, where x is a tuple or an array."""
    if isinstance(x, tuple):
        if len(items) == 1 and isinstance(items[0], slice):
            s = items[0]
            bounds = [b if b is None else as_int(b, "a slice bound") for b in (s.start, s.stop, s.step)]
            return static(lambda: x[slice(*bounds)])
        if len(items) == 1 and isinstance(items[0], int) and -len(x) <= items[0] < len(x):
            return x[items[0]]
        help = "an array of numbers can be indexed by an array: `asarray([1, 2])[i]`"
        raise CompileError("MT0206", f"{describe(x)} of {len(x)} items has no such index", help=help)
    if len(items) == 1 and isinstance(items[0], tuple) and not isinstance(items[0], ListValue):
        items = list(items[0])
    items = [t.array(i) if isinstance(i, tuple) else i for i in items]
    return indexing.subscript(t, t.array(x), items)


def attribute(t: Typer, x: Value, node: ast.Attribute) -> Value:
    """Returns the value of `x.name`, where x is an array or the result of `finfo` or `iinfo`.

    Raises CompileError MT0103 if x has no attribute with this name.
    """
    if isinstance(x, Info):
        help = suggest(node.name, x.facts) or f"it has {', '.join(x.facts)}"
        ensure(node.name in x.facts, "MT0103", f"{x} has no attribute `{node.name[:40]}`", help)
        return x.facts[node.name]
    array = t.array(x)
    if node.name not in _ATTRIBUTES:
        raise unknown_attribute(node, array.rank)
    return _ATTRIBUTES[node.name](t, array)


_ATTRIBUTES: dict[str, Callable[[Typer, Array], Value]] = {
    "T": lambda t, x: views.permute_dims(t, x, None), "mT": views.matrix_transpose,
    "shape": lambda t, x: tuple(map(plain, x.shape)), "ndim": lambda t, x: x.rank,
    "size": lambda t, x: plain(product(x.shape)), "dtype": lambda t, x: t.settled([x]),
}  # fmt: skip


def operator_call(t: Typer, name: str, args: tuple[Value, ...], keywords: Mapping[str, Value]) -> Value:
    """Calls an elementwise operator whose arguments need special treatment.

    Three kinds of arguments need special treatment: keyword arguments, the bounds of `clip`, and numbers in a call
    without arrays.
    """
    for keyword in keywords:
        is_bound = name == "clip" and keyword in ("min", "max")
        ensure(is_bound, "MT0102", f"{name} takes its operands by position, not `{keyword}=`")
    if name == "clip":
        return _clip(t, args, keywords)
    if all(isinstance(a, NUMBERS) and not isinstance(a, Dim) for a in args) and args:
        return fold_operator(t, name, args)
    return t.elementwise(name, args)


def _clip(t: Typer, args: tuple[Value, ...], keywords: Mapping[str, Value]) -> Value:
    """Returns the value of `clip(x, low, high)`."""
    ensure(1 <= len(args) <= 3, "MT0102", f"clip takes 3 arguments, not {len(args)}")
    x, low, high = (*args, None, None)[:3]
    low, high = keywords.get("min", low), keywords.get("max", high)
    given = [bound for bound in (low, high) if bound is not None]  # a bound that is None is not applied
    name = "clip" if len(given) == 2 else "minimum" if low is None else "maximum"
    return t.elementwise(name, [x, *given]) if given else x


def _refuse_list(op: str, *operands: Value) -> None:
    """Raises an error if an operand is a list."""
    # In Python, `2 * [1, 2]` repeats the list and `[1, 2] == 1` is False, but a user probably expects numpy's
    # arithmetic on each element.
    for value in operands:
        message = f"{op} of {describe(value)} and a number is no arithmetic of arrays in Python"
        help = "make an array of the numbers first: `2 * asarray([1, 2])`"
        ensure(not isinstance(value, tuple), "MT0202", message, help)


def check_length(value: tuple[Value, ...]) -> None:
    """Raises CompileError MT0401 if a tuple has too many items. Items of nested tuples are counted too.

    For example, each repetition of the line `s = (s, s)` doubles the number of items.
    """
    count = 0
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        count += 1
        check_limit("operations", count, "a tuple has more than {limit:,} items, those of the tuples in it counted")
        stack.extend(item if isinstance(item, tuple) else ())


def fold_operator(t: Typer, name: str, args: tuple[Value, ...]) -> Value:
    """Applies an operator to Python numbers, as in sqrt(2.0) or floor(2.5).

    If the result is weak, that is, has no fixed dtype, the function returns a Python number. If the result has a fixed
    dtype, the function returns an array instead of a Python number.
    """
    array = t.elementwise(name, args)
    if array.dtype.kind == "b":
        return array
    with np.errstate(all="ignore"):
        dtypes = [np.float64 if isinstance(a, float) or OPERATORS[name].operands == "float" else np.int64 for a in args]
        common = np.result_type(*dtypes)
        result = OPERATORS[name].numpy(*[np.asarray(a, common) for a in args])
    return result.item() if array.weak else array
