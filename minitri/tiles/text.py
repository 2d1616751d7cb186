"""Formats tile programs as text.

    program k0(input x: f32[7], output out: f32[7]) warps 4 {
      grid i: 7 by 4
      %0: f32[i] = load x[i]
      store out[i] %0
    }

Values are numbered in the order of computation. The text begins with the head of the plan (minitri/kernels/text.py).
Each program lists its compile options after its buffers:

    warps 8 stages 4 group 8 registers 128 wide

In the stage `tile.target`, ops and loops can have hints, in braces:

    %1: f32[i, r] = load x[i, r] {because = ["i: 64 divides 4096"], descriptor = [64, 64]}
    for r {wait = true} {

minitri/tiles/parse.py parses the text.
"""

from collections.abc import Iterator
from dataclasses import fields

from minitri.base.toml_tables import table_beside
from minitri.kernels.ir import Buffer, Decision, Kernel, Op
from minitri.kernels.text import AXIS, OpWriter, format_op, head_lines, join
from minitri.text_io.templates import fields_of, templates
from minitri.tiles import ir
from minitri.tiles.ir import Hints, Loop, Program, Programs, TileAxis
from minitri.tiles.schedule import OPTIONS

LINES = templates(ir, table_beside(__file__, "lines.toml"))

TileLine = tuple[str, Op | Buffer | Kernel | Decision | Program | TileAxis | Loop | None]


def format_programs(programs: Programs) -> str:
    return "".join(f"{text}\n" for text, _ in programs_lines(programs))


def programs_lines(programs: Programs) -> Iterator[TileLine]:
    """Returns the lines of `format_programs`. Each line comes with the object that the line shows: an op, an axis, a
    loop, a program or a buffer.
    """
    yield from head_lines(programs.plan)
    for program in programs:
        yield "", None
        yield from program_lines(program)


def program_lines(program: Program) -> Iterator[TileLine]:
    buffers = join(f"{b.role} {b}" for b in program.buffers)
    yield f"program {program.name}({buffers}) {_options(program)} {{", program
    for a in program.axes:
        yield f"  {a.role} {a.name}: {a.extent} by {a.block}" + f" in {a.lanes} lanes" * (a.lanes != a.block), a
    names: dict[Op, str] = {}
    for stmt in program.body:
        if isinstance(stmt, Loop):
            loop = LINES[Loop].write(fields_of(stmt), OpWriter(names, AXIS), _hints(program, stmt))
            yield f"  {loop} {{", stmt
            yield from ((f"    {format_op(op, names, _hints(program, op))}", op) for op in stmt.body)
            yield from ((f"    next {names[c]} = {names[n]}", n) for c, n in stmt.carries)
            yield "  }", None
        else:
            yield f"  {format_op(stmt, names, _hints(program, stmt))}", stmt
    yield "}", None


def _hints(program: Program, about: Op | Loop) -> list[str]:
    """Formats the hints of an op or a loop as texts of attributes. Hints with their default values are omitted."""
    given = fields_of(program.hint(about))
    return LINES[Hints].words({name: value or None for name, value in given.items()}, OpWriter({}, AXIS))


def statements(program: Program) -> dict[Op, str]:
    """Returns for each op its line in the text of the program, without hints."""
    names: dict[Op, str] = {}
    return {op: format_op(op, names) for op in program.ops()}


def _options(program: Program) -> str:
    """Formats the compile options of a program: the number of warps, and every option that does not have its default
    value.
    """
    defaults = {f.name: f.default for f in fields(Program)}
    options = {name: getattr(program, name) for name in OPTIONS}
    words = [name if value is True else f"{name} {value}" for name, value in options.items() if value != defaults[name]]
    return " ".join([f"warps {program.warps}", *words])
