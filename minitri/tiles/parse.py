"""Parses the text of tile programs: the inverse of minitri/tiles/text.py.

In: a text that `format_programs` wrote, perhaps edited by a user, and whether its programs have masks. Out: `Programs`
whose spans point into that text. The plan of these programs has no kernels, because the text has none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from minitri.base.dims import Dim
from minitri.base.spans import Source
from minitri.base.types import i64
from minitri.kernels.ir import Carry, Op, Plan
from minitri.kernels.parse import Body, distinct, read_axis, read_buffers, read_head, read_hints, read_kernel_name
from minitri.text_io.name_resolution import Names, read_list, read_number, read_text, read_word
from minitri.text_io.nodes import Block, Expr, Line, Mistake, Nest, Next, Place, Whole
from minitri.text_io.reader import read, reading
from minitri.tiles.ir import PLAIN, Hints, Loop, Program, Programs, Stmt, TileAxis, block_start, lane_number
from minitri.tiles.schedule import OPTIONS, RANGES

MAX_BLOCK = 2**20
HINT_NAMES = tuple(f.name for f in fields(Hints))


def parse_programs(text: str, masked: bool, name: str = "<tile>") -> Programs:
    """The programs that a text describes. CompileError MT05xx with the place of the mistake if the text is not valid."""
    source = Source(name, text)
    with reading(source):
        whole: Whole = read(source, "tiles")
        plan, names = read_head(whole.head, source)
        programs: list[Program] = []
        for block in whole.blocks:
            programs.append(_program(block, plan, names, source, masked, [p.name for p in programs]))
        return Programs(plan, tuple(programs))


def _program(block: Block, plan: Plan, names: Names, source: Source, masked: bool, taken: Sequence[str]) -> Program:
    name = read_kernel_name(block.name, taken)
    axes = tuple(_axis(p, names) for p in distinct(block.places))
    buffers = read_buffers(block, plan, names)
    options = read_hints(block, {"warps": range(1, 33), **{name: RANGES.get(name) for name in OPTIONS}})
    warps = options.get("warps", 4)
    if warps & (warps - 1):
        raise Mistake(block.hints[0][0], f"the number of warps is a power of two, not {warps}")
    body = _Body(source, names, [a.name for a in axes], buffers, "tile.masked" if masked else "tile")
    body.known |= {f"{a.name}_lane": lane_number(a.name) for a in axes}
    body.known |= {f"{a.name}_start": block_start(a.name) for a in axes}
    stmts = tuple(_loop(s, body) if isinstance(s, Nest) else body.line(s) for s in block.body)
    return Program(name, axes, tuple(buffers.values()), stmts, **options, hints=body.hints)


class _Body(Body):
    """Parses the statements of a program. `hints` collects the hints of ops and loops."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.hints: dict[Op | Loop, Hints] = {}

    def line(self, line: Line) -> Op:
        rest, hints = self.split_hints(line.attributes)
        op = super().line(replace(line, attributes=rest))
        return self.hinted(op, hints)

    def split_hints(self, attributes: Mapping[str, Expr]) -> tuple[dict[str, Expr], Hints]:
        """The attributes that are no hints, and the hints."""
        found = {n: e for n, e in attributes.items() if n in HINT_NAMES and self.stage == "tile.masked"}
        hints = {n: _hint(n, e) for n, e in found.items()}
        return {n: e for n, e in attributes.items() if n not in found}, Hints(**hints)

    def hinted(self, about: Any, hints: Hints) -> Any:
        if hints != PLAIN:
            self.hints[about] = hints
        return about


def _hint(name: str, e: Expr) -> Any:
    """The value of a hint: the block of a tensor descriptor, or True."""
    if name == "descriptor":
        return tuple(int(read_number(n, i64)) for n in read_list(e))
    return bool(read_word(e, ("true",)))


def _axis(p: Place, names: Names) -> TileAxis:
    name, extent = read_axis(p, names)
    assert p.block is not None
    block = p.block.parts[0]
    if not isinstance(block, int) or not 1 <= block <= MAX_BLOCK:
        raise Mistake(p.block, f"a block is a number from 1 to {MAX_BLOCK:,}")
    axis = TileAxis(name, extent, p.role, block)
    if p.lanes is not None and p.lanes.parts[0] != axis.lanes:
        raise Mistake(p.lanes, f"a block of {axis.block} has {axis.lanes} lanes")
    return axis


def _loop(nest: Nest, body: _Body) -> Stmt:
    """Parses a loop. Values that are computed in a loop have no name after it, except for carried values."""
    axes = [e.name for e in nest.axes]
    for e in nest.axes:
        if e.name not in body.axes or axes.count(e.name) > 1:
            raise Mistake(e, "a loop names the axes that it walks, each once")
    before = dict(body.values)
    ops: list[Op] = []
    carries: list[tuple[Carry, Op]] = []
    for line in nest.body:
        if isinstance(line, Next):
            carries.append(_next(line, body))
        elif carries:
            raise Mistake(line, "what a loop carries on stands at its end")
        else:
            ops.append(body.line(line))
            if isinstance(ops[-1], Carry):
                raise Mistake(line, "a carried value stands before its loop")
    body.values = before
    bounds, hints = body.split_hints(nest.bounds)
    because = tuple(map(read_text, read_list(bounds.pop("because", None))))
    redo = body.ref(bounds.pop("redo")) if "redo" in bounds else None
    loop = Loop(tuple(axes), tuple(carries), tuple(ops), **_loop_bounds(bounds, body), because=because, redo=redo)
    return body.hinted(loop, hints)


def _loop_bounds(bounds: Mapping[str, Expr], body: Body) -> dict[str, Dim]:
    for name, e in bounds.items():
        if name not in ("first", "last"):
            raise Mistake(e, f"a loop has no `{name[:40]}`", "it has `first`, `last`, `because` and `redo`")
    return {name: body.names.dim(e) for name, e in bounds.items()}


def _next(line: Next, body: Body) -> tuple[Carry, Op]:
    carry = body.ref(line.carry)
    if not isinstance(carry, Carry):
        raise Mistake(line.carry, f"`{line.carry.name}` is no carried value")
    return carry, body.ref(line.value)
