"""Chooses tiles for products that share a loop with other reductions (attention).

    for r { scores of some rows, by a product; their maximum; sums; another product }

The function `tile_within` takes the matrix products of a loop, and returns an `AttentionTile`. An `AttentionTile` has
the number of rows that a grid program computes, and the number of loop indices in a block. An `AttentionTile` also says
how many warps a program has, and how the program loads blocks. A grid program computes some rows of one matrix of the
batch. In each iteration of its loop, the program loads one block. Along each axis of the products, except the batch,
the rows and the loop's axis, a program keeps all elements in registers. The rules take the number of multiprocessors
from the description of the chip. The numbers in this module were measured on an H200, which has 65,536 registers on
each multiprocessor.

  - Many rows: a tile has many rows if there are enough such tiles for all multiprocessors. A tile has few rows if masks
    leave each row only a short part of the loop. This rule does not hold for products of 128 columns whose blocks are
    loaded by tensor descriptors.
  - Descriptors: tensor descriptors load complete blocks if there is enough work. A program then has eight warps with
    128 registers per thread, which are half of the registers of a multiprocessor. While one program waits for its
    products, another program computes exponentials. Most attention loops with descriptors are pipelined
    (minitri/optimize/software_pipelining.py).
  - More values: more than two products, or a value loaded for each score, leave fewer registers for rows.
  - Few rows: with 16 rows or fewer, loading takes most of the time, so a tile has only 16 rows.
  - Wide elements: elements of 32 bits, or more than 128 columns, need small blocks.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minitri.hardware.chips import Chip
from minitri.kernels.ir import Dot, Kernel, Load, Op
from minitri.optimize.schedules import products
from minitri.optimize.schedules.products import UNKNOWN, batches, is_described
from minitri.optimize.schedules.rule_arguments import Request
from minitri.optimize.skip_blocks.condition_ranges import average_steps
from minitri.tiles.schedule import LEAST, Schedule, ceil_pow2, fitting, size


class AttentionTile(NamedTuple):
    """The tile that one program of an attention kernel computes, and how the program runs.

    `rows`: the number of rows that one program computes.
    `block`: the number of loop indices (keys) that one iteration covers.
    `warps`: the number of warps of a program.
    `stages`: the number of blocks that are loaded at the same time.
    `descriptors`: whether tensor descriptors load the blocks.
    `registers`: the limit on the registers of a thread. 0 sets no limit.
    """

    rows: int
    block: int
    warps: int
    stages: int
    descriptors: bool = False
    registers: int = 0

    def bytes(self, kernel: Kernel, row: str, loop: str, held: Mapping[str, int]) -> int:
        """Returns how many bytes of shared memory a program needs for loaded blocks and for operands of products.

        The argument `held` has the extents of the axes along which a program processes all elements at once.
        """
        extents = {**held, row: self.rows, loop: self.block}

        def tile(op: Op) -> int:
            return math.prod(1 << (extents.get(a, 1) - 1).bit_length() for a in op.axes) * op.dtype.bytes

        factors = {f: None for d in kernel.dots for f in (d.a, d.b)}
        read = sum(tile(op) for op in kernel.body if isinstance(op, Load) and loop in op.axes)
        stay = sum(tile(f) for f in factors if loop not in f.axes)
        made = sum(tile(d.b) for d in kernel.dots if not isinstance(d.b, Load))
        return self.stages * read + stay + made


class Task(NamedTuple):
    """The sizes of the matrix products that an attention kernel computes in a loop.

    `batch`: the number of products in the batch.
    `rows`: the number of rows of each product.
    `steps`: the number of indices (keys) that the loop covers.
    `average_steps`: the average number of loop indices of a row, without the indices that masks exclude.
    """

    batch: int
    rows: int
    steps: int
    average_steps: int

    def is_filled_by(self, tile: AttentionTile, at_once: int, chip: Chip) -> bool:
        """Checks whether nearly all multiprocessors are busy in each wave of programs (the programs that run at the
        same time). A multiprocessor runs `at_once` programs at the same time.

        If masks make some loops shorter than others, the result for a single wave of programs is False. In a single
        wave, multiprocessors that run short loops are idle until the longest loop ends.
        """
        programs = self.batch * -(-self.rows // tile.rows)
        wave = chip.multiprocessors * at_once
        waves = -(-programs // wave)
        return (waves > 1 or self.average_steps == self.steps) and programs >= FILLED * wave * waves


TABLE = products.TABLE["attention"]
SMALLER = [AttentionTile(*tile) for tile in TABLE["smaller"]]
SMALL = SMALLER[0]
DESCRIBED = [(AttentionTile(*row["tile"]), row["width"], row["least"]) for row in TABLE["described"]]
CANDIDATES = [*(tile for tile, _, _ in DESCRIBED), *(AttentionTile(*tile) for tile in TABLE["others"])]  # to measure
WORTH = 1 << 32  # the fewest operations for descriptors, because they make the launch slower
FAR = 2048  # with this many steps for each row, large tiles pay even if masks shorten the loop
WARPS = 8  # warps whose rows take all registers of a multiprocessor
FILLED = 0.85  # the least share of the waves that must have programs


def attention(kernel: Kernel, request: Request) -> Schedule | None:
    """Returns the schedule of a kernel whose products share a loop with other reductions. Returns None if no product of
    the kernel shares a loop with other reductions.

    Each grid program computes some complete rows of the result in the shared loop.
    """
    loop = kernel.shared_loop
    if loop is None:
        return None
    held, named = kernel.held, {a.name: a for a in kernel.axes}
    row = kernel.dots[0].tile[0]
    m, steps = size(named[row], UNKNOWN), size(named[loop], UNKNOWN)
    left = average_steps(kernel, named[row], named[loop], m, steps)
    extents = {a: size(named[a], 1) for a in held}
    task = Task(batches(kernel, row, *held), m, steps, left)
    tile = tile_within(request.chip, kernel, row, loop, extents, task, request.options.descriptors is not False)
    rule = f"rows of a product stay with a program, which walks {loop}"
    if 0 < left < steps == named[loop].extent.constant:
        rule += f": of its {steps} indices conditions leave {left} to a row"
    axes = {a: ("whole", max(LEAST, ceil_pow2(extent))) for a, extent in extents.items()}
    axes |= {row: ("grid", fitting(named[row], tile.rows)), loop: ("loop", fitting(named[loop], tile.block))}
    return Schedule(
        axes, rule, warps=tile.warps, stages=tile.stages, descriptors=tile.descriptors, registers=tile.registers
    )


def tile_within(
    chip: Chip, kernel: Kernel, row: str, loop: str, held: Mapping[str, int], task: Task, described: bool
) -> AttentionTile:
    """Returns the best tile that fits into shared memory.

    `held`: the extents of the axes that are not divided into blocks.
    `described`: whether tensor descriptors may load the blocks.
    """
    dots = kernel.dots
    scored = [op for op in kernel.body if isinstance(op, Load) and {row, loop} <= set(op.axes)]
    # The loop needs more registers for more than two products, or for a value of two or more bytes, such as a bias,
    # that it loads for each row and key.
    more = len(dots) > 2 or any(op.dtype.bytes > 1 for op in scored)
    widths = set(held.values())
    best = _described(dots, widths, task, more, chip) if described else None
    best = best or _tile(dots, max(widths, default=1), task, more, chip)
    fitting = [r for r in (best, *SMALLER) if r.block <= best.block and r.bytes(kernel, row, loop, held) <= chip.shared]
    return fitting[0] if fitting else SMALLER[-1]


def _tile(dots: Sequence[Dot], width: int, task: Task, more: bool, chip: Chip) -> AttentionTile:
    """Returns an attention tile for loads without tensor descriptors."""
    if max(f.dtype.bits for d in dots for f in (d.a, d.b)) >= 32:
        return AttentionTile(64, 32 if width <= 128 else 16, 4, 2)
    if task.rows <= 16:  # the time is spent on loading
        return AttentionTile(16, 64, 4, 3 if width <= 128 else 2)
    if width > 128:
        return AttentionTile(64, 32, 4, 2)
    if width > 64 and more:  # a larger tile would not fit into registers
        return SMALL
    large = AttentionTile(256, 64, 8, 3) if width > 64 else AttentionTile(128, 64, 4, 4)
    filled = task.is_filled_by(large, WARPS // large.warps, chip)
    # If each row skips a different part of the loop because of masks, a large tile would compute many blocks that only
    # some of its rows need.
    return large if filled and task.average_steps >= min(task.steps, FAR) else SMALL


def _described(dots: Sequence[Dot], widths: set[int], task: Task, more: bool, chip: Chip) -> AttentionTile | None:
    """Returns an attention tile for loads by tensor descriptors, or None if no tile is suitable."""
    work = 2 * task.batch * task.rows * task.average_steps * max(widths, default=1)
    factors = [f for d in dots for f in (d.a, d.b)]
    # descriptors must be able to load the loaded factors, and the widest factor must have 16 bits
    are_read = all(is_described(f) for f in factors if isinstance(f, Load)) and max(f.dtype.bits for f in factors) == 16
    if len(dots) != 2 or work < WORTH or task.rows <= 16 or not are_read:
        return None
    for r, width, least in DESCRIBED:
        fits = widths == {width} and task.steps % r.block == 0 and task.average_steps >= least
        if fits and (r.rows <= 64 or (not more and task.is_filled_by(r, 2, chip))):
            return r
    return None
