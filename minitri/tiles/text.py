"""Tile programs as text.

    program k0(input x: f32[7], output out: f32[7]) warps 4 {
      grid i: 7 by 4
      %0: f32[i] = load x[i]
      store out[i] %0
    }

Values are numbered in the order of computation. The text begins with the head of the plan
(kernels/text.py). After its buffers, each program lists its compile options:

    warps 8 stages 4 group 8 registers 128 wide

`tiles/parse.py` reads the text back.
"""

from __future__ import annotations

from collections.abc import Iterator

from minitri.graph.text import quoted
from minitri.kernels.ir import Buffer, Decision, Kernel, Op
from minitri.kernels.text import format_op, head_lines, join
from minitri.tiles.ir import Loop, Program, Programs, TileAxis

TileLine = tuple[str, Op | Buffer | Kernel | Decision | Program | TileAxis | Loop | None]


def format_programs(programs: Programs) -> str:
    return "".join(f"{text}\n" for text, _ in programs_lines(programs))


def format_program(program: Program) -> str:
    return "".join(f"{text}\n" for text, _ in program_lines(program))


def programs_lines(programs: Programs) -> Iterator[TileLine]:
    """The lines of `format_programs`, each with what it is about."""
    yield from head_lines(programs.plan)
    for program in programs:
        yield "", None
        yield from program_lines(program)


def program_lines(program: Program) -> Iterator[TileLine]:
    buffers = join(f"{b.role} {b}" for b in program.buffers)
    yield f"program {program.name}({buffers}) {_hints(program)} {{", program
    yield from ((f"  {a.role} {a.name}: {a.extent} by {a.block}{_lanes(a)}", a) for a in program.axes)
    names: dict[Op, str] = {}
    for stmt in program.body:
        if isinstance(stmt, Loop):
            yield f"  for {', '.join(stmt.axes)}{_bounds(stmt)} {{", stmt
            yield from ((f"    {format_op(op, names)}", op) for op in stmt.body)
            yield from ((f"    next {names[c]} = {names[n]}", n) for c, n in stmt.carries)
            yield "  }", None
        else:
            yield f"  {format_op(stmt, names)}", stmt
    yield "}", None


def _bounds(loop: Loop) -> str:
    words = [f"{n} = {d}" for n, d in (("first", loop.first), ("last", loop.last)) if d is not None]
    words += [f"because = [{join(map(quoted, loop.because))}]"] * bool(loop.because)
    return f" {{{join(words)}}}" if words else ""


def statements(program: Program) -> dict[Op, str]:
    """The line of each op, as the text of its program has it."""
    names: dict[Op, str] = {}
    return {op: format_op(op, names) for op in program.ops()}


def _hints(program: Program) -> str:
    words = [f"warps {program.warps}"]
    words += [f"stages {program.stages}"] * (program.stages != 3) + [f"group {program.group}"] * (program.group != 1)
    words += [f"registers {program.registers}"] * (program.registers > 0)
    words += [f"persistent {program.persistent}"] * (program.persistent > 0)
    flags = {"wide": program.wide, "relaxed": program.relaxed, "descriptors": program.descriptors}
    flags |= {"descriptor_stores": program.descriptor_stores, "descending": program.descending}
    flags |= {"returning": program.returning, "peeled": program.peeled}
    return " ".join(words + [word for word, holds in flags.items() if holds])


def _lanes(axis: TileAxis) -> str:
    return "" if axis.lanes == axis.block else f" in {axis.lanes} lanes"
