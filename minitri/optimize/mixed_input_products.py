"""Products whose second factor is converted from 8 bits while it is loaded: the number of parts and the rows of a tile.

    x @ (w.astype(f16) * scale)          x: f16[128, 4096], w: i8[4096, 4096]

A program waits for each block twice: until it arrives, and until it is converted
(triton/workarounds/loops.py). So a multiprocessor should have two programs: while one waits, the other multiplies.
In the example there are 64 tiles of 128 rows and 64 columns, each in four parts of the depth. A second kernel adds the
parts (split_k.py). More programs read the first factor more often, and more parts cost more additions. The time of a
choice is estimated as

    a start for each wave of programs + blocks of depth * time of a block beside others + the second kernel

In: a chip, and a product or its sizes. Out: the choice. The times come from an H200; tests/sweep_converted.py compares
the choice with all others there. Left out: many rows, for which the factor is stored (pack_operands.py). Second factors
that are computed from more bits use the same times, although they were not measured.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from minitri.graph.ir import Apply, Const, Contract, Index, Input, Node, View, is_copy, topological
from minitri.hardware.chips import Chip

LITTLE = {"cast", "multiply", "add", "subtract", "negative"}  # arithmetic that runs beside a tensor core
COLUMNS = 64  # of a tile: what tensor cores take at once, since the product is made transposed
STEP = 128  # of depth, which times are for
UNIT = 64  # of depth, which divides parts
PART = 512  # of depth, at least
MOST = 16  # parts: their sums are written and read again
START = 1.0  # microseconds until a program has its first block
SECOND = 2.2  # microseconds of a second kernel that adds little
ADDED = 6.5e6  # bytes of partial sums that are written and read in a microsecond


class Pace(NamedTuple):
    """Microseconds that a tile of `rows` rows takes for STEP of depth: alone on a multiprocessor, and beside another
    one.

    `most`: how many have room there.
    """

    rows: int
    alone: float
    beside: float
    most: int

    def time(self, chip: Chip, programs: int, depth: float) -> float:
        """The time of a number of programs, each with some depth."""
        load = -(-programs // chip.multiprocessors)  # of the multiprocessor that has most
        pairs = load / 2 if self.most > 2 else -(-load // 2)  # a third one goes on as well, where there is room
        step = self.alone if load <= 1 else self.beside * pairs
        return START * -(-load // self.most) + step * depth / STEP


PACES = (
    Pace(16, 0.40, 0.65, 4), Pace(32, 0.48, 0.67, 4), Pace(64, 0.50, 0.76, 2), Pace(128, 0.66, 1.03, 2), Pace(256, 1.06, 1.75, 2)
)  # fmt: skip


class Choice(NamedTuple):
    parts: int
    rows: int


def is_converted(node: Contract) -> bool:
    """Whether the second factor takes little to compute from 8 bits, and the first one nothing."""
    made = topological([node.b])
    simple = all(isinstance(n, (Input, Const, Index, View)) or isinstance(n, Apply) and n.op in LITTLE for n in made)
    narrow = any(isinstance(n, Input) and n.dtype.bits == 8 and n.rank > 1 for n in made)
    read = isinstance(viewed(node.a), Input)
    return simple and narrow and not any(map(is_copy, made)) and node.b.dtype.bits == 16 and read


def viewed(node: Node) -> Node:
    """What a view is of."""
    while isinstance(node, View):
        node = node.x
    return node


def choose(chip: Chip, batch: int, rows: int, columns: int, depth: int, most: int = MOST) -> Choice:
    """In how many parts, `most` at most, and in tiles of how many rows it takes least. Of equals the fewest parts."""
    powers = [1 << k for k in range(most.bit_length())]
    parts = [p for p in powers if p == 1 or depth % (p * UNIT) == 0 and depth >= p * PART]

    def time(choice: tuple[int, Pace]) -> float:
        n, pace = choice
        programs = n * batch * -(-rows // pace.rows) * -(-columns // COLUMNS)
        sums = (4 + 4) * n * batch * rows * columns  # bytes, written and read
        second = 0.0 if n == 1 else SECOND + sums / ADDED
        return pace.time(chip, programs, depth / n) + second

    n, pace = min(product(parts, PACES), key=time)
    return Choice(n, pace.rows)
