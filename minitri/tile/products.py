"""How large the tiles of a matrix product are.

In: the sizes of a product and what its factors are made of. Out: one `Tile`, or the few that are worth
measuring (runtime/tune.py). The figures come from an H200 with 132 multiprocessors, each of which has
227 KiB of shared memory for the blocks that are on their way and registers for 128 x 256 sums.

    large               the largest tile of which there is one for nearly every multiprocessor: each element
                        that comes into shared memory is used by more others
    little depth        the end of a tile takes as long as its loop; two smaller tiles share a
                        multiprocessor and hide each other's
    few rows            the other factor is read once, and that is all there is to do: narrow tiles, and as
                        many bytes on their way as fit
    one loop with       rows of a product stay with a program which walks the axis of other reductions
    reductions          (attention); what else a product has it holds whole
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minitri.kernel.ir import Dot
from minitri.types import DType

PROGRAMS = 118  # that keep 132 multiprocessors busy
FEW_ROWS = 32
LITTLE_DEPTH = 512
SHARED_BYTES = 227 << 10


class Tile(NamedTuple):
    rows: int
    columns: int
    depth: int  # of a block: what is summed over in one round
    warps: int
    stages: int  # blocks on their way

    def bytes(self, element: int) -> int:
        """Of shared memory."""
        return (self.rows + self.columns) * self.depth * self.stages * element

    def number(self, m: int, n: int) -> int:
        return -(-m // self.rows) * -(-n // self.columns)


LARGE = {  # by what multiplies; the largest first
    "16": (Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 8, 3), Tile(64, 128, 64, 8, 5), Tile(64, 64, 64, 4, 5)),
    "tf32": (Tile(128, 128, 32, 8, 3), Tile(64, 128, 32, 4, 3), Tile(64, 64, 32, 4, 3)),
    "32": (Tile(128, 64, 32, 8, 3), Tile(64, 64, 32, 4, 3)),
    "64": (Tile(64, 64, 16, 4, 2),),
}
SHALLOW = Tile(128, 128, 64, 4, 3)
OTHERS = {  # that win here and there
    "16": (Tile(128, 256, 64, 8, 4), Tile(256, 128, 64, 8, 3), Tile(128, 64, 64, 8, 4)),
    "tf32": (Tile(128, 256, 32, 8, 3), Tile(256, 128, 32, 8, 3), Tile(128, 128, 32, 4, 3)),
    "32": (Tile(128, 128, 16, 4, 3), Tile(64, 64, 16, 4, 3), Tile(32, 64, 32, 4, 3)),
    "64": (Tile(64, 64, 32, 4, 2), Tile(32, 64, 32, 4, 2)),
}


def tile(m: int, n: int, depth: int, batch: int, dots: list[Dot]) -> Tile:
    """For `dots`, which share their loop and their rows."""
    kind = _kind(dots[0])
    if kind == "16" and m <= FEW_ROWS:
        return _streaming(m, n, batch)
    if kind == "16" and len(dots) == 1 and depth <= LITTLE_DEPTH and batch * SHALLOW.number(m, n) >= 2 * PROGRAMS:
        return SHALLOW
    fitting = [t for t in LARGE[kind] if len(dots) == 1 or t.columns <= 128]
    enough = (t for t in fitting if t.columns <= max(n, 16) and batch * t.number(m, n) >= PROGRAMS)
    chosen = next(enough, fitting[-1])
    once = batch * chosen.number(m, n) <= 2 * PROGRAMS
    return OTHERS["16"][0] if chosen == LARGE["16"][0] and once else chosen  # one more block on its way


def _kind(dot: Dot) -> str:
    return "tf32" if dot.precision != "ieee" else str(max(16, dot.a.dtype.bits))


def _streaming(m: int, n: int, batch: int) -> Tile:
    rows = max(16, 1 << (m - 1).bit_length())
    columns = next((c for c in (128, 64) if batch * -(-n // c) >= PROGRAMS), 32)
    one = Tile(rows, columns, 128 if columns == 128 else 256, 4, 1)
    return one._replace(stages=min(6, SHARED_BYTES // one.bytes(2)))


def round_of(widest: int, dtype: DType) -> tuple[int, int, int, int]:
    """(rows, elements of the loop a round, warps, stages) by the widest side that is held."""
    if dtype.bits == 32:
        return 64, 32 if widest <= 128 else 16, 4, 2
    if widest <= 64:
        return 128, 64, 4, 3
    return (128, 64, 8, 3) if widest <= 128 else (64, 32, 4, 2)


# ---- what to try -----------------------------------------------------------------------


def candidates(dot: Dot, few_rows: bool) -> Iterable[Tile]:
    kind = _kind(dot)
    found = STREAMS if kind == "16" and few_rows else (*LARGE[kind], SHALLOW, *OTHERS[kind])
    return [t for t in found if t.bytes(dot.a.dtype.bytes) <= SHARED_BYTES]


STREAMS = (
    Tile(16, 32, 256, 4, 4), Tile(16, 64, 256, 4, 4), Tile(16, 64, 64, 4, 6), Tile(16, 128, 128, 4, 6),
    Tile(16, 64, 256, 8, 3), Tile(16, 128, 64, 4, 6), Tile(16, 64, 128, 2, 4),
)  # fmt: skip
ROUNDS = (  # rows, elements of the loop, warps, stages
    (128, 64, 8, 3), (256, 64, 8, 3), (128, 128, 8, 3), (64, 64, 4, 3), (128, 64, 4, 3), (128, 64, 4, 4), (64, 128, 4, 2),
)  # fmt: skip
