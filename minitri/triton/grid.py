"""Which tile a program works on: the first lines of a Triton function.

    tile = tl.program_id(0)                        programs are numbered along one axis,
    j_tile = tile % 13                             which is split into one tile number an axis of the grid,
    tile = tile // 13                              the last one fastest,
    j = j_tile * BLOCK_J + tl.arange(0, BLOCK_J)   and from each come the indices of its lanes

In: a tile program. Out: lines. Tiles can come in groups of several rows (`group`), from the end of the last axis on
(`descending`), and several to a program, one after the other (`persistent`).
"""

from __future__ import annotations

from collections.abc import Sequence

from minitri.base.dims import Dim, product
from minitri.kernels.ir import Inside, Load, Position
from minitri.tiles.ir import Loop, Program, TileAxis
from minitri.triton.expressions import STEP, Lines


def count(program: Program) -> Dim:
    """How many tiles there are."""
    return product([a.tiles for a in program.grid])


def widened(lanes: str, program: Program) -> str:
    """The numbers of a tile's elements, with as many bits as offsets have. (Indices of the grid take the bits of `tile`.)"""
    return f"{lanes}.to(tl.int64)" if program.wide else lanes


def write_grid(program: Program, lines: Lines) -> None:
    """Writes the indices of grid axes and whole axes, and the numbers of a loop's elements if an op uses them.

    If a program has several tiles, all later lines are in the loop over them.
    """
    _Grid(program, lines).run()


class _Grid:
    def __init__(self, program: Program, lines: Lines) -> None:
        self.program, self.lines, self.add, self.size = program, lines, lines.add, lines.size
        loops = [s for s in program.body if isinstance(s, Loop)]
        bounds = [d for loop in loops for d in (loop.first, loop.last) if d is not None]
        self.starts = {s.name for d in bounds for s in d.symbols()}

    def run(self) -> None:
        for a in self.program.axes:
            if a.block > 1 and a.role != "whole":
                self.add(f"BLOCK_{a.name.upper()}: tl.constexpr = {a.block}")
        if self.program.grid:
            first = "tl.program_id(0)" + (".to(tl.int64)" if self.program.wide else "")
            self.add(f"tile = {self._turns(first) if self.program.persistent else first}")
        self._tiles(self.program.grid)
        for a in self.program.axes:
            if a.role == "whole":
                lanes = f"tl.arange(0, {a.block})" if a.block > 1 else "tl.full((), 0, tl.int32)"
                self.add(f"{a.name} = {widened(lanes, self.program)}")
            elif a.role == "loop" and self._uses_lane(a):
                self.add(f"{a.name}_lane = " + (f"tl.arange(0, BLOCK_{a.name.upper()})" if a.block > 1 else "0"))

    def _turns(self, first: str) -> str:
        """One tile after the other, each program from its own number in steps of how many there are."""
        flat = ", flatten=True" * self.program.flattened
        self.add(f"for turn in tl.range({first}, {self.size(count(self.program))}, tl.num_programs(0){flat}):")
        self.lines.indent += STEP
        return "turn"

    def _uses_lane(self, axis: TileAxis) -> bool:
        name = f"{axis.name}_lane"
        exprs = [d for op in self.program.ops() if isinstance(op, Inside) for d in op.conditions]
        exprs += [op.expr for op in self.program.ops() if isinstance(op, Position)]
        exprs += [d for op in self.program.ops() if isinstance(op, Load) for d in op.index]
        return any(name in {s.name for s in d.symbols()} for d in exprs)

    def _tiles(self, grid: Sequence[TileAxis]) -> None:
        """Splits the program id into one tile number an axis, the last axis fastest."""
        rest = list(grid)
        if self.program.group > 1 and len(grid) >= 2:
            self._grouped(*grid[-2:], more=len(grid) > 2)
            rest = rest[:-2]
        while rest:
            a = rest.pop()
            self.add(f"{a.name}_tile = " + self._from_end(a, "tile" + (f" % {self.size(a.tiles)}" if rest else "")))
            if rest:
                self.add(f"tile = tile // {self.size(a.tiles)}")
            self._index(a)

    def _grouped(self, row: TileAxis, column: TileAxis, more: bool) -> None:
        """Tiles in groups of several rows: neighbours in time share rows and columns in the L2."""
        rows, columns = self.size(row.tiles), self.size(column.tiles)
        place = "tile"
        if more:
            self.add(f"place = tile % ({rows} * {columns})")
            self.add(f"tile = tile // ({rows} * {columns})")
            place = "place"
        self.add(f"group = {place} // ({self.program.group} * {columns})")
        self.add(f"first = group * {self.program.group}")
        self.add(f"height = tl.minimum({rows} - first, {self.program.group})")
        self.add(f"{row.name}_tile = first + ({place} % ({self.program.group} * {columns})) % height")
        nth = self._from_end(column, f"({place} % ({self.program.group} * {columns})) // height")
        self.add(f"{column.name}_tile = {nth}")
        self._index(row)
        self._index(column)

    def _from_end(self, a: TileAxis, tile: str) -> str:
        """The tile with a number, or that many tiles from the end."""
        if a is not self.program.grid[-1] or not self.program.descending:
            return tile
        known = a.tiles.constant
        return f"{self.size(a.tiles)} - 1 - {tile}" if known is None else f"{known - 1} - {tile}"

    def _index(self, a: TileAxis) -> None:
        block = f"BLOCK_{a.name.upper()}"
        lanes = f" * {block} + tl.arange(0, {block})" if a.block > 1 else ""
        if a.lanes != a.block:
            self.add(f"{a.name}_lane = tl.arange(0, {a.lanes})")
            lanes = f" * {block} + {a.name}_lane"
        self.add(f"{a.name} = {a.name}_tile{lanes}")
        if f"{a.name}_start" in self.starts:
            self.add(f"{a.name}_start = {a.name}_tile * {a.block}")
