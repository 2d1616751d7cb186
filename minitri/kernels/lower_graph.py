"""graph.simplified → kernels: makes one kernel for each node that computes something.

    exp(x) + 1      becomes      k0: t0 = exp(x)      k1: out = t0 + 1

Views, constants and index values get no kernel of their own. A kernel that needs a view, a constant or an index value
computes this value itself. If an output is only a view of another value, a kernel copies the value to memory. If one
kernel would need a view at too many different indices, the view is copied to memory.

With optimisations, minitri/optimize/fusion/ decides which nodes run in one kernel. `plan_of` makes the plan (list of
kernels), with or without fusion. `build` makes one kernel from an `Indexing` (minitri/kernels/demand.py). An `Indexing`
says which elements of the graph nodes the kernel needs. Each op of a kernel comes after its operands. If several
results of the kernel need the same element of a node, one op computes or loads this element for all of them.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from minitri.base.dims import Dim, axis_names, product
from minitri.base.nodes import grouped
from minitri.base.operators import OPERATORS, fill_value, neutral
from minitri.base.resource_limits import check_time
from minitri.base.spans import Span
from minitri.base.types import DType, bool_
from minitri.graph import ir as graph_ir, rewrite
from minitri.graph.ir import MAX_SPANS, Graph, Interner, Layouts, Node, allows, contiguous, postorder
from minitri.kernels import ir
from minitri.kernels.demand import COMPUTE, Demand, Indexing, NotOneKernel, plain_axis
from minitri.kernels.ir import Axis, Buffer, Decision, Op, Plan

Key = tuple[Node, Demand]
Spans = Mapping[Node, tuple[Span, ...]]
Buffers = Callable[[Node], Sequence[Buffer]]
O = TypeVar("O")


def one_kernel_each(graph: Graph, layouts: Layouts = {}) -> Plan:
    """Makes a plan (list of kernels). Each node that computes something gets its own kernel. The kernels have the same
    order as their nodes.

    `layouts`: a dict from the name of each input that is not contiguous in memory to the input's strides, in elements.
    """
    graph = with_stored_outputs(graph)
    while True:
        parts, moved = _parts(graph)
        if not moved:
            return plan_of(graph, parts, _ledger(graph, parts), layouts)
        graph = with_copies(graph, moved)


def _parts(graph: Graph) -> tuple[list[Indexing], set[Node]]:
    """Returns an `Indexing` for each kernel, and the views that must be stored in memory."""
    parts: list[Indexing] = []
    moved: set[Node] = set()
    allowed = allows(graph.conditions)
    for node in graph.nodes():
        if isinstance(node, COMPUTE):
            try:
                parts.append(Indexing(frozenset({node}), [node], allowed))
            except NotOneKernel as refusal:
                moved |= set(refusal.nodes)  # views that a kernel would need at too many indices
    return parts, moved


def _ledger(graph: Graph, parts: Sequence[Indexing]) -> list[Decision]:
    """Returns a fusion decision for each value that one kernel stores and another kernel loads."""
    number = {part.roots[0]: f"k{k}" for k, part in enumerate(parts)}
    written, rows = set(graph.outputs), []
    for part in parts:
        for node in (n for n in part.order if n in number and n is not part.roots[0]):
            ends = number[node], number[part.roots[0]]
            rows.append(decision(graph, node, ends, False, "fusion is off", 1 + (node not in written)))
            written.add(node)
    return rows


def decision(graph: Graph, node: Node, ends: tuple[str, str], fused: bool, rule: str, times: int) -> Decision:
    """Makes a line of the ledger (list of fusion decisions) about the value of `node`.

    `ends`: the names of two kernels: the first computes the value, and the second uses it.
    `times`: the number of reads and writes of the whole value. The ledger shows the number of bytes of all these reads
        and writes.
    """
    traffic = product(list(node.shape)) * (times * node.dtype.bytes)
    return Decision(f"{label(node)}: {node.type}", *ends, fused, rule, traffic, spans=graph.spans.get(node, ()))


def label(node: Node) -> str:
    """Returns the name of a node in the ledger (list of fusion decisions): the field `op` or the class name."""
    return getattr(node, "op", type(node).__name__.lower())


# ---- values that must be stored -------------------------------------------------------------------


def with_stored_outputs(graph: Graph) -> Graph:
    """Replaces each output that only rearranges elements, such as a view, by a copy. If an output were only a view, no
    kernel would store it.
    """
    copies: dict[Node, Node] = {}
    spans = dict(graph.spans)
    for node in graph.outputs:
        copies[node] = node if isinstance(node, COMPUTE) else graph_ir.Apply(node.dtype, node.shape, "cast", (node,))
        spans[copies[node]] = graph.spans.get(node, ())
    return replace(graph, outputs=tuple(copies[n] for n in graph.outputs), spans=spans)


def with_copies(graph: Graph, values: Collection[Node]) -> Graph:
    """Returns the graph with a copy of each node in `values` that is a view, gather or concat. Each copy is a node that
    a kernel stores in memory.
    """

    def make(interner: Interner, node: Node, args: tuple[Node, ...]) -> Node:
        made = rewrite.copy(interner, node, args)
        moved = node in values and not isinstance(node, COMPUTE)
        return interner.apply("cast", made.dtype, made.shape, (made,)) if moved else made

    return rewrite.rebuild(graph, make)


# ---- the plan ------------------------------------------------------------------------------


def plan_of(graph: Graph, parts: Sequence[Indexing], ledger: Iterable[Decision], layouts: Layouts) -> Plan:
    """Makes a plan. Each item of `parts` becomes one kernel, in the order of `parts`."""
    role = {i: "scalar" if i.scalar else "input" for i in graph.inputs}
    inputs = {i: _buffer(i.name, i, role[i], layouts.get(i.name)) for i in graph.inputs}
    taken = {i.name for i in graph.inputs}
    names = ["out"] if len(graph.outputs) == 1 else [f"out{k}" for k in range(len(graph.outputs))]
    outputs = [_buffer(_unused_name(taken, name), n, "output") for name, n in zip(names, graph.outputs)]
    stored = grouped(zip(graph.outputs, outputs))
    temporaries: list[Buffer] = []
    for node in (n for part in parts for n in reversed(part.roots) if n not in stored):
        temporaries.append(_buffer(_unused_name(taken, f"t{len(temporaries)}"), node, "temporary"))
        stored[node].append(temporaries[-1])
    buffers = {**stored, **{i: [buffer] for i, buffer in inputs.items()}}
    kernels = [build(f"k{k}", part, buffers.__getitem__, graph.spans) for k, part in enumerate(parts)]
    memory = tuple(inputs.values()), tuple(outputs), tuple(temporaries)
    return Plan(graph.name, *memory, tuple(kernels), tuple(ledger), graph.conditions)


def _unused_name(taken: set[str], name: str) -> str:
    """Returns `name`, with `_` at the end if another buffer has this name."""
    return name if name not in taken else _unused_name(taken, f"{name}_")  # a parameter can be called `out`


def _buffer(name: str, node: Node, role: str, strides: tuple[Dim, ...] | None = None) -> Buffer:
    return Buffer(name, node.dtype, node.shape, strides or contiguous(node.shape), role)


# ---- the ops of a kernel ------------------------------------------------------------------


class OpBuilder:
    """Makes the ops of a kernel, of a tile program or of a loop, one after another.

    `axes`: the names of the axes, in the order of the kernel.
    `ops`: the ops that were made so far. In a tile program, `ops` also contains the loops.
    """

    def __init__(self, axes: Iterable[str]) -> None:
        self.axes = axes
        self.ops: list[Any] = []
        self._shared: dict[object, Any] = {}

    def add(self, op: O) -> O:
        self.ops.append(op)
        return op

    def once(self, op: O) -> O:
        """Adds an op. If an equal op was added before, the method returns the earlier op. Ops are equal if all their
        fields except the spans are equal.
        """
        values = [getattr(op, f.name) for f in fields(op) if f.name != "spans"]  # type: ignore[arg-type]
        key = type(op), *(repr(v) if isinstance(v, float) else v for v in values)  # -0.0 is not 0.0
        if key not in self._shared:
            self._shared[key] = self.add(op)
        return self._shared[key]

    def computed(self, name: str, *args: Op) -> Op:
        """Makes an elementwise op, but does not append it to `ops`. The op has all axes of its operands, and the place
        of its first operand in the source text.
        """
        axes = tuple(a for a in self.axes if any(a in x.axes for x in args))
        dtype = OPERATORS[name].result_dtype(args[-1].dtype)
        return ir.Compute(dtype=dtype, axes=axes, spans=args[0].spans, op=name, args=args)

    def compute(self, name: str, *args: Op) -> Op:
        return self.add(self.computed(name, *args))


class _Builder(OpBuilder):
    """Makes the ops of one kernel. Each op computes the needed elements of one graph node."""

    def __init__(self, part: Indexing, buffers: Buffers, spans: Spans) -> None:
        super().__init__(part.axes)
        self.part, self.buffers, self.spans = part, buffers, spans
        self.value: dict[Key, Op] = {}
        keys = self._order()
        self.moved = self._spans_of_views(keys)
        for node, demand in keys:  # operands first
            self.value[node, demand] = self._make(node, demand)

    def _order(self) -> list[Key]:
        """Returns, operands first, pairs of a node and the elements of this node that the kernel needs."""

        def below(key: Key) -> list[Key]:
            exprs = (*key[1].index, *key[1].guards)
            picks = [self.part.picked[s] for d in exprs for s in d.symbols() if s.kind == "value"]
            return [*picks, *self.part.pull(*key)]

        return postorder(self.part.stores, below)

    def _spans_of_views(self, order: Sequence[Key]) -> dict[Key, tuple[Span, ...]]:
        """Returns for each op the spans of the views, gathers and concats that rearrange the value of the op."""
        # Views, gathers and concats have no op: the text of `x.T` is added to the op that loads `x`.
        moved: dict[Key, tuple[Span, ...]] = {}
        for node, demand in reversed(order):  # users before operands
            if isinstance(node, (graph_ir.View, graph_ir.Gather, graph_ir.Concat)) and not self.part.is_leaf(node):
                check_time()
                spans = (*self.spans.get(node, ()), *moved.get((node, demand), ()))
                below = self.part.pull(node, demand)
                for key in below[-1:] if isinstance(node, graph_ir.Gather) else below:
                    one = _op_key(*key)
                    moved[one] = tuple(dict.fromkeys((*moved.get(one, ()), *spans)))[:MAX_SPANS]
        return moved

    def _constant(self, value: int | float | bool, dtype: DType, spans: tuple[Span, ...]) -> Op:
        return self.once(ir.Constant(dtype=dtype, axes=(), spans=spans, value=value))

    def _axes(self, *exprs: Dim, ops: Sequence[Op] = ()) -> tuple[str, ...]:
        names = axis_names(exprs) | {a for op in ops for a in op.axes}
        return tuple(a for a in self.part.axes if a in names)

    def _uses(self, exprs: Sequence[Dim]) -> dict[str, Any]:
        """Returns the axes and the computed values that an op's index expressions use."""
        used = {s for d in exprs for s in d.symbols() if s.kind == "value"}
        picks = tuple((s, self.value[self.part.picked[s]]) for s in sorted(used, key=lambda s: s.name))
        return {"axes": self._axes(*exprs, ops=[op for _, op in picks]), "picks": picks}

    def _make(self, node: Node, demand: Demand) -> Op:
        check_time()
        spans = tuple(dict.fromkeys((*self.spans.get(node, ()), *self.moved.get(_op_key(node, demand), ()))))
        if self.part.is_leaf(node):
            return self._load(node, demand, spans)
        below = [self.value[key] for key in self.part.pull(node, demand)]
        same = {"dtype": node.dtype, "spans": spans}
        match node:
            case graph_ir.Const():
                return self._constant(node.value, node.dtype, spans)
            case graph_ir.Index():
                (expr,) = self.part.mapped([node.expr], demand.index)
                return self.once(ir.Position(**same, **self._uses([expr]), expr=expr))
            case graph_ir.Apply():
                return self.add(ir.Compute(**same, axes=self._axes(ops=below), op=node.op, args=tuple(below)))
            case graph_ir.View():
                return below[0]
            case graph_ir.Gather():
                return self._gather(node, demand, below[-1], spans)
            case graph_ir.Concat():
                return self._concat(node, demand, spans)
            case graph_ir.Reduce():
                over = self.part.over[node, demand]
                x = self._spread(below[0], over)
                axes = tuple(a for a in x.axes if a not in over)
                return self.add(ir.Reduce(**same, axes=axes, op=node.op, x=x, over=over))
            case graph_ir.Scan():
                along, shift = self.part.scan_axis(node, demand)
                x = self._spread(below[0], (along,))
                started, before = (demand.index[node.axis],), neutral(node.op, node.dtype)
                if shift != 0:  # elements before the first element of the scan must not change its result
                    x = self._select(started, x, self._constant(before, node.dtype, spans), spans)
                return self.add(ir.Scan(**same, axes=x.axes, op=node.op, x=x, along=along))
            case graph_ir.Contract():
                (over,) = self.part.over[node, demand]
                row, column = plain_axis(demand.index[-2]), self.part.column_axis(demand.index[-1])
                assert row is not None and column is not None
                a, b = self._spread(below[0], (row, over)), self._spread(below[1], (over, column))
                product_fields = {"axes": self._axes(*demand.index), "tile": (row, column), "precision": node.precision}
                return self.add(ir.Dot(**same, **product_fields, a=a, b=b, over=over))
        raise AssertionError(type(node).__name__)

    def _spread(self, x: Op, axes: Sequence[str]) -> Op:
        """Broadcasts the value `x` along the given axes."""
        if set(axes) <= set(x.axes):
            return x
        # a reduced operand may not depend on the reduced axis: a sum of the number 3 over 5 indices adds 3 five times
        wide = tuple(a for a in self.part.axes if a in x.axes or a in axes)
        return self.add(ir.Spread(dtype=x.dtype, axes=wide, spans=x.spans, x=x))

    def _load(self, node: Node, demand: Demand, spans: tuple[Span, ...]) -> Op:
        buffer = self.buffers(node)[0]
        if buffer.role == "scalar":
            return self.once(ir.Scalar(dtype=buffer.dtype, axes=(), spans=spans, buffer=buffer))
        if 0 in node.shape:  # an empty array has no element that could be read
            return self._constant(fill_value(node.dtype), node.dtype, spans)
        index, guards = demand.index, demand.guards
        other = fill_value(node.dtype) if any(s.kind == "value" for g in guards for s in g.symbols()) else 0
        uses = {"dtype": node.dtype, "spans": spans, **self._uses((*index, *guards))}
        return self.add(ir.Load(**uses, buffer=buffer, index=index, guards=guards, other=other))

    def _inside(self, conditions: tuple[Dim, ...], spans: tuple[Span, ...]) -> Op:
        return self.once(ir.Inside(dtype=bool_, spans=spans, conditions=conditions, **self._uses(conditions)))

    def _gather(self, node: graph_ir.Gather, demand: Demand, read: Op, spans: tuple[Span, ...]) -> Op:
        """Returns the element that a gather reads, or a fill value if the index is out of range."""
        _, outside = self.part.gathered(node, demand)
        if not outside or (isinstance(read, ir.Load) and set(outside) <= set(read.guards) == set(outside)):
            return read
        fill = self._constant(fill_value(node.dtype), node.dtype, spans)
        return self._where(self._inside(outside, spans), read, fill, spans)

    def _where(self, condition: Op, a: Op, b: Op, spans: tuple[Span, ...]) -> Op:
        return self.add(replace(self.computed("where", condition, a, b), spans=spans))

    def _concat(self, node: graph_ir.Concat, demand: Demand, spans: tuple[Span, ...]) -> Op:
        """Returns one element of a concat, selected from the operand that contains this element."""
        pieces = self.part.pieces(node, demand)
        *values, result = [self.value[key] for key in self.part.pull(node, demand)]
        # where(in operand 0, operand 0, where(in operand 1, operand 1, …))
        for (_, below), value in reversed(list(zip(pieces[:-1], values))):
            own = tuple(g for g in below.guards if g not in demand.guards)
            result = self._select(own, value, result, spans)
        return result

    def _select(self, conditions: tuple[Dim, ...], value: Op, rest: Op, spans: tuple[Span, ...]) -> Op:
        """Returns `value` for elements that meet the conditions, and `rest` for all other elements."""
        if not conditions or _covers_rest(value, conditions, rest):
            return value
        return self._where(self._inside(conditions, spans), value, rest, spans)


def _op_key(node: Node, demand: Demand) -> Key:
    """Returns a dict key for the op that computes one element of a node."""
    # one op computes a constant for all indices
    return node, Demand(()) if isinstance(node, graph_ir.Const) else demand


def _covers_rest(value: Op, own: tuple[Dim, ...], rest: Op) -> bool:
    """Checks whether `value` equals `rest` at all indices that do not meet the conditions `own`."""
    load = value
    while isinstance(load, ir.Compute) and load.op == "cast":
        load = load.args[0]
    if not isinstance(load, ir.Load) or not isinstance(rest, ir.Constant) or not set(own) <= set(load.guards):
        return False
    # where a guard of a load is false, the load has the value of its field `other`
    kept = load is value or load.other == 0
    return kept and repr(rest.value) == repr(type(rest.value)(load.other))  # -0.0 is not 0.0


def build(name: str, part: Indexing, buffers: Buffers, spans: Spans) -> ir.Kernel:
    """Builds the kernel that computes the nodes of `part` and stores the roots (the results) of `part` in memory.

    `name`: the name of the kernel, such as "k0".
    `buffers`: a function that takes a node, and returns the buffers that store its value. A node has several buffers if
        it is the value of several outputs.
    `spans`: the places of each node in the source text.
    """
    part.axes = {a: part.axes[a] for a in part.axis_order()}
    builder = _Builder(part, buffers, spans)
    for node, demand in part.stores:
        value = builder.value[node, demand]
        same = {"dtype": node.dtype, "axes": value.axes, "spans": value.spans}
        for buffer in buffers(node):
            builder.add(ir.Store(**same, buffer=buffer, index=demand.index, value=value))
    axes = tuple(Axis(a, e, "reduced" if a in part.reduced else "parallel") for a, e in part.axes.items())
    return ir.Kernel(name, axes, ir.buffers_of(builder.ops), tuple(builder.ops))
