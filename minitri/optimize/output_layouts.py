"""kernels → kernels: stores each result in the order in which its operands lie in memory ("layout assignment").

    softmax(x).mT * 2, x: f32[4096, 2048]
      -> out: f32[2048, 4096]                  -> out: f32[2048, 4096] {strides = [1, 2048]}
      store out[i, j] %7                       store out[j, i] %7      (out seen as f32[4096, 2048])

In memory, the result of a transposed operand then has the layout of the operand, so no program has to store elements
that are far apart. numpy and torch do the same: the result of `2 * x.T` has the strides of `x.T`. The shape and the
elements of the result stay the same; only its strides change. If operands have different layouts, the layout of the
operands with the most bytes per element is chosen. If no layout has more bytes than the row-major layout, the result is
row-major. A result that another kernel loads is always row-major. A copy, such as the result of the program `x.T`, is
row-major too, because the new order of its elements is all that such a program asks for.

Left out: layouts of temporaries, for which minitri/optimize/fusion/separate_transposes.py chooses suitable kernels.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from minitri.base import dims
from minitri.base.dims import Dim, axis_names
from minitri.base.pass_logs import fired
from minitri.graph.ir import contiguous
from minitri.kernels.demand import plain_axis
from minitri.kernels.ir import Buffer, Compute, Kernel, Load, Op, Plan, Store, rewritten

Access = tuple[int, Sequence[Dim]]  # bytes of an element, and its index with the slowest axis first


def lay_out(plan: Plan) -> Plan:
    """Returns the plan with a layout for each result that no kernel loads."""
    loaded = {op.buffer.name for k in plan.kernels for op in k.body if isinstance(op, Load)}
    free = {b.name: b for b in plan.outputs if b.name not in loaded and 0 not in b.shape}
    laid = dict(free)
    kernels = [_with_layouts(kernel, free, laid) for kernel in plan.kernels]
    if laid == free:
        return plan
    return replace(plan, outputs=tuple(laid.get(b.name, b) for b in plan.outputs), kernels=tuple(kernels))


def _with_layouts(kernel: Kernel, free: dict[str, Buffer], laid: dict[str, Buffer]) -> Kernel:
    """Returns the kernel with permuted indices of the results in `free`. Writes their new buffers to `laid`."""
    accesses = [*map(_access, (op for op in kernel.body if isinstance(op, Load)))]
    for dot in kernel.dots:  # the columns of a product come last
        batch = [dims.axis(a) for a in dot.axes if a not in dot.tile]
        accesses.append((dot.dtype.bytes, [*batch, *map(dims.axis, dot.tile)]))
    seen: dict[Buffer, Buffer] = {}

    def change(op: Op) -> Op:
        if not isinstance(op, Store) or op.buffer.name not in free or _is_copy(op):
            return op
        order = memory_order(op.index, accesses)
        if order == tuple(range(len(order))):
            return op
        shape = tuple(op.buffer.shape[k] for k in order)
        seen[op.buffer] = replace(op.buffer, shape=shape, strides=contiguous(shape))
        stride = dict(zip(order, contiguous(shape)))
        laid[op.buffer.name] = replace(op.buffer, strides=tuple(stride[k] for k in range(len(order))))
        moved = replace(op, buffer=seen[op.buffer], index=tuple(op.index[k] for k in order))
        fired(lay_out, op, moved, op.spans)
        return moved

    new = rewritten(kernel.body, change)
    moved = [op for op in new.values() if isinstance(op, Store) and op.buffer in seen.values()]
    kernel = replace(kernel, body=tuple(new.values()), buffers=tuple(seen.get(b, b) for b in kernel.buffers))
    return _in_order(kernel, moved[0].index) if moved and not kernel.dots else kernel


def _in_order(kernel: Kernel, index: Sequence[Dim]) -> Kernel:
    """Returns the kernel with its parallel axes in the order of `index`, so that neighbouring programs store
    neighbouring elements.
    """
    order = [plain_axis(d) for d in index if d != 0]
    parallel = iter(sorted(kernel.parallel, key=lambda a: order.index(a.name) if a.name in order else -1))
    axes = tuple(next(parallel) if a.role == "parallel" else a for a in kernel.axes)
    names = [a.name for a in axes]
    sorted_axes = rewritten(kernel.body, lambda op: replace(op, axes=tuple(sorted(op.axes, key=names.index))))
    return replace(kernel, axes=axes, body=tuple(sorted_axes.values()))


def _is_copy(op: Store) -> bool:
    """Checks whether a result is a copy, such as the result of the program `x.T`."""
    value = op.value
    while isinstance(value, Compute) and value.op == "cast" and value.dtype == value.args[0].dtype:
        (value,) = value.args
    return isinstance(value, Load)


def _access(op: Load) -> Access:
    strides = [s.constant for s in op.buffer.strides]
    known = [s for s in strides if s is not None]
    if op.buffer.strides == contiguous(op.buffer.shape) or len(known) < len(strides):
        return op.dtype.bytes, op.index
    return op.dtype.bytes, [d for _, d in sorted(zip(known, op.index), key=lambda pair: -pair[0])]


def memory_order(index: Sequence[Dim], accesses: Iterable[Access]) -> tuple[int, ...]:
    """Returns the axes of a result in the order of their strides, the largest stride first. The result is stored at
    `index`.

    Each of the `accesses` that has all axes of the result counts for its own order of axes, with its bytes.
    """
    place = {axis: k for k, d in enumerate(index) if (axis := plain_axis(d)) is not None}
    own = tuple(place.values())
    ones = tuple(k for k, d in enumerate(index) if d == 0)
    votes = Counter({own: 0})
    for bytes, where in accesses:
        names = [axis_names([d]) for d in where]
        found = tuple(place[a] for several in names for a in several if a in place)
        if sorted(found) == list(own) and all(len(several) < 2 for several in names):
            votes[found] += bytes
    best = (*ones, *max(votes, key=votes.__getitem__))
    return best if len(best) == len(index) and best[len(ones) :] != own else tuple(range(len(index)))
