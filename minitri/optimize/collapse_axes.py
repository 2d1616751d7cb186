"""kernels → kernels: merges axes that are contiguous in memory into one axis.

    over i: M, j: N                          over i: M*N
      %0: f32[i, j] = load x[i, j]     →       %0: f32[i] = load x[i]      (x seen as f32[M*N])
      store out[i, j] %0                       store out[i] %0

Two axes i and j, which are both parallel or both reduced, are merged under three conditions. Every op of the kernel
must have both i and j, or neither of them. Every load and store must have the index i directly before the index j. In
each loaded or stored buffer, the stride of i must be the extent of j times the stride of j. After the merge, a block
can continue in the next row, so no block is padded at the end of a row. If all matrices of a batch are multiplied by
the same matrix, the batch becomes one matrix with all of their rows. Axes i and j stay separate if a load or store
would need a quotient or a remainder of the merged index. For example, the load of a bias `b[j]` would need the
remainder of the merged index and the extent of j.

But rows of a result that are not aligned to 16 bytes, such as those of `x[:, 1:] * b` with 4090 columns, are merged even if
loads need the quotient and the remainder. Then no access of a dense array is narrow, and no block is padded at the end
of a row. On an H200, such kernels were between 1.0 and 1.8 times as fast, also with the load of a bias.

Before axes are merged, `x[r//8, r%8]` becomes `x[r]` if x has rows of 8 elements and no gaps in memory.
"""

from dataclasses import replace
from itertools import combinations

from minitri.base.dims import ZERO, Dim, Remainder, Symbol
from minitri.base.intervals import Ranges, joined
from minitri.base.operators import POSITIONS
from minitri.base.pass_logs import fired
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels import ir
from minitri.kernels.ir import Axis, Dot, Inside, Kernel, Load, Op, Plan, Position, Reduce, Scan, Store


def flatten(plan: Plan) -> Plan:
    """Merges neighbouring axes that are contiguous in memory into one axis, in each kernel."""
    return replace(plan, kernels=tuple(_flatten(k) for k in plan.kernels))


def _flatten(kernel: Kernel) -> Kernel:
    kernel = _rejoined(kernel)
    while (fewer := _with_one_less(kernel)) is not None:
        kernel = fewer
    return _with_divided_index(kernel) or kernel


def _with_one_less(kernel: Kernel) -> Kernel | None:
    """Returns the kernel with two of its axes merged, or None if no two axes can be merged."""
    for a, b in combinations(kernel.axes, 2):
        merged = _merge(kernel, a, b) if a.role == b.role else None
        if merged is not None and not _ambiguous(merged):
            one = next(x for x in merged.axes if x.name == a.name)
            fired(flatten, (a, b), one, tuple(s for op in kernel.body for s in op.spans))
            return merged
    return None


def _with_divided_index(kernel: Kernel) -> Kernel | None:
    """Returns the kernel with the merged index of its two axes. Loads whose rows have gaps, and loads with only one of the
    axes, divide the merged index by the length of a row.

    Returns None if the rows of some array are aligned. An array that is loaded twice is better loaded row by row.
    """
    if kernel.reduced or len(kernel.axes) != 2 or any(isinstance(op, (Position, Inside, Scan)) for op in kernel.body):
        return None
    a, b = kernel.axes
    loads = [op for op in kernel.body if isinstance(op, Load)]
    stores = {op: _indexed_as_one(op, a, b) for op in kernel.body if isinstance(op, Store)}
    once = len({op.buffer.name for op in loads}) == len(loads) and not any(op.guards or op.picks for op in loads)
    narrow = all(_is_narrow(op, b) for op in (*loads, *stores) if len(op.indexed_by) == 2)
    if not (once and narrow) or None in stores.values():
        return None
    row = {a.symbol: a.index // b.extent, b.symbol: a.index % b.extent}

    def change(op: Op) -> Op:
        if isinstance(op, Load):
            op = replace(op, index=tuple(d.substitute(row) for d in op.index))
        op = (isinstance(op, Store) and _indexed_as_one(op, a, b)) or op
        return replace(op, axes=op.axes and (a.name,))

    new = ir.rewritten(kernel.body, change)
    one = replace(a, extent=a.extent * b.extent)
    fired(flatten, (a, b), one, tuple(s for op in kernel.body for s in op.spans))
    return _rejoined(replace(kernel, axes=(one,), buffers=ir.buffers_of(new.values()), body=tuple(new.values())))


def _is_narrow(op: Load | Store, along: Axis) -> bool:
    """Checks whether a load or store accesses few bytes of a row at once.

    The reason is that the rows, which run along an axis, are not aligned, or that every second element is accessed.
    """
    steps = dict(op.offset.terms)
    step = steps.pop((along.symbol,), 0)
    known = all(isinstance(atom, Symbol) and atom.kind == "axis" for monomial in steps for atom in monomial)
    return known and (step == 2 or step == 1 and any(c * op.dtype.bytes % ALIGNMENT for c in steps.values()))


def _rejoined(kernel: Kernel) -> Kernel:
    """Returns the kernel with simpler loads and stores: an index that is split into quotient and remainder becomes one
    index again.
    """
    ranges: Ranges = {a.symbol: (ZERO, a.extent - 1) for a in kernel.axes}
    new = ir.rewritten(kernel.body, lambda op: _rejoin(op, ranges))
    changed = replace(kernel, buffers=ir.buffers_of(new.values()), body=tuple(new.values()))
    if changed.buffers == kernel.buffers or _ambiguous(changed):
        return kernel
    for op, moved in new.items():
        if isinstance(op, (Load, Store)) and isinstance(moved, (Load, Store)) and op.buffer != moved.buffer:
            fired(flatten, op, moved, op.spans)
    return changed


def _rejoin(op: Op, ranges: Ranges) -> Op:
    """Returns a load or store in which a pair of indices `i // n, i % n` becomes one index `i`, if the strides allow
    one index.
    """
    if not isinstance(op, (Load, Store)):
        return op
    for k in range(len(op.index) - 1):
        before, after, extent = op.index[k], op.index[k + 1], op.buffer.shape[k + 1]
        digits = any(isinstance(atom, Remainder) for atom in after.atoms())
        if digits and op.buffer.strides[k] == op.buffer.strides[k + 1] * extent:
            apart = before * extent + after
            whole = joined(apart, ranges)
            if whole != apart:
                return _rejoin(_with_one_index(op, k, whole), ranges)
    return op


def _ambiguous(kernel: Kernel) -> bool:
    """Checks whether two buffers of the kernel are the same array with different shapes of equal rank.

    If a kernel had an array x with two shapes of rank 2, its text would not say to which shape an access `x[i, j]`
    belongs.
    """
    return len({(b.name, len(b.shape)) for b in kernel.buffers}) < len(kernel.buffers)


def _merge(kernel: Kernel, a: Axis, b: Axis) -> Kernel | None:
    """Returns the kernel with one axis of `a.extent * b.extent` indices in place of the axes a and b. Returns None if
    an op prevents the merge.
    """
    new: dict[Op, Op] = {}
    for op in kernel.body:
        merged = _merged(op, a, b) if (a.name in op.axes) == (b.name in op.axes) else None
        if merged is None:
            return None
        merged = ir.with_children(merged, new.__getitem__)
        new[op] = replace(merged, axes=tuple(n for n in merged.axes if n != b.name))
    axes = tuple(replace(x, extent=a.extent * b.extent) if x is a else x for x in kernel.axes if x is not b)
    return replace(kernel, axes=axes, buffers=ir.buffers_of(new.values()), body=tuple(new.values()))


def _merged(op: Op, a: Axis, b: Axis) -> Op | None:
    """Returns the op with the axis `a` in place of the axes `a` and `b`. Returns None if the meaning of the op would
    change.
    """
    match op:
        case Load() | Store():
            return None if _uses(op.guards, a, b) else _indexed_as_one(op, a, b)
        case Position():
            return None if _uses((op.expr,), a, b) else op
        case Inside():
            return None if _uses(op.conditions, a, b) else op
        case Reduce():
            one_of_two = (a.name in op.over) != (b.name in op.over)
            if one_of_two or op.op in POSITIONS and a.name in op.over:
                return None
            return replace(op, over=tuple(n for n in op.over if n != b.name))
        case Scan():
            return None if op.along in (a.name, b.name) else op
        case Dot():
            # The axis a is a batch axis. If b is one too, or if all matrices of the batch share a factor, the product is
            # the same. A factor with a and without b has been refused before, as an operand.
            row, column = (a.name if n == b.name else n for n in op.tile)
            return replace(op, tile=(row, column)) if a.name not in (op.over, *op.tile) else None
    return op


def _uses(exprs: tuple[Dim, ...], a: Axis, b: Axis) -> bool:
    return any(s in (a.symbol, b.symbol) for d in exprs for s in d.symbols())


def _indexed_as_one(op: Load | Store, a: Axis, b: Axis) -> Load | Store | None:
    """Returns a load or store with one index in place of the neighbouring indices a and b. Returns None if the accessed
    memory is not contiguous along both axes.
    """
    index, buffer = op.index, op.buffer
    place = next((k for k in range(len(index) - 1) if index[k : k + 2] == (a.index, b.index)), None)
    if place is None:
        return None if _uses(index, a, b) else op
    whole = buffer.shape[place + 1] == b.extent and buffer.strides[place] == buffer.strides[place + 1] * b.extent
    once = not _uses(index[:place] + index[place + 2 :], a, b)
    return _with_one_index(op, place, a.index) if whole and once else None


def _with_one_index(op: Load | Store, place: int, index: Dim) -> Load | Store:
    """Returns a load or store of the same memory, in which `index` replaces the indices at `place` and `place + 1`."""
    (*_, rows, columns), step = op.buffer.shape[: place + 2], op.buffer.strides[place + 1]

    def one(both: tuple[Dim, ...], of_both: Dim) -> tuple[Dim, ...]:
        return (*both[:place], of_both, *both[place + 2 :])

    buffer = replace(op.buffer, shape=one(op.buffer.shape, rows * columns), strides=one(op.buffer.strides, step))
    return replace(op, index=one(op.index, index), buffer=buffer)
