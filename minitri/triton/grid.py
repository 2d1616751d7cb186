"""Writes the first lines of a Triton function, which compute the tile of the running grid program.

    tile = tl.program_id(0)                        the grid programs are numbered along one axis
    j_tile = tile % 13                             this number is split into one tile number for each grid axis;
    tile = tile // 13                              the last axis changes fastest
    j = j_tile * BLOCK_J + tl.arange(0, BLOCK_J)   each tile number gives the indices of the tile's elements

The class `Grid` takes a tile program, and writes lines of Triton source. Three options of a tile program change the
order of its tiles. With the option `group`, several rows of tiles form a group, and the tiles are numbered group by
group. With the option `descending`, the tiles along the last grid axis are numbered from the end of the axis. With the
option `persistent`, each grid program computes several tiles, one after another.
"""

from collections.abc import Sequence

from minitri.base.dims import Dim, axis_names, product
from minitri.kernels.ir import index_expressions
from minitri.tiles.ir import Program, TileAxis
from minitri.triton.expressions import STEP, Lines


def count(program: Program) -> Dim:
    """Returns the number of tiles of the grid."""
    return product([a.tiles for a in program.grid])


def widened(lanes: str, program: Program) -> str:
    """Returns the Triton code of the positions in a block, such as `tl.arange(0, 64)`. If memory offsets need 64 bits,
    the code converts the positions to 64-bit integers.

    Indices along grid axes need no conversion, because they are computed from the tile number `tile`. If memory offsets
    need 64 bits, `tile` already has 64 bits.
    """
    return f"{lanes}.to(tl.int64)" if program.wide else lanes


class Grid:
    """Writes the lines that compute the indices along each axis. Axes with the role "grid" are split into tiles, and
    axes with the role "whole" are one tile.

    Before a loop over an axis `r`, the code computes only `r_lane`, the positions of the elements within a block.
    Positions that no operation uses are left out.

    If each grid program computes several tiles, all later lines of the function are inside a loop over these tiles.
    """

    def __init__(self, program: Program, lines: Lines) -> None:
        self.program, self.lines, self.add, self.size = program, lines, lines.add, lines.size
        bounds = [d for loop in program.loops for d in (loop.first, loop.last) if d is not None]
        self.used = axis_names([*bounds, *(d for op in program.ops() for d in index_expressions(op))])

    def write(self) -> None:
        for a in self.program.axes:
            if a.block > 1 and a.role != "whole":
                self.add(f"BLOCK_{a.name.upper()}: tl.constexpr = {a.block}")
        if self.program.grid:
            first = "tl.program_id(0)" + (".to(tl.int64)" if self.program.wide else "")
            self.add(f"tile = {self._persistent_loop(first) if self.program.persistent else first}")
        self._tiles(self.program.grid)
        for a in self.program.axes:
            if a.role == "whole":
                lanes = f"tl.arange(0, {a.block})" if a.block > 1 else "tl.full((), 0, tl.int32)"
                self.add(f"{a.name} = {widened(lanes, self.program)}")
            elif a.role == "loop" and f"{a.name}_lane" in self.used:
                self.add(f"{a.name}_lane = " + (f"tl.arange(0, BLOCK_{a.name.upper()})" if a.block > 1 else "0"))

    def _persistent_loop(self, first: str) -> str:
        """Writes the head of a persistent program's loop over tiles, and returns the loop variable's name."""
        flat = ", flatten=True" * self.program.flattened
        # The loop variable is the number of a tile. It starts at the number of the grid program, `first`, and each
        # iteration adds the number of grid programs.
        self.add(f"for turn in tl.range({first}, {self.size(count(self.program))}, tl.num_programs(0){flat}):")
        self.lines.indent += STEP
        return "turn"

    def _tiles(self, grid: Sequence[TileAxis]) -> None:
        """Writes lines that split a tile's number into one number for each grid axis."""
        rest = list(grid)
        if self.program.group > 1 and len(grid) >= 2:
            self._grouped(*grid[-2:], more=len(grid) > 2)
            rest = rest[:-2]
        while rest:
            a = rest.pop()  # the number along the last axis changes fastest
            self.add(f"{a.name}_tile = " + self._from_end(a, "tile" + (f" % {self.size(a.tiles)}" if rest else "")))
            if rest:
                self.add(f"tile = tile // {self.size(a.tiles)}")
            self._index(a)

    def _grouped(self, row: TileAxis, column: TileAxis, more: bool) -> None:
        """Writes lines that compute the row and the column of a tile from the tile's number, for the option `group`."""
        rows, columns = self.size(row.tiles), self.size(column.tiles)
        place = "tile"
        if more:
            self.add(f"place = tile % ({rows} * {columns})")
            self.add(f"tile = tile // ({rows} * {columns})")
            place = "place"
        # The grid programs of one group run at about the same time, so an operand that one of them has loaded is still
        # in the L2 cache when other grid programs of the group load it.
        self.add(f"group = {place} // ({self.program.group} * {columns})")
        self.add(f"first = group * {self.program.group}")
        self.add(f"height = tl.minimum({rows} - first, {self.program.group})")
        self.add(f"{row.name}_tile = first + ({place} % ({self.program.group} * {columns})) % height")
        nth = self._from_end(column, f"({place} % ({self.program.group} * {columns})) // height")
        self.add(f"{column.name}_tile = {nth}")
        self._index(row)
        self._index(column)

    def _from_end(self, a: TileAxis, tile: str) -> str:
        """Returns the text of a tile's number along an axis."""
        if a is not self.program.grid[-1] or not self.program.descending:
            return tile
        # The option `descending` numbers the tiles along the last grid axis from the end of the axis.
        known = a.tiles.constant
        return f"{self.size(a.tiles)} - 1 - {tile}" if known is None else f"{known - 1} - {tile}"

    def _index(self, a: TileAxis) -> None:
        block = f"BLOCK_{a.name.upper()}"
        lanes = f" * {block} + tl.arange(0, {block})" if a.block > 1 else ""
        if a.lanes != a.block:
            self.add(f"{a.name}_lane = tl.arange(0, {a.lanes})")
            lanes = f" * {block} + {a.name}_lane"
        self.add(f"{a.name} = {a.name}_tile{lanes}")
        if f"{a.name}_start" in self.used:
            self.add(f"{a.name}_start = {a.name}_tile * {a.block}")
