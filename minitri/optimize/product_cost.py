"""A cost model of matrix products: the best size of a tile, and the best number of parts of the depth.

    x @ w.mT          x: f32[512, 1024], w: f32[512, 1024]          tiles of 64 by 64

A result of 512 by 512 elements has 64 tiles of 64 by 64, so half of a chip with 132 multiprocessors would be idle. If
the depth (the axis that is summed over) is divided into four parts for each of 64 tiles, there are 256 grid programs.
If a depth of 1024 indices is divided into four parts, each grid program sums over 256 indices. If the depth is divided
into parts, a second kernel adds the results of the parts (split_k.py). The estimated time adds the start-up of each
wave of programs, the time of all blocks of the depth, and a second kernel:

    start-up time for each wave of programs + blocks of depth * time of a block + second kernel

If the depth is divided into parts, fewer multiprocessors are idle in the last wave (the last group of programs that run
at once). For example, a product of 72 tiles takes one wave, in which 60 of 132 multiprocessors are idle. If the depth
of each of the 72 tiles is divided into three parts, 216 programs run in two waves on 132 multiprocessors. Two waves of
programs that sum over a third of the depth take 2/3 of the time of a wave over the whole depth. If reading the factors
from memory takes most of the time, dividing the depth into parts saves little time.

A copy of a factor takes the time in which the memory of the chip reads and writes the factor once.

In: a chip, the sizes of a product, some tiles with their times (`Pace`), and the allowed numbers of parts of the depth.
Out: the tile and the number of parts that have the least estimated time. The times of TF32 parts were measured on an
H200. For 16-bit factors, the time of the largest tile was chosen so that the estimates for three products agree with
measurements on an H200. Times that were not measured are estimated from the time of the largest tile, and from the
speed of smaller tiles relative to it.
"""

import math
from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from minitri.base.types import DType
from minitri.hardware.chips import H200, Chip

STEP = 128  # the depth for which a pace gives times
START = 2.4  # an estimate: the start and the end of a program take as long as START * STEP indices of the depth
SECOND = 2.2  # microseconds that a second kernel takes if it adds or copies few numbers
ADDED = 6.5e6  # bytes of partial sums that are written and read in a microsecond
REACHED = 0.89  # the share of the bandwidth of a chip's memory that a copy reaches


class Pace(NamedTuple):
    """The time in microseconds that a tile of `rows` rows and `columns` columns takes for STEP indices of the depth.

    alone    the time with one program on a multiprocessor
    beside   the time with another program on the same multiprocessor
    most     how many programs fit on a multiprocessor
    start    the time before a program has its first block, plus the time after its last block
    """

    rows: int
    columns: int
    alone: float
    beside: float
    most: int
    start: float = 1.0

    def time(self, chip: Chip, programs: int, depth: float) -> float:
        """Returns the estimated time of all programs in microseconds. The argument `programs` is the number of
        programs, and the argument `depth` is the number of elements over which each program sums.
        """
        load = -(-programs // chip.multiprocessors)  # programs on the busiest multiprocessor
        pairs = -(-load // 2) if self.most == 2 else load / 2  # if a third program fits, it runs as well
        step = self.alone if load <= 1 else self.beside * pairs
        return self.start * -(-load // self.most) + step * depth / STEP


# The times of products of f32 arrays that are computed from TF32 parts (f32_products.py).
TF32_PARTS = (
    Pace(128, 128, 6.8, 13.6, 1, 3.8), Pace(64, 128, 4.7, 7.6, 2, 2.4), Pace(64, 64, 2.8, 4.6, 3)
)  # fmt: skip


def _paces(time: float, *tiles: tuple[int, int, float]) -> tuple[Pace, ...]:
    """Returns how long each tile takes, as a `Pace`. The argument `tiles` lists the rows, the columns and the speed of
    each tile. The speed of a tile is relative to the speed of the first tile. The argument `time` is the number of
    microseconds that the first tile takes for STEP (128) indices of the summed axis. One program fits on a
    multiprocessor.
    """
    first, works = tiles[0], [(m, n, time * m * n / speed) for m, n, speed in tiles]
    area = first[0] * first[1]
    return tuple(Pace(m, n, work / area, 2 * work / area, 1, START * work / area) for m, n, work in works)


# The times of products by what multiplies; only those of TF32 parts were measured tile by tile. The tiles of schedules/tiles.toml have the same order.
PACES = {
    "16": _paces(1.3, (128, 256, 1.0), (128, 128, 0.85), (64, 128, 0.7), (64, 64, 0.5)),
    "tf32": _paces(2.7, (128, 256, 1.0), (128, 128, 0.95), (64, 128, 0.7), (64, 64, 0.5)),
    "tf32x3": TF32_PARTS,
    "32": (Pace(128, 64, 6.7, 13.4, 3, 0.5), Pace(64, 64, 4.5, 6.8, 4, 0.5)),
    "64": _paces(5.6, (64, 64, 1.0)),
}


def kind_of(precision: str, factor: DType) -> str:
    """Returns the key for a product in the table PACES (times of tiles), for example "tf32", or "16" for factors of 16
    bits.
    """
    return precision if precision.startswith("tf32") else str(max(16, factor.bits))


def time_of_copy(chip: Chip, elements: int) -> float:
    """Returns the estimated time in microseconds of a kernel that copies an f32 array of `elements` elements."""
    peak = chip.peak or H200.peak
    assert peak is not None
    return SECOND + (4 + 4) * elements / (peak.bandwidth * REACHED) * 1e6


def time(
    chip: Chip,
    parts: int,
    pace: Pace,
    batch: int,
    rows: int,
    columns: int,
    depth: int,
    step: int = 1,
    loading: float = 0.0,
) -> float:
    """Returns the estimated time, in microseconds, of a product whose depth (the summed axis) is divided into parts.

    The argument `parts` is the number of parts. The length of a part is a multiple of the argument `step`. The argument
    `loading` is the time, in microseconds, that reading the factors once from memory takes.
    """
    programs = parts * batch * -(-rows // pace.rows) * -(-columns // pace.columns)
    computing = pace.time(chip, programs, -(-depth // (parts * step)) * step)
    sums = (4 + 4) * parts * batch * rows * columns  # bytes, written and read
    return math.hypot(loading, computing) + (0.0 if parts == 1 else SECOND + sums / ADDED)


def cheapest(
    chip: Chip, paces: Iterable[Pace], parts: Iterable[int], *sizes: int, step: int = 1, loading: float = 0.0
) -> tuple[int, Pace]:
    """Returns the number of parts and the tile (`Pace`) that have the least estimated time. The arguments `paces` and
    `parts` give the choices. The arguments `chip`, `sizes`, `step` and `loading` are passed to the function `time`,
    which estimates the time of each choice. Among choices with equal times, the choice with the fewest parts is
    returned.
    """
    return min(product(parts, paces), key=lambda choice: time(chip, *choice, *sizes, step=step, loading=loading))
