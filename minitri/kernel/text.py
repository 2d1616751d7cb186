"""Kernels as text.

    kernel k0(input x: f32[M, N], output out: f32[M, N]) over i: M, reduce j: N {
      %0: f32[i, j] = load x[i, j]
      %1: f32[i] = reduce.max %0 {over = [j]}
      …
      store out[i, j] %5
    }

A plan adds its temporaries and its ledger: what was fused and what was not, by which rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minitri import dims
from minitri.dims import Dim, Symbol
from minitri.graph.text import format_number
from minitri.kernel.ir import (
    Axis,
    Buffer,
    Carry,
    Compute,
    Constant,
    Dot,
    Inside,
    Kernel,
    Load,
    Mask,
    Op,
    Picks,
    Plan,
    Position,
    Reduce,
    Scalar,
    Scan,
    Spread,
    Store,
    contiguous,
)  # fmt: skip
from minitri.types import ArrayType


def format_plan(plan: Plan) -> str:
    parts = [format_kernel(k) for k in plan.kernels]
    if plan.temporaries:
        parts.insert(0, "".join(f"temporary {format_buffer(t)}\n" for t in plan.temporaries))
    rows = [f"  {'fused' if d.fused else 'apart':5}  {d.value}  {d.producer} -> {d.consumer}: {d.rule} "
            f"({'saves' if d.fused else 'costs'} {d.bytes} bytes)" for d in plan.ledger]  # fmt: skip
    ledger = "\n".join(["ledger {", *rows, "}", ""]) if rows else ""
    return "\n".join([*parts, ledger] if ledger else parts)


def format_kernel(kernel: Kernel) -> str:
    names: dict[Op, str] = {}
    lines = [f"  {format_op(op, names)}" for op in kernel.body]
    return "\n".join(
        [f"kernel {kernel.name}({_buffers(kernel.buffers)}) over {_axes(kernel.axes)} {{", *lines, "}", ""]
    )


def _axes(axes: Sequence[Axis]) -> str:
    words = [f"{'reduce ' if a.role == 'reduced' else ''}{a.name}: {a.extent}" for a in axes]
    return ", ".join(words) or "nothing"


def _buffers(buffers: Sequence[Buffer]) -> str:
    return ", ".join(f"{b.role} {format_buffer(b)}" for b in buffers)


def format_buffer(b: Buffer) -> str:
    if b.role == "scalar":
        return f"{b.name}: {b.dtype}"
    strides = "" if b.strides == contiguous(b.shape) else f" {{strides = [{join(b.strides)}]}}"
    return f"{b.name}: {ArrayType(b.dtype, b.shape)}{strides}"


def format_op(op: Op, names: dict[Op, str]) -> str:
    """One op; adds its name to `names`."""
    if isinstance(op, Store):
        return f"store {op.buffer.name}[{join(op.index)}] {names[op.value]}{_attributes(_mask(op.mask, {}))}"
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
            return f"reduce.{op.op} {names[op.x]}{index} {{over = [{join(op.over)}]}}"
        case Scan():
            return f"scan.{op.op} {names[op.x]} {{along = {op.along}}}"
        case Dot():
            acc = f", {names[op.acc]}" if op.acc else ""
            return f"dot {names[op.a]}, {names[op.b]}{acc} {{over = {op.over}, precision = {op.precision}}}"
        case Carry():
            return f"carry {names[op.initial]}"
        case Store():
            return f"store {op.buffer.name}"


def _mask(mask: Mask | None, env: dict[Symbol, Dim]) -> list[str]:
    """The tested conditions and, for what is not tested, the reason."""
    if mask is None:
        return []
    tested = [f"mask = [{join(comparison(c.substitute(env)) for c in mask.conditions)}]"] if mask.conditions else []
    return tested + [f"because = [{join(mask.reasons)}]"] * bool(mask.reasons)


def _attributes(items: list[str]) -> str:
    return f" {{{join(items)}}}" if items else ""


def _named(index: Iterable[Dim], picks: Picks, names: dict[Op, str]) -> list[Dim]:
    """Index expressions with picked values under the names they have in the text."""
    env: dict[Symbol, Dim] = {symbol: dims.value(names[op]) for symbol, op in picks}
    return [d.substitute(env) for d in index]


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
