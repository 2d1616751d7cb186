"""kernels → kernels: stores results and temporaries in the memory order of their operands ("layout assignment").

    softmax(x).mT * 2, x: f32[4096, 2048]
      -> out: f32[2048, 4096]                  -> out: f32[2048, 4096] {strides = [1, 2048]}
      store out[i, j] %7                       store out[j, i] %7      (out seen as f32[4096, 2048])

After the pass `output-layouts`, a kernel that loads a transposed array stores its result in the same memory order. With
the same order for loads and stores, grid programs store neighbouring elements. The libraries numpy and torch also keep
the layout of operands: the result of `2 * x.T` has the strides of `x.T`. Only the strides of a result change, not its
shape and its elements. If operands have different layouts, the result gets the most frequent layout of the operands. To
find the most frequent layout, an f32 operand counts twice, because f32 elements have twice as many bytes as f16
elements. If two layouts are equally frequent, the row-major layout is preferred. A temporary is treated as a result of
the kernel that stores it.

The pass `output-layouts` also aligns the rows of some temporaries. A temporary that a product loads gets rows that
begin at multiples of 16 bytes, with gaps between the rows if necessary. Tensor descriptors (tensor_descriptors.py) and
wide asynchronous copies need rows that begin at multiples of 16 bytes. In this example, each row is followed by a gap
of 4 elements:

    temporary t0: bf16[8192, 4100]           -> temporary t0: bf16[8192, 4100] {strides = [4104, 1]}

Arrays that a product loads keep the order of their axes, because pack_operands.py expects row-major factors. Kernels
that only copy, as in the minitri program `x.T`, are not changed, because their only purpose is the new order of the
elements. Results of kernels with matrix products stay row-major, because tiles of tensor cores can be stored in either
order of the axes. A kernel with matrix products may store a temporary with its last two axes swapped. The axes are
swapped if later kernels load the temporary in this order. For example, one kernel stores the partial results of a
matrix product (split_k.py), and another kernel adds them. If the second kernel reads the partial results transposed,
they are stored transposed:

    temporary t6: f32[16, 1024, 128]         -> temporary t6: f32[16, 1024, 128] {strides = [131072, 1, 1024]}
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from minitri.base.dims import Dim, Pair
from minitri.base.pass_logs import fired
from minitri.graph.ir import contiguous
from minitri.kernels.demand import plain_axis
from minitri.kernels.ir import Buffer, Compute, Kernel, Load, Op, Plan, Reduce, Store, buffers_of, needed, rewritten
from minitri.optimize.factor_layouts import row_strides

Access = tuple[int, Sequence[Dim]]  # bytes of an element, and its index with the slowest axis first
Order = tuple[int, ...]  # the axes of an array, the axis with the largest stride first


def lay_out(plan: Plan) -> Plan:
    """Returns the plan with each result and temporary stored in the axis order of its operands. If a kernel with matrix
    products loads an array, the array keeps the order of its axes. If a product loads a temporary, each row of the
    temporary begins at a multiple of 16 bytes.
    """
    fixed = {op.buffer for k in plan.kernels if k.dots for op in k.body if isinstance(op, Load)}
    free = {b for b in (*plan.outputs, *plan.temporaries) if b not in fixed and 0 not in b.shape}
    orders: dict[Buffer, Order] = {}
    kernels: list[Kernel] = []

    def laid(b: Buffer) -> Buffer:
        return _with_strides(b, orders[b]) if b in orders else b

    for kernel in plan.kernels:
        kernel = _permuted(kernel, orders)  # its loads
        stores = [op for op in kernel.body if isinstance(op, Store)]
        if not kernel.dots and not all(map(_is_copy, stores)):
            found = {op.buffer: memory_order(op.index, _accesses(kernel)) for op in stores if op.buffer in free}
            own = {b: order for b, order in found.items() if order != tuple(sorted(order))}
            kernel = _in_order(_permuted(kernel, own)) if own else kernel
            orders |= own
        elif kernel.dots:
            stored = {op.buffer for op in stores} & free.difference(plan.outputs)
            own = {b: order for b in stored if (order := _order_of_readers(plan, b))}
            kernel = _permuted(kernel, own)
            orders |= own
        kernels.append(kernel)
    outputs, temporaries = (tuple(map(laid, buffers)) for buffers in (plan.outputs, plan.temporaries))
    return _with_aligned_rows(replace(plan, outputs=outputs, temporaries=temporaries, kernels=tuple(kernels)))


def _order_of_readers(plan: Plan, b: Buffer) -> Order | None:
    """Returns the axis order with the last two axes swapped if all loads of the array use it, or else None."""
    rank = len(b.shape)
    loads = [(k, op) for k in plan.kernels for op in k.body if isinstance(op, Load) and op.buffer == b]

    def changes(kernel: Kernel, load: Load) -> bool:
        reduces = any(isinstance(op, Reduce) for op in kernel.body)
        # the order of the axes that a kernel reduces does not matter
        names = [a.name for a in (kernel.parallel if reduces else kernel.axes)]
        row, column = (names.index(name) if (name := plain_axis(d)) in names else -1 for d in load.index[-2:])
        return 0 <= column < row

    # some kernel loads the array, and all that do loop over the last two axes in the swapped order
    suits = rank > 1 and bool(loads) and all(changes(*read) for read in loads)
    return (*range(rank - 2), rank - 1, rank - 2) if suits else None


def _with_aligned_rows(plan: Plan) -> Plan:
    """Pads the rows of temporary arrays for matrix products to multiples of 16 bytes."""
    factors = {op.buffer for k in plan.kernels for d in k.dots for op in needed(d) if isinstance(op, Load)}
    stored = [[op.buffer for op in k.body if isinstance(op, Store)] for k in plan.kernels]
    found = factors & {b for b, *others in stored if not others}  # stores of unlike alignment would be slow together
    aligned = {b: replace(b, strides=row_strides(b.shape, b.dtype)) for b in plan.temporaries if b in found}

    def change(op: Op) -> Op:
        return replace(op, buffer=aligned.get(op.buffer, op.buffer)) if isinstance(op, (Load, Store)) else op

    kernels = tuple(changed(k, change) for k in plan.kernels) if aligned else plan.kernels
    return replace(plan, temporaries=tuple(aligned.get(b, b) for b in plan.temporaries), kernels=kernels)


def changed(kernel: Kernel, change: Callable[[Op], Op]) -> Kernel:
    """Returns the kernel with `change` applied to each of its ops."""
    body = tuple(rewritten(kernel.body, change).values())
    return replace(kernel, body=body, buffers=buffers_of(body))


def _is_copy(op: Store) -> bool:
    """Checks whether a result is a copy, such as the result of the program `x.T`."""
    value = op.value
    while isinstance(value, Compute) and value.op == "cast" and value.dtype == value.args[0].dtype:
        (value,) = value.args
    return isinstance(value, Load)


def _with_strides(b: Buffer, order: Order) -> Buffer:
    strides = dict(zip(order, contiguous(tuple(b.shape[k] for k in order))))
    return replace(b, strides=tuple(strides[k] for k in range(len(order))))


def _permuted(kernel: Kernel, orders: Mapping[Buffer, Order]) -> Kernel:
    """Returns the kernel with permuted array axes, so that each array in `orders` is row-major."""

    def change(op: Op) -> Op:
        if not isinstance(op, (Load, Store)) or op.buffer not in orders:
            return op
        shape, index = (tuple(of[k] for k in orders[op.buffer]) for of in (op.buffer.shape, op.index))
        made = replace(op, buffer=replace(op.buffer, shape=shape, strides=contiguous(shape)), index=index)
        fired(lay_out, op, made, op.spans)
        return made

    return changed(kernel, change)


def _in_order(kernel: Kernel) -> Kernel:
    """Returns the kernel with its parallel axes in the order in which the index of the first store contains them."""
    index = next(op.index for op in kernel.body if isinstance(op, Store))
    # so that neighbouring grid programs store neighbouring elements
    places = {plain_axis(d): k for k, d in enumerate(index)}
    parallel = iter(sorted(kernel.parallel, key=lambda a: places.get(a.name, -1)))
    axes = tuple(next(parallel) if a.role == "parallel" else a for a in kernel.axes)
    names = [a.name for a in axes]
    body = rewritten(kernel.body, lambda op: replace(op, axes=tuple(sorted(op.axes, key=names.index))))
    return replace(kernel, axes=axes, body=tuple(body.values()))


def _accesses(kernel: Kernel) -> Iterator[Access]:
    """Yields, for each load, the size of an element in bytes, and the load's indices by decreasing stride."""
    # a result can have the layout of any array that the kernel loads
    for op in kernel.body:
        if isinstance(op, Load):
            axes, strides = range(len(op.index)), [s.constant or 0 for s in op.buffer.strides]
            order = sorted(axes, key=lambda k: -strides[k]) if all(strides) else axes  # not for unknown strides
            yield op.dtype.bytes, [op.index[k] for k in order]


def memory_order(index: Sequence[Dim], accesses: Iterable[Access]) -> Order:
    """Returns the axes of a stored result in memory order: the axis with the largest stride comes first. The result is
    stored at `index`.

    Each load whose index contains all axes of the result votes for the memory order of the loaded array. The function
    returns the order of axes that gets the most votes. A load has one vote for each byte of an element: a load of f32
    elements has 4 votes.
    """
    place = {part: k for k, d in enumerate(index) if d != 0 for part in (d, plain_axis(d)) if part is not None}
    own = tuple(k for k, d in enumerate(index) if d != 0)
    ones = tuple(k for k, d in enumerate(index) if d == 0)
    votes = Counter({own: 0})
    for bytes, where in accesses:
        parts = (part for d in where for part in ([d] if d in place else _axes_by_stride(d)))
        found = tuple(dict.fromkeys(place[part] for part in parts if part in place))
        if sorted(found) == list(own):
            votes[found] += bytes
    best = max(votes, key=votes.__getitem__)
    return (*ones, *best) if best != own else tuple(range(len(index)))


def _axes_by_stride(index: Dim) -> Iterator[str]:
    """Yields the axes of an index by decreasing stride: i and then r for `8*i + r`."""
    for monomial, _ in sorted(index.terms, key=lambda term: -term[1]):
        for atom in monomial:
            if isinstance(atom, Pair):
                yield from _axes_by_stride(atom.a)
                yield from _axes_by_stride(atom.b)
            elif atom.kind == "axis":
                yield atom.name
