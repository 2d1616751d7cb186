"""Chooses tile sizes for matrix products, and the order in which programs compute the tiles.

The function `choose_tile` returns the tile for the products of a kernel. For autotuning (runtime/schedule_search.py),
the function `candidates` returns a few tiles that are worth measuring. A block "in flight" is being loaded into shared
memory. The tiles and their speeds come from measurements on an H200. The depth is the summed axis of a product.

  - Many rows: the tile is chosen that causes the least work in all waves of programs. Smaller tiles work more slowly,
    because each element in shared memory is multiplied by fewer other elements.
  - Descriptors: tensor descriptors load blocks of at least one factor if there is enough work.
  - Persistent programs: there are as few programs as can compute all tiles in the smallest number of waves. Each
    program computes one tile after the other. While a program stores a tile, the program also loads the next tile. A
    program stores through a descriptor if shared memory has room.
  - Small depth: storing a tile takes as long as the loop over the depth. So persistent programs have one more block in
    flight, if there is room. Without descriptors, two smaller tiles share a multiprocessor: one tile is computed while
    the other is stored.
  - Few tiles: each program has a multiprocessor and the shared memory to itself, so more blocks are in flight.
  - Computed second factor: the product is transposed, so that the computed factor comes first and stays in registers
    (optimize/fusion/factor_order.py). There are few registers, so tiles have few columns. While one program
    computes its factor, another program on the same multiprocessor multiplies. A cost model chooses the number of rows
    (optimize/dequantised_product_cost.py).
  - Few rows: most of the time is spent on loading the second factor once. Tiles are narrow, and as many blocks are in
    flight as fit into shared memory.

If a product and other reductions run in one loop, as in attention, schedules/attention.py chooses the tiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from minitri.base.dims import ZERO, Dim
from minitri.base.toml_tables import table_beside
from minitri.hardware.chips import Chip
from minitri.hardware.targets import ALIGNMENT
from minitri.kernels.ir import Buffer, Dot, Kernel, Load, Op, Store, needed, reads_bytes
from minitri.optimize import dequantised_product_cost
from minitri.optimize.product_cost import PACES, cheapest, kind_of
from minitri.optimize.schedules.rule_arguments import Request
from minitri.optimize.split_k import FEW_ROWS, NARROW
from minitri.tiles.schedule import Schedule, deep, fitting, size

LITTLE_DEPTH = 512
DESCRIBED = 1 << 30  # the fewest operations for which descriptors pay; fewer take about a microsecond
WEIGHTS = 1 << 20  # the fewest elements of a converted factor for which descriptors pay
RESERVED = 2048  # bytes of shared memory for the barriers of loads, and for small values of tiles
MOST_AXES = 5
UNKNOWN = 4096  # the assumed extent of an axis of unknown size


class Tile(NamedTuple):
    """The block sizes of a product.

    `rows`: the number of rows of a tile of the result.
    `columns`: the number of columns of a tile of the result.
    `depth`: the number of elements that one iteration sums for each element of the result.
    `warps`: the number of warps of a program.
    `stages`: how many blocks of each factor are loaded at the same time.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def bytes(self, dots: Sequence[Dot]) -> int:
        """Returns the bytes of shared memory that the tile needs: for blocks that are being loaded, and for blocks that
        are computed from loaded blocks.
        """
        sides = (self.rows, {d.a: d for d in dots}), (self.columns, {d.b: d for d in dots})  # factors are loaded once
        factors = [(n, f, d) for n, side in sides for f, d in side.items()]
        return self.depth * sum(n * (self.stages * _read(f, d) + _made(f, d)) for n, f, d in factors)

    def within(self, shared: int, dots: Sequence[Dot]) -> Tile:
        """Returns the tile with the most `stages` for which the loaded blocks fit into `shared` bytes."""
        fitting = (self._replace(stages=n) for n in range(self.stages, 0, -1))
        return next((t for t in fitting if t.bytes(dots) <= shared), self._replace(stages=1))

    def number(self, m: int, n: int) -> int:
        """Returns the number of tiles that cover a result with m rows and n columns."""
        return -(-m // self.rows) * -(-n // self.columns)


def _read(factor: Op, dot: Dot) -> int:
    """Returns the bytes that are loaded for each element of a product's factor."""
    return sum(op.dtype.bytes for op in _rows_of(factor, dot))


def _rows_of(factor: Op, dot: Dot) -> set[Load]:
    """Returns the loads of matrices from which a factor of a product is computed."""
    blocked = {*dot.tile, dot.over}
    # loads with fewer than two axes of the product, such as scales, are left out
    return {op for op in needed(factor) if isinstance(op, Load) and len(blocked & {*op.axes}) > 1}


def _made(factor: Op, dot: Dot) -> int:
    """Returns the shared memory, in bytes per element, that a matrix product needs for a computed factor."""
    if dot.precision.startswith("tf32x3"):
        # both TF32 parts of the second factor need shared memory
        return 2 * factor.dtype.bytes if factor is dot.b else 0
    return 0 if isinstance(factor, Load) else factor.dtype.bytes  # 0 for a factor that is only loaded


TABLE = table_beside(__file__, "tiles.toml")


def _tiles(group: str, *more: str) -> tuple[Tile, ...]:
    """Returns the tiles of a group in tiles.toml: those in the field `tiles`, then those in the fields `more`."""
    return tuple(Tile(*tile) for name in ("tiles", *more) for tile in TABLE[group][name])


LARGE = {kind: tuple(zip(_tiles(kind), paces)) for kind, paces in PACES.items()}
TRANSPOSED = {t.rows: t for t in _tiles("transposed")}
ALONE = {(t.rows, t.columns): t for t in _tiles("alone")}  # for programs that have a multiprocessor to themselves
DEEPER, (SHALLOW,) = ALONE[128, 256], _tiles("shallow")


def product(kernel: Kernel, request: Request) -> Schedule | None:
    """Returns the schedule of a kernel with products. Returns None if the kernel has no products, or if products share
    a loop with other reductions.

    Each program computes one tile of the result. Along every batch axis, each program covers only one index.
    """
    if not kernel.dots or kernel.shared_loop is not None:
        return None
    first, named = kernel.dots[0], {a.name: a for a in kernel.axes}
    row, column = first.tile
    over = {d.over for d in kernel.dots}
    m, n = size(named[row], UNKNOWN), size(named[column], UNKNOWN)
    k = max(size(named[a], UNKNOWN) for a in over)
    tile, described, turns = choose_tile(kernel, m, n, k, batches(kernel, row, column), request.chip)
    bm, bn = fitting(named[row], tile.rows), fitting(named[column], tile.columns)
    axes = {row: ("grid", bm), column: ("grid", bn)} | {a: ("loop", deep(first, k, tile.depth)) for a in over}
    rule = f"a product in tiles of {bm} by {bn}"
    return Schedule(axes, rule, warps=tile.warps, stages=tile.stages, group=8, descriptors=described, persistent=turns)


def batches(kernel: Kernel, *others: str) -> int:
    """Returns the number of products in a batch: the product of the extents of all parallel axes that are not in
    `others`.
    """
    return math.prod(size(a, 1) for a in kernel.parallel if a.name not in others)


class TileChoice(NamedTuple):
    """The tile of a product, and how programs load and compute tiles.

    `tile`: the block sizes of the product.
    `descriptors`: whether tensor descriptors load the blocks.
    `persistent`: the number of persistent programs. 0 stands for one program per tile.
    """

    tile: Tile
    descriptors: bool = False
    persistent: int = 0


def choose_tile(kernel: Kernel, m: int, n: int, depth: int, batch: int, chip: Chip) -> TileChoice:
    """Returns the tile for the products of a kernel. All products must have the same rows and the same summed axis.

    `m`, `n`: the numbers of rows and columns of one product.
    `depth`: the length of the summed axis.
    `batch`: the number of products.
    """
    dots, kind = kernel.dots, _kind(kernel.dots[0])
    if is_transposed(kernel):
        worth = batch * n * depth >= WEIGHTS if reads_bytes(dots[0]) else 2 * batch * m * n * depth >= DESCRIBED
        chosen = TileChoice(_transposed(m, n, batch, depth, chip), worth and _is_one_described(dots[0]))
    elif kind == "16" and m <= FEW_ROWS:
        chosen = TileChoice(_streaming(m, n, batch, dots[0], chip))
    else:
        room = [(t, p) for t, p in LARGE[kind] if t._replace(stages=2).bytes(dots) <= chip.shared] or LARGE[kind][-1:]
        tile_of = {p: t for t, p in room if len(dots) == 1 or t.columns <= 128}
        tile = tile_of[cheapest(chip, tile_of, (1,), batch, m, n, depth).pace]
        tiles, shallow = batch * tile.number(m, n), depth <= LITTLE_DEPTH
        whole = m >= tile.rows and n >= tile.columns and depth >= tile.depth
        worth = whole and 2 * batch * m * n * depth >= DESCRIBED and len(dots) == 1 and dots[0].on_tensor_cores
        if worth and are_described(dots[0]):
            chosen = _described(tile, dots[0], tiles, shallow, _end_bytes(kernel, dots[0]), chip)
        elif len(dots) == 1 and kind == "16" and shallow and batch * SHALLOW.number(m, n) >= 2 * chip.multiprocessors:
            chosen = TileChoice(SHALLOW)
        else:
            # Each program of the largest tile has a multiprocessor to itself: two would need too many registers.
            parts = tile.columns == DEEPER.columns and are_described(dots[0], (*dots[0].tile, dots[0].over))
            deeper = _alone(kind, tile, 1 if worth and parts else tiles, chip)
            chosen = TileChoice(deeper, worth and _is_one_described(dots[0]))
    return chosen._replace(tile=chosen.tile.within(chip.shared, dots))


def _kind(dot: Dot) -> str:
    return kind_of(dot.precision, dot.a.dtype)


def _alone(kind: str, tile: Tile, tiles: int, chip: Chip) -> Tile:
    """Adds pipeline stages to a matrix product's tile if each multiprocessor computes at most one tile."""
    return ALONE.get((tile.rows, tile.columns), tile) if kind == "16" and tiles <= chip.multiprocessors else tile


def is_transposed(kernel: Kernel) -> bool:
    """Checks whether the kernel computes exactly one product, a transposed product of 16-bit floats. In a transposed
    product, the column axis comes before the row axis. The kernel itself computes the second factor of a transposed
    product.
    """
    if len(kernel.dots) != 1 or _kind(kernel.dots[0]) != "16" or isinstance(kernel.dots[0].b, Load):
        return False
    order = [a.name for a in kernel.axes]
    row, column = kernel.dots[0].tile
    return order.index(column) < order.index(row)


def _transposed(m: int, n: int, batch: int, depth: int, chip: Chip) -> Tile:
    """Returns the tile for computing `b.T @ a.T` instead of `a @ b`."""
    # a cost model chooses the number of rows
    tile = TRANSPOSED[dequantised_product_cost.choose(chip, batch, m, n, depth, most=1).pace.rows]
    if depth <= 16:  # a single instruction; the time goes into storing, and a larger tile stores more at once
        return tile._replace(columns=2 * tile.columns)
    # If the tile's depth does not divide the length of the summed axis, the tile gets smaller blocks. The smaller the
    # blocks are, the more blocks are loaded at the same time.
    while depth % tile.depth and depth % dequantised_product_cost.UNIT == 0:
        tile = tile._replace(depth=tile.depth // 2, stages=tile.stages * 3 // 2)
    return tile


def _streaming(m: int, n: int, batch: int, dot: Dot, chip: Chip) -> Tile:
    """Returns the tile of a matrix product with few rows."""
    rows = max(16, 1 << (m - 1).bit_length())
    # a product with few rows spends most of its time on loading the second factor
    columns = next((c for c in (128, 64) if batch * -(-n // c) >= chip.multiprocessors - 4), NARROW)
    one = Tile(rows, columns, 128 if columns == 128 else 256, 4, 1)
    most = 6 if isinstance(dot.a, Load) and isinstance(dot.b, Load) else 4  # a computed factor takes more memory
    return one._replace(stages=most).within(chip.shared, [dot])


# ---- through descriptors ---------------------------------------------------------------


def _described(tile: Tile, dot: Dot, tiles: int, shallow: bool, ends: int, chip: Chip) -> TileChoice:
    """Chooses the tile of a product when tensor descriptors can load both factors."""
    # `shallow`: the summed axis is short. `ends`: the bytes of shared memory for each element of a tile that is stored.
    kind = _kind(dot)
    # only the largest tile, the first in tiles.toml, can have persistent programs
    if kind != "tf32x3" and tile != LARGE[kind][0][0]:
        return TileChoice(_alone(kind, tile, tiles, chip), ends <= 2)
    if kind in ("tf32", "tf32x3"):
        return TileChoice(tile, True)
    persistent = [t for t in ((DEEPER, tile) if shallow else (tile,)) if _leaves_room(t, [dot], ends, chip.shared)]
    many = tiles > chip.multiprocessors
    return TileChoice(persistent[0], True, programs(tiles, chip)) if persistent and many else TileChoice(DEEPER, True)


def programs(tiles: int, chip: Chip) -> int:
    """Returns the smallest number of persistent programs that computes all tiles in the fewest waves.

    More programs than the returned number would not save time, but would use more power and more of the L2 cache.
    """
    rounds = -(-tiles // chip.multiprocessors)
    return -(-tiles // rounds)


def _leaves_room(tile: Tile, dots: Sequence[Dot], ends: int, shared: int) -> bool:
    """Checks whether shared memory can store a tile while the next tile is loaded."""
    # `ends`: the bytes of shared memory that each element of the tile needs while the tile is stored
    return tile.bytes(dots) + tile.rows * tile.columns * ends <= shared - RESERVED


def with_descriptor_stores(kernel: Kernel, chosen: Schedule, chip: Chip) -> Schedule:
    """Adds stores through tensor descriptors to the schedule of a persistent kernel. Stores use tensor descriptors only
    if shared memory has room for the stored tile and the next loaded tile at once.

    All loads that follow the loop over the summed axis share one piece of shared memory. A store through a descriptor
    needs shared memory of its own. The memory for the store is free again when the copy engine has finished the store.
    """
    # Products that share a loop have more in shared memory, so there is no room.
    if kernel.shared_loop or not (chosen.descriptors and chosen.persistent and kernel.dots):
        return chosen
    first = kernel.dots[0]
    rows, columns, depth = (chosen.axes[name][1] for name in (*first.tile, first.over))
    tile = Tile(rows, columns, depth, chosen.warps, chosen.stages)
    ends = _ends(kernel, first)
    read = max((op.buffer.dtype.bytes for op in ends if isinstance(op, Load)), default=0)
    stored = sum(op.buffer.dtype.bytes for op in ends if isinstance(op, Store))
    return replace(chosen, descriptor_stores=_leaves_room(tile, kernel.dots, read + stored, chip.shared))


def _ends(kernel: Kernel, dot: Dot) -> list[Load | Store]:
    """Returns the loads and stores of a matrix product that run once per tile, after the loop over the summed axis."""
    tiled = [op for op in kernel.body if isinstance(op, (Load, Store))]
    return [op for op in tiled if set(dot.tile) <= op.indexed_by]


def _end_bytes(kernel: Kernel, dot: Dot) -> int:
    """Returns how many bytes of shared memory each element of a stored tile takes."""
    found = [op.buffer.dtype.bytes for op in _ends(kernel, dot)]
    # All loads and stores after the loop use the same piece of shared memory. Triton stores a tile of 16-bit elements
    # in two halves if the kernel loads and stores no other tile after the loop.
    return 1 if found == [2] else max(found, default=4)


def are_described(dot: Dot, blocked: Sequence[str] = ()) -> bool:
    """Checks whether tensor descriptors can load both factors of a product. The argument `blocked` names axes along
    which an index may have an offset. For example, an index has an offset along a summed axis that is split into parts.
    """
    return all(isinstance(f, Load) and is_described(f, blocked) for f in (dot.a, dot.b))


def _is_one_described(dot: Dot) -> bool:
    """Checks whether a tensor descriptor can load at least one of a product's two matrices."""
    loads = _rows_of(dot.a, dot) | _rows_of(dot.b, dot)
    # the factors must be computed from exactly two loaded matrices
    return len(loads) == 2 and any(is_described(load, (*dot.tile, dot.over)) for load in loads)


def is_described(load: Load, blocked: Sequence[str] = ()) -> bool:
    """Checks whether a tensor descriptor can load complete blocks of the array that `load` reads.

    Each index of the load must be an axis or a number. An index along an axis in `blocked` may be the axis plus an
    offset.
    """
    return may_be_described(load) and has_steps(load.buffer) and all(_is_along(d, blocked) for d in load.index)


def _is_along(index: Dim, blocked: Sequence[str]) -> bool:
    """Checks whether an index is an axis, a number, or an axis plus an offset."""
    # only an axis named in `blocked` may have an offset
    own = [s for s in index.symbols() if s.name in blocked]
    parted = index.coefficient(own[0]) if len(own) == 1 else None
    return index.atom is not None or index.constant is not None or parted is not None and parted[0] == 1


def may_be_described(load: Load) -> bool:
    """Checks whether the index and the masks of a load permit a tensor descriptor. A load whose indices come from
    memory does not suit a tensor descriptor. A mask may exclude only elements past the end of the array. For excluded
    elements, the load must return 0.
    """
    ends = {e - 1 - d for d, e in zip(load.index, load.buffer.shape)}
    return not load.picks and load.other == 0 and set(load.guards) <= ends


def has_steps(buffer: Buffer) -> bool:
    """Checks whether a tensor descriptor allows the strides of a buffer (CUDA driver API, cuTensorMapEncodeTiled).

    The last axis of the buffer must be contiguous. Every stride except the last must be a multiple of 16 bytes, and
    also a multiple of the next axis's stride. Except for the last axis, the stride of an axis must be at least the
    product of the next axis's stride and extent.
    """
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


# ---- tiles to measure -----------------------------------------------------------------------


def persistent_choice(kernel: Kernel, chip: Chip) -> TileChoice | None:
    """Returns the tile for a persistent kernel that loads its factors with tensor descriptors. Returns None if the tile
    does not fit into shared memory. Returns None if each multiprocessor would compute at most one tile.
    """
    dots, extents = kernel.dots, {a.name: size(a, 1) for a in kernel.parallel}
    tile, ends = LARGE[_kind(dots[0])][0][0], _end_bytes(kernel, dots[0])
    tiles = batches(kernel, *dots[0].tile) * tile.number(*(extents[name] for name in dots[0].tile))
    fits = len(dots) == 1 and _leaves_room(tile, dots, ends, chip.shared)
    return TileChoice(tile, True, programs(tiles, chip)) if fits and tiles > chip.multiprocessors else None


def candidates(kernel: Kernel, rows: int, chip: Chip) -> list[Tile]:
    """Returns tiles that are worth measuring for the products of a kernel. All products of the kernel have the same
    rows and the same summed axis.

    The argument `rows` is the number of rows of a tile that the schedule rules chose.
    """
    dots, kind = kernel.dots, _kind(kernel.dots[0])
    if is_transposed(kernel):
        found = [t for t in _tiles("transposed", "others") if rows <= 2 * t.rows <= 4 * rows]
    else:
        found = _tiles("streams") if kind == "16" and rows <= FEW_ROWS else _tiles(kind, "others")
    return [t for t in found if t.bytes(dots[:1]) <= chip.shared]
