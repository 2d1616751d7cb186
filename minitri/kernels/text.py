"""Kernels as text.

    kernel k0(input x: f32[M, N], output out: f32[M, N]) over i: M, reduce j: N {
      %0: f32[i, j] = load x[i, j]
      %1: f32[i] = reduce.max %0 {over = [j]}
      …
      store out[i, j] %5
    }

A plan has a head and a ledger. The head has inputs, outputs, the conditions of a call and the temporaries. The ledger
says what was fused and what was not, by which rule.

    plan loss(z: f32[N, C], y: i64[N]) -> out: f32[] {
      require C >= 1 else MT0209 "max over an axis that may be empty"
      temporary t0: f32[N]
    }

In an index, a size with the name of an axis is written `$i`. Defaults are not printed: row-major strides, or the axes
of a product's tile if only one pair fits. `kernels/parse.py` reads the text back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from minitri.base import dims
from minitri.base.dims import Dim, Symbol
from minitri.graph.text import format_condition, format_number, marked, quoted
from minitri.kernels.ir import (  # fmt: skip
    Axis,
    Buffer,
    Carry,
    Compute,
    Constant,
    Count,
    Decision,
    Dot,
    Inside,
    Kernel,
    Load,
    Mask,
    Old,
    Op,
    Picks,
    Plan,
    Position,
    Reduce,
    Scalar,
    Scan,
    Spread,
    Store,
)

AXIS = re.compile(r"(?:[ijklhgferstuvw]|[ew][1-9][0-9]{0,3})(?:_lane|_start)?")


PlanLine = tuple[str, Op | Buffer | Kernel | Decision | None]


def format_plan(plan: Plan) -> str:
    return "".join(f"{text}\n" for text, _ in plan_lines(plan))


def plan_lines(plan: Plan) -> Iterator[PlanLine]:
    """The lines of `format_plan`, each with what it is about."""
    yield from head_lines(plan)
    for kernel in plan.kernels:
        yield "", None
        yield from kernel_lines(kernel)
    if plan.ledger:
        yield from (("", None), ("ledger {", None))
        yield from ((f"  {format_decision(d)}", d) for d in plan.ledger)
        yield "}", None


def format_decision(d: Decision) -> str:
    verb = "saves" if d.verdict == "fused" else "costs"
    return f"{d.verdict}  {d.value}  {d.producer} -> {d.consumer}: {d.rule} ({verb} {d.bytes} bytes)"


def head_lines(plan: Plan) -> Iterator[PlanLine]:
    """What a plan is without its kernels: inputs in the order of the call, outputs, conditions, memory."""
    inputs = join(f"{b.name}: float" if b.role == "scalar" else str(b) for b in plan.inputs)
    lines: list[PlanLine] = [(f"  {format_condition(c)}", None) for c in plan.conditions]
    lines += [(f"  temporary {t}", t) for t in plan.temporaries]
    yield f"plan {plan.name}({inputs}) -> {join(map(str, plan.outputs))}{' {' if lines else ''}", None
    if lines:
        yield from (*lines, ("}", None))


def kernel_lines(kernel: Kernel) -> Iterator[PlanLine]:
    names: dict[Op, str] = {}
    relaxed = " relaxed" * kernel.relaxed
    yield f"kernel {kernel.name}({_buffers(kernel.buffers)}) over {_axes(kernel.axes)}{relaxed} {{", kernel
    yield from ((f"  {format_op(op, names)}", op) for op in kernel.body)
    yield "}", None


def _axes(axes: Sequence[Axis]) -> str:
    words = [f"{'reduce ' if a.role == 'reduced' else ''}{a.name}: {a.extent}" for a in axes]
    return ", ".join(words) or "nothing"


def _buffers(buffers: Sequence[Buffer]) -> str:
    return ", ".join(f"{b.role} {b}" for b in buffers)


def format_op(op: Op, names: dict[Op, str]) -> str:
    """One op; adds its name to `names`."""
    if isinstance(op, Store):
        place = f"{op.buffer.name}[{join(_in_text(op.index, {}))}]"
        return f"store {place} {names[op.value]}{_attributes(_mask(op.mask, {}))}"
    text = describe(op, names)
    names[op] = f"%{len(names)}"
    return f"{names[op]}: {op.dtype}[{', '.join(op.axes)}] = {text}"


def describe(op: Op, names: dict[Op, str]) -> str:
    match op:
        case Load():
            where = [f"where = [{_conditions(op.guards, op.picks, names)}]"] if op.guards and op.mask is None else []
            mask = _mask(op.mask, {s: dims.value(names[v]) for s, v in op.picks})
            other = [f"other = {format_number(op.other)}"] if where or (op.mask and op.mask.conditions) else []
            return (
                f"load {op.buffer.name}[{join(_named(op.index, op.picks, names))}]{_attributes(where + mask + other)}"
            )
        case Constant():
            return f"const {format_number(op.value)}"
        case Scalar():
            return f"scalar {op.buffer.name}"
        case Position():
            return f"position {{expr = {_named([op.expr], op.picks, names)[0]}}}"
        case Inside():
            return f"inside {{where = [{_conditions(op.conditions, op.picks, names)}]}}"
        case Compute():
            return f"{op.op} {join(names[a] for a in op.args)}"
        case Spread():
            return f"spread {names[op.x]}"
        case Reduce():
            index = f", {names[op.index]}" if op.index else ""
            more = [f", {n} = {names[o]}" for n, o in (("rescale", op.rescale), ("shift", op.shift)) if o]
            return f"reduce.{op.op} {names[op.x]}{index} {{over = [{join(op.over)}]{''.join(more)}}}"
        case Count():
            return f"count {{over = [{join(op.over)}]}}"
        case Old():
            return f"old {names[op.x]}"
        case Scan():
            return f"scan.{op.op} {names[op.x]} {{along = {op.along}}}"
        case Dot():
            acc = f", {names[op.acc]}" if op.acc else ""
            tile = "" if op.tile == usual_tile(op.a, op.b, op.over) else f", tile = [{join(op.tile)}]"
            more = f"{tile}, rescale = {names[op.rescale]}" if op.rescale else tile
            return f"dot {names[op.a]}, {names[op.b]}{acc} {{over = {op.over}, precision = {op.precision}{more}}}"
        case Carry():
            return f"carry {names[op.initial]}"
        case Store():
            return f"store {op.buffer.name}"


def usual_tile(a: Op, b: Op, over: str) -> tuple[str, str] | None:
    """The axes of the rows of `a` and the columns of `b`, if each has one axis that the other lacks."""
    rows, columns = ([n for n in x.axes if n not in y.axes and n != over] for x, y in ((a, b), (b, a)))
    return (rows[0], columns[0]) if len(rows) == len(columns) == 1 else None


def _mask(mask: Mask | None, env: dict[Symbol, Dim]) -> list[str]:
    """The tested conditions and, for what is not tested, the reason."""
    if mask is None:
        return []
    tested = [f"mask = [{join(map(comparison, _in_text(mask.conditions, env)))}]"] if mask.conditions else []
    return tested + [f"because = [{join(map(quoted, mask.reasons))}]"] * bool(mask.reasons)


def _attributes(items: list[str]) -> str:
    return f" {{{join(items)}}}" if items else ""


def _named(index: Iterable[Dim], picks: Picks, names: dict[Op, str]) -> list[Dim]:
    """Index expressions with picked values under the names they have in the text."""
    return _in_text(index, {symbol: dims.value(names[op]) for symbol, op in picks})


def _in_text(exprs: Iterable[Dim], env: dict[Symbol, Dim]) -> list[Dim]:
    return [marked(d, AXIS).substitute(env) for d in exprs]


def _conditions(conditions: Iterable[Dim], picks: Picks, names: dict[Op, str]) -> str:
    return join(map(comparison, _named(conditions, picks, names)))


def comparison(d: Dim) -> str:
    """d >= 0 as one would write it: `i < 777` for 776 - i >= 0."""
    for symbol in sorted(d.symbols(), key=str):
        split = d.coefficient(symbol) if symbol.kind != "size" else None
        if split is None or any(s.kind != "size" for s in split[1].symbols()):
            continue
        if split[0] == -1:
            return f"{symbol} < {split[1] + 1}"
        if split[0] == 1:
            return f"{symbol} >= {-split[1]}"
    return f"{d} >= 0"


def join(items: Iterable[object]) -> str:
    return ", ".join(map(str, items))
