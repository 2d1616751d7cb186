"""The intermediate representation (IR) of tile programs: each kernel becomes one tile program, which runs once for each
point of the grid.

    program = Program(name, axes, buffers, body, hints, warps, stages)
    axis    = TileAxis(name, extent, role, block)
              "grid"   a grid program works on `block` neighbouring indices (any number of them)
              "whole"  a grid program works on all indices at once (block >= extent)
              "loop"   a loop in the grid program works on `block` indices in each iteration
    stmt    = an op of minitri/kernels/ir.py, whose value is now a tile
            | Loop(axes, carries, body, first, last)     nested loops; the last axis is the innermost
              `redo` is None, or a value: if all its elements are finite, it replaces the loop and its carried value
    hint    = Hints(…) of an op or a loop    how the target compiles it: only in `tile.target`
    stage   = Programs(plan, programs)       all programs in launch order, and the buffers that they use

A value of type `f32[i, r]` is a tile. Along each axis a tile has `lanes` elements. The number `lanes` is the block
size, rounded up to a power of two, because Triton requires powers of two. Some elements of a tile can have an index
past the end of the axis, or past the end of the block. Masks stop loads and stores of elements past the end of an axis
or block.

A `Carry` op is a value that a loop passes from one iteration to the next. A `Carry` op comes before its loop. After the
loop, the value of the `Carry` op is the value that the last iteration computed.

A tile program has no operations on whole arrays. The statements of a tile program say in which order everything is
computed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Union

from minitri.base.dims import ONE, ZERO, Dim, Monomial, Symbol, axis
from minitri.base.intervals import Range
from minitri.base.nodes import Record
from minitri.base.symbolic_minmax import Smallest
from minitri.kernels.ir import Access, Axis, Buffer, Carry, Dot, Op, Plan


class TileAxis(Axis):
    block: int = 1

    @property
    def lanes(self) -> int:
        """The number of elements of a tile along the axis: the block size, rounded up to a power of two."""
        return 1 << max(0, self.block - 1).bit_length()

    @property
    def inside(self) -> Dim:
        """An expression that is >= 0 exactly if the index of the axis is inside the extent of the axis."""
        return self.extent - 1 - self.index

    @property
    def tiles(self) -> Dim:
        """The number of blocks that cover the extent of the axis."""
        return (self.extent + (self.block - 1)) // self.block

    @property
    def blocks(self) -> Dim:
        """The number of blocks into which the tile program divides the axis. A "whole" axis has one block, even if the
        axis is empty.
        """
        return ONE if self.role == "whole" else self.tiles


def lane_number(name: str) -> Dim:
    """Returns the symbol for the position of an element in its block along an axis, a number from 0 to `lanes` - 1."""
    return axis(f"{name}_lane")


def block_start(name: str) -> Dim:
    """Returns the symbol for the first index of the current block of an axis."""
    return axis(f"{name}_start")


class Loop(Record, eq=False):
    axes: tuple[str, ...]
    carries: tuple[tuple[Carry, Op], ...]  # (carried value, its value for the next iteration)
    body: tuple[Op, ...]
    first: Dim | None = None  # the index at which a loop over one axis starts, a multiple of the block
    last: Dim | None = None  # the index before which this loop ends
    because: tuple[str, ...] = ()  # why the loop may skip blocks outside its bounds, or tests inside its bounds
    redo: Op | None = None  # the loop runs only if an element of this value is not finite


Stmt = Union[Op, Loop]


class Hints(Record):
    """Hints about how the target compiles one op or loop. A hint with its default value has no effect. An operator with
    the hint `fast` can give a slightly different result than without this hint. A load with the hint `descriptor`
    returns zeros past the end of its array. Only the hints `fast` and `descriptor` can change values.

    `descriptor`: the block sizes of the tensor descriptor that makes the access, one for each axis of the array.
    `evict_first`: whether the L2 cache should drop the loaded elements before other elements.
    `fast`: whether the operator is compiled to its faster, less precise fast-math form.
    `in_parts`: whether the maximum of each row is computed in two steps. The first step computes the elementwise
        maximum of blocks of 16 columns.
    `unknown_start`: whether the initial value of a `Carry` is hidden from Triton's compiler.
    `wait`: whether each iteration of the loop first waits until the tensor cores have finished.
    """

    descriptor: tuple[int, ...] = ()
    evict_first: bool = False
    fast: bool = False
    in_parts: bool = False
    unknown_start: bool = False
    wait: bool = False


PLAIN = Hints()


class LaunchOptions(Record, kw_only=True, eq=False):
    """Options that the schedule of a tile program chooses.

    `warps`: the number of warps that run one grid program.
    `stages`: the number of blocks that a pipelined loop keeps in flight (Triton's `num_stages`).
    `group`: how many tiles along the last-but-one grid axis have consecutive numbers (rasterisation). Tiles with
        consecutive numbers share operands, so these operands stay in the L2 cache.
    `descriptors`: whether loads use tensor descriptors where that is possible.
    `persistent`: the number of grid programs of a persistent kernel. 0 means one grid program for each tile.
    `registers`: the most registers that a thread may use. 0 means that Triton's compiler decides.
    `descriptor_stores`: whether stores, like loads, use tensor descriptors where that is possible. Without
        `descriptors`, `descriptor_stores` has no effect.
    """

    warps: int = 4
    stages: int = 3
    group: int = 1
    descriptors: bool = False
    persistent: int = 0
    registers: int = 0
    descriptor_stores: bool = False


class Program(LaunchOptions, eq=False):
    """The tile program of one kernel, and its compile options.

    `wide`: whether memory offsets are 64-bit integers.
    `relaxed`: whether fast math is allowed. The field `relaxed` of the kernel has the same value.
    `descending`: whether the tiles of the last grid axis are numbered backwards, from the end of the axis to its start.
    `returning`: whether loops run backwards, from the last block to the first. Loops that carry values always run
        forwards.
    `peeled`: whether tiles completely inside the last grid axis skip the bounds checks of that axis.
    `early_start`: whether a grid program starts before the previous kernel ends (dependent launch). The grid program
        then waits for the end of the previous kernel before it loads anything.
    `flattened`: whether the two nested loops of a persistent kernel, over its tiles and inside each tile, become one
        loop.
    `hints`: hints about how the target compiles single ops and loops. The keys of `hints` are ops and loops.
    """

    name: str
    axes: tuple[TileAxis, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    wide: bool = False
    relaxed: bool = False
    descending: bool = False
    returning: bool = False
    peeled: bool = False
    early_start: bool = False
    flattened: bool = False
    hints: Mapping[Op | Loop, Hints] = field(default_factory=dict)

    def hint(self, about: Op | Loop) -> Hints:
        return self.hints.get(about, PLAIN)

    def hinted(self, about: Iterable[Op | Loop], **more: Any) -> Program:
        """Adds the hints `more` to the ops and loops in `about`, and returns the new tile program. If `about` is empty,
        returns the tile program itself.
        """
        found = {x: replace(self.hint(x), **more) for x in about}
        return replace(self, hints={**self.hints, **found}) if found else self

    def without_descriptors(self) -> Program:
        """Returns the tile program with all options and hints for tensor descriptors turned off."""
        plain = self.hinted([x for x, hints in self.hints.items() if hints.descriptor], descriptor=())
        return replace(plain, descriptors=False, descriptor_stores=False) if self.descriptors else plain

    @property
    def peeled_tests(self) -> frozenset[Dim]:
        """The bounds checks that a complete tile skips. A complete tile has no element past the end of the last grid
        axis. If the field `peeled` is false, the result is empty.
        """
        if not self.peeled or not self.grid or self.grid[-1].lanes != self.grid[-1].block:
            return frozenset()
        return frozenset((self.grid[-1].inside,))

    def from_end(self, loop: Loop) -> bool:
        """Checks whether a loop runs backwards, from its last block to its first block."""
        return self.returning and not loop.carries and loop.first is None and loop.last is None

    def axis(self, name: str) -> TileAxis:
        return next(a for a in self.axes if a.name == name)

    @property
    def grid(self) -> tuple[TileAxis, ...]:
        return tuple(a for a in self.axes if a.role == "grid")

    @property
    def loops(self) -> list[Loop]:
        return [s for s in self.body if isinstance(s, Loop)]

    def factors(self, dot: Dot) -> tuple[Op, Op]:
        """Returns the two operands of a matrix product in the order in which they are multiplied.

        If the column axis comes before the row axis in the tile program, `b` is the first operand, because the product
        is computed transposed.
        """
        row, column = (next(n for n, a in enumerate(self.axes) if a.name == name) for name in dot.tile)
        return (dot.a, dot.b) if row < column else (dot.b, dot.a)

    def ops(self) -> Iterator[Op]:
        """Yields all ops in program order, including the ops inside loops."""
        for stmt in self.body:
            yield from stmt.body if isinstance(stmt, Loop) else (stmt,)


def index_axes(op: Access) -> set[str]:
    """Returns the names of the axes in the index of a load or store. The symbol `r_lane`, the position of an element in
    its block, counts as the axis `r`.
    """
    return {name.removesuffix("_lane") for name in op.indexed_by}


def isolated(condition: Dim, lanes: Container[str]) -> tuple[Symbol, int, Dim] | None:
    """Solves the inequality `condition >= 0` for one index. For example, `n - 3 - i >= 0` becomes `i < n - 2`, where
    the index i is alone on one side. The bound, such as `n - 2`, is the same for all elements of a tile. The bound
    contains no loaded value, and no index of an axis in `lanes`. Along the axes in `lanes`, tiles have several
    elements.

    From a bounds check such as `i < n - 2`, Triton can tell how many neighbouring elements have the same result.
    """

    def varies(s: Symbol) -> bool:
        return s.kind == "value" or (s.kind != "size" and s.name.removesuffix("_lane") in lanes)

    return condition.solved(varies)


def on_host(d: Dim) -> tuple[Dim, list[tuple[int, Dim, Monomial]]]:
    """Splits an expression into terms that the CPU can compute, and terms that only the kernel can compute. The CPU
    (the host) computes all terms that depend on sizes only. A product that contains an axis or a loaded value, such as
    -2*N*i, cannot be computed by the CPU.

    Example: the product -2*N*i is split into its sign -1, the factor 2*N, which the CPU computes, and the remaining
    factor i.
    """
    host: dict[Monomial, int] = {}
    products: list[tuple[int, Dim, Monomial]] = []
    for monomial, c in d.terms:
        sizes = tuple(a for a in monomial if all(s.kind == "size" for s in Dim({(a,): 1}).symbols()))
        if rest := tuple(a for a in monomial if a not in sizes):
            products.append((1 if c > 0 else -1, Dim({sizes: abs(c)}), rest))
        else:
            host[monomial] = c
    return Dim(host), products


class BlockIndex(Record):
    """Describes which index each element of a block has along one dimension of an array. The field `axis` is the axis
    of the block.

    If the field `walks` is true, an element's array index is `offset` plus the element's index along the axis. If the
    field `walks` is false, an element's array index is `offset` plus the element's position in the block (0, 1, …). If
    the field `axis` is None, every element of the block has the array index `offset`.
    """

    axis: TileAxis | None
    walks: bool
    offset: Dim


def block_index(program: Program, index: Dim) -> BlockIndex | None:
    """Converts an index to a `BlockIndex`: the index along one axis plus a number. The number is equal for all elements
    of the block. Returns None if the index cannot be written as a `BlockIndex`.
    """
    symbols = {s.name for s in index.symbols()}
    axis = next((a for a in program.axes if a.block > 1 and symbols & {a.name, f"{a.name}_lane"}), None)
    if axis is None:
        return BlockIndex(None, False, index)
    walks = axis.name in symbols
    offset = index - (axis.index if walks else lane_number(axis.name))
    single = {a.name for a in program.axes if a.lanes == 1}
    return BlockIndex(axis, walks, offset) if {s.name for s in offset.symbols()} <= single else None


def index_ranges(program: Program) -> dict[Symbol, Range]:
    """Returns the range of the index of each axis, and the range of the first index of its blocks. The index of an axis
    includes elements past the end.
    """
    found = {a.symbol: (ZERO, a.tiles * a.block + (a.lanes - a.block - 1)) for a in program.axes}
    starts = {s: (ZERO, a.tiles * a.block) for a in program.axes for s in block_start(a.name).symbols()}
    return {**found, **starts}


def enclosing(program: Program, op: Op) -> tuple[str, ...]:
    """Returns the axes of the loop that contains an op, or no axes for an op outside of loops."""
    return next((loop.axes for loop in program.loops if op in loop.body), ())


def ends_whole(loop: Loop, axis: TileAxis) -> bool:
    """Checks whether every block of a loop lies completely inside its axis.

    For example, a loop over 100 elements in blocks of 32 must end at index 96 or earlier, because the block from 96 to
    127 is not completely inside the axis.
    """
    whole = axis.extent // axis.block * axis.block
    if loop.last is None or len(loop.axes) != 1:
        return False
    ends = (loop.last.atom.a, loop.last.atom.b) if isinstance(loop.last.atom, Smallest) else (loop.last,)
    return whole in ends


class Programs(Record, eq=False):
    """The tile programs of a plan, in launch order.

    The field `plan` has the inputs, outputs, conditions and temporaries of the tile programs. The tile programs do not
    use the kernels of this plan.
    """

    plan: Plan
    programs: tuple[Program, ...]

    def __iter__(self) -> Iterator[Program]:
        return iter(self.programs)

    def map(self, change: Callable[[Program], Program]) -> Programs:
        """Applies `change` to each program. If `change` returns every program unchanged, the result is `self`."""
        made = tuple(map(change, self.programs))
        return self if all(a is b for a, b in zip(made, self.programs)) else replace(self, programs=made)
