"""Types operators, subscripts and attributes where not every operand is an array.

    2 * N       N a dimension      →    the dimension 2*N, known before the graph runs
    x.shape     x: f32[M, 4]       →    the tuple (M, 4)

In: a typer and the values of the operands. Out: the value of the expression. The one idea: what numbers
and dimensions alone decide is computed now, and everything else becomes a node of the graph. A
CompileError has no place in the source yet; minitri/graph/builder.py adds it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minitri.base import dims
from minitri.base.diagnostics import CompileError, listed, suggest
from minitri.base.dims import Dim, sign
from minitri.base.dtype_facts import Info
from minitri.base.limits import MAX_BITS, current, exceeded
from minitri.base.operators import BY_SYMBOL, OPERATORS
from minitri.base.types import DType, ListValue
from minitri.graph import indexing
from minitri.graph.functions import views
from minitri.graph.indexing import SliceValue
from minitri.graph.literals import Power, names_in
from minitri.graph.names import function_names, unknown_attribute
from minitri.graph.parameters import as_int, plain, static
from minitri.graph.typer import Array, Typer, Value, describe
from minitri.language.arithmetic import BINARY, COMPARE

NUMBERS = (int, float, Dim)
ATTRIBUTES = ("T", "mT", "shape", "ndim", "size", "dtype")


def fold_numbers(op: str, x: int | float | Dim, y: int | float | Dim) -> int | float | Dim | None:
    """Arithmetic of numbers and dimensions that stays a number; None if it needs run-time sizes."""
    if isinstance(x, Dim) or isinstance(y, Dim):
        if isinstance(x, float) or isinstance(y, float):
            return None
        if op in ("+", "-", "*") or (op in ("//", "%") and sign(Dim.of(y)) in (0, 1) and y != 0):
            return plain(BINARY[op](Dim.of(x), Dim.of(y)))
        if op == "**" and isinstance(y, int) and 0 <= y <= 16:
            return plain(dims.product([Dim.of(x)] * y))
        return None
    if isinstance(x, int) and isinstance(y, int) and _bits(op, x, y) > MAX_BITS:
        raise CompileError("MT0208", f"{op} of these constants is past all floats", help="write inf")
    return static(lambda: BINARY[op](x, y))


def _bits(op: str, x: int, y: int) -> int:
    """About how many bits the result has, before it is computed."""
    m, n = x.bit_length(), y.bit_length()
    grown = {"**": m * abs(y) if abs(x) > 1 else 1, "<<": m + y, "*": m + n}
    return grown.get(op, max(m, n) + 1)


def binary(t: Typer, op: str, x: Value, y: Value) -> Value:
    """`x op y` where neither is an array: numbers and, with `+`, tuples."""
    if isinstance(x, tuple) and isinstance(y, tuple) and op == "+":
        return bounded(x + y)
    if isinstance(x, NUMBERS) and isinstance(y, NUMBERS):
        if op == "**" and isinstance(x, Dim) and isinstance(y, int) and y < 0:
            y = float(y)  # N ** -1 is a fraction, as 4 ** -1 is
        folded = fold_numbers(op, x, y)
        if folded is not None:
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
    """`2**N` and `1 << N` are integers of 64 bits and not, as in Python, of any size; nor fractions."""
    help = "write a float: `2.0 ** N`"
    if op == "**":
        message = f"the exponent {y} of an integer is negative"
        t.require(y, ">=", Dim.of(0), "MT0208", message, label=names_in(y), help=help)
    if isinstance(x, int) and op in ("**", "<<") and abs(x) > (op == "**"):
        most = math.ceil(63 / math.log2(abs(x))) - 1 if op == "**" else 63 - x.bit_length()
        message = f"{x} {op} {y} does not fit i64"
        t.require(Dim.of(most), ">=", y, "MT0208", message, label=names_in(y), help=help)


def compare(t: Typer, op: str, x: Value, y: Value) -> Value:
    """`x op y` for a comparison: a truth value if it is known now, else an array of bools."""
    if x is None or y is None:
        return (x is y) == (op == "==")
    if isinstance(x, Array) or isinstance(y, Array):
        return t.elementwise(BY_SYMBOL[op, 2].name, [x, y])
    if isinstance(x, tuple) and isinstance(y, tuple):
        return _compare_tuples(t, op, x, y)
    if isinstance(x, DType) and isinstance(y, DType) and op not in ("==", "!="):
        raise CompileError("MT0102", f"dtypes are compared by == and !=, not {op}")
    _refuse_list(op, x, y)
    if isinstance(x, Dim) or isinstance(y, Dim):
        if isinstance(x, (int, Dim)) and isinstance(y, (int, Dim)):
            difference = Dim.of(x) - Dim.of(y)
            if difference.constant is not None:
                return COMPARE[op](difference.constant, 0)
        return t.elementwise(BY_SYMBOL[op, 2].name, [x, y])
    return static(lambda: COMPARE[op](x, y))


def _compare_tuples(t: Typer, op: str, x: tuple[Value, ...], y: tuple[Value, ...]) -> bool:
    """Shapes: equal or not, for all sizes."""
    if op not in ("==", "!="):
        raise CompileError("MT0102", f"tuples are compared by == and !=, not {op}")
    equal: Value = len(x) == len(y) and all(compare(t, "==", a, b) is True for a, b in zip(x, y))
    if not equal and len(x) == len(y) and all(compare(t, "==", a, b) is not False for a, b in zip(x, y)):
        raise CompileError("MT0106", "whether these shapes are equal depends on the sizes of a call")
    return bool(equal) == (op == "==")


def subscript(t: Typer, x: Value, items: list[Any]) -> Value:
    """`x[items]`: an item of a tuple, or a part of an array."""
    if isinstance(x, tuple):
        if len(items) == 1 and isinstance(items[0], SliceValue):
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


def attribute(t: Typer, x: Value, name: str) -> Value:
    """`x.name`, for an array or the limits of a dtype. CompileError MT0103 for any other name."""
    if isinstance(x, Info):
        return _fact(x, name)
    array = t.array(x)
    match name:
        case "T":
            return views.permute_dims(t, array, None)
        case "mT":
            return views.matrix_transpose(t, array)
        case "shape":
            return tuple(e if e.constant is None else int(e) for e in array.shape)
        case "ndim":
            return len(array.shape)
        case "size":
            return plain(dims.product(array.shape))
        case "dtype":
            return t.settled([array])
        case _:
            there = f"arrays have {listed([f'.{a}' for a in ATTRIBUTES])}"
            raise unknown_attribute(name, ATTRIBUTES, f"call it: `.{name}()`" if name in function_names() else there)


def operator_call(t: Typer, name: str, args: tuple[Value, ...], keywords: Mapping[str, Value]) -> Value:
    """An elementwise operator called with numbers, with keywords, or as `clip` with a bound that is None."""
    if keywords and not (name == "clip" and set(keywords) <= {"min", "max"}):
        raise CompileError("MT0102", f"{name} takes its operands by position, not `{next(iter(keywords))}=`")
    if name == "clip":
        return _clip(t, args, keywords)
    if all(isinstance(a, NUMBERS) and not isinstance(a, Dim) for a in args) and args:
        return fold_operator(t, name, args)
    return t.elementwise(name, args)


def _clip(t: Typer, args: tuple[Value, ...], keywords: Mapping[str, Value]) -> Value:
    """`clip(x, lo, hi)`, where either bound may be None."""
    given = [*args, *([None] * (3 - len(args)))][:3]
    if not args or len(args) > 3:
        raise CompileError("MT0102", f"clip takes 3 arguments, not {len(args)}")
    x, low, high = given[0], keywords.get("min", given[1]), keywords.get("max", given[2])
    if low is None and high is None:
        return x
    if low is None:
        return t.elementwise("minimum", [x, high])
    if high is None:
        return t.elementwise("maximum", [x, low])
    return t.elementwise("clip", [x, low, high])


def _refuse_list(op: str, *operands: Value) -> None:
    """In Python `2 * [1, 2]` repeats a list and `[1, 2] == 1` is False: neither is arithmetic of arrays."""
    for value in operands:
        if isinstance(value, tuple):
            message = f"{op} of {describe(value)} and a number is no arithmetic of arrays in Python"
            raise CompileError("MT0202", message, help="make an array of the numbers first: `2 * asarray([1, 2])`")


def _fact(info: Info, name: str) -> Value:
    if name not in info.facts:
        help = suggest(name, info.facts) or f"it has {', '.join(info.facts)}"
        raise CompileError("MT0103", f"{info} has no attribute `{name[:40]}`", help=help)
    return info.facts[name]


def bounded(value: tuple[Value, ...]) -> tuple[Value, ...]:
    """The tuple. `s = (s, s)` or `s = s + s` doubles the items, so a tuple with too many is refused before any use."""
    most, count = current().operations, 0
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        count += 1
        if count > most:
            raise exceeded("operations", f"a tuple has more than {most:,} items, those of the tuples in it counted")
        stack.extend(item if isinstance(item, tuple) else ())
    return value


def fold_operator(t: Typer, name: str, args: tuple[Value, ...]) -> Value:
    """An operator of Python numbers is a Python number: sqrt(2.0), floor(2.5)."""
    array = t.elementwise(name, args)
    if array.dtype.kind == "b":
        return array
    with np.errstate(all="ignore"):
        dtypes = [np.float64 if isinstance(a, float) or OPERATORS[name].operands == "float" else np.int64 for a in args]
        common = np.result_type(*dtypes)
        result = OPERATORS[name].numpy(*[np.asarray(a, common) for a in args])
    return result.item() if array.weak else array
