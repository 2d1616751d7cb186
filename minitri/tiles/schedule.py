"""How a kernel runs: the role of each axis (grid, whole or loop) and the block sizes.

In: a kernel, whose sizes may be unknown, and the kind of machine. Out: a `Schedule`. The cost model
consists of rules of thumb, each with its reason. An unknown size gets a block that is right for any
size.

Rules for a GPU (docs/log/benchmarks.md has the measurements behind the figures)
  - neighbouring threads take neighbours along the axis where most bytes have stride 1, so that
    accesses coalesce; where two axes compete (a transpose) the tile is square, or as large as a square
  - if such an axis is short, the next axis is blocked too; few elements get few warps
  - elementwise: about 1024 elements a program, 2048 of 16-bit ones, 4 warps
  - reductions of rows and columns: minitri/optimize/schedules/reductions.py
  - products: minitri/optimize/schedules/products.py
  - products that share a loop with other reductions: minitri/optimize/schedules/attention.py

In the interpreter a program costs about a millisecond and an element costs almost nothing. Tiles
there are as large as Triton allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from minitri.base.diagnostics import CompileError
from minitri.base.limits import MAX_LANES
from minitri.hardware.chips import H200, Chip
from minitri.kernels.ir import Dot, Kernel
from minitri.optimize.schedules import attention, products, reductions
from minitri.optimize.shared_loops import held, loop_of_products
from minitri.optimize.skip_blocks.conditions import walked
from minitri.tiles.block_sizes import ENOUGH, at_most, ceil_pow2, contiguity, filled, innermost, size, widest_bytes

SQUARE = 64 * 64  # elements of a tile that is contiguous along two axes
INTERPRETER_LANES = 1 << 18
WARPS = (1, 2, 4, 8, 16, 32)
RANGES = {  # of what the caller may set
    "stages": range(1, 17),  # copies of a block that a pipelined loop keeps
    "group": range(1, 4097),  # rows of tiles that are walked together
    "persistent": range(1, (1 << 16) + 1),  # programs that run at once
    "registers": range(32, 256),  # of a thread
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one kernel runs. Fields that are missing here are those of `Program` (minitri/tiles/ir.py).

    axes               name → (role, block)
    rule               the rule that chose this schedule, for people
    group              None leaves the choice to optimize/program_order.py
    near               a second loop over the same elements reads them from a cache, so that an online
                       reduction would gain nothing
    descriptor_stores  a persistent kernel stores through tensor descriptors too
    """

    axes: Mapping[str, tuple[str, int]]
    warps: int = 4
    stages: int = 3
    group: int | None = None
    rule: str = ""
    descriptors: bool = False
    persistent: int = 0
    registers: int = 0
    near: bool = False
    descriptor_stores: bool = False

    @property
    def looped(self) -> list[str]:
        return [name for name, (role, _) in self.axes.items() if role == "loop"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may decide about schedules; None leaves a decision to the rules.

    blocks       block sizes by axis: {"i": 3}
    warps        warps of one program
    stages       blocks that a pipelined loop keeps in flight
    group        tiles that run side by side (rasterisation)
    descriptors  True: loads go through tensor descriptors, and stores of persistent kernels if there is room
    persistent   the number of programs of a persistent kernel
    registers    the most registers of a thread (NVIDIA)

    CompileError MT0404 if a value can be right for no program.
    """

    blocks: Mapping[str, int] = field(default_factory=dict)
    warps: int | None = None
    stages: int | None = None
    group: int | None = None
    descriptors: bool | None = None
    persistent: int | None = None
    registers: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.blocks, Mapping):
            raise _bad("blocks", type(self.blocks).__name__, 'a size for each axis: `blocks={"i": 64}`')
        for name, block in self.blocks.items():
            if not _natural(block) or block > MAX_LANES:
                raise _bad(f"the block of `{str(name)[:40]}`", block, f"a whole number from 1 to {MAX_LANES:,}")
        if self.warps is not None and (not _natural(self.warps) or self.warps not in WARPS):
            raise _bad("warps", self.warps, f"one of {', '.join(map(str, WARPS))}")
        if not isinstance(self.descriptors, (bool, type(None))):
            raise _bad("descriptors", self.descriptors, "True or False")
        for name, numbers in RANGES.items():
            value = getattr(self, name)
            if value is not None and (not _natural(value) or value not in numbers):
                raise _bad(name, value, f"a whole number from {numbers[0]:,} to {numbers[-1]:,}")


def _natural(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _bad(what: str, value: object, wanted: str) -> CompileError:
    shown = value if isinstance(value, (int, float, str)) else type(value).__name__
    return CompileError("MT0404", f"{what} cannot be {str(shown)[:40]}", help=f"write {wanted}")


def schedule(kernel: Kernel, interpreter: bool = False, options: Options = Options(), chip: Chip = H200) -> Schedule:
    """`chip`: what the cost models plan for (`chip_of(target)`); without one, for the target `cuda:90`."""
    group = loop_of_products(kernel)
    if group is not None:
        chosen = _looped_products(kernel, group, interpreter, chip, options.descriptors is not False)
    elif any(isinstance(op, Dot) for op in kernel.body):
        chosen = _product(kernel, interpreter, chip)
    elif kernel.reduced:
        chosen = _interpreted_rows(kernel) if interpreter else _rows(kernel, chip)
    else:
        chosen = _elementwise(kernel, interpreter)
    chosen = _with_options(chosen, options, _least(kernel))
    stores = group is None and _are_stores_described(kernel, chosen, chip.shared)  # a group holds more in shared memory
    return replace(chosen, descriptor_stores=stores)


def _least(kernel: Kernel) -> dict[str, int]:
    """`tl.dot` has at least 16 of each of its axes."""
    dots = [op for op in kernel.body if isinstance(op, Dot)]
    loop = loop_of_products(kernel)
    if loop is not None:  # what is held whole stays whole
        return {name: 16 for name in (dots[0].tile[0], loop)}
    return {name: 16 for d in dots for name in (*d.tile, d.over)}


def _with_options(chosen: Schedule, options: Options, least: Mapping[str, int]) -> Schedule:
    """`least`: for a product the blocks its own axes need; its other axes, batches, stay one index a program."""
    wanted = {name: options.blocks.get(name) for name in chosen.axes if not least or name in least}
    blocks = {name: max(block, least.get(name, 1)) for name, block in wanted.items() if block is not None}
    axes = {name: _wanted(role, block, blocks.get(name)) for name, (role, block) in chosen.axes.items()}
    own = not (options.blocks or options.warps or options.stages)  # the rule is for its own tile
    described = chosen.descriptors and own if options.descriptors is None else options.descriptors
    turns = options.persistent or (chosen.persistent if described else 0)
    return replace(
        chosen, axes=axes, warps=options.warps or chosen.warps, stages=options.stages or chosen.stages,
        group=options.group or chosen.group, descriptors=described, persistent=turns, near=chosen.near and own,
        registers=options.registers or (chosen.registers if own else 0),
        rule=chosen.rule + ", one after the other" * (turns > 0) + ", from a near cache" * (chosen.near and own),
    )  # fmt: skip


def _wanted(role: str, block: int, wanted: int | None) -> tuple[str, int]:
    """The role and the block of an axis for which the caller wants the block `wanted`.

    On a grid axis any block is possible. Other blocks are powers of two. A whole axis becomes a loop if the
    caller wants smaller blocks.
    """
    if wanted is None:
        return role, block
    if role == "grid":
        return role, wanted
    return "loop" if ceil_pow2(wanted) < block else role, ceil_pow2(wanted)


# ---- elementwise -----------------------------------------------------------------------


def _elementwise(kernel: Kernel, interpreter: bool) -> Schedule:
    if not kernel.axes:
        return Schedule({}, warps=1, rule="one element")
    weight, bytes = contiguity(kernel), widest_bytes(kernel)
    order = innermost(kernel.axes, weight)
    first, rival = order[0], order[1] if len(order) > 1 else None
    if rival is not None and weight[rival.name] * 8 > weight[first.name] > 0 and not interpreter:
        side = 128 if bytes <= 2 else 64
        blocks = filled(order, SQUARE, filled([first], side) | filled([rival], side))
        shape = "a square" if blocks[first.name] == blocks[rival.name] else "a rectangle"
        warps, rule = 8, f"{shape}: two axes are contiguous"
    else:
        blocks = filled(order, INTERPRETER_LANES if interpreter else 2048 if bytes <= 2 else ENOUGH)
        warps, rule = 4, f"elements, contiguous along {first.name}"
    return Schedule({a.name: ("grid", blocks[a.name]) for a in kernel.axes}, at_most(warps, blocks), rule=rule)


# ---- reductions ------------------------------------------------------------------------


def _rows(kernel: Kernel, chip: Chip) -> Schedule:
    axes, warps, rule, near = reductions.rows(kernel, chip)
    return Schedule({a.name: axes[a.name] for a in kernel.axes}, warps, rule=rule, near=near)


def _interpreted_rows(kernel: Kernel) -> Schedule:
    lanes = INTERPRETER_LANES
    axes: dict[str, tuple[str, int]] = {}
    for a in reversed(kernel.reduced):
        block = ceil_pow2(size(a, 1024))
        whole = block <= lanes and a.extent.constant is not None
        axes[a.name] = ("whole", block) if whole else ("loop", min(lanes, block))
        lanes = max(1, lanes // axes[a.name][1])
    for a in reversed(kernel.parallel):
        block = min(lanes, ceil_pow2(size(a, 1024)))
        axes[a.name] = ("grid", block)
        lanes = max(1, lanes // block)
    return Schedule({a.name: axes[a.name] for a in kernel.axes}, rule="as much as fits, for the interpreter")


# ---- products --------------------------------------------------------------------------


def _product(kernel: Kernel, interpreter: bool, chip: Chip) -> Schedule:
    """Tiles of a matrix product; every other parallel axis is a batch, one index a program."""
    dots = [op for op in kernel.body if isinstance(op, Dot)]
    row, column = dots[0].tile
    over = {d.over for d in dots}
    named = {a.name: a for a in kernel.axes}
    m, n = size(named[row], 4096), size(named[column], 4096)
    k, batch = max(size(named[a], 4096) for a in over), _batch(kernel, row, column)
    if interpreter:
        tile, described, turns = products.Walk(products.Tile(256, 256, 256, 4, 1))
    else:
        tile, described, turns = products.walk(kernel, m, n, k, batch, chip)
    bm, bn = (min(b, max(16, ceil_pow2(e))) for b, e in ((tile.rows, m), (tile.columns, n)))
    bk = min(tile.depth, max(16 if dots[0].a.dtype.bits >= 16 else 32, ceil_pow2(k)))
    axes = {a.name: ("grid", 1) for a in kernel.axes}
    axes |= {row: ("grid", bm), column: ("grid", bn)} | {a: ("loop", bk) for a in over}
    return Schedule(
        {a.name: axes[a.name] for a in kernel.axes}, tile.warps, tile.stages, 8,
        f"a product in tiles of {bm} by {bn}", descriptors=described, persistent=turns,
    )  # fmt: skip


def _looped_products(kernel: Kernel, loop: str, interpreter: bool, chip: Chip, described: bool) -> Schedule:
    """The schedule of products that share `loop` with other reductions, such as attention.

    A program keeps its rows and iterates over `loop`. All other axes of the products are whole.
    `described`: tensor descriptors may load the operands.
    """
    dots = [op for op in kernel.body if isinstance(op, Dot)]
    named = {a.name: a for a in kernel.axes}
    row, whole = dots[0].tile[0], held(kernel)
    walks = f"rows of a product stay with a program, which walks {loop}"
    if interpreter:
        chosen = attention.Round(256, 256, 4, 1)
    else:
        m, batch = size(named[row], 4096), _batch(kernel, row, *whole)
        steps = size(named[loop], 4096)
        left = walked(kernel, named[row], named[loop], m, steps)
        extents = {a: size(named[a], 1) for a in whole}
        task = attention.Task(batch, m, steps, left)
        chosen = attention.round_within(chip, kernel, row, loop, extents, task, described)
        if 0 < left < steps == named[loop].extent.constant:
            walks += f": of its {steps} indices conditions leave {left} to a row"
    axes = {a.name: ("whole", max(16, ceil_pow2(size(a, 1)))) if a.name in whole else ("grid", 1) for a in kernel.axes}
    axes[row] = ("grid", min(chosen.rows, max(16, ceil_pow2(size(named[row], chosen.rows)))))
    axes[loop] = ("loop", min(chosen.block, max(16, ceil_pow2(size(named[loop], chosen.block)))))
    return Schedule(
        axes, chosen.warps, chosen.stages, rule=walks, descriptors=chosen.descriptors, registers=chosen.registers
    )


def _are_stores_described(kernel: Kernel, chosen: Schedule, shared: int) -> bool:
    """Whether a persistent kernel of products stores through tensor descriptors too."""
    dots = [op for op in kernel.body if isinstance(op, Dot)]
    if not (dots and chosen.descriptors and chosen.persistent):
        return False
    rows, columns, depth = (chosen.axes[name][1] for name in (*dots[0].tile, dots[0].over))
    tile = products.Tile(rows, columns, depth, chosen.warps, chosen.stages)
    return products.stores_fit(kernel, dots, tile, shared)


def _batch(kernel: Kernel, *others: str) -> int:
    """How often there is a product: the indices of the parallel axes that are no part of one."""
    return math.prod(size(a, 1) for a in kernel.parallel if a.name not in others)
