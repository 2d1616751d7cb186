"""Formats tile programs as text, and parses this text.

    program k0(input x: f32[7], output out: f32[7]) warps 4 {
      grid i: 7 by 4
      %0: f32[i] = load x[i]
      store out[i] %0
    }

The text numbers values in the order in which the program computes them. The text of tile programs begins with the
inputs, outputs, conditions and temporaries of the plan, as in minitri/kernels/text.py. Each program lists its compile
options after its buffers:

    warps 8 stages 4 group 8 registers 128 wide

In the stage `tile.target`, ops and loops can have hints, in braces:

    %1: f32[i, r] = load x[i, r] {because = ["i: 64 divides 4096"], descriptor = [64, 64]}
    for r {wait = true} {

`parse_programs` parses a text that `format_programs` wrote, even if a user has edited the text. The spans of the parsed
ops are ranges of the text of the tile programs, not of the text of the minitri program. The plan of the parsed programs
has no kernels, because the text contains no kernels.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from typing import Any

from minitri.base.resource_limits import MAX_LANES
from minitri.base.spans import Source
from minitri.base.toml_tables import table_beside
from minitri.kernels.ir import Carry, Op, Plan
from minitri.kernels.parse import Body, read_axis, read_buffers, read_head, read_hints, read_kernel_name
from minitri.kernels.text import AXIS, OpWriter, TextLine, format_op, head_lines, join
from minitri.text_io.read_expressions import Names
from minitri.text_io.stage_parser import Line, Mistake, Node, expect, read, reading
from minitri.text_io.templates import fields_of, templates
from minitri.tiles import ir
from minitri.tiles.ir import PLAIN, Hints, Loop, Program, Programs, TileAxis, block_start, lane_number
from minitri.tiles.schedule import OPTIONS, RANGES, WARPS

LINES = templates(ir, table_beside(__file__, "lines.toml"))


def format_programs(programs: Programs) -> str:
    return "".join(f"{text}\n" for text, _ in programs_lines(programs))


def programs_lines(programs: Programs) -> Iterator[TextLine]:
    """Returns the lines of `format_programs`. Each line comes with the object that the line shows: an op, an axis, a
    loop, a program or a buffer.
    """
    yield from head_lines(programs.plan)
    for program in programs:
        yield "", None
        yield from program_lines(program)


def program_lines(program: Program) -> Iterator[TextLine]:
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
    """Formats the hints of an op as attributes, such as `wait = true`."""
    given = fields_of(program.hint(about))
    # default values are omitted
    return LINES[Hints].words({name: value or None for name, value in given.items()}, OpWriter({}, AXIS))


def statements(program: Program) -> dict[Op, str]:
    """Returns a dict with the text line of each op of the program. The lines contain no hints."""
    names: dict[Op, str] = {}
    return {op: format_op(op, names) for op in program.ops()}


def _options(program: Program) -> str:
    """Formats the compile options of a program, such as the number of warps."""
    defaults = {f.name: f.default for f in fields(Program)}
    options = {name: getattr(program, name) for name in OPTIONS}
    words = [name if value is True else f"{name} {value}" for name, value in options.items() if value != defaults[name]]
    return " ".join([f"warps {program.warps}", *words])


# ---- parsing ------------------------------------------------------------------------------


def parse_programs(text: str, masked: bool, name: str = "<tile>") -> Programs:
    """Returns the tile programs that a text describes. If the text is not valid, raises CompileError MT05xx, which
    shows the place of the mistake.
    """
    source = Source(name, text)
    with reading(source):
        head, *blocks = read(source, "tiles").parts
        plan, names = read_head(head, source)
        taken: set[str] = set()
        return Programs(plan, tuple(_program(block, plan, names, source, masked, taken) for block in blocks))


def _program(block: Node, plan: Plan, names: Names, source: Source, masked: bool, taken: set[str]) -> Program:
    name, params, hints, places, *lines = block.parts
    kernel, axes = read_kernel_name(name, taken), list[TileAxis]()
    for place in places:
        axes.append(_axis(place, names, axes))
    buffers = read_buffers(params, plan, names)
    options = read_hints(hints, {"warps": WARPS, **{name: RANGES.get(name) for name in OPTIONS}})
    body = _Body(source, names, [a.name for a in axes], buffers, "tile.masked" if masked else "tile")
    body.known |= {f"{a.name}_lane": lane_number(a.name) for a in axes}
    body.known |= {f"{a.name}_start": block_start(a.name) for a in axes}
    stmts = tuple(body.line(s) if isinstance(s, Line) else body.loop(s) for s in lines)
    return Program(kernel, tuple(axes), tuple(buffers.values()), stmts, **options, hints=body.hints)


def _axis(place: Node, names: Names, before: Sequence[TileAxis]) -> TileAxis:
    role, name, extent, block, lanes = place.parts
    size = block.parts[0]
    expect(isinstance(size, int) and 1 <= size <= MAX_LANES, block, f"a block is a number from 1 to {MAX_LANES:,}")
    axis = TileAxis(*read_axis(name, extent, names, before), role.name, size)
    if lanes is not None and lanes.parts[0] != axis.lanes:
        raise Mistake(lanes, f"a block of {axis.block} has {axis.lanes} lanes")
    return axis


class _Body(Body):
    """Parses the statements of a program."""

    templates = {**Body.templates, **LINES}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.hints: dict[Op | Loop, Hints] = {}  # the hints of each op or loop
        self.given = PLAIN  # the hints of the line that was parsed last
        self.anywhere = LINES[Hints].attributes if self.stage == "tile.masked" else ()

    def fields(self, line: Line, absent: Collection[str] = ()) -> tuple[type[Any], dict[str, Any]]:
        cls, found = super().fields(line, absent)
        self.given = Hints(**{h.field: found.pop(h.field) for h in self.anywhere if h.field in found})
        return cls, found

    def line(self, line: Line) -> Op:
        return self._hinted(super().line(line), self.given)

    def _hinted(self, about: Any, hints: Hints) -> Any:
        if hints != PLAIN:
            self.hints[about] = hints
        return about

    def loop(self, nest: Node) -> Loop:
        """Parses a loop. Lines after the loop can use the values that the loop carries, but no other values from inside
        the loop.
        """
        head, *lines = nest.parts
        self._axes(head.operands, "a loop names the axes that it walks, each once")
        before = dict(self.values)
        _, found = self.fields(head)
        hints, ops, carries = self.given, list[Op](), list[tuple[Carry, Op]]()
        for line in lines:
            if not isinstance(line, Line):
                carries.append(self._next(*line.parts))
            elif carries:
                raise Mistake(line, "what a loop carries on stands at its end")
            else:
                ops.append(self.line(line))
                expect(not isinstance(ops[-1], Carry), line, "a carried value stands before its loop")
        self.values = before
        return self._hinted(Loop(**found, carries=tuple(carries), body=tuple(ops)), hints)

    def _next(self, carried: Node, value: Node) -> tuple[Carry, Op]:
        carry = self.ref(carried)
        if not isinstance(carry, Carry):
            raise Mistake(carried, f"`{carried.name}` is no carried value")
        return carry, self.ref(value)
