"""Numbers known at compile time: Python's arithmetic on numbers and dimensions.

Two integers or dimensions stay a number or a `Dim`; whatever needs run-time sizes (N ** -0.5)
is None here and becomes nodes of the graph. No result of a constant is a traceback.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from minitri.base import dims
from minitri.base.diagnostics import CompileError
from minitri.base.dims import Dim
from minitri.base.limits import MAX_BITS
from minitri.base.operators import OPERATORS
from minitri.graph.typer import Typer, Value

NUMBERS = (int, float, Dim)
UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg,
    "+": lambda x: x + 0,
    "~": lambda x: not x if isinstance(x, bool) else ~x,
}
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def fold_numbers(op: str, x: int | float | Dim, y: int | float | Dim) -> int | float | Dim | None:
    """Arithmetic of numbers and dimensions that stays a number; None if it needs run-time sizes."""
    if isinstance(x, Dim) or isinstance(y, Dim):
        if isinstance(x, float) or isinstance(y, float):
            return None
        if op in ("+", "-", "*") or (op in ("//", "%") and dims.sign(Dim.of(y)) in (0, 1) and y != 0):
            return plain(BINARY[op](Dim.of(x), Dim.of(y)))
        if op == "**" and isinstance(y, int) and 0 <= y <= 16:
            return plain(dims.product([Dim.of(x)] * y))
        return None
    if isinstance(x, int) and isinstance(y, int) and _bits(op, x, y) > MAX_BITS:
        raise CompileError("MT0208", f"{op} of these constants is past all floats", help="write inf")
    return static(lambda: BINARY[op](x, y))


def _bits(op: str, x: int, y: int) -> int:
    """About how many bits the result has, before it is computed."""
    grown = {
        "**": x.bit_length() * abs(y) if abs(x) > 1 else 1,
        "<<": x.bit_length() + y,
        "*": x.bit_length() + y.bit_length(),
    }
    return grown.get(op, max(x.bit_length(), y.bit_length()) + 1)


def plain(d: Dim) -> int | Dim:
    return d if d.constant is None else d.constant


def static(compute: Callable[[], Any]) -> Any:
    """What a computation of constants gives; CompileError MT0208 if it has no (real) result."""
    try:
        result = compute()
    except CompileError:
        raise
    except ZeroDivisionError:
        raise CompileError("MT0208", "division of a constant by zero", help="write inf or nan") from None
    except OverflowError:
        raise CompileError("MT0208", "the result of these constants is past all floats", help="write inf") from None
    except (TypeError, ValueError) as error:
        raise CompileError("MT0208", f"these constants do not combine: {str(error)[:80]}") from None
    if isinstance(result, complex):
        raise CompileError("MT0208", "the result of these constants is a complex number")
    return plain(result) if isinstance(result, Dim) else result


def decide(op: str, difference: Dim) -> bool | None:
    """Whether `difference op 0`; None if it depends on sizes."""
    if difference.constant is not None:
        return COMPARE[op](difference.constant, 0)
    return None


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
