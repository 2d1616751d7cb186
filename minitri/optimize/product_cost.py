"""A cost model of matrix products: finds the best tile size, and the best number of parts of the summed axis.

    x @ w.mT          x: f32[512, 1024], w: f32[512, 1024]          tiles of 64 by 64

A result of 512 by 512 elements has 64 tiles of 64 by 64, so half of a chip with 132 multiprocessors would be idle. If
the depth (the axis that is summed over) is divided into four parts for each of 64 tiles, there are 256 grid programs.
If a depth of 1024 indices is divided into four parts, each grid program sums over 256 indices. If the depth is divided
into parts, a second kernel adds the results of the parts (split_k.py). The estimated time is a sum of three terms:

    start-up time for each wave of programs + blocks of depth * time of a block + second kernel

If the depth is divided into parts, fewer multiprocessors are idle in the last wave (the last group of programs that run
at once). For example, a product of 72 tiles takes one wave. In this wave, 60 of 132 multiprocessors are idle. If the
depth of each of the 72 tiles is divided into three parts, 216 programs run in two waves on 132 multiprocessors. Each
program sums over a third of the depth, so a wave takes a third of the time. Together, the two waves take 2/3 of the
time that the single wave takes without parts. If a product spends most of its time reading its factors from memory,
dividing the summed axis into parts saves little time.

The estimated time of copying a factor is the time in which the memory of the chip reads and writes the factor once.

The function `cheapest` takes a chip, the sizes of a product, and some tiles with their times (`Pace`). The argument
`parts` of `cheapest` lists into how many parts the depth may be split. The function `cheapest` returns the choice with
the least estimated time: a tile and a number of parts. The file product_times.toml has the times of tiles on an H200.
The file says which of the times are measured and which are estimated.
"""

import math
from collections.abc import Iterable
from itertools import product, starmap
from typing import NamedTuple

from minitri.base.toml_tables import table_beside
from minitri.base.types import DType
from minitri.hardware.chips import H200, Chip

STEP = 128  # the depth for which a pace gives times
SECOND = 2.2  # microseconds that a second kernel takes if it adds or copies few numbers
ADDED = 6.5e6  # bytes of partial sums that are written and read in a microsecond
REACHED = 0.89  # the share of the bandwidth of a chip's memory that a copy reaches


class Pace(NamedTuple):
    """How long a grid program takes to compute one tile of a matrix product, in microseconds. The tile has `rows` rows
    and `columns` columns.

    `alone`: the time for STEP (128) indices of the summed axis, if a multiprocessor runs only this program.
    `beside`: the time that each of two programs on one multiprocessor takes for STEP (128) indices of the summed axis.
    `most`: the largest number of programs that run on a multiprocessor at once.
    `start`: the time that a program spends before its first block is loaded and after its last block.
    """

    rows: int
    columns: int
    alone: float
    beside: float
    most: int
    start: float

    def time(self, chip: Chip, programs: int, depth: float) -> float:
        """Returns the estimated time of all programs in microseconds. The argument `programs` is the number of
        programs, and the argument `depth` is the number of elements over which each program sums.
        """
        load = -(-programs // chip.multiprocessors)  # programs on the busiest multiprocessor
        pairs = -(-load // 2) if self.most == 2 else load / 2  # if a third program fits, it runs as well
        step = self.alone if load <= 1 else self.beside * pairs
        return self.start * -(-load // self.most) + step * depth / STEP


# The times of tiles, by what is multiplied (see `kind_of`).
PACES = {kind: [Pace(*row) for row in rows] for kind, rows in table_beside(__file__, "product_times.toml").items()}


def kind_of(precision: str, factor: DType) -> str:
    """Returns the key of the table PACES (times of tiles) for a product, such as "tf32". For factors of 16 bits, the
    key is "16".
    """
    return precision if precision.startswith("tf32") else str(max(16, factor.bits))


def time_of_copy(chip: Chip, elements: int) -> float:
    """Returns the estimated time in microseconds of a kernel that copies an f32 array of `elements` elements."""
    peak = chip.peak or H200.peak
    assert peak is not None
    return SECOND + (4 + 4) * elements / (peak.bandwidth * REACHED) * 1e6


class Choice(NamedTuple):
    """How a product is divided: its tile, and the number of parts of its summed axis.

    The field `time` is the estimated time of the product in microseconds.
    """

    parts: int
    pace: Pace
    time: float


def cheapest(
    chip: Chip, paces: Iterable[Pace], parts: Iterable[int], *sizes: int, step: int = 1, loading: float = 0.0
) -> Choice:
    """Returns the number of parts and the tile (`Pace`) that have the least estimated time. The candidates for the tile
    are `paces`, and the candidates for the number of parts are `parts`. The arguments `sizes` are the number of
    products in the batch, the rows, the columns and the depth. The depth (the summed axis) is divided into parts, whose
    length is a multiple of `step`. The argument `loading` is the time in microseconds for reading the factors from
    memory once. Among choices with equal times, the choice with the fewest parts is returned.
    """
    batch, rows, columns, depth = sizes

    def choice(count: int, pace: Pace) -> Choice:
        programs = count * batch * -(-rows // pace.rows) * -(-columns // pace.columns)
        computing = pace.time(chip, programs, -(-depth // (count * step)) * step)
        sums = (4 + 4) * count * batch * rows * columns  # bytes, written and read
        second = 0.0 if count == 1 else SECOND + sums / ADDED
        return Choice(count, pace, math.hypot(loading, computing) + second)

    return min(starmap(choice, product(parts, paces)), key=lambda c: c.time)
