"""The schedule of a kernel: the role of each axis (grid, whole or loop) and the block sizes.

    x + y, x: f32[M, 300]            {i: grid 2, j: grid 512}           1024 elements a program
    sum(x, axis=1)                   {i: grid 8, r: whole 512}          a row that fits in a tile stays in registers
    x @ w                            {i: grid 64, r: loop 32, j: grid 64}

The function `plain` takes a kernel, and returns a `Schedule`. Sizes of the kernel can be unknown. An axis of unknown
size gets a block size that is correct for every size.

The one idea: the plain schedule is correct for every kernel and every target, but is not tuned for speed. The function
`with_options` changes a schedule according to the `Options` that the caller sets. The rules that make programs fast are
in minitri/optimize/schedules/rule_table.py. If no rule fits a kernel, the kernel gets the plain schedule.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from minitri.base.diagnostics import CompileError, listed, misspelt
from minitri.base.nodes import Record
from minitri.base.resource_limits import MAX_LANES
from minitri.base.toml_tables import table_beside
from minitri.kernels.ir import Axis, Dot, Kernel, Plan, Store
from minitri.tiles.ir import LaunchOptions, Program

WARPS = (1, 2, 4, 8, 16, 32)
OPTIONS = table_beside(__file__, "options.toml")
RANGES = {name: range(row["least"], row["most"] + 1) for name, row in OPTIONS.items() if row}
LEAST = 16  # the shortest axis that `tl.dot` accepts
UNKNOWN = 1024  # the size that the plain schedule assumes for an unknown extent


class Schedule(LaunchOptions):
    """How one kernel is divided into grid programs and loops, and the launch options of its tile program.

    `axes`: a dict from an axis to its role and its block size. If an axis is not in the dict, each grid program
        computes only one index of this axis.
    `rule`: a description of the rule that chose this schedule.
    `near`: whether a cache still contains the elements of one loop when a second loop reads the same elements. If
        `near` is true, replacing the two loops by one (an online reduction) saves nothing.
    """

    axes: Mapping[str, tuple[str, int]]
    rule: str = ""
    near: bool = False

    @property
    def looped(self) -> list[str]:
        return [name for name, (role, _) in self.axes.items() if role == "loop"]


class Options(Record):
    """The caller's decisions about schedules. If an option is None, the schedule rules decide.

    `blocks`: the block sizes, by the name of the axis, such as {"i": 3}.
    `warps`: the number of warps that run one grid program.
    `stages`: the number of blocks that a pipelined loop keeps in flight (Triton's `num_stages`).
    `group`: how many tiles along the last-but-one grid axis have consecutive numbers (rasterisation).
    `descriptors`: whether loads use tensor descriptors. If `descriptors` is True, a persistent kernel with enough
        shared memory also uses tensor descriptors for its stores.
    `persistent`: the number of grid programs of a persistent kernel.
    `registers`: the most registers that a thread may use (NVIDIA).

    Raises CompileError MT0404 if the value of an option is wrong for every program.
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
            raise _invalid("blocks", type(self.blocks).__name__, 'a size for each axis: `blocks={"i": 64}`')
        for name, block in self.blocks.items():
            _require(f"the block of `{str(name)[:40]}`", block, range(1, MAX_LANES + 1))
        if not isinstance(self.descriptors, (bool, type(None))):
            raise _invalid("descriptors", self.descriptors, "True or False")
        for name, numbers in {"warps": WARPS, **RANGES}.items():
            if (value := getattr(self, name)) is not None:
                _require(name, value, numbers)


def _require(what: str, value: object, numbers: Sequence[int]) -> None:
    """Raises CompileError MT0404 unless `value` is one of `numbers`."""
    if not isinstance(value, int) or isinstance(value, bool) or value not in numbers:
        many = f"a whole number from {numbers[0]:,} to {numbers[-1]:,}"
        raise _invalid(what, value, many if isinstance(numbers, range) else f"one of {', '.join(map(str, numbers))}")


def _invalid(what: str, value: object, wanted: str) -> CompileError:
    shown = value if isinstance(value, (int, float, str)) else type(value).__name__
    return CompileError("MT0404", f"{what} cannot be {str(shown)[:40]}", help=f"write {wanted}")


# ---- the plain schedule ------------------------------------------------------------------


class TileSizes(Record):
    """Tile sizes of the plain schedule, which does not depend on the hardware.

    `elements`: the number of elements of a tile in an elementwise kernel.
    `reduced`: the number of elements in the operand tile of a reduction.
    `side`: the number of rows, and of columns, in a tile of a product.
    `depth`: the number of indices that a product sums over in one iteration.
    """

    elements: int = 1024
    reduced: int = 4096
    side: int = 64
    depth: int = 32


# In the interpreter, a grid program costs a millisecond, however many elements it has.
INTERPRETER = TileSizes(1 << 18, 1 << 18, side=256, depth=256)


def plain(kernel: Kernel, sizes: TileSizes = TileSizes()) -> Schedule:
    """Returns the plain schedule of a kernel. A plain schedule depends on no properties of the hardware, and every
    kernel has a plain schedule.
    """
    if kernel.dots:
        return _plain_product(kernel, sizes)
    axes: dict[str, tuple[str, int]] = {}
    left = sizes.reduced if kernel.reduced else sizes.elements
    for a in (*reversed(kernel.reduced), *reversed(kernel.parallel)):
        block = min(left, ceil_pow2(size(a, UNKNOWN)))
        whole = a.extent.constant is not None and a.extent.constant <= block
        axes[a.name] = ("grid" if a.role == "parallel" else "whole" if whole else "loop", block)
        left //= block
    rule = "as much of a row as fits in a tile" if kernel.reduced else "as many elements as fit in a tile"
    return Schedule(axes, rule=rule)


def _plain_product(kernel: Kernel, sizes: TileSizes) -> Schedule:
    """Returns the plain schedule of a kernel with matrix products, without software pipelining."""
    first, held = kernel.dots[0], kernel.held
    summed = {d.over for d in kernel.dots} - held
    extents = {a.name: size(a, UNKNOWN) for a in kernel.axes}
    deepest = max((extents[name] for name in summed), default=1)  # separate loops have equal blocks
    # if one grid program computes all indices of some axes, tiles have few rows, to fit into shared memory
    side = sizes.depth if held else sizes.side

    def planned(a: Axis) -> tuple[str, int]:
        role = "grid" if a.role == "parallel" else "loop"
        if a.name in held:
            return "whole", max(LEAST, ceil_pow2(size(a, 1)))
        if a.name in summed:
            return role, deep(first, deepest, sizes.depth)
        return role, fitting(a, side) if any(a.name in d.tile for d in kernel.dots) else 1  # 1 for a batch axis

    axes = {a.name: planned(a) for a in kernel.axes}
    rows, columns = (axes[name][1] for name in first.tile)
    rule = f"a product in tiles of {rows} by {columns}"
    if kernel.shared_loop is not None:
        rule = f"rows of a product stay with a program, which walks {kernel.shared_loop}"
    return Schedule(axes, stages=1, rule=rule)


def ceil_pow2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def size(axis: Axis, unknown: int) -> int:
    return unknown if axis.extent.constant is None else max(1, axis.extent.constant)


def fitting(axis: Axis, most: int) -> int:
    """Returns the block size of a row or column axis. The block size is the axis size, rounded up to a power of two,
    and limited to the range from `LEAST` to `most`. `LEAST` is the minimum of `tl.dot`.
    """
    return min(most, max(LEAST, ceil_pow2(size(axis, most))))


def deep(dot: Dot, extent: int, most: int) -> int:
    """Returns the block size of the axis that a product sums over. Along the summed axis, `tl.dot` needs at least 16
    indices, or 32 if elements have 8 bits.
    """
    return min(most, max(LEAST if dot.a.dtype.bits >= 16 else 2 * LEAST, ceil_pow2(extent)))


# ---- the caller's options ----------------------------------------------------------------


def _least_blocks(kernel: Kernel) -> dict[str, int]:
    """Returns the smallest block sizes that a caller can choose for the axes of products."""
    if kernel.shared_loop is not None:
        return {name: LEAST for name in (kernel.dots[0].tile[0], kernel.shared_loop)}
    return {name: LEAST for d in kernel.dots for name in (*d.tile, d.over)}


def with_options(kernel: Kernel, chosen: Schedule, options: Options) -> Schedule:
    """Returns the schedule, changed by the caller's options. For a batch axis of a product, the caller's block size is
    ignored, because a grid program always works on one batch index.
    """
    least = _least_blocks(kernel)
    wanted = {a.name: options.blocks.get(a.name) for a in kernel.axes if not least or a.name in least}
    blocks = {name: max(block, least.get(name, 1)) for name, block in wanted.items() if block is not None}
    axes = {a.name: _with_block(*chosen.axes.get(a.name, ("grid", 1)), blocks.get(a.name)) for a in kernel.axes}
    own = not (options.blocks or options.warps or options.stages)  # other choices of the rule fit the rule's tile only
    described = chosen.descriptors and own if options.descriptors is None else options.descriptors
    programs = options.persistent or (chosen.persistent if described else 0)
    return replace(
        chosen, axes=axes, warps=options.warps or chosen.warps, stages=options.stages or chosen.stages,
        group=options.group or chosen.group, descriptors=described, persistent=programs, near=chosen.near and own,
        registers=options.registers or (chosen.registers if own else 0),
        rule=chosen.rule + ", one after the other" * (programs > 0) + ", from a near cache" * (chosen.near and own),
    )  # fmt: skip


def _with_block(role: str, block: int, wanted: int | None) -> tuple[str, int]:
    """Returns the role and block size of an axis, changed by the caller's block size `wanted`."""
    if wanted is None:
        return role, block
    if role == "grid":
        return role, wanted  # any block size
    # a power of two; an axis with all indices in one block gets a loop if the caller wants smaller blocks
    return "loop" if ceil_pow2(wanted) < block else role, ceil_pow2(wanted)


def check_axes(options: Options, plan: Plan, general: Callable[[], Iterable[Plan]]) -> None:
    """Raises CompileError MT0404 if `options` has a block size for an axis that no plan of the program has.

    A plan contains the kernels of a program. The function `general` makes plans for other array sizes, or for symbolic
    sizes. A program can lose an axis for some sizes, for example if the axis has length 1 or is merged into its
    neighbour. If one of the plans from `general` has the axis, `check_axes` raises no error. A caller can tune block
    sizes for arrays of one shape, and use the same block sizes for all shapes.
    """
    missing = [name for name in options.blocks if name not in axis_names(plan)]
    if not missing:
        return
    known = sorted({name for other in general() for name in axis_names(other)} | set(axis_names(plan)))
    for wrong in (name for name in missing if name not in known):
        there = f"its axes: {listed([f'`{n}`' for n in known])}" if known else "no kernel has axes"
        help = f"{there}; `minitri compile --emit=kernels` shows them"
        raise misspelt("MT0404", "blocks: no kernel has an axis", wrong, known, help)


def axis_names(plan: Plan) -> list[str]:
    """Returns the names of the axes of all kernels of a plan."""
    return list(dict.fromkeys(a.name for kernel in plan.kernels for a in kernel.axes))


def check_lanes(program: Program) -> None:
    """Raises CompileError MT0404 if a tile of the program has more elements than Triton allows."""
    block = {a.name: a.block for a in program.axes}
    for op in program.ops():
        stored = op.indexed_by if isinstance(op, Store) else set[str]()
        axes = [name for name in block if name in op.axes or name in stored]
        lanes = math.prod(ceil_pow2(block[name]) for name in axes)
        if lanes > MAX_LANES:
            shown = " by ".join(f"{name} = {block[name]:,}" for name in axes)
            message = f"{program.name} has a tile of {shown}: {lanes:,} elements, and Triton takes {MAX_LANES:,}"
            raise CompileError("MT0404", message, help="give one of these axes a smaller block")
