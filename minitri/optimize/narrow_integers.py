"""tile → tile: 64-bit integers that 32 bits hold are computed in 32 bits. A GPU needs several instructions for 64 bits.

    %3: i64[i, r] = subtract %1, %2             becomes     %3: i32[i, r] = subtract %1, %2

Positions are i64, as in numpy, but they are rarely large.

In: a masked program. Out: the same with the dtype that holds them for some ops. An op is narrowed if 32 bits hold it
and all its operands, and if only its value is used: by a comparison, or by a conversion to a float. The dtype is i32.
It is f32 if a float depends on the op and 24 bits hold it, since f32 is exact there. Then a position is converted, and
not each element (ALiBi).

Left out: programs whose indices need 64 bits (optimize/index_width.py); integers that are stored,
carried by a loop, or used as an index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from operator import add, mul, neg, sub
from typing import Any

from minitri.base.dims import Dim
from minitri.base.intervals import Range, Ranges, bounds
from minitri.base.types import DType, f32, i32, i64
from minitri.graph.index_width import LIMIT
from minitri.kernels.ir import Compute, Constant, Op, Position, Spread, op_operands
from minitri.tiles.ir import Program, index_ranges
from minitri.tiles.rewrite import carried, retyped, users

COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
EXACT = ("add", "subtract", "abs", "minimum", "maximum", "where", "cast")  # of whole floats, and no -0.0 comes of them
WHOLE = 1 << 24  # up to here f32 has all whole numbers

# What is least and greatest where each operand is at an end of its range.
AT_ENDS: Mapping[str, Callable[..., Any]] = {
    "add": add, "subtract": sub, "multiply": mul, "negative": neg, "minimum": min, "maximum": max,
}  # fmt: skip

Interval = tuple[int, int]  # both ends
Users = Mapping[Op, Sequence[Op]]


def narrow(program: Program) -> Program:
    return program if program.wide else retyped(program, _narrowed(program))


def _narrowed(program: Program) -> Mapping[Op, DType]:
    """The ops that are computed in another dtype."""
    ranges = index_ranges(program)
    known = {s: (low, high if high.constant is not None else Dim.of(LIMIT)) for s, (low, high) in ranges.items()}
    reach = _reach(program, known)
    used_by = users(program)
    whole = _closed({op for op in reach if op.dtype == i64} - carried(program), used_by)
    exact = {op for op in whole if _is_exact(op) and -WHOLE <= reach[op][0] and reach[op][1] <= WHOLE}
    floats = _beside_conversions(_closed(exact, used_by), used_by)
    return {op: f32 if op in floats else i32 for op in whole}


def _closed(ops: set[Op], users: Users) -> set[Op]:
    """The largest subset whose ops have only operands and users in it, or users that accept them."""
    kept, todo = set(ops), [*ops]
    while todo:
        op = todo.pop()
        if op in kept and not (_is_made_of(op, kept) and all(u in kept or _takes(u, kept) for u in users[op])):
            kept.remove(op)
            todo += [*op_operands(op), *users[op], *(o for u in users[op] for o in op_operands(u))]
    return kept


def _is_exact(op: Op) -> bool:
    return not isinstance(op, Compute) or op.op in EXACT


def _beside_conversions(ops: set[Op], users: Users) -> set[Op]:
    """The ops that a conversion to a float depends on. Other ops are as fast as integers."""
    found, todo = set[Op](), [op for op in ops if any(_converts(u) for u in users[op])]
    while todo:
        op = todo.pop()
        if op in ops and op not in found:
            found.add(op)
            todo += [*op_operands(op), *users[op], *(o for u in users[op] for o in op_operands(u))]
    return found


def _is_made_of(op: Op, kept: set[Op]) -> bool:
    return all(o in kept or o.dtype != i64 for o in op_operands(op))


def _takes(user: Op, kept: set[Op]) -> bool:
    """Whether an op asks for a value alone, in whatever bits."""
    if not isinstance(user, Compute) or not _is_made_of(user, kept):
        return False
    return user.op in COMPARISONS or _converts(user) or user.op == "cast" and user.dtype.kind == "b"


def _converts(user: Op) -> bool:
    return isinstance(user, Compute) and user.op == "cast" and user.dtype.is_float


# ---- how far values reach --------------------------------------------------------------------


def _reach(program: Program, ranges: Ranges) -> Mapping[Op, Interval]:
    """The ranges of integer ops that 32 bits hold together with all their operands."""
    low, high = i32.limits
    found: dict[Op, Interval] = {}
    for op in program.ops():
        interval = _interval(op, found, ranges)
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
        case Compute(op="cast", args=(x,)) if op.dtype == i64 and (x.dtype.is_integer or x.dtype.kind == "b"):
            return x.dtype.limits if x.dtype.kind != "b" else (0, 1)
        case Compute() if op.dtype == i64:
            args = [found.get(a) for a in op.args if a.dtype == i64]
            return None if None in args else _computed(op.op, [a for a in args if a is not None])
        case _:
            return None


def _ends(found: Range | None) -> Interval | None:
    ends = [d.constant for d in found or ()]
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0] is not None and ends[1] is not None else None


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
        case _:
            return None
