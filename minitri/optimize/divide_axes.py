"""kernels → kernels: divides an axis into two axes, if loads along the axis are then contiguous ("delinearization").

    over i: 4096, reduce r: 2048                     over i: 4096, reduce r: 32, reduce r2: 64
      %0: f32[i, r] = load x[i, r%64, r//64]    →      %0: f32[i, r, r2] = load x[i, r2, r]
      %1: f32[i] = reduce.sum %0 {over = [r]}          %1: f32[i] = reduce.sum %0 {over = [r, r2]}

For example, `sum(reshape(x.mT, (4096, 2048)), axis=1)` sums rows of 2048 elements. Neighbouring elements of a row are
far apart in memory, because x is transposed, so a warp would use few bytes of each memory sector. In the divided
kernel, elements that are neighbours along the outer axis r are neighbours in memory. No index needs a quotient or a
remainder. In an elementwise kernel, such as `reshape(x.mT, (4096, 2048)) * 2`, loads are then contiguous along one
axis, and stores along the other axis.

An axis r can be divided if an index contains `r // n` or `r % n`, and the number n divides the length of r. The
division replaces r by an outer axis and an inner axis. The inner axis has the length n. An axis is divided only if a
load is then contiguous along the outer axis. Axes of scans are not divided. Axes of reductions that return positions,
such as argmax, are not divided. Kernels with matrix products stay as they are. A kernel may reduce rows and store
results that are as long as a row, as in softmax. The reduced axes of such a kernel are not divided, because the kernel
would be up to four times slower (H200).

Dividing an axis is called delinearization (Maslov, "Delinearization: an efficient way to break multiloop dependence
equations", 1992).
"""

from dataclasses import replace

from minitri.base.dims import ZERO, Dim, axis_names
from minitri.base.intervals import Ranges, simplify
from minitri.base.operators import POSITIONS
from minitri.base.pass_logs import fired
from minitri.kernels import ir
from minitri.kernels.demand import PARALLEL, REDUCED, free_axis
from minitri.kernels.ir import Axis, Kernel, Load, Op, Plan, Reduce, Scan, Spread, Store


def divide(plan: Plan) -> Plan:
    """Divides axes into two axes, in each kernel, until no other axis can be divided."""
    return replace(plan, kernels=tuple(map(_divided, plan.kernels)))


def _divided(kernel: Kernel) -> Kernel:
    """Divides axes of a kernel until no other axis can be divided."""
    pairs = [p for op in kernel.body if isinstance(op, Load) for p in op.offset.pairs()]
    for a in kernel.axes if not kernel.dots else ():
        for length in dict.fromkeys(p.b for p in pairs if p.b.constant and p.a == a.index and a.extent % p.b == 0):
            name = free_axis([x.name for x in kernel.axes], REDUCED if a.role == "reduced" else PARALLEL)
            outer, inner = replace(a, extent=a.extent // length), Axis(name, length, a.role)
            divided = _with_two_axes(kernel, outer, inner)
            if not any(_needs_one(op, a, inner) for op in divided.body) and _is_contiguous(divided, outer, inner):
                fired(divide, a, (outer, inner), tuple(s for op in kernel.body for s in op.spans))
                return _divided(divided)
    return kernel


def _with_two_axes(kernel: Kernel, outer: Axis, inner: Axis) -> Kernel:
    """Divides the axis that has the name of `outer` into the axes `outer` and `inner`, and returns the new kernel."""
    axes = tuple(x for a in kernel.axes for x in ((outer, inner) if a.name == outer.name else (a,)))
    ranges: Ranges = {a.symbol: (ZERO, a.extent - 1) for a in axes}

    def moved(d: Dim) -> Dim:
        return simplify(d.substitute({outer.symbol: outer.index * inner.extent + inner.index}), ranges)

    new: dict[Op, Op] = {}
    for op in kernel.body:
        made = ir.reindexed(ir.with_children(op, new.__getitem__), moved)
        if isinstance(made, Reduce) and outer.name in made.over:
            made = replace(made, over=(*made.over, inner.name))
        used = axis_names(ir.index_expressions(made)).union(*(o.axes for o in ir.children(made)))
        if isinstance(op, Spread):
            used |= {*op.axes, *([inner.name] if outer.name in op.axes else [])}
        kept = used.difference(ir.reduced_by(made))
        new[op] = replace(made, axes=tuple(a.name for a in axes if a.name in kept))
    body = tuple(new.values())
    return replace(kernel, axes=axes, buffers=ir.buffers_of(body), body=body)


def _needs_one(op: Op, a: Axis, inner: Axis) -> bool:
    """Checks whether an op of a divided kernel would be wrong or slow, so that the axis `a` must stay whole."""
    match op:
        case Reduce():  # the operand of a reduction must have both axes
            return inner.name in op.over and (op.op in POSITIONS or not {*op.over} <= {*op.x.axes})
        case Store():  # one block that holds a row is faster than loops over two axes
            return a.role == "reduced" and inner.name in op.indexed_by
    return isinstance(op, Scan) and op.along == a.name


def _is_contiguous(kernel: Kernel, outer: Axis, inner: Axis) -> bool:
    """Checks whether a load of a divided kernel is contiguous along the outer axis, and not along the inner axis."""
    offsets = [op.offset.coefficient(outer.symbol) for op in kernel.body if isinstance(op, Load)]
    return any(found and found[0] == 1 and inner.symbol in found[1].symbols() for found in offsets)
