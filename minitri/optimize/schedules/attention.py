"""Tiles for products that share a loop with other reductions (attention).

    for r { scores of some rows, by a product; their maximum; sums; another product }

In: the sizes of the products of a loop and their operands. Out: a `Round`: the rows of a program, the length of a block
of the loop, and the warps. All other axes of a product are kept in registers. The chip gives the number of
multiprocessors. The figures were measured on an H200 with 65,536 registers a multiprocessor.

    many rows           if they fill the multiprocessors. Few rows if each row needs a short part of the axis, unless
                        descriptors read products that are 128 wide
    descriptors         read whole blocks, if there is enough work. Eight warps of 128 registers then take half of a
                        multiprocessor: while one program waits for its products, another computes exponentials. Most
                        of these loops are pipelined (minitri/optimize/software_pipelining.py)
    more                than two products, or values that are loaded for each score, leave fewer registers for rows
    few rows            16 or fewer: the time is spent on reading
    wide elements       of 32 bits, or more than 128 columns: small blocks
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minitri.hardware.chips import Chip
from minitri.kernels.ir import Dot, Kernel, Load, Op
from minitri.optimize.schedules.products import UNKNOWN, batches, is_described
from minitri.optimize.schedules.request import Request
from minitri.optimize.skip_blocks.conditions import walked
from minitri.tiles.schedule import LEAST, Schedule, ceil_pow2, fitting, size


class Round(NamedTuple):
    rows: int
    block: int  # elements of the loop
    warps: int
    stages: int
    descriptors: bool = False  # read the blocks
    registers: int = 0  # of a thread, at most (0: as many as it takes)

    def bytes(self, kernel: Kernel, row: str, loop: str, held: Mapping[str, int]) -> int:
        """Of shared memory: the blocks in flight of all arrays that the loop reads, and operands of products."""
        extents = {**held, row: self.rows, loop: self.block}

        def tile(op: Op) -> int:
            return math.prod(1 << (extents.get(a, 1) - 1).bit_length() for a in op.axes) * op.dtype.bytes

        factors = {f: None for d in kernel.dots for f in (d.a, d.b)}
        read = sum(tile(op) for op in kernel.body if isinstance(op, Load) and loop in op.axes)
        stay = sum(tile(f) for f in factors if loop not in f.axes)
        made = sum(tile(d.b) for d in kernel.dots if not isinstance(d.b, Load))
        return self.stages * read + stay + made


class Task(NamedTuple):
    """batch: the number of products; steps: the length of the loop; `walked`: how much of it a row needs on average."""

    batch: int
    rows: int
    steps: int
    walked: int

    @property
    def even(self) -> bool:
        """Whether each row needs as much of the loop as any other."""
        return self.walked == self.steps

    def is_filled_by(self, tile: Round, at_once: int, chip: Chip) -> bool:
        """Whether there are programs for nearly all of the waves that multiprocessors with `at_once` each take. (Of one
        wave of uneven programs the longest would be waited for.)"""
        programs = self.batch * -(-self.rows // tile.rows)
        wave = chip.multiprocessors * at_once
        waves = -(-programs // wave)
        return (self.even or waves > 1) and programs >= FILLED * wave * waves


SMALL = Round(64, 64, 4, 3)
SMALLER = (SMALL, Round(64, 64, 4, 2), Round(64, 32, 4, 2), Round(32, 32, 4, 2), Round(16, 32, 4, 1))
DESCRIBED = (  # the best first; how wide is what is held, and how many steps a row walks, at least
    (Round(128, 128, 8, 2, True, 128), 64, 1024), (Round(64, 128, 4, 2, True), 64, 1024), (Round(64, 64, 4, 2, True), 64, 0),
    (Round(128, 64, 8, 2, True, 128), 128, 0),
)  # fmt: skip
WORTH = 1 << 32  # operations of one product, at least: a launch with descriptors takes the host longer
FAR = 2048  # steps
WARPS = 8  # whose rows take all registers of a multiprocessor
FILLED = 0.85  # of all waves of programs, at least

CANDIDATES = (  # to measure
    *(r for r, _, _ in DESCRIBED), Round(256, 64, 8, 3), Round(128, 64, 4, 4), SMALL, Round(128, 64, 8, 3), Round(16, 64, 4, 3),
)  # fmt: skip


def attention(kernel: Kernel, request: Request) -> Schedule | None:
    """The schedule of products that share a loop with other reductions.

    A program keeps its rows and iterates over the loop. All other axes of the products are whole.
    """
    loop = kernel.shared_loop
    if loop is None:
        return None
    held, named = kernel.held, {a.name: a for a in kernel.axes}
    row = kernel.dots[0].tile[0]
    m, steps = size(named[row], UNKNOWN), size(named[loop], UNKNOWN)
    left = walked(kernel, named[row], named[loop], m, steps)
    extents = {a: size(named[a], 1) for a in held}
    task = Task(batches(kernel, row, *held), m, steps, left)
    chosen = round_within(request.chip, kernel, row, loop, extents, task, request.options.descriptors is not False)
    rule = f"rows of a product stay with a program, which walks {loop}"
    if 0 < left < steps == named[loop].extent.constant:
        rule += f": of its {steps} indices conditions leave {left} to a row"
    axes = {a: ("whole", max(LEAST, ceil_pow2(extent))) for a, extent in extents.items()}
    for role, a, block in (("grid", named[row], chosen.rows), ("loop", named[loop], chosen.block)):
        axes[a.name] = role, fitting(a, block)
    return Schedule(
        axes, chosen.warps, chosen.stages, rule=rule, descriptors=chosen.descriptors, registers=chosen.registers
    )


def round_within(
    chip: Chip, kernel: Kernel, row: str, loop: str, held: Mapping[str, int], task: Task, described: bool
) -> Round:
    """The best round that a program's shared memory holds. `held`: extents of the axes that products have whole;
    `described`: descriptors may read."""
    dots = kernel.dots
    scored = [op for op in kernel.body if isinstance(op, Load) and {row, loop} <= set(op.axes)]
    more = len(dots) > 2 or any(op.dtype.bytes > 1 for op in scored)
    widths = set(held.values())
    best = _described(dots, widths, task, more, chip) if described else None
    best = best or _round(dots, max(widths, default=1), task, more, chip)
    fitting = [r for r in (best, *SMALLER) if r.block <= best.block and r.bytes(kernel, row, loop, held) <= chip.shared]
    return fitting[0] if fitting else SMALLER[-1]


def _round(dots: Sequence[Dot], width: int, task: Task, more: bool, chip: Chip) -> Round:
    """The tile for a task. If rows need different parts of the loop, a large tile computes some blocks without effect.

    `more`: there are more than two products, or a value other than a bool is loaded for each of their elements.
    """
    if max(f.dtype.bits for d in dots for f in (d.a, d.b)) >= 32:
        return Round(64, 32 if width <= 128 else 16, 4, 2)
    if task.rows <= 16:  # little to do but to read
        return Round(16, 64, 4, 3 if width <= 128 else 2)
    if width > 128:
        return Round(64, 32, 4, 2)
    if width > 64 and more:  # than registers hold
        return SMALL
    large = Round(256, 64, 8, 3) if width > 64 else Round(128, 64, 4, 4)
    filled = task.is_filled_by(large, WARPS // large.warps, chip)
    return large if filled and task.walked >= min(task.steps, FAR) else SMALL


def _described(dots: Sequence[Dot], widths: set[int], task: Task, more: bool, chip: Chip) -> Round | None:
    """The first of `DESCRIBED` that suits: products of 16 bits of its width, read by whole blocks."""
    work = 2 * task.batch * task.rows * task.walked * max(widths, default=1)
    factors = [f for d in dots for f in (d.a, d.b)]
    are_read = all(is_described(f) for f in factors if isinstance(f, Load)) and max(f.dtype.bits for f in factors) == 16
    if len(dots) != 2 or work < WORTH or task.rows <= 16 or not are_read:
        return None
    for r, width, least in DESCRIBED:
        fits = widths == {width} and task.steps % r.block == 0 and task.walked >= least
        if fits and (r.rows <= 64 or (not more and task.is_filled_by(r, 2, chip))):
            return r
    return None
