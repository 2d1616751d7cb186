"""graph.simplified → kernels: stores the operands of a concatenation separately, each into one slice of the result.

    out = concat((softmax(x), y))      over i: M, j: 2*N                    over i: M, reduce j: N
    f32[M, N] each                       store out[i, j] where(j < N, …)      store out[i, 0, j] %6
                                                                              store out[i, 1, j] %7
                                                                              (out seen as f32[M, 2, N])

Without slices, a kernel computes all operands of a concatenation for each element of the result, and selects one value.
A loop over a row of the concatenation cannot compute the softmax of one operand, because the operand has shorter rows.
With the pass `output-slices`, the kernel loops over the shorter rows of the operands, not over the rows of the
concatenation. Each operand is computed once, and is stored into its own slice of the result. The optimisation requires
that all operands of a concatenation have the same extent along the concatenated axis. Fusion treats the slices as
separate results of the program. After fusion, one array contains all slices of a result.

Operations after a concatenation are applied to each slice. For example, `relu(concat((x, y)))` has the slices `relu(x)`
and `relu(y)`.

The function `with_slices` takes a graph, and a plan (list of kernels) that stores each result as a whole. It returns a
plan with kernels that store slices of results. If slices would increase a cost, such as the memory traffic, the
function `with_slices` returns the given plan. A result is divided into slices only if a single kernel stores all of the
slices.

A result with more than `MOST` slices is not divided, because one grid program keeps the values of all slices in
registers. A result is stored in slices only if the result is row-major in memory. Slices of fewer than `SECTOR`
contiguous bytes are used only if they reduce the memory traffic.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from math import prod

from minitri.base.dims import Dim
from minitri.graph.ir import Apply, Concat, Graph, Interner, Node, View, axis, children, contiguous, postorder
from minitri.graph.rewrite import apply_rules
from minitri.kernels.demand import COMPUTE
from minitri.kernels.ir import Buffer, Kernel, Load, Op, Plan, Reduce, Store
from minitri.kernels.memory_traffic import traffic
from minitri.optimize.fusion.first_parts import TYPICAL
from minitri.optimize.output_layouts import changed, lay_out
from minitri.optimize.simplify import cheap_steps, compose_views, identity_view, view_of_concat, with_steps

MOST = 4  # slices of one result
SECTOR = 32  # bytes that a GPU stores together


def with_slices(graph: Graph, whole: Plan, fuse: Callable[[Graph], Plan]) -> Plan:
    """Returns a plan whose kernels store concatenated results slice by slice. Returns the plan `whole` if slices would
    increase a cost, for example the memory traffic.

    `whole`: a plan that stores each result as a whole.
    `fuse`: the function that divides a graph into kernels and returns their plan.
    """
    interner, spans = Interner(graph.conditions), dict(graph.spans)
    outputs, places, runs = list[Node](), list[tuple[Buffer, int, Dim]](), list[int]()
    for root, buffer in zip(graph.outputs, whole.outputs):
        k, slices = _slices(root, interner)
        outputs += slices
        spans |= {x: tuple(dict.fromkeys((*spans.get(x, ()), *spans.get(root, ())))) for x in slices}
        if len(slices) > 1:
            shape = (*root.shape[:k], Dim.of(len(slices)), *slices[0].shape[k:])
            buffer = replace(buffer, shape=shape, strides=contiguous(shape))
            runs.append(buffer.dtype.bytes * prod(d.constant or TYPICAL for d in shape[k + 1 :]))
        places += [(buffer, k, Dim.of(p)) for p in range(len(slices))]
    if not runs:
        return whole
    plan = fuse(replace(graph, outputs=tuple(outputs), spans=spans))
    placed = {b.name: place for b, place in zip(plan.outputs, places)}

    def into_slice(op: Op) -> Op:
        if not isinstance(op, (Load, Store)) or op.buffer.name not in placed:
            return op
        buffer, k, p = placed[op.buffer.name]
        index = op.index if len(op.index) == len(buffer.shape) else (*op.index[:k], p, *op.index[k:])
        return replace(op, buffer=buffer, index=index)

    plan = replace(plan, outputs=whole.outputs, kernels=tuple(changed(k, into_slice) for k in plan.kernels))
    stored = [b for k in plan.kernels for b in {op.buffer.name for op in k.body if isinstance(op, Store)}]
    laid, before = lay_out(plan), lay_out(whole)
    new, old = costs(laid), costs(before)
    pays = all(n <= o for n, o in zip(new, old)) and (new[0] < old[0] or min(runs) >= SECTOR)
    return plan if pays and laid.outputs == before.outputs and len({*stored}) == len(stored) else whole


def costs(plan: Plan) -> tuple[int, int, int]:
    """Returns three costs of a plan: its memory traffic in bytes, its number of kernels, and its number of mixed
    kernels. A mixed kernel has a reduction, and accesses arrays in different orders (`_mixed`). For each unknown size,
    the function assumes the number `TYPICAL`.
    """
    moved = traffic(plan, defaultdict(lambda: TYPICAL))
    return sum(t.total for t in moved), len(plan.kernels), sum(map(_mixed, plan.kernels))


def _mixed(kernel: Kernel) -> bool:
    """Checks whether a kernel with a reduction accesses arrays in different orders, as `x[i, k]` and `y[k, i]`."""
    whole = [op for op in kernel.body if isinstance(op, (Load, Store)) and len(op.indexed_by) == len(kernel.axes)]
    # no schedule makes the accesses in both orders fast
    return any(isinstance(op, Reduce) for op in kernel.body) and len({op.index[-1].symbols() for op in whole}) > 1


def _slices(root: Node, interner: Interner) -> tuple[int, list[Node]]:
    """Divides a result at the boundaries of concatenated operands. Returns the divided axis and the slices."""
    cone = postorder([root], lambda n: children(n) if isinstance(n, (Apply, View, Concat)) else ())[::-1]
    x, steps = cheap_steps(root)
    for n in cone if any(isinstance(n, COMPUTE) for n in cone) and 0 not in root.shape else ():
        if isinstance(n, Concat) and len(n.parts) <= MOST and len({p.shape[n.axis] for p in n.parts}) == 1:
            whole, extent = n.shape[n.axis], n.parts[0].shape[n.axis]
            for k in [n.axis] if n.shape == root.shape else [k for k, e in enumerate(root.shape) if e == whole]:
                places = [[axis(d) + (extent * p if d == k else 0) for d in range(x.rank)] for p in range(len(n.parts))]
                shape = (*x.shape[:k], extent, *x.shape[k + 1 :])
                views = (apply_rules(interner, interner.view(x, shape, tuple(at)), RULES) for at in places)
                # the divided axis, and the slices
                return k, [with_steps(interner, view, steps) for view in views]
    # a result that cannot be divided, only copies elements, or has no elements is a single slice
    return 0, [root]


RULES = compose_views, view_of_concat, identity_view
