"""Tile programs as text.

    program k0(input x: f32[7], output out: f32[7]) warps 4 {
      grid i: 7 by 4
      %0: f32[i] = load x[i]
      store out[i] %0
    }

Numbers count the values in the order they are computed. Before the programs stands the head of their
plan (kernel/text.py), after a program's buffers how it is compiled:

    warps 8 stages 4 group 8 wide

`tile/parse.py` reads it back.
"""

from __future__ import annotations

from minitri.kernel.ir import Op
from minitri.kernel.text import format_buffer, format_head, format_op, join
from minitri.tile.ir import Loop, Program, Programs, TileAxis


def format_programs(programs: Programs) -> str:
    return "\n".join([format_head(programs.plan), *map(format_program, programs)])


def format_program(program: Program) -> str:
    buffers = join(f"{b.role} {format_buffer(b)}" for b in program.buffers)
    lines = [f"program {program.name}({buffers}) {_hints(program)} {{"]
    lines += [f"  {a.role} {a.name}: {a.extent} by {a.block}{_lanes(a)}" for a in program.axes]
    names: dict[Op, str] = {}
    for stmt in program.body:
        if isinstance(stmt, Loop):
            lines.append(f"  for {', '.join(stmt.axes)} {{")
            lines += [f"    {format_op(op, names)}" for op in stmt.body]
            lines += [f"    next {names[c]} = {names[n]}" for c, n in stmt.carries]
            lines.append("  }")
        else:
            lines.append(f"  {format_op(stmt, names)}")
    return "\n".join([*lines, "}", ""])


def statements(program: Program) -> dict[Op, str]:
    """The line of each op, as the text of its program has it."""
    names: dict[Op, str] = {}
    return {op: format_op(op, names) for op in program.ops()}


def _hints(program: Program) -> str:
    words = [f"warps {program.warps}"]
    words += [f"stages {program.stages}"] * (program.stages != 3) + [f"group {program.group}"] * (program.group != 1)
    return " ".join(words + ["wide"] * program.wide + ["relaxed"] * program.relaxed)


def _lanes(axis: TileAxis) -> str:
    return "" if axis.lanes == axis.block else f" in {axis.lanes} lanes"
