"""kernels → kernels: merges axes that are contiguous in memory into one axis.

    over i: M, j: N                          over i: M*N
      %0: f32[i, j] = load x[i, j]     →       %0: f32[i] = load x[i]      (x seen as f32[M*N])
      store out[i, j] %0                       store out[i] %0

Two axes i and j are merged only if both are parallel or both are reduced. The axes i and j are merged only if every op
of the kernel has both axes or neither. The axes i and j are merged only if i comes directly before j in the index of
every load and store. The axes i and j are merged only if no loaded or stored buffer has gaps between its rows along j.
A buffer with the axes i and j has no gaps if the stride of i is the extent of j times the stride of j. After two axes
are merged, a block can cover the end of one row and the start of the next, so rows need no padding. If all matrices of
a batch are multiplied by the same matrix, the batch becomes one matrix with the rows of all these matrices. Axes i and
j stay separate if a load or store would have to divide the index of the merged axis. For example, let j have the extent
N. If i and j became one axis k, the load `b[j]` would need the index `k % N`.

As an exception, the last two axes of a kernel may be merged although the index of a load then needs a quotient or a
remainder. The last two axes stay separate if merging them would add instructions for each element. The number of
instructions for each element includes the instructions for quotients and remainders. The function `_cost` estimates how
many instructions each element needs. Merging the last two axes saves instructions in two example programs:

    x[:, 1:] * 2, rows of 4095 elements      stores across the ends of rows are aligned, and so are wide
    concat((x, y), axis=1), rows of 400      no block of 512 elements has 112 elements past the end of a row

As a second exception, all axes of a kernel become one axis if the kernel transposes many small matrices. An example is
`x.mT + y` with x: bf16[50432, 3, 64]. With a single axis, every store is contiguous, and no block has indices past the
end of a row. The transposed load `x[i//192, i%3, (i//3)%64]` is not contiguous, but all elements of a matrix are in the
L1 cache when the next load needs them.

The pass first simplifies indices: for rows of 8 elements without gaps between the rows, `x[r//8, r%8]` becomes `x[r]`.
If the axis r has 16384 indices, a store to `out[16384*i + r]` becomes a store to `out[i, r]`.
"""

from dataclasses import replace
from itertools import combinations

from minitri.base.dims import ZERO, Dim, Pair, Remainder, Symbol, axis, product
from minitri.base.intervals import Ranges, joined, mixed_radix
from minitri.base.operators import POSITIONS
from minitri.base.pass_logs import fired
from minitri.kernels import ir
from minitri.kernels.ir import Axis, Compute, Dot, Inside, Kernel, Load, Op, Plan, Position, Reduce, Scan, Store
from minitri.optimize.schedules.block_sizes import contiguity, elements_of_a_program, innermost, rival, vector
from minitri.optimize.schedules.long_bodies import instructions
from minitri.tiles.schedule import ceil_pow2, size

ACCESS, DIVISION = 6, 4  # about how many instructions a load or store takes, and a division by a constant
SMALL = 900  # elements of a matrix whose transpose is read through the L1 cache (H200)


def flatten(plan: Plan) -> Plan:
    """Merges neighbouring axes that are contiguous in memory into one axis, in each kernel."""
    return replace(plan, kernels=tuple(_flatten(k) for k in plan.kernels))


def _flatten(kernel: Kernel) -> Kernel:
    kernel = _rejoined(kernel)
    for divided in (False, True):
        while (fewer := _with_one_less(kernel, divided)) is not None:
            kernel = fewer
    return _with_one_axis(kernel) if _transposes_small(kernel) else kernel


def _transposes_small(kernel: Kernel) -> bool:
    """Checks whether an elementwise kernel transposes many small matrices."""
    last, order = kernel.axes[-2:], innermost(kernel.axes, contiguity(kernel))
    plain = not kernel.reduced and not any(isinstance(op, Load) and op.picks for op in kernel.body)  # no gathers
    small = len(last) == 2 and size(last[0], SMALL) * size(last[1], SMALL) < SMALL
    # memory is contiguous along the last axis in some arrays, and along the axis before it in other arrays
    return plain and small and {order[0], rival(order, kernel)} == {*last}


def _with_one_axis(kernel: Kernel) -> Kernel:
    """Merges all axes of a kernel into one axis, or changes nothing if this is impossible."""
    one: Kernel | None = kernel
    while one is not None and len(one.axes) > 1:
        one = _merge(one, *one.axes[:2], True)
    if one is None:
        return kernel
    fired(flatten, kernel.axes, one.axes, tuple(s for op in kernel.body for s in op.spans))
    return one


def _with_one_less(kernel: Kernel, divided: bool) -> Kernel | None:
    """Merges two axes of a kernel, or returns None if no axes can be merged."""
    # `divided`: the old indices may be the quotient and the remainder of the new index
    for a, b in _last_two(kernel) if divided else combinations(kernel.axes, 2):
        merged = _merge(kernel, a, b, divided) if a.role == b.role else None
        if merged is not None and (not divided or _cost(merged) <= _cost(kernel)):
            one = next(x for x in merged.axes if x.name == a.name)
            fired(flatten, (a, b), one, tuple(s for op in kernel.body for s in op.spans))
            return merged
    return None


def _last_two(kernel: Kernel) -> list[tuple[Axis, Axis]]:
    """Returns the last two axes of a kernel as candidates for a merge."""
    axes, order = [*(kernel.reduced or kernel.axes)], innermost(kernel.axes, contiguity(kernel))
    known = len(axes) > 1 and all(a.extent.constant for a in axes[-2:])
    # both sizes must be known, and memory must be contiguous along the last axis but along no other axis
    return [(axes[-2], axes[-1])] if known and order[0] is axes[-1] and not rival(order, kernel) else []


def _divides_stores(kernel: Kernel) -> bool:
    """Checks whether the index of a store needs a quotient or a remainder."""
    return any(_pairs(d) for op in kernel.body if isinstance(op, Store) for d in op.index)


def _cost(kernel: Kernel) -> float:
    """Estimates the number of instructions that a thread needs for each element."""
    # indices, guards and memory accesses count only if they depend on the last axis
    last = kernel.axes[-1]
    varying = {d for op in kernel.body for d in ir.index_expressions(op) if last.symbol in d.symbols()}
    # a quotient or remainder that occurs several times is computed only once
    pairs = {(atom.a, atom.b) for d in varying for atom in d.atoms() if isinstance(atom, Pair)}
    guards = {d for op in kernel.body if isinstance(op, Load) for d in op.guards if d in varying}
    needed = len(guards) + sum(_instructions(op, last.symbol) for op in kernel.body)
    # An element past the end of a row takes a quarter of the instructions of an element inside the row, because it is
    # computed but not loaded.
    return needed * (3 + _padding(kernel, int(last.extent))) / 4 + DIVISION * len(pairs)


def _instructions(op: Op, along: Symbol) -> float:
    """Returns how many instructions an op takes for each element."""
    if isinstance(op, (Load, Store)):
        # a load or store of several elements at once is one access
        return ACCESS / vector(op, along) if along in op.offset.symbols() else 0
    return instructions(op.op) if isinstance(op, Compute) else 0


def _padding(kernel: Kernel, row: int) -> float:
    """Returns the ratio of a row's padded length to the row's length."""
    block = min(ceil_pow2(row), elements_of_a_program(kernel))
    # one block of 512 elements that covers a row of 400 elements gives 512 / 400 = 1.28
    return -(-row // block) * block / row


def _rejoined(kernel: Kernel) -> Kernel:
    """Simplifies indices of loads and stores, such as `x[r // 8, r % 8]` to `x[r]`."""
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
    """Replaces two indices such as `r // 8, r % 8` of a load or store by `r`."""
    if not isinstance(op, (Load, Store)):
        return op
    for k in range(len(op.index) - 1):
        before, after, extent = op.index[k], op.index[k + 1], op.buffer.shape[k + 1]
        # one index is possible only if the strides leave no gap between rows
        if isinstance(after.atom, Remainder) and op.buffer.strides[k] == op.buffer.strides[k + 1] * extent:
            apart = before * extent + after
            whole = joined(apart, ranges)
            if _pairs(whole) < _pairs(apart):
                return _rejoin(_with_one_index(op, k, whole), ranges)
    return _with_digits(op, ranges) if isinstance(op, Store) else op


def _with_digits(op: Store, ranges: Ranges) -> Store:
    """Splits a store's flat index into axes, such as `out[16384*i + r]` into `out[i, r]`."""
    # `16384*i + r` can be split if the axis r has 16384 indices
    weights = mixed_radix(op.offset, ranges, product(list(op.buffer.shape)))
    if not weights or all(d == 0 or isinstance(d.atom, Symbol) for d in op.index):
        return op
    order = [*reversed(weights)]  # the last axis has the smallest stride
    shape, strides = tuple(ranges[s][1] + 1 for s in order), tuple(Dim.of(weights[s]) for s in order)
    buffer = replace(op.buffer, shape=shape, strides=strides)
    return replace(op, index=tuple(axis(s.name) for s in order), buffer=buffer)


def _pairs(d: Dim) -> int:
    """Returns the number of quotients and remainders in an index."""
    return sum(isinstance(atom, Pair) for atom in d.atoms())


def _ambiguous(kernel: Kernel) -> bool:
    """Checks whether a kernel views one array in two shapes of the same rank."""
    # With two shapes of rank 2 for one array, the text of the kernel would not say to which shape `x[i, j]` belongs.
    return len({(b.name, len(b.shape)) for b in kernel.buffers}) < len(kernel.buffers)


def _merge(kernel: Kernel, a: Axis, b: Axis, divided: bool) -> Kernel | None:
    """Merges two axes into one axis, or returns None if an op or the merged kernel prevents the merge."""
    new: dict[Op, Op] = {}
    for op in kernel.body:
        same = divided or (a.name in op.axes) == (b.name in op.axes)
        merged = _merged(op, a, b, divided) if same else None
        if merged is None:
            return None
        merged = ir.with_children(merged, new.__getitem__)
        new[op] = replace(merged, axes=tuple(dict.fromkeys(a.name if n == b.name else n for n in merged.axes)))
    axes = tuple(replace(x, extent=a.extent * b.extent) if x is a else x for x in kernel.axes if x is not b)
    made = replace(kernel, axes=axes, buffers=ir.buffers_of(new.values()), body=tuple(new.values()))
    made = _rejoined(made) if divided else made
    return None if _ambiguous(made) or (divided and _divides_stores(made)) else made


def _merged(op: Op, a: Axis, b: Axis, divided: bool) -> Op | None:
    """Returns an op over the merged axis, or None if the op prevents the merge."""
    # An op prevents the merge if its result would differ over the merged axis (named like a), or if `divided` is false
    # and an index would need a quotient or a remainder.
    of_one = {a.symbol: a.index // b.extent, b.symbol: a.index % b.extent}
    match op:
        case Load() | Store():
            op = _without_ones(op) if divided else op
            one = None if _uses(op.guards, a, b) else _indexed_as_one(op, a, b)
            if one is not None or not divided:
                return one
            return ir.reindexed(op, lambda d: d.substitute(of_one))
        case Position() | Inside():
            keeps = not divided and _uses(ir.index_expressions(op), a, b)
            return None if keeps else ir.reindexed(op, lambda d: d.substitute(of_one))
        case Reduce():
            one_of_two = (a.name in op.over) != (b.name in op.over)
            if one_of_two or op.op in POSITIONS and a.name in op.over:
                return None
            return replace(op, over=tuple(n for n in op.over if n != b.name))
        case Scan():
            return None if op.along in (a.name, b.name) else op
        case Dot():
            # The axis a is a batch axis. If b is a batch axis too, or if all matrices of the batch share a factor, the
            # product is the same. A factor with a and without b has been refused before, as an operand.
            row, column = (a.name if n == b.name else n for n in op.tile)
            return replace(op, tile=(row, column)) if not divided and a.name not in (op.over, *op.tile) else None
    return op


def _without_ones(op: Load | Store) -> Load | Store:
    """Removes the axes of size 1 from the index of a load or store."""
    kept = [k for k, (d, e) in enumerate(zip(op.index, op.buffer.shape)) if d != 0 or e != 1]
    index, shape, strides = (tuple(of[k] for k in kept) for of in (op.index, op.buffer.shape, op.buffer.strides))
    return replace(op, index=index, buffer=replace(op.buffer, shape=shape, strides=strides))


def _uses(exprs: tuple[Dim, ...], a: Axis, b: Axis) -> bool:
    return any(s in (a.symbol, b.symbol) for d in exprs for s in d.symbols())


def _indexed_as_one(op: Load | Store, a: Axis, b: Axis) -> Load | Store | None:
    """Returns a load or store with two neighbouring indices merged into one, or None."""
    index, buffer = op.index, op.buffer
    place = next((k for k in range(len(index) - 1) if index[k : k + 2] == (a.index, b.index)), None)
    if place is None:
        return None if _uses(index, a, b) else op
    # memory must be contiguous along both axes a and b
    whole = buffer.shape[place + 1] == b.extent and buffer.strides[place] == buffer.strides[place + 1] * b.extent
    once = not _uses(index[:place] + index[place + 2 :], a, b)
    return _with_one_index(op, place, a.index) if whole and once else None


def _with_one_index(op: Load | Store, place: int, index: Dim) -> Load | Store:
    """Replaces two neighbouring indices of a load or store by one given index."""
    # the indices at `place` and `place + 1` are replaced
    (*_, rows, columns), step = op.buffer.shape[: place + 2], op.buffer.strides[place + 1]

    def one(both: tuple[Dim, ...], of_both: Dim) -> tuple[Dim, ...]:
        return (*both[:place], of_both, *both[place + 2 :])

    buffer = replace(op.buffer, shape=one(op.buffer.shape, rows * columns), strides=one(op.buffer.strides, step))
    return replace(op, index=one(op.index, index), buffer=buffer)
