"""Abstract interpretation of the ops of tile programs: finds which kinds of numbers a value can be, without computing
the value.

    x                 a float: -inf, negative, zero, positive, inf or nan
    where(false, x, -inf)                            -inf
    m = maximum(m', -inf)                            m', whatever it is
    exp(m - m), m finite                             1

The function `computed` takes an op and the `Value`s of its operands. The returned `Value` says what is known about the
result of the op. A `Value` contains the kinds of numbers that the result can be. If only one number is possible, the
`Value` also contains this number. Each `Value` has a name, called its term. If two values have the same name (term),
all their elements are equal. The returned kinds include every possible kind of number, and sometimes impossible kinds
(Cousot and Cousot, "Abstract interpretation", POPL 1977).

A kind stands for many numbers, for example for all negative numbers. Each operator in the table `MONOTONE`, such as
`multiply`, is monotone on the numbers of one kind. If an operator is monotone, all its results for negative numbers lie
between its results for the smallest and the largest negative number. For each kind of operand, numpy computes the
operator at the smallest and at the largest number. The analysis does not distinguish 0.0 from -0.0, because a sum of
both can have either sign (docs/reference/semantics.md).
"""

from collections.abc import Hashable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Any

import numpy as np

from minitri.base.nodes import Record
from minitri.base.numpy_array_operations import elementwise
from minitri.base.toml_tables import table_beside
from minitri.base.types import DType
from minitri.kernels.ir import Compute, Op

BOTTOM, NEGATIVE, ZERO, POSITIVE, TOP, NAN = "-inf", "negative", "zero", "positive", "inf", "nan"
FINITE = frozenset((NEGATIVE, ZERO, POSITIVE))
FLOATS = FINITE | {BOTTOM, TOP, NAN}
TRUTHS = frozenset(("false", "true"))
SINGLE: dict[str, Any] = {
    BOTTOM: float("-inf"), ZERO: 0.0, TOP: float("inf"), NAN: float("nan"), "false": False, "true": True,
}  # fmt: skip
ORDER = (BOTTOM, NEGATIVE, ZERO, POSITIVE, TOP)
KNOWN = table_beside(__file__, "operators.toml")
MONOTONE = {name for name, row in KNOWN.items() if "monotone" in row}

Operand = tuple[DType, frozenset[str], tuple[Any, ...]]  # dtype, possible kinds, and its number if it is known


class Value(Record):
    """What the analysis knows about the value of an op.

    `kinds`: the kinds of numbers that the value can be, such as positive numbers or nan.
    `term`: the name of the value. Two values with the same name are equal in every element.
    `number`: `(x,)` if the value is certainly the number x. () if the number is not known.
    """

    kinds: frozenset[str]
    term: Hashable
    number: tuple[Any, ...] = ()

    def is_number(self, x: float) -> bool:
        """Checks whether the value is certainly the number x."""
        return self.number == (x,)

    @property
    def is_nan(self) -> bool:
        return self.kinds == {NAN}


def constant(x: Any, dtype: DType) -> Value:
    """Returns a `Value` that can only be the number x."""
    x = np.asarray(x, dtype.numpy).item()
    return Value(frozenset((_kind(x, dtype),)), ("constant", str(x)), (x,))


def anything(dtype: DType, term: Hashable, kinds: Iterable[str] | None = None) -> Value:
    """Returns a `Value` of the given kinds of numbers, or of all kinds if `kinds` is None. If only one kind is
    possible, and this kind contains a single number (such as inf), the function returns this number as a constant.
    """
    every = {"b": TRUTHS, "i": FINITE, "u": FINITE - {NEGATIVE}}.get(dtype.kind, FLOATS)
    found = frozenset(every if kinds is None else kinds)
    if len(found) == 1 and (only := next(iter(found))) in SINGLE:
        return constant(SINGLE[only], dtype)
    return Value(found, term)


def joined(values: Sequence[Value], dtype: DType, term: Hashable) -> Value:
    """Combines what is known about several values, one of which is the result. For example, the result of a `where`
    with an unknown condition is one of two values.
    """
    if len({v.term for v in values}) == 1:
        return values[0]
    return anything(dtype, term, frozenset().union(*(v.kinds for v in values)))


Terms = dict[Hashable, int]  # an operator and the terms of its operands → the number in the term of the result


# ---- elementwise operators -----------------------------------------------------------------------


def computed(op: Compute, args: Sequence[Value], terms: Terms) -> Value:
    """Derives what is known about the result of an elementwise op from what is known about its operands."""
    if all(a.number for a in args) and not _depends_on_sign_of_zero(op, args):
        numbers = [x for a in args for x in a.number]
        return constant(_apply(op.op, op.dtype, [a.dtype for a in op.args], numbers), op.dtype)
    if (kept := _unchanged_operand(op, args)) is not None:
        return kept
    term = "term", terms.setdefault((op.op, op.dtype.name, *(a.term for a in args)), len(terms))
    if op.op == "where":
        condition, a, b = args
        return joined([x for truth, x in (("true", a), ("false", b)) if truth in condition.kinds], op.dtype, term)
    if op.op == "subtract" and args[0].term == args[1].term and op.dtype.is_float:
        return anything(op.dtype, term, {ZERO if k in FINITE else NAN for k in args[0].kinds})
    return anything(op.dtype, term, _result_kinds(op, args))


def _depends_on_sign_of_zero(op: Compute, args: Sequence[Value]) -> bool:
    """Checks whether the result of an op could depend on the sign of a zero operand."""
    # The sign of a zero operand is unknown. For example, 1 / x is inf for x = 0.0, but -inf for x = -0.0.
    zero = any(a.kinds == {ZERO} and x.dtype.is_float for a, x in zip(args, op.args))
    return zero and op.op not in MONOTONE | {"cast", "where", "equal", "not_equal"}


def _unchanged_operand(op: Compute, args: Sequence[Value]) -> Value | None:
    """Returns the operand that always equals the result of an op, or None."""
    if len(args) != 2 or op.args[0].dtype != op.dtype:
        return None
    row = KNOWN.get(op.op, {})
    if "neutral" in row and not (op.op.startswith("bitwise") and op.dtype.kind != "b"):
        if args[1].is_number(row["neutral"]):
            return args[0]
        if row["commutes"] and args[0].is_number(row["neutral"]):
            return args[1]
    if op.op in ("maximum", "minimum"):
        return _winner(op, *args) or _winner(op, args[1], args[0])
    return None


def _winner(op: Compute, a: Value, b: Value) -> Value | None:
    """Returns the first operand if a maximum or minimum always equals this operand."""
    if a.term == b.term:
        return a
    if not b.number or b.is_nan:  # the maximum or minimum of a nan and a number is nan
        return None
    extremes = a.number or [x for k in a.kinds - {NAN} for x in _members(op.dtype, k)]
    wins = all(x >= b.number[0] if op.op == "maximum" else x <= b.number[0] for x in extremes)
    return a if wins else None


def _result_kinds(op: Compute, args: Sequence[Value]) -> frozenset[str] | None:
    """Returns the kinds of numbers, such as negative or inf, that an op can return."""
    if op.op in ("equal", "not_equal"):  # numbers of different kinds differ
        both = frozenset.intersection(*(a.kinds - {NAN} for a in args))
        return None if both else frozenset(("false" if op.op == "equal" else "true",))
    if op.op not in MONOTONE and not (op.op == "cast" and op.dtype.is_float):  # nothing is known
        return None
    if op.dtype.is_integer and op.op not in ("maximum", "minimum"):
        return None  # arithmetic of integers wraps
    return _kinds_reached(op.op, op.dtype, tuple((x.dtype, a.kinds, a.number) for x, a in zip(op.args, args)))


@lru_cache(maxsize=4096)
def _kinds_reached(op: str, dtype: DType, operands: tuple[Operand, ...]) -> frozenset[str]:
    """Returns the kinds of numbers, such as inf, that a monotone operator can return."""
    found: set[str] = set()
    dtypes = [t for t, _, _ in operands]
    for some in product(*(kinds for _, kinds, _ in operands)):
        members = [number or _members(t, kind) for (t, _, number), kind in zip(operands, some)]
        found |= _between({_kind(_apply(op, dtype, dtypes, xs), dtype) for xs in product(*members)})
    return frozenset(found)


def _between(kinds: set[str]) -> set[str]:
    """Fills gaps in a set of number kinds: for example, adds "zero" if the set has "negative" and "positive"."""
    places = [ORDER.index(k) for k in kinds if k in ORDER]
    return kinds | set(ORDER[min(places) : max(places) + 1]) if places else kinds


@cache
def _members(dtype: DType, kind: str) -> tuple[Any, ...]:
    """Returns examples of a kind of numbers: for positive floats, the smallest, the largest and some between."""
    if kind in SINGLE:
        return (SINGLE[kind],)
    if dtype.is_integer:
        ends = (1, dtype.limits[1]) if kind == POSITIVE else (-1, dtype.limits[0])
        return tuple(x for x in ends if x)
    import ml_dtypes

    info = ml_dtypes.finfo(dtype.numpy)
    sizes = [float(x) for x in (info.smallest_subnormal, info.tiny, 0.5, 1, 2, info.max)]
    return tuple(sizes if kind == POSITIVE else [-x for x in sizes])


def _kind(x: Any, dtype: DType) -> str:
    if dtype.kind == "b":
        return "true" if x else "false"
    if x != x:
        return NAN
    if x in (float("inf"), float("-inf")):
        return TOP if x > 0 else BOTTOM
    return POSITIVE if x > 0 else NEGATIVE if x < 0 else ZERO


def _apply(op: str, dtype: DType, dtypes: Sequence[DType], values: Sequence[Any]) -> Any:
    return elementwise(op, dtype, list(zip(dtypes, values))).item()


def free(op: Op, kinds: Iterable[str] | None = None) -> Value:
    """Returns the `Value` of an op about which only one fact is known: the kinds of numbers that its result can be. Two
    calls for the same op return values with the same term (name). If two values have the same term, they are known to
    be equal.
    """
    return anything(op.dtype, ("op", id(op)), kinds)
