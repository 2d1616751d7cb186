"""Formats a plan of kernels as text.

    kernel k0(input x: f32[M, N], output out: f32[M, N]) over i: M, reduce j: N {
      %0: f32[i, j] = load x[i, j]
      %1: f32[i] = reduce.max %0 {over = [j]}
      …
      store out[i, j] %5
    }

The head of a plan's text lists the inputs, the outputs, the conditions of a call and the temporaries. The ledger lists
the fusion decisions. Each line of the ledger names the rule that made the fusion decision.

    plan loss(z: f32[N, C], y: i64[N]) -> out: f32[] {
      require C >= 1 else MT0209 "max over an axis that may be empty"
      temporary t0: f32[N]
    }

A size can have the same name as an axis: in an index, `i` is the axis, and `$i` is the size. The text omits default
values. For example, the text of a buffer omits its strides if the buffer is stored in row-major order. The attribute
`tile` of a product names the row axis and the column axis of the product. The text of a product omits the attribute
`tile` if the product has only one possible row axis and one possible column axis. The file lines.toml defines the form
of each line, and minitri/kernels/parse.py parses the text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minitri.base import dims
from minitri.base.toml_tables import table_beside
from minitri.graph.text import Writer, format_condition, join
from minitri.kernels import ir
from minitri.kernels.ir import Buffer, Decision, Dot, Kernel, Load, Mask, Op, Plan, Store
from minitri.text_io.templates import fields_of, templates

AXIS = re.compile(r"(?:[ijklhgferstuvw]|[ew][1-9][0-9]{0,3})(?:_lane|_start)?")
TABLE = table_beside(__file__, "lines.toml")
LINES = templates(ir, TABLE)

TextLine = tuple[str, Any]  # a line, and what it shows: an op, a loop, an axis, a buffer, a kernel, a decision or None


def format_plan(plan: Plan) -> str:
    return "".join(f"{text}\n" for text, _ in plan_lines(plan))


def plan_lines(plan: Plan) -> Iterator[TextLine]:
    """Yields the lines of a plan's text. Each line is a pair: the text, and the object that the text shows. The
    object is an op, a buffer, a kernel, a fusion decision or None.
    """
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
    where = d.producer if d.producer == d.consumer else f"{d.producer} -> {d.consumer}"
    return f"{d.verdict}  {d.value}  {where}: {d.rule} ({verb} {d.bytes} bytes)"


def head_lines(plan: Plan) -> Iterator[TextLine]:
    """Returns the first lines of a plan: its inputs in the order of the call's arguments, its outputs, conditions and
    temporaries.
    """
    inputs = join(f"{b.name}: float" if b.role == "scalar" else str(b) for b in plan.inputs)
    lines: list[TextLine] = [(f"  {format_condition(c)}", None) for c in plan.conditions]
    lines += [(f"  temporary {t}", t) for t in plan.temporaries]
    yield f"plan {plan.name}({inputs}) -> {join(map(str, plan.outputs))}{' {' if lines else ''}", None
    if lines:
        yield from (*lines, ("}", None))


def kernel_lines(kernel: Kernel) -> Iterator[TextLine]:
    names: dict[Op, str] = {}
    buffers = join(f"{b.role} {b}" for b in kernel.buffers)
    axes = join(f"{'reduce ' if a.role == 'reduced' else ''}{a.name}: {a.extent}" for a in kernel.axes)
    yield f"kernel {kernel.name}({buffers}) over {axes or 'nothing'}{' relaxed' * kernel.relaxed} {{", kernel
    yield from ((f"  {format_op(op, names)}", op) for op in kernel.body)
    yield "}", None


def format_op(op: Op, names: dict[Op, str], more: Sequence[str] = ()) -> str:
    """Formats one op as a line and adds the name of the op's value to `names`. The texts in `more`, such as
    `fast = true`, are added to the line as attributes.
    """
    text = describe(op, names, more)
    if isinstance(op, Store):
        return text
    names[op] = f"%{len(names)}"
    return f"{names[op]}: {op.dtype}[{', '.join(op.axes)}] = {text}"


def describe(op: Op, names: Mapping[Op, str], more: Sequence[str] = ()) -> str:
    picked = {symbol: dims.value(names[value]) for symbol, value in getattr(op, "picks", ())}
    return LINES[type(op)].write(_template_fields(op), OpWriter(names, AXIS, picked), more)


def _template_fields(op: Op) -> dict[str, Any]:
    """Returns the fields of an op by name, for the text templates in lines.toml."""
    found = fields_of(op)
    if isinstance(op, (Load, Store)):
        mask = op.mask or Mask(())
        found |= {"element": (op.buffer, op.index), "tested": mask.conditions, "reasons": mask.reasons}
    # fields that the line omits are None or ()
    if isinstance(op, Load):
        found["guards"] = op.guards if op.mask is None else ()
        found["other"] = op.other if found["guards"] or found["tested"] else None
    if isinstance(op, Dot) and op.tile == usual_tile(op.a, op.b, op.over):
        found["tile"] = None
    return found


class OpWriter(Writer):
    def loaded(self, element: tuple[Buffer, tuple[dims.Dim, ...]]) -> str:
        buffer, index = element
        return f"{buffer.name}[{join(map(self.dim, index))}]"

    stored = loaded

    def scalar(self, buffer: Buffer) -> str:
        return buffer.name

    def condition(self, c: dims.Dim) -> str:
        return comparison(self.named(c))


def usual_tile(a: Op, b: Op, over: str) -> tuple[str, str] | None:
    """Returns the row axis of the factor `a` and the column axis of the factor `b`. Each factor must have exactly one
    axis that the other factor lacks; otherwise the function returns None.
    """
    rows, columns = ([n for n in x.axes if n not in y.axes and n != over] for x, y in ((a, b), (b, a)))
    return (rows[0], columns[0]) if len(rows) == len(columns) == 1 else None


def comparison(d: dims.Dim) -> str:
    """Formats the condition `d >= 0`, if possible with a single axis on the left side: `776 - i >= 0` becomes `i <
    777`.
    """
    found = d.solved(lambda s: s.kind != "size")
    return f"{found[0]} {'<' if found[1] < 0 else '>='} {found[2]}" if found else f"{d} >= 0"
