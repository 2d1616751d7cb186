"""The demands of a part → a kernel in index notation.

In: an `Indexing` (which element of which node is needed where). Out: ops, operands before
users, one for each demand of a node that computes, reads or chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from minitri.base.diagnostics import Span
from minitri.base.dims import Dim
from minitri.base.limits import check_time
from minitri.base.numpy_semantics import fill_value
from minitri.base.types import DType, bool_
from minitri.graph.ir import (  # fmt: skip
    MAX_SPANS,
    Apply,
    Concat,
    Const,
    Contract,
    Gather,
    Index,
    Node,
    Reduce,
    Scan,
    View,
    axis_symbol,
)
from minitri.kernels import ir
from minitri.kernels.demand import Demand, Indexing, gather_guards, plain_axis
from minitri.kernels.ir import Axis, Buffer, Op

_ANYWHERE = Demand(())


class _Builder:
    """Ops for the demands of a part, operands before users."""

    def __init__(
        self, part: Indexing, buffer_of: Callable[[Node], Buffer], spans: Mapping[Node, tuple[Span, ...]]
    ) -> None:
        self.part, self.buffer_of, self.spans = part, buffer_of, spans
        self.ops: list[Op] = []
        self.value: dict[tuple[Node, Demand], Op] = {}
        self._pure: dict[object, Op] = {}
        order = self._order()
        self.moved = self._movements(order)
        for node, demand in order:
            self.value[node, demand] = self._make(node, demand)

    def _order(self) -> list[tuple[Node, Demand]]:
        """Every demand, after the demands it pulls and the picked values in its index."""
        order: dict[tuple[Node, Demand], None] = {}
        stack = [(key, False) for key in reversed(self.part.stores)]
        while stack:
            key, expanded = stack.pop()
            if key in order:
                continue
            if expanded:
                order[key] = None
                continue
            stack.append((key, True))
            picks = [
                self.part.picked[s] for d in (*key[1].index, *key[1].guards) for s in d.symbols() if s.kind == "value"
            ]
            stack.extend((k, False) for k in reversed([*picks, *self.part.pull(*key, self.part.choose)]))
        return list(order)

    def _movements(self, order: Sequence[tuple[Node, Demand]]) -> dict[tuple[Node, Demand], tuple[Span, ...]]:
        """The places of nodes that move a value: views leave only the index of a load."""
        moved: dict[tuple[Node, Demand], tuple[Span, ...]] = {}
        for node, demand in reversed(order):  # users before operands
            if isinstance(node, (View, Gather, Concat)) and not self.part.is_leaf(node):
                check_time()
                spans = (*self.spans.get(node, ()), *moved.get((node, demand), ()))
                below = self.part.pull(node, demand, self.part.choose)
                for key in below[-1:] if isinstance(node, Gather) else below:
                    one = (key[0], _ANYWHERE) if isinstance(key[0], Const) else key  # of a constant there is one op
                    moved[one] = tuple(dict.fromkeys((*moved.get(one, ()), *spans)))[:MAX_SPANS]
        return moved

    def store(self, node: Node, demand: Demand, buffer: Buffer) -> None:
        value = self.value[node, demand]
        self._add(
            ir.Store(
                dtype=node.dtype, axes=value.axes, spans=value.spans, buffer=buffer, index=demand.index, value=value
            )
        )

    def _add(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def _once(self, key: object, make: Callable[[], Op]) -> Op:
        """Ops without operands that several nodes share: constants, positions, predicates."""
        if key not in self._pure:
            self._pure[key] = self._add(make())
        return self._pure[key]

    def _constant(self, value: int | float | bool, dtype: DType, spans: tuple[Span, ...]) -> Op:
        key = ("const", dtype, repr(value))  # -0.0 is not 0.0
        return self._once(key, lambda: ir.Constant(dtype=dtype, axes=(), spans=spans, value=value))

    def _axes(self, *exprs: Dim, ops: Sequence[Op] = ()) -> tuple[str, ...]:
        names = {s.name for d in exprs for s in d.symbols() if s.kind == "axis"}
        names |= {a for op in ops for a in op.axes}
        return tuple(a for a in self.part.axes if a in names)

    def _picks(self, exprs: Sequence[Dim]) -> ir.Picks:
        used = {s for d in exprs for s in d.symbols() if s.kind == "value"}
        return tuple((s, self.value[self.part.picked[s]]) for s in sorted(used, key=lambda s: s.name))

    def _make(self, node: Node, demand: Demand) -> Op:
        check_time()
        moved = self.moved.get((node, _ANYWHERE if isinstance(node, Const) else demand), ())
        spans = tuple(dict.fromkeys((*self.spans.get(node, ()), *moved)))
        if self.part.is_leaf(node):
            return self._load(node, demand, spans)
        below = [self.value[key] for key in self.part.pull(node, demand, self.part.choose)]
        match node:
            case Const():
                return self._constant(node.value, node.dtype, spans)
            case Index():
                env = {axis_symbol(k): d for k, d in enumerate(demand.index)}
                expr = self.part.ranges.simplify(node.expr.substitute(env))
                picks = self._picks([expr])
                axes = self._axes(expr, ops=[op for _, op in picks])
                return self._once(("position", expr), lambda: ir.Position(
                    dtype=node.dtype, axes=axes, spans=spans, expr=expr, picks=picks))  # fmt: skip
            case Apply():
                return self._add(
                    ir.Compute(dtype=node.dtype, axes=self._axes(ops=below), spans=spans, op=node.op, args=tuple(below))
                )
            case View():
                return below[0]
            case Gather():
                return self._filled(node, demand, below[-1], spans)
            case Concat():
                return self._chosen(node, demand, spans)
            case Reduce():
                over = self.part.over[node, demand]
                x = self._spread(below[0], over)
                axes = tuple(a for a in x.axes if a not in over)
                return self._add(ir.Reduce(dtype=node.dtype, axes=axes, spans=spans, op=node.op, x=x, over=over))
            case Scan():
                along = plain_axis(demand.index[node.axis])
                assert along is not None
                x = self._spread(below[0], (along,))
                return self._add(ir.Scan(dtype=node.dtype, axes=x.axes, spans=spans, op=node.op, x=x, along=along))
            case Contract():
                (over,) = self.part.over[node, demand]
                row, column = plain_axis(demand.index[-2]), self.part.column_axis(demand.index[-1])
                assert row is not None and column is not None
                a, b = self._spread(below[0], (row, over)), self._spread(below[1], (over, column))
                return self._add(ir.Dot(
                    dtype=node.dtype, axes=self._axes(*demand.index), spans=spans, a=a, b=b,
                    over=over, tile=(row, column), precision=node.precision))  # fmt: skip
            case _:
                raise AssertionError(type(node).__name__)

    def _spread(self, x: Op, axes: Sequence[str]) -> Op:
        """x with all of these axes: a reduction must see every element, repeated ones too."""
        if set(axes) <= set(x.axes):
            return x
        wide = tuple(a for a in self.part.axes if a in x.axes or a in axes)
        return self._add(ir.Spread(dtype=x.dtype, axes=wide, spans=x.spans, x=x))

    def _load(self, node: Node, demand: Demand, spans: tuple[Span, ...]) -> Op:
        buffer = self.buffer_of(node)
        if buffer.role == "scalar":
            return self._once(
                ("scalar", buffer), lambda: ir.Scalar(dtype=buffer.dtype, axes=(), spans=spans, buffer=buffer)
            )
        if 0 in node.shape:  # an empty array has no element that could be read
            return self._constant(fill_value(node.dtype), node.dtype, spans)
        exprs = (*demand.index, *demand.guards)
        picks = self._picks(exprs)
        axes = self._axes(*exprs, ops=[op for _, op in picks])
        other = fill_value(node.dtype) if any(s.kind == "value" for g in demand.guards for s in g.symbols()) else 0
        return self._add(ir.Load(
            dtype=node.dtype, axes=axes, spans=spans, buffer=buffer, index=demand.index,
            picks=picks, guards=demand.guards, other=other))  # fmt: skip

    def _inside(self, conditions: tuple[Dim, ...], spans: tuple[Span, ...]) -> Op:
        picks = self._picks(conditions)
        axes = self._axes(*conditions, ops=[op for _, op in picks])
        return self._once(("inside", conditions), lambda: ir.Inside(
            dtype=bool_, axes=axes, spans=spans, conditions=conditions, picks=picks))  # fmt: skip

    def _filled(self, node: Gather, demand: Demand, read: Op, spans: tuple[Span, ...]) -> Op:
        """What was gathered, with the fill where an index was out of range."""
        env = {axis_symbol(k): d for k, d in enumerate(demand.index)}
        where = self.part.mapped(node.index, {**env, **self.part.pick_env(node, demand)})
        outside = self.part.ranges.open_guards(gather_guards(node, where))
        if not outside or (isinstance(read, ir.Load) and set(outside) <= set(read.guards) == set(outside)):
            return read
        fill = self._constant(fill_value(node.dtype), node.dtype, spans)
        return self._where(self._inside(outside, spans), read, fill, spans)

    def _where(self, condition: Op, a: Op, b: Op, spans: tuple[Span, ...]) -> Op:
        args = (condition, a, b)
        return self._add(ir.Compute(dtype=a.dtype, axes=self._axes(ops=args), spans=spans, op="where", args=args))

    def _chosen(self, node: Concat, demand: Demand, spans: tuple[Span, ...]) -> Op:
        """The part an index lies in: where(in part 0, part 0, where(in part 1, part 1, …))."""
        pieces = self.part.pieces(node, demand)
        *values, result = [self.value[key] for key in self.part.pull(node, demand, self.part.choose)]
        for (_, below), value in reversed(list(zip(pieces[:-1], values))):
            own = tuple(g for g in below.guards if g not in demand.guards)
            if not own or _is_filled(value, own, result):
                result = value
            else:
                result = self._where(self._inside(own, spans), value, result, spans)
        return result


def _is_filled(value: Op, own: tuple[Dim, ...], rest: Op) -> bool:
    """Whether a guarded load already gives the value of `rest` outside of its guard. (A converted zero does.)"""
    load = value
    while isinstance(load, ir.Compute) and load.op == "cast":
        load = load.args[0]
    if not isinstance(load, ir.Load) or not isinstance(rest, ir.Constant) or not set(own) <= set(load.guards):
        return False
    kept = load is value or load.other == 0
    return kept and repr(rest.value) == repr(type(rest.value)(load.other))  # -0.0 is not 0.0


def build(
    name: str, part: Indexing, buffer_of: Callable[[Node], Buffer], outputs: Callable[[Node], Sequence[Buffer]],
    spans: Mapping[Node, tuple[Span, ...]],
) -> ir.Kernel:  # fmt: skip
    """The kernel of a part."""
    part.axes = {a: part.axes[a] for a in part.axis_order()}
    builder = _Builder(part, buffer_of, spans)
    for node, demand in part.stores:
        for buffer in outputs(node):
            builder.store(node, demand, buffer)
    axes = tuple(Axis(a, e, "reduced" if a in part.reduced else "parallel") for a, e in part.axes.items())
    used = [op.buffer for op in builder.ops if isinstance(op, (ir.Load, ir.Store, ir.Scalar))]
    return ir.Kernel(name, axes, tuple(dict.fromkeys(used)), tuple(builder.ops))
