"""tile → tile: computes 64-bit integers in 32 bits if their values fit. A GPU needs several instructions for a 64-bit
operation.

    %3: i64[i, r] = subtract %1, %2             becomes     %3: i32[i, r] = subtract %1, %2

Positions, such as the values of `arange(n)`, have dtype i64, as in numpy, but positions are rarely large.

The pass `narrow-integers` takes a tile program with masks, and gives some of its ops a narrower dtype. An op is
narrowed (computed in 32 bits) only if its value and all its operands fit into 32 bits. Only comparisons, conversions to
floats or booleans, and other narrowed (32-bit) ops may use the value of a narrowed op. An op that is computed in 32
bits usually gets the dtype i32. Narrowed ops that use each other's values form a group. If the program converts a value
of the group to a float, the whole group gets the dtype f32. An integer op gets the dtype f32 only if its value fits
into 24 bits: f32 represents such integers exactly. An example of attention with f32 positions is ALiBi, which adds to
each score a multiple of the distance between two positions. With f32 positions, ALiBi needs fewer conversions to float:
one for each position, not one for each pair of positions.

Programs whose indices need 64 bits are not changed (optimize/index_width.py). An integer is not narrowed if it is
stored, carried by a loop, or used as an index.
"""

from collections.abc import Callable, Mapping
from itertools import product
from operator import add, mul, neg, sub
from typing import Any

from minitri.base.dims import Dim
from minitri.base.intervals import Range, Ranges, bounds
from minitri.base.types import DType, f32, i32, i64
from minitri.graph.index_width import LIMIT
from minitri.kernels.ir import Compute, Constant, Op, Position, Spread, children
from minitri.tiles.ir import Program, index_ranges
from minitri.tiles.rewrite import carried, connected, largest_subset, retyped, users

COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
EXACT = ("add", "subtract", "abs", "minimum", "maximum", "where", "cast")  # exact for whole floats, and never -0.0
WHOLE = 1 << 24  # f32 represents all whole numbers up to this one

# The least and the greatest result of these operators occur where each operand is at an end of its interval.
AT_ENDS: Mapping[str, Callable[..., Any]] = {
    "add": add, "subtract": sub, "multiply": mul, "negative": neg, "minimum": min, "maximum": max,
}  # fmt: skip

Interval = tuple[int, int]  # both ends


def narrow(program: Program) -> Program:
    return program if program.wide else retyped(program, _narrowed(program))


def _narrowed(program: Program) -> Mapping[Op, DType]:
    """Returns the integer ops whose dtype becomes smaller, each with its new dtype."""
    ranges = index_ranges(program)
    known = {s: (low, high if high.constant is not None else Dim.of(LIMIT)) for s, (low, high) in ranges.items()}
    reach = _reach(program, known)
    used_by = users(program)

    def keeps(op: Op, kept: set[Op]) -> bool:
        """Checks whether `op` can be computed in 32 bits if all ops in the set `kept` are computed in 32 bits. The set
        `kept` must contain all i64 operands of `op`. Every op that uses `op` must be in the set `kept`, or must accept
        any integer dtype.
        """
        return _is_made_of(op, kept) and all(u in kept or _takes(u, kept) for u in used_by[op])

    def stays_integer(op: Op, kept: set[Op]) -> bool:
        """Checks whether an integer op gets the dtype i32 instead of f32. Ops that use each other's values get the same
        dtype. The dtype f32 saves time only if one of the integers is later converted to a float. If none of these ops
        is converted to a float, i32 is as fast as f32.
        """
        return not any(map(_converts, used_by[op])) and exact.intersection(connected(op, used_by)) <= kept

    whole = largest_subset({op for op in reach if op.dtype == i64} - carried(program), used_by, keeps)
    small = {op for op in whole if -WHOLE <= reach[op][0] and reach[op][1] <= WHOLE}
    exact = largest_subset((op for op in small if not isinstance(op, Compute) or op.op in EXACT), used_by, keeps)
    floats = exact - largest_subset(exact, used_by, stays_integer)
    return {op: f32 if op in floats else i32 for op in whole}


def _is_made_of(op: Op, kept: set[Op]) -> bool:
    return all(o in kept or o.dtype != i64 for o in children(op))


def _takes(user: Op, kept: set[Op]) -> bool:
    """Checks whether an op gives the same result if its i64 operands become i32 or f32."""
    if not isinstance(user, Compute) or not _is_made_of(user, kept):
        return False
    # comparing i32 numbers gives the same result as comparing the same numbers in i64
    return user.op in COMPARISONS or _converts(user) or user.op == "cast" and user.dtype.kind == "b"


def _converts(user: Op) -> bool:
    return isinstance(user, Compute) and user.op == "cast" and user.dtype.is_float


# ---- intervals of values --------------------------------------------------------------------


def _reach(program: Program, ranges: Ranges) -> Mapping[Op, Interval]:
    """Maps integer ops to their least and greatest values. Ops whose values may not fit into 32 bits are left out."""
    low, high = i32.limits
    found: dict[Op, Interval] = {}
    for op in program.ops():
        interval = _interval(op, found, ranges)  # None if an operand needs more bits
        if interval is not None and low <= interval[0] and interval[1] <= high:
            found[op] = interval
    return found


def _interval(op: Op, found: Mapping[Op, Interval], ranges: Ranges) -> Interval | None:
    match op:
        case Position() if not op.picks:
            return _ends(bounds(op.expr, ranges))
        case Constant() if op.dtype == i64:
            return int(op.value), int(op.value)
        case Spread():
            return found.get(op.x)
        case Compute(op="cast", args=(x,)) if op.dtype == i64 and not x.dtype.is_float:
            return x.dtype.limits
        case Compute() if op.dtype == i64:
            args = [a for a in op.args if a.dtype == i64]
            return _computed(op.op, [found[a] for a in args]) if all(a in found for a in args) else None
    return None


def _ends(found: Range | None) -> Interval | None:
    low, high = (d.constant for d in found) if found else (None, None)
    return None if low is None or high is None else (low, high)


def _computed(name: str, args: list[Interval]) -> Interval | None:
    if name in AT_ENDS:
        ends = [AT_ENDS[name](*corner) for corner in product(*args)]
        return min(ends), max(ends)
    match name, args:
        case "abs", [(a, b)]:
            return max(a, -b, 0), max(-a, b)
        case "where", [(a, b), (c, d)]:
            return min(a, c), max(b, d)
        case "floor_divide", [(a, b), (c, d)] if c == d > 0:
            return a // c, b // c
        case "remainder", [_, (c, d)] if c == d > 0:
            return 0, c - 1
    return None
