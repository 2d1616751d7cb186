"""kernels → kernels: contiguous axes become one axis.

    over i: M, j: N                          over i: M*N
      %0: f32[i, j] = load x[i, j]     →       %0: f32[i] = load x[i]      (x seen as f32[M*N])
      store out[i, j] %0                       store out[i] %0

Two axes of one role merge under two conditions. Every op has both or neither. Every access has them side by side,
`[…, i, j, …]`, in a buffer where the stride of i is the extent of j. Blocks may then cross the ends of rows, so odd row
lengths cost nothing. A batch of matrices that one matrix multiplies becomes one matrix. Left out: accesses that would
need a quotient or a remainder afterwards (a bias along j).

Before that, `x[r//8, r%8]` becomes `x[r]` if x has no gaps.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from minitri.base.dims import Dim, Remainder, floordiv
from minitri.base.logs import fired
from minitri.base.numpy_semantics import POSITIONS
from minitri.kernels import ir
from minitri.kernels.ir import Axis, Buffer, Dot, Inside, Kernel, Load, Op, Plan, Position, Reduce, Scan, Store


def flatten(plan: Plan) -> Plan:
    return replace(plan, kernels=tuple(_flatten(k) for k in plan.kernels))


def _flatten(kernel: Kernel) -> Kernel:
    kernel = _rejoined(kernel)
    while (fewer := _with_one_less(kernel)) is not None:
        kernel = fewer
    return kernel


def _with_one_less(kernel: Kernel) -> Kernel | None:
    """The kernel with two of its axes as one, if there are two such."""
    for a, b in combinations(kernel.axes, 2):
        if a.role == b.role and all(_agrees(op, a, b) for op in kernel.body):
            merged = _merge(kernel, a, b)
            if not _ambiguous(merged):
                one = next(x for x in merged.axes if x.name == a.name)
                fired(flatten, (a, b), one, tuple(s for op in kernel.body for s in op.spans))
                return merged
    return None


def _rejoined(kernel: Kernel) -> Kernel:
    """The kernel with accesses that split no index only to put it together again."""
    new: dict[Op, Op] = {}
    for op in kernel.body:
        new[op] = moved = ir.with_operands(op, new.__getitem__)
        if isinstance(moved, (Load, Store)):
            new[op] = _rejoin(moved)
    changed = _with_body(kernel, kernel.axes, tuple(new[op] for op in kernel.body))
    if changed.buffers == kernel.buffers or _ambiguous(changed):
        return kernel
    for op, moved in new.items():
        if isinstance(op, (Load, Store)) and isinstance(moved, (Load, Store)) and op.buffer != moved.buffer:
            fired(flatten, op, moved, op.spans)
    return changed


def _rejoin(op: Load | Store) -> Load | Store:
    for k in range(len(op.index) - 1):
        whole = _whole(op.index[k], op.index[k + 1], op.buffer.shape[k + 1])
        if whole is not None and op.buffer.strides[k] == op.buffer.strides[k + 1] * op.buffer.shape[k + 1]:
            index = (*op.index[:k], whole, *op.index[k + 2 :])
            return _rejoin(replace(op, index=index, buffer=_seen(op.buffer, k)))
    return op


def _whole(before: Dim, after: Dim, extent: Dim) -> Dim | None:
    """`before * extent + after`, if after is the remainder that belongs to a quotient in `before`."""
    if not isinstance(after.atom, Remainder) or after.atom.b != extent:
        return None
    rest = before - floordiv(after.atom.a, extent)  # (d + q // n) * n + q % n = d * n + q
    return rest * extent + after.atom.a if len(rest.terms) < len(before.terms) else None


def _ambiguous(kernel: Kernel) -> bool:
    """Whether an array is seen in two ways with as many axes, so that `x[i, j]` could be either."""
    return len({(b.name, len(b.shape)) for b in kernel.buffers}) < len(kernel.buffers)


def _agrees(op: Op, a: Axis, b: Axis) -> bool:
    """Whether an op would be the same over one axis of a.extent * b.extent indices."""
    if (a.name in op.axes) != (b.name in op.axes):
        return False
    match op:
        case Load():
            return not _uses(op.guards, a, b) and _walks_as_one(op.buffer, op.index, a, b)
        case Store():
            return _walks_as_one(op.buffer, op.index, a, b)
        case Position():
            return not _uses((op.expr,), a, b)
        case Inside():
            return not _uses(op.conditions, a, b)
        case Reduce():
            if op.op in POSITIONS:
                return not {a.name, b.name} & set(op.over)
            return (a.name in op.over) == (b.name in op.over)
        case Scan():
            return op.along not in (a.name, b.name)
        case Dot():
            return _rows_of_one(op, a, b) or not {a.name, b.name} & {op.over, *op.tile}
        case _:
            return True


def _rows_of_one(op: Dot, a: Axis, b: Axis) -> bool:
    """Whether a batch and the rows (or columns) after it are multiplied by one matrix: then they are its rows."""
    sides = zip(op.tile, (op.b, op.a))
    return a.name not in (op.over, *op.tile) and any(b.name == n and a.name not in other.axes for n, other in sides)


def _uses(exprs: tuple[Dim, ...], a: Axis, b: Axis) -> bool:
    return any(s in (a.symbol, b.symbol) for d in exprs for s in d.symbols())


def _walks_as_one(buffer: Buffer, index: tuple[Dim, ...], a: Axis, b: Axis) -> bool:
    place = _place(index, a, b)
    if place is None:
        return not _uses(index, a, b)
    rest = index[:place] + index[place + 2 :]
    return (
        not _uses(rest, a, b)
        and buffer.shape[place + 1] == b.extent
        and buffer.strides[place] == buffer.strides[place + 1] * b.extent
    )


def _place(index: tuple[Dim, ...], a: Axis, b: Axis) -> int | None:
    """Where an index holds the two axes side by side, plainly."""
    pairs = list(zip(index, index[1:]))
    return pairs.index((a.index, b.index)) if (a.index, b.index) in pairs else None


def _merge(kernel: Kernel, a: Axis, b: Axis) -> Kernel:
    merged = Axis(a.name, a.extent * b.extent, a.role)
    new: dict[Op, Op] = {}
    for op in kernel.body:
        moved = ir.with_operands(op, new.__getitem__)
        moved = replace(moved, axes=tuple(n for n in moved.axes if n != b.name))
        if isinstance(moved, Reduce):
            moved = replace(moved, over=tuple(n for n in moved.over if n != b.name))
        if isinstance(moved, Dot):
            row, column = (a.name if n == b.name else n for n in moved.tile)
            moved = replace(moved, tile=(row, column))
        if isinstance(moved, (Load, Store)):
            place = _place(moved.index, a, b)
            if place is not None:
                index = (*moved.index[: place + 1], *moved.index[place + 2 :])
                moved = replace(moved, index=index, buffer=_seen(moved.buffer, place))
        new[op] = moved
    axes = tuple(merged if x is a else x for x in kernel.axes if x is not b)
    return _with_body(kernel, axes, tuple(new[op] for op in kernel.body))


def _with_body(kernel: Kernel, axes: tuple[Axis, ...], body: tuple[Op, ...]) -> Kernel:
    buffers = dict.fromkeys(op.buffer for op in body if isinstance(op, (Load, Store, ir.Scalar)))
    return replace(kernel, axes=axes, buffers=tuple(buffers), body=body)


def _seen(buffer: Buffer, place: int) -> Buffer:
    """The same memory with axes `place` and `place + 1` as one."""
    shape, strides = list(buffer.shape), list(buffer.strides)
    shape[place : place + 2] = [shape[place] * shape[place + 1]]
    strides[place : place + 2] = [strides[place + 1]]
    return replace(buffer, shape=tuple(shape), strides=tuple(strides))
