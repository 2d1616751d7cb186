"""A cost model of matrix products: the best size of a tile, and the best number of parts of the depth.

    x @ w.mT          x: f32[512, 1024], w: f32[512, 1024]          tiles of 64 by 64

A result of 512 by 512 elements has 64 tiles of 64 by 64, so half of a chip with 132 multiprocessors would be idle. If
the depth (the axis that is summed over) is divided into four parts for each of 64 tiles, there are 256 grid programs.
Each of the 256 grid programs of the example sums over 256 indices. If the depth is divided into parts, a second kernel
adds the results of the parts (split_k.py). The estimated time adds the start-up of each wave of programs, the time of
all blocks of the depth, and a second kernel:

    start-up time for each wave of programs + blocks of depth * time of a block + second kernel

Parts also fill the last wave. A product of 72 tiles takes one wave, in which 60 of 132 multiprocessors are idle. With
three parts, 216 programs take two waves of a third of the depth each: 2/3 of the time. A product whose factors take
long to be read from memory gains little from parts.

In: a chip, the sizes of a product, some tiles with their measured times (`Pace`), and the allowed numbers of parts of
the depth. Out: the tile and the number of parts that have the least estimated time. The times of the tiles were
measured on an H200.
"""

import math
from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from minitri.base.types import DType
from minitri.hardware.chips import Chip

STEP = 128  # the depth for which a pace gives times
START = 2.4  # the start and the end of a program take as long as this many times STEP indices of the depth
SECOND = 2.2  # microseconds that a second kernel takes if it adds few numbers
ADDED = 6.5e6  # bytes of partial sums that are written and read in a microsecond


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
    """Returns the paces of tiles with known rows, columns and speeds. A speed is relative to the first tile, for which
    STEP indices of the depth take `time` microseconds. One program fits on a multiprocessor.
    """
    first, works = tiles[0], [(m, n, time * m * n / speed) for m, n, speed in tiles]
    area = first[0] * first[1]
    return tuple(Pace(m, n, work / area, 2 * work / area, 1, START * work / area) for m, n, work in works)


# The times of products by what multiplies. The tiles of schedules/tiles.toml have the same order.
PACES = {
    "16": _paces(1.3, (128, 256, 1.0), (128, 128, 0.85), (64, 128, 0.7), (64, 64, 0.5)),
    "tf32": _paces(2.7, (128, 256, 1.0), (128, 128, 0.95), (64, 128, 0.7), (64, 64, 0.5)),
    "tf32x3": TF32_PARTS,
    "32": (Pace(128, 64, 5.6, 11.2, 2, 1.5), Pace(64, 64, 4.5, 5.7, 3)),
    "64": _paces(5.6, (64, 64, 1.0)),
}


def kind_of(precision: str, factor: DType) -> str:
    """Returns the key in PACES of a product of factors of a dtype."""
    return precision if precision.startswith("tf32") else str(max(16, factor.bits))


def has_few_tiles(chip: Chip, batch: int, rows: int, columns: int) -> bool:
    """Checks whether a product of f32 arrays has so few small tiles that dividing its depth into parts can pay."""
    return batch * -(-rows // TF32_PARTS[-1].rows) * -(-columns // TF32_PARTS[-1].columns) <= 2 * chip.multiprocessors


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
    """Returns the estimated time of a product in microseconds. Its depth is divided into `parts` parts.

    The length of a part is a multiple of `step`. To read the factors once from memory takes `loading` microseconds.
    """
    programs = parts * batch * -(-rows // pace.rows) * -(-columns // pace.columns)
    computing = pace.time(chip, programs, -(-depth // (parts * step)) * step)
    sums = (4 + 4) * parts * batch * rows * columns  # bytes, written and read
    return math.hypot(loading, computing) + (0.0 if parts == 1 else SECOND + sums / ADDED)


def cheapest(
    chip: Chip, paces: Iterable[Pace], parts: Iterable[int], *sizes: int, step: int = 1, loading: float = 0.0
) -> tuple[int, Pace]:
    """Returns the number of parts and the tile (`Pace`) that have the least estimated time. The parameters are those of
    `time`. Among choices with equal times, the choice with the fewest parts is returned.
    """
    return min(product(parts, paces), key=lambda choice: time(chip, *choice, *sizes, step=step, loading=loading))
