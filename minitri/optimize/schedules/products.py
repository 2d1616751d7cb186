"""Tile sizes for matrix products, and the order in which programs compute the tiles.

In: the sizes of a product and what its factors are made of. Out: one `Tile`, or the few that are worth
measuring (runtime/schedule_search.py). The chip says how many programs run at once, and how much shared memory each has
for the blocks that are on their way. The tiles and their speeds come from an H200, which has registers for 128 x 256 sums.

    many rows           the tile that gives the least work in waves of a program on each multiprocessor, where smaller
                        tiles work more slowly: each element in shared memory is used by fewer others
    descriptors         read blocks where a tensor core multiplies both factors as they lie, or one that is read by
                        descriptors and one that is not, and there is enough to do
    turns               as few programs as need no more rounds than one on each multiprocessor would; each takes one
                        tile after the other, and begins to read the next one while the last one is stored, through a
                        descriptor if there is room
    little depth        the end of a tile takes as long as its loop: turns with one more block on its way, if there is
                        room; without descriptors two smaller tiles share a multiprocessor and hide each other's end
    few tiles           each has a multiprocessor to itself, and its shared memory: more blocks are on their way
    computed second     the product is made transposed, from registers (kernels/builder.py), of which there are few: few
    factors             columns, so that the arithmetic of one program runs beside the product of another; how many
                        rows is estimated (optimize/mixed_input_products.py)
    few rows            the other factor is read once, and that is all there is to do: narrow tiles, and as
                        many bytes on their way as fit

Left out: products that share their loop with other reductions (minitri/optimize/schedules/attention.py); warp specialisation, which
Triton up to 3.9 fails to make of such a loop on Hopper; the end of a tile in halves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from minitri.base.dims import ZERO, Dim
from minitri.hardware.chips import Chip
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Buffer, Dot, Kernel, Load, Op, Store, needed, reads_bytes
from minitri.optimize import mixed_input_products
from minitri.optimize.schedules.request import Request
from minitri.optimize.split_k import FEW_ROWS, NARROW
from minitri.tiles.schedule import Schedule, deep, fitting, size

LITTLE_DEPTH = 512
DESCRIBED = 1 << 30  # operations of a product, at least: fewer take about a microsecond
WEIGHTS = 1 << 20  # elements of a converted factor, at least
RESERVED = 2048  # bytes of shared memory: for what orders the reading, and small values of tiles
MOST_AXES = 5
UNKNOWN = 4096  # what a size that is not known is taken for


class Tile(NamedTuple):
    rows: int
    columns: int
    depth: int  # of a block: what is summed over in one round
    warps: int
    stages: int  # blocks on their way

    def bytes(self, dots: Sequence[Dot]) -> int:
        """Of shared memory: the blocks in flight of all loaded operands, and the blocks computed from them."""
        rows, columns = {d.a: d for d in dots}, {d.b: d for d in dots}  # what products share is read once
        read = sum(self.rows * _read(f, d) for f, d in rows.items())
        read += sum(self.columns * _read(f, d) for f, d in columns.items())
        made = sum(self.rows * _made(f) for f in rows) + sum(self.columns * _made(f) for f in columns)
        return self.depth * (self.stages * read + made)

    def within(self, shared: int, dots: Sequence[Dot]) -> Tile:
        """With no more blocks on their way than there is room for."""
        fitting = (self._replace(stages=n) for n in range(self.stages, 0, -1))
        return next((t for t in fitting if t.bytes(dots) <= shared), self._replace(stages=1))

    def number(self, m: int, n: int) -> int:
        return -(-m // self.rows) * -(-n // self.columns)


def _read(factor: Op, dot: Dot) -> int:
    """Bytes of the elements of arrays with rows of their own that an element of a factor is made of."""
    return sum(op.dtype.bytes for op in _rows_of(factor, dot))


def _rows_of(factor: Op, dot: Dot) -> set[Load]:
    """The reads of arrays with rows of their own that a factor is made of."""
    blocked = {*dot.tile, dot.over}
    return {op for op in needed(factor) if isinstance(op, Load) and len(blocked & {*op.axes}) > 1}


def _made(factor: Op) -> int:
    """Bytes of an element of a factor that is computed, and then put into shared memory (or stays in registers)."""
    return 0 if isinstance(factor, Load) else factor.dtype.bytes


LARGE = {  # by what multiplies: tiles and their speed, as a part of the largest one's
    "16": ((Tile(128, 256, 64, 8, 3), 1.0), (Tile(128, 128, 64, 8, 3), 0.85), (Tile(64, 128, 128, 4, 4), 0.7),
           (Tile(64, 64, 128, 4, 6), 0.5)),
    "tf32": ((Tile(128, 256, 32, 8, 3), 1.0), (Tile(128, 128, 32, 4, 3), 0.95), (Tile(64, 128, 32, 4, 3), 0.7),
             (Tile(64, 64, 32, 4, 3), 0.5)),
    "32": ((Tile(128, 64, 32, 8, 3), 1.0), (Tile(64, 64, 32, 4, 3), 0.98)),
    "64": ((Tile(64, 64, 16, 4, 2), 1.0),),
}  # fmt: skip
TRANSPOSED = {  # by rows
    t.rows: t for t in (Tile(16, 64, 256, 4, 3), Tile(32, 64, 128, 4, 4), Tile(64, 64, 128, 4, 4), Tile(128, 64, 128, 4, 3),
                        Tile(256, 64, 64, 4, 3))
}  # fmt: skip
SHALLOW = Tile(128, 128, 64, 4, 3)
DEEPER = Tile(128, 256, 64, 8, 4)  # the largest, with one more block on its way
ALONE = {  # on a multiprocessor, whose shared memory a program then has to itself: a tile with more blocks on their way
    (128, 256): DEEPER, (128, 128): Tile(128, 128, 64, 8, 5),
}  # fmt: skip
OTHERS = {  # that win here and there
    "16": (DEEPER, ALONE[128, 128], Tile(256, 128, 64, 8, 3), Tile(128, 64, 64, 8, 4)),
    "tf32": (Tile(128, 256, 32, 8, 4), Tile(256, 128, 32, 8, 4), Tile(128, 128, 32, 8, 3)),
    "32": (Tile(128, 128, 16, 4, 3), Tile(64, 64, 16, 4, 3), Tile(32, 64, 32, 4, 3)),
    "64": (Tile(64, 64, 32, 4, 2), Tile(32, 64, 32, 4, 2)),
}
OTHERS_TRANSPOSED = (
    Tile(16, 128, 128, 4, 4),
    Tile(128, 128, 128, 8, 3),
    Tile(128, 128, 64, 4, 4),
    Tile(256, 128, 64, 8, 3),
)


def product(kernel: Kernel, request: Request) -> Schedule | None:
    """The schedule of products; minitri/optimize/schedules/attention.py has the one of products in a shared loop.

    Each program has a tile of the result. Every other parallel axis is a batch, one index a program.
    """
    if not kernel.dots or kernel.shared_loop is not None:
        return None
    first, named = kernel.dots[0], {a.name: a for a in kernel.axes}
    row, column = first.tile
    over = {d.over for d in kernel.dots}
    m, n = size(named[row], UNKNOWN), size(named[column], UNKNOWN)
    k = max(size(named[a], UNKNOWN) for a in over)
    tile, described, turns = walk(kernel, m, n, k, batches(kernel, row, column), request.chip)
    bm, bn = fitting(named[row], tile.rows), fitting(named[column], tile.columns)
    axes = {row: ("grid", bm), column: ("grid", bn)} | {a: ("loop", deep(first, k, tile.depth)) for a in over}
    rule = f"a product in tiles of {bm} by {bn}"
    return Schedule(axes, tile.warps, tile.stages, 8, rule, descriptors=described, persistent=turns)


def batches(kernel: Kernel, *others: str) -> int:
    """How often there is a product: the indices of the parallel axes that are no part of one."""
    return math.prod(size(a, 1) for a in kernel.parallel if a.name not in others)


class Walk(NamedTuple):
    """A tile; whether blocks come through tensor descriptors; the number of persistent programs (0: one program a
    tile).
    """

    tile: Tile
    descriptors: bool = False
    persistent: int = 0


def walk(kernel: Kernel, m: int, n: int, depth: int, batch: int, chip: Chip) -> Walk:
    """For the products of a kernel, which share their loop and their rows."""
    dots, kind = kernel.dots, _kind(kernel.dots[0])
    if is_transposed(kernel):
        worth = batch * n * depth >= WEIGHTS if reads_bytes(dots[0]) else 2 * batch * m * n * depth >= DESCRIBED
        chosen = Walk(_transposed(m, n, batch, depth, chip), worth and _is_one_described(dots[0]))
    elif kind == "16" and m <= FEW_ROWS:
        chosen = Walk(_streaming(m, n, batch, dots[0], chip))
    else:
        room = [(t, v) for t, v in LARGE[kind] if t._replace(stages=2).bytes(dots) <= chip.shared]
        fitting = room or LARGE[kind][-1:]
        tile = _least_work(m, n, batch, [(t, v) for t, v in fitting if len(dots) == 1 or t.columns <= 128], chip)
        tiles, shallow = batch * tile.number(m, n), depth <= LITTLE_DEPTH
        whole = m >= tile.rows and n >= tile.columns and depth >= tile.depth
        worth = whole and 2 * batch * m * n * depth >= DESCRIBED and len(dots) == 1 and dots[0].on_tensor_cores
        if worth and are_described(dots[0]):
            chosen = _described(tile, dots[0], tiles, shallow, _end_bytes(kernel, dots[0]), chip)
        elif len(dots) == 1 and kind == "16" and shallow and batch * SHALLOW.number(m, n) >= 2 * chip.multiprocessors:
            chosen = Walk(SHALLOW)
        else:
            one = worth and _is_one_described(dots[0])
            chosen = Walk(_alone(kind, tile, tiles, chip), one)
    return chosen._replace(tile=chosen.tile.within(chip.shared, dots))


def _least_work(m: int, n: int, batch: int, tiles: Sequence[tuple[Tile, float]], chip: Chip) -> Tile:
    """The tile with the least work in all waves of programs."""

    def time(choice: tuple[Tile, float]) -> float:
        t, speed = choice
        return -(-batch * t.number(m, n) // chip.multiprocessors) * t.rows * t.columns / speed

    return min(tiles, key=time)[0]


def _kind(dot: Dot) -> str:
    return "tf32" if dot.precision != "ieee" else str(max(16, dot.a.dtype.bits))


def _alone(kind: str, tile: Tile, tiles: int, chip: Chip) -> Tile:
    return ALONE.get((tile.rows, tile.columns), tile) if kind == "16" and tiles <= chip.multiprocessors else tile


def is_transposed(kernel: Kernel) -> bool:
    """Whether there is one product, whose columns stand first: its second factor alone is computed (kernels/builder.py)."""
    if len(kernel.dots) != 1:
        return False
    order = [a.name for a in kernel.axes]
    row, column = kernel.dots[0].tile
    return order.index(column) < order.index(row)


def _transposed(m: int, n: int, batch: int, depth: int, chip: Chip) -> Tile:
    """The tile with the rows of the model; the product is in parts already. Its depth divides that of a part, if that is
    a number of smaller blocks, of which more are on their way."""
    tile = TRANSPOSED[mixed_input_products.choose(chip, batch, m, n, depth, most=1).rows]
    while depth % tile.depth and depth % mixed_input_products.UNIT == 0:
        tile = tile._replace(depth=tile.depth // 2, stages=tile.stages * 3 // 2)
    return tile


def _streaming(m: int, n: int, batch: int, dot: Dot, chip: Chip) -> Tile:
    rows = max(16, 1 << (m - 1).bit_length())
    columns = next((c for c in (128, 64) if batch * -(-n // c) >= chip.multiprocessors - 4), NARROW)
    one = Tile(rows, columns, 128 if columns == 128 else 256, 4, 1)
    most = 6 if isinstance(dot.a, Load) and isinstance(dot.b, Load) else 4  # with arithmetic between reading and use
    return one._replace(stages=most).within(chip.shared, [dot])


# ---- through descriptors ---------------------------------------------------------------


def _described(tile: Tile, dot: Dot, tiles: int, shallow: bool, ends: int, chip: Chip) -> Walk:
    """How programs iterate over the tiles of a product whose factors descriptors can read."""
    kind = _kind(dot)
    if tile != LARGE[kind][0][0]:
        return Walk(_alone(kind, tile, tiles, chip), ends <= 2)
    if kind == "tf32":
        return Walk(tile, True)
    turning = [t for t in ((DEEPER, tile) if shallow else (tile,)) if _leaves_room(t, [dot], ends, chip.shared)]
    many = tiles > chip.multiprocessors
    return Walk(turning[0], True, programs(tiles, chip)) if turning and many else Walk(DEEPER, True)


def programs(tiles: int, chip: Chip) -> int:
    """The number of persistent programs: as few as compute all tiles in the fewest waves.

    With more programs some would have one tile less, and all would end at the same time. They would only cost power and
    L2 cache.
    """
    rounds = -(-tiles // chip.multiprocessors)
    return -(-tiles // rounds)


def _leaves_room(tile: Tile, dots: Sequence[Dot], ends: int, shared: int) -> bool:
    """For the end of a tile, `ends` bytes an element, beside the blocks of the next one."""
    return tile.bytes(dots) + tile.rows * tile.columns * ends <= shared - RESERVED


def with_descriptor_stores(kernel: Kernel, chosen: Schedule, chip: Chip) -> Schedule:
    """The schedule; a persistent kernel stores through tensor descriptors, too, if shared memory has room for it."""
    held = kernel.shared_loop is not None  # such products have more in shared memory
    if held or not (chosen.descriptors and chosen.persistent and kernel.dots):
        return chosen
    first = kernel.dots[0]
    rows, columns, depth = (chosen.axes[name][1] for name in (*first.tile, first.over))
    tile = Tile(rows, columns, depth, chosen.warps, chosen.stages)
    return replace(chosen, descriptor_stores=stores_fit(kernel, kernel.dots, tile, chip.shared))


def stores_fit(kernel: Kernel, dots: Sequence[Dot], tile: Tile, shared: int) -> bool:
    """Whether shared memory has room for results that descriptors store while the next tile's blocks are loaded.

    All loads share one buffer. Each store has a buffer of its own until the copy engine is done.
    """
    ends = _ends(kernel, dots[0])
    read = max((op.buffer.dtype.bytes for op in ends if isinstance(op, Load)), default=0)
    stored = sum(op.buffer.dtype.bytes for op in ends if isinstance(op, Store))
    return _leaves_room(tile, dots, read + stored, shared)


def _ends(kernel: Kernel, dot: Dot) -> list[Load | Store]:
    """What is read and stored by whole tiles, at the end of each."""
    tiled = [op for op in kernel.body if isinstance(op, (Load, Store))]
    return [op for op in tiled if set(dot.tile) <= op.indexed_by]


def _end_bytes(kernel: Kernel, dot: Dot) -> int:
    """Shared bytes of an element at the end of a tile that is stored by pointers, beside the next tile's blocks.

    All accesses share one buffer. Triton stores halves of a 16-bit tile if nothing else is left to do.
    """
    found = [op.buffer.dtype.bytes for op in _ends(kernel, dot)]
    return 1 if found == [2] else max(found, default=4)


def are_described(dot: Dot) -> bool:
    """Whether tensor descriptors read both factors, by blocks along whole axes."""
    return all(isinstance(f, Load) and is_described(f) for f in (dot.a, dot.b))


def _is_one_described(dot: Dot) -> bool:
    """Whether they read at least one of the two arrays with rows that the factors are, or are made of."""
    loads = _rows_of(dot.a, dot) | _rows_of(dot.b, dot)
    blocked = (*dot.tile, dot.over)
    return len(loads) == 2 and any(is_described(load, blocked) for load in loads)


def is_described(load: Load, blocked: Sequence[str] = ()) -> bool:
    """Whether tensor descriptors read it, by blocks along whole axes; of `blocked` axes by blocks that begin where other
    axes say."""
    return may_be_described(load) and has_steps(load.buffer) and all(_is_along(d, blocked) for d in load.index)


def _is_along(index: Dim, blocked: Sequence[str]) -> bool:
    """Whether it is an axis, a number, or a blocked axis and an offset."""
    own = [s for s in index.symbols() if s.name in blocked]
    parted = index.coefficient(own[0]) if len(own) == 1 else None
    return index.atom is not None or index.constant is not None or parted is not None and parted[0] == 1


def may_be_described(load: Load) -> bool:
    """Whether nothing is picked, and zeros are wanted where nothing is read: past the ends of the array alone."""
    ends = {e - 1 - d for d, e in zip(load.index, load.buffer.shape)}
    return not load.picks and load.other == 0 and set(load.guards) <= ends


def has_steps(buffer: Buffer) -> bool:
    """Whether the strides are those of a descriptor (CUDA driver API, cuTensorMapEncodeTiled): elements side by side,
    and each step a number of steps of the next axis, past its end."""
    unknown = any(d.constant is None for d in (*buffer.shape, *buffer.strides))
    if unknown or not 2 <= len(buffer.shape) <= MOST_AXES or ZERO in buffer.shape:
        return False
    shape, strides = list(map(int, buffer.shape)), list(map(int, buffer.strides))
    if buffer.dtype.bytes > 4 or buffer.dtype.kind == "b" or strides[-1] != 1:
        return False
    unit, past = ALIGNMENT // buffer.dtype.bytes, shape[-1]
    for extent, step in reversed([(e, s) for e, s in zip(shape[:-1], strides) if e > 1]):
        if step < past or step % unit:
            return False
        unit, past = step, step * extent
    return True


# ---- what to try -----------------------------------------------------------------------


def turning(kernel: Kernel, chip: Chip) -> Walk | None:
    """Persistent programs that read factors through descriptors, if shared memory has room for their tiles and there are
    more tiles than programs."""
    dots, extents = kernel.dots, {a.name: size(a, 1) for a in kernel.parallel}
    tile, ends = LARGE[_kind(dots[0])][0][0], _end_bytes(kernel, dots[0])
    tiles = batches(kernel, *dots[0].tile) * tile.number(*(extents[name] for name in dots[0].tile))
    fits = len(dots) == 1 and _leaves_room(tile, dots, ends, chip.shared)
    return Walk(tile, True, programs(tiles, chip)) if fits and tiles > chip.multiprocessors else None


def candidates(kernel: Kernel, rows: int, chip: Chip) -> list[Tile]:
    """Tiles to try for products that share a loop and their rows. `rows`: the number that the rules chose."""
    dots, kind = kernel.dots, _kind(kernel.dots[0])
    if is_transposed(kernel):
        found = [t for t in (*TRANSPOSED.values(), *OTHERS_TRANSPOSED) if rows <= 2 * t.rows <= 4 * rows]
    elif kind == "16" and rows <= FEW_ROWS:
        found = STREAMS
    else:
        found = (*[t for t, _ in LARGE[kind]], SHALLOW, *OTHERS[kind])
    return [t for t in found if t.bytes(dots[:1]) <= chip.shared]


STREAMS = (
    Tile(16, 32, 256, 4, 4), Tile(16, 64, 256, 4, 4), Tile(16, 64, 64, 4, 6), Tile(16, 128, 128, 4, 6),
    Tile(16, 64, 256, 8, 3), Tile(16, 128, 64, 4, 6), Tile(16, 64, 128, 2, 4),
)  # fmt: skip
