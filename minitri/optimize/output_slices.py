"""graph.simplified → kernels: stores each operand of a concatenated result into its own slice of the result.

    out = concat((softmax(x), y))      over i: M, j: 2*N                    over i: M, reduce j: N
    f32[M, N] each                       store out[i, j] where(j < N, …)      store out[i, 0, j] %6
                                                                              store out[i, 1, j] %7
                                                                              (out seen as f32[M, 2, N])

Without this optimisation, a kernel computes all operands of a concatenation for every element of the result, and
selects one of them. The kernel has an axis of the length of the result, so it shares no axis with the rows of an
operand. With this optimisation, the kernel has an axis of the length of one operand. Each operand is computed once, and
stored once. The operands of a concatenation must have equal extents. They become several results of one kernel, so the
rules of fusion apply to them (fusion/partition.py). Afterwards, the results become slices of one array again.

Cheap operations with one operand after a concatenation are applied to each slice. For example, `-concat((x, y))` has
the slices `-x` and `-y`.

In: a graph, its plan without slices, and a function that makes the plan of a graph. Out: the plan with slices, or the
plan without slices if the plan with slices does not move fewer bytes. One kernel must store all slices of a result.

Left out: results with more than `MOST` slices, because one grid program computes all slices, and their values need
registers. Also left out: programs with several results, other operations after the concatenation, and results that are
not row-major.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from minitri.base.dims import Dim
from minitri.graph.ir import Concat, Graph, Interner, contiguous
from minitri.kernels.ir import Load, Op, Plan, Store
from minitri.kernels.memory_traffic import traffic
from minitri.optimize.fusion.first_parts import TYPICAL
from minitri.optimize.output_layouts import changed, lay_out
from minitri.optimize.simplify import cheap_steps, with_steps

MOST = 4  # slices of one result


def with_slices(graph: Graph, whole: Plan, fuse: Callable[[Graph], Plan]) -> Plan:
    """Returns a plan that stores the only result of the graph in slices, or the plan `whole` if slices do not pay.

    fuse   makes the plan of a graph
    """
    x, steps = cheap_steps(graph.outputs[0])
    if not isinstance(x, Concat) or len(x.parts) > MOST or len({p.shape for p in x.parts}) > 1:
        return whole
    interner, spans = Interner(graph.conditions), graph.spans.get(graph.outputs[0], ())
    slices = tuple(with_steps(interner, part, steps) for part in x.parts)
    plan = fuse(replace(graph, outputs=slices, spans={**dict.fromkeys(slices, spans), **graph.spans}))
    shape = (*x.shape[: x.axis], Dim.of(len(slices)), *slices[0].shape[x.axis :])
    divided = replace(whole.outputs[0], shape=shape, strides=contiguous(shape))
    number = {b.name: Dim.of(p) for p, b in enumerate(plan.outputs)}

    def into_slice(op: Op) -> Op:
        if not isinstance(op, (Load, Store)) or op.buffer.name not in number:
            return op
        return replace(op, buffer=divided, index=(*op.index[: x.axis], number[op.buffer.name], *op.index[x.axis :]))

    plan = replace(plan, outputs=whole.outputs, kernels=tuple(changed(k, into_slice) for k in plan.kernels))
    writers = [k for k in plan.kernels if any(isinstance(op, Store) and op.buffer == divided for op in k.body)]
    pays = len(writers) == 1 and bytes_moved(plan) < bytes_moved(whole)
    return plan if pays and lay_out(plan).outputs == lay_out(whole).outputs else whole


def bytes_moved(plan: Plan) -> int:
    """Returns the bytes that a plan loads and stores if each unknown size is `TYPICAL`."""
    return sum(t.total for t in traffic(plan, defaultdict(lambda: TYPICAL)))
