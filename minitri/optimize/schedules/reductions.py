"""Chooses block sizes for reductions of rows and of columns. Rows are contiguous in memory, and columns are strided.

The function `reduction` returns the schedule of a kernel with reductions. The schedule contains a role (grid, loop or
whole) and a block size for each axis. The schedule also contains the number of warps and the name of the rule. Block
sizes depend on the length of a row and the size of an element. Block sizes also depend on whether the kernel writes
whole rows, as a softmax does.

  - Short rows: a program computes several rows, which have 1024 elements together. If a thread loads few bytes at once,
    rows that are only reduced have 2048 elements together. Rows that share a bias or scale have 2048 elements together
    if they do not begin at multiples of 16 bytes, or if they have at most 64 elements of 16 bits.
  - Rows that fit: a program keeps one row in registers, and reads and writes it once. A row has up to 32768 elements.
    The limit is 16384 if elements have 64 bits or are only reduced. The limit is 2048 for rows that are only reduced,
    if argmax, argmin or special functions need many registers.
  - Rows in the L1 cache: rows of narrow elements (at most 16 bits) have more than 16384 elements. They fit into a
    quarter of the L1 cache. Each reduction has a loop of its own, which reads the row again from the cache. There are
    no online reductions.
  - Longer rows: a program loops over blocks of a row. The blocks are large if the row is read again to write results as
    long as the row. A loop also stores rows of more than 4096 elements that depend on no reduction. Other blocks are
    just large enough to keep the memory busy. If at most two programs run on a multiprocessor, they have more warps and
    larger blocks.

A program has few warps, because each reduction must wait for all warps of its program. If a program only reduces its
rows, each of its warps has about a thousand elements. If a kernel writes a result for every element of a row, each warp
processes 1024 bytes of the row. For elements of at most 16 bits, each warp processes 2048 bytes. If a kernel computes
much for each element, the number of warps is doubled once or more (long_bodies.py). The numbers in this module come
from measurements on an H200 (tests/sweep_rows.py measures them again). The measured rows have 256 to 131072 elements of
16 or 32 bits. Rows whose length is unknown at compile time get smaller blocks than rows known to be long. For
reductions of columns, the functions `_columns` and `_whole_columns` choose the block sizes.
"""

import math
from collections.abc import Sequence

from minitri.base.operators import OPERATORS, POSITIONS
from minitri.hardware.chips import SECTOR, Chip
from minitri.kernels.ir import Axis, Compute, Kernel, Load, Old, Reduce, Scan, Store
from minitri.optimize.schedules.block_sizes import ENOUGH, at_most, contiguity, filled, innermost, rival, widest_bytes
from minitri.optimize.schedules.dependent_results import is_chained, streams_results
from minitri.optimize.schedules.long_bodies import more_warps
from minitri.optimize.schedules.rule_arguments import Request
from minitri.optimize.split_reduction import HELD_COLUMN
from minitri.tiles.schedule import Schedule, ceil_pow2, size

WHOLE_ROW = 32768  # longest row held in registers
FEW = 2  # with this many programs for each multiprocessor or fewer, most of the chip is idle
THREADS, ELEMENTS = 32, 256  # threads of a warp, and its elements if a thread has eight
SHORT_ROW = 64  # longest row of which a warp computes several at once
SHORT_COLUMN = 32  # longest column that one warp holds whole
MANY_COLUMNS, CACHE_LINE = 1024, 128  # columns for each multiprocessor, and bytes of a cache line
SHORTEST_COLUMN = 8  # longest reduced column of which a program holds 8 kilobytes
DEAR = 3  # with this many special functions of f32 for each element, a thread has few elements


def reduction(kernel: Kernel, request: Request) -> Schedule | None:
    """Returns the schedule of a kernel with reductions or scans. Returns None for a kernel without reductions and
    scans, and for a kernel with a product.
    """
    if kernel.dots or not kernel.reduced:
        return None
    chip, weight = request.chip, contiguity(kernel)
    inner = max((weight[a.name] for a in kernel.reduced), default=0)
    outer = max((weight[a.name] for a in kernel.parallel), default=0)
    if outer > 2 * inner:
        return _columns(kernel, weight, chip)
    row = max(math.prod(ceil_pow2(size(a, WHOLE_ROW * 2)) for a in axes) for axes in _loops(kernel))
    sector = _rows_of_a_sector(kernel, weight, inner, chip)
    streams = _streams(kernel, sector, chip)
    near = _is_near(kernel, row, chip) and not sector and not streams
    fits = row * math.prod(sector.values()) <= (4 * ENOUGH if streams else _longest(kernel)) and not near
    return _whole_rows(kernel, weight, row, sector, chip) if fits else _looped_rows(kernel, weight, near, sector, chip)


def _loops(kernel: Kernel) -> list[list[Axis]]:
    """Returns the reduced axes of each loop nest."""
    # two axes have separate loops if no operation has both axes
    nests = {frozenset(a for a in kernel.reduced if a.name in op.axes) for op in kernel.body}
    return [[a for a in kernel.reduced if a in nest] for nest in nests if not any(nest < other for other in nests)]


def _rows_of_a_sector(kernel: Kernel, weight: dict[str, int], inner: int, chip: Chip) -> dict[str, int]:
    """Returns how many rows a program must compute to store whole memory sectors, as in `softmax(x).mT`."""
    order, rows = innermost(kernel.parallel, weight), math.prod(size(a, 1 << 20) for a in kernel.parallel)
    # a program with a single row would store only a few bytes of each memory sector
    together = SECTOR // min(SECTOR, widest_bytes(kernel))
    scans = any(isinstance(op, Scan) for op in kernel.body)  # a scan of several rows is slower than narrow stores
    alone = contiguity(kernel, sectors=True)  # bytes that programs with a single row would move
    counts = bool(order) and alone[order[0].name] > inner and 2 * rows >= together * chip.multiprocessors
    # empty if rows are stored one after another, or if there are few rows
    return filled(order[:1], together) if counts and not scans else {}


def _longest(kernel: Kernel) -> int:
    """Returns the number of elements of the longest row that a program keeps in registers."""
    # Argmax and argmin need three registers for each element, and special functions of f32 need many. If each element
    # is read only once, a loop over blocks of a long row is as fast as a row in registers.
    if _only_reduces(kernel):
        return 2 * ENOUGH if _finds_positions(kernel) or _is_dear(kernel) else WHOLE_ROW // 2
    return WHOLE_ROW if widest_bytes(kernel) <= 4 else WHOLE_ROW // 2


def _is_near(kernel: Kernel, row: int, chip: Chip) -> bool:
    """Checks whether to read a long row of 8-bit or 16-bit elements several times, usually from the L1 cache."""
    # an element of 8 or 16 bits takes a whole register, so a long row of them needs too many registers
    narrow = widest_bytes(kernel) <= 2 and _reads_again(kernel)
    return narrow and row > WHOLE_ROW // 2 and row * _read(kernel, kernel.parallel) <= chip.l1 // 4


def _read(kernel: Kernel, lanes: Sequence[Axis]) -> int:
    """Returns the bytes per element that a kernel loads from arrays with a reduced axis and an axis in `lanes`."""
    reduced, parallel = ({a.name for a in axes} for axes in (kernel.reduced, lanes))
    loads = [op for op in kernel.body if isinstance(op, Load) and reduced & {*op.axes} and parallel & {*op.axes}]
    return sum({op.buffer.name: op.buffer.dtype.bytes for op in loads}.values())


def _special(kernel: Kernel, by_one: bool = True) -> int:
    """Returns how many special functions, such as exp, a kernel computes for each row element."""
    reduced = {a.name for a in kernel.reduced}
    computed = [op for op in kernel.body if isinstance(op, Compute) and op.op != "cast" and reduced & {*op.axes}]
    # divisions of a whole row by one value become multiplications, and count only with `by_one`
    counted = (op for op in computed if by_one or op.op != "divide" or reduced & {*op.args[1].axes})
    return sum(OPERATORS[op.op].cost == "special" for op in counted)


def _is_dear(kernel: Kernel, by_one: bool = True) -> bool:
    """Checks whether a kernel computes several slow functions, such as f32 `exp`, for each row element."""
    return not kernel.relaxed and widest_bytes(kernel) > 2 and _special(kernel, by_one) >= DEAR


def _finds_positions(kernel: Kernel) -> bool:
    """Checks whether the kernel computes an argmax or argmin."""
    return any(isinstance(op, Reduce) and op.op in POSITIONS for op in kernel.body)


def _whole_rows(kernel: Kernel, weight: dict[str, int], row: int, sector: dict[str, int], chip: Chip) -> Schedule:
    axes = {a.name: ("whole", ceil_pow2(size(a, 1))) for a in kernel.reduced}
    rows = math.prod(size(a, 1 << 20) for a in kernel.parallel)
    # a few rows are divided among a quarter of the multiprocessors, but a warp has at least 256 elements
    least = max(ELEMENTS // row, ceil_pow2(-(-4 * rows // chip.multiprocessors)))
    few = min(_enough(kernel, weight, row) // row, 128, least)
    order, inner = innermost(kernel.parallel, weight), max(kernel.reduced, key=lambda a: weight[a.name])
    if order and weight[order[0].name] * 8 <= weight[inner.name]:  # the rows of a program need not be neighbours
        order.sort(key=lambda a: -size(a, few) % max(1, min(few, ceil_pow2(size(a, few)))) * 8 > size(a, few))
    together = filled(order, few, sector if few < math.prod(sector.values()) else {})
    axes |= {name: ("grid", block) for name, block in together.items()}
    count = math.prod(together.values())
    rule = "rows held whole" if count == 1 else f"short rows held whole, {count} a program"
    warps, transposes = _row_warps(kernel, row, row * count), sector and not _only_reduces(kernel) and row >= ENOUGH
    if transposes:
        warps = max(warps, min(16, row * count // 512))
    elif warps <= 8:
        warps = more_warps(kernel, {name: block for name, (_, block) in axes.items()}, warps, most=2560)
    return Schedule(axes, rule, warps=warps)


def _enough(kernel: Kernel, weight: dict[str, int], row: int) -> int:
    """Returns the number of elements for a grid program that computes several short rows."""
    inner, narrow = max(kernel.reduced, key=lambda a: weight[a.name]), widest_bytes(kernel) <= 2
    # If threads load few bytes at once, because elements are narrow or rows are unaligned, a program has more elements.
    aligned = _is_aligned(kernel, inner)
    if _only_reduces(kernel):
        wide = _finds_positions(kernel) if narrow else aligned
    else:
        wide = aligned and (row > SHORT_ROW or not narrow) or not _shares(kernel, inner)
    return ENOUGH if wide else 2 * ENOUGH


def _is_aligned(kernel: Kernel, axis: Axis) -> bool:
    """Checks whether the size of a row along an axis is a multiple of 16 bytes."""
    return axis.extent.constant is not None and axis.extent.constant * widest_bytes(kernel) % 16 == 0


def _is_divided(kernel: Kernel, axis: Axis) -> bool:
    """Checks whether the address of a load contains a quotient or remainder of the position along an axis."""
    loads = (op for op in kernel.body if isinstance(op, Load))
    return any(axis.symbol in pair.a.symbols() for op in loads for pair in op.offset.pairs())


def _shares(kernel: Kernel, inner: Axis) -> bool:
    """Checks whether the kernel loads an array that all rows share, such as a bias."""
    parallel = {a.name for a in kernel.parallel}
    return any(isinstance(op, Load) and inner.name in op.axes and not parallel & {*op.axes} for op in kernel.body)


def _row_warps(kernel: Kernel, row: int, elements: int) -> int:
    """Returns the number of warps of a program that keeps rows in registers."""
    narrow, reduces = widest_bytes(kernel) <= 2, _only_reduces(kernel)
    if _is_dear(kernel):
        return max(1, min(16, elements // ELEMENTS))  # a thread has eight elements
    if row <= SHORT_ROW and not reduces:
        return max(1, min(4, elements // (512 if narrow else 256)))
    if row <= ENOUGH:
        few = 1 if elements <= ENOUGH or narrow or reduces else 2
        return few if elements <= 2 * ENOUGH else max(few, min(16, elements // ENOUGH))
    # more than a quarter of each block is padding: few warps, so that no warp has only padding
    if math.prod(size(a, row) for a in kernel.reduced) * 4 < row * 3:
        return max(1, min(16, elements // (2048 if narrow or reduces else 1024)))
    if reduces:
        return max(2, min(8, elements // 1024))
    warps = elements * widest_bytes(kernel) // (2048 if narrow else 1024)
    return max(4, min(16 if elements <= 16384 else 32, warps))


def _only_reduces(kernel: Kernel) -> bool:
    """Checks whether the kernel loads rows but stores nothing that is as long as a row."""
    reduced = {a.name for a in kernel.reduced}
    return not any(reduced & op.indexed_by for op in kernel.body if isinstance(op, Store))


def _reads_again(kernel: Kernel) -> bool:
    """Checks whether a kernel needs each row again after the reductions, to compute a result for each element."""
    # a scan computes its results while it reads the row
    return not _only_reduces(kernel) and not any(isinstance(op, Scan) for op in kernel.body)


def _warps_of_few(kernel: Kernel, chip: Chip) -> int:
    """Returns the minimum number of warps for a loop over blocks of a row."""
    programs = math.prod(size(a, 1 << 20) for a in kernel.parallel)
    # By Little's law, 4 TB/s at a latency of 0.7 µs need 21 KB in flight for each multiprocessor. If it runs one
    # program, this program alone must load that: 32 warps with 8 elements of f32 a thread load 32 KB.
    return 0 if programs > FEW * chip.multiprocessors else 16 if programs > chip.multiprocessors else 32


def _streams(kernel: Kernel, sector: dict[str, int], chip: Chip) -> bool:
    """Checks whether a kernel of many rows computes reductions and stores results in the same loop over a row."""
    return not sector and not _warps_of_few(kernel, chip) and streams_results(kernel)


def _looped_rows(kernel: Kernel, weight: dict[str, int], near: bool, sector: dict[str, int], chip: Chip) -> Schedule:
    """Returns the schedule of a program that loops over blocks of a long row."""
    scans = {op.along for op in kernel.body if isinstance(op, Scan)}
    # a block lies along the axis that is contiguous in memory, and covers the next axis too if this one is short
    widest = max(kernel.reduced, key=lambda a: (a.name in scans, weight[a.name], size(a, 1 << 30)))
    bytes, length = widest_bytes(kernel), size(widest, WHOLE_ROW)
    corrects = any(isinstance(op, Old) for op in kernel.body)  # has online reductions
    streams = _streams(kernel, sector, chip)
    reads_again = _reads_again(kernel) and not streams
    if near:
        longest, warps = 8192, 32
    elif reads_again:  # first to reduce the row, then to compute results: large blocks
        longest, warps = (WHOLE_ROW, 32) if bytes <= 4 and -length % WHOLE_ROW * 8 <= length else (8192, 16)
    elif corrects:
        longest, warps = 8192, 4
    elif _finds_positions(kernel):
        longest, warps = 512, 4 if bytes <= 2 else 8
    else:
        longest, warps = (4096, 4) if scans else (2048, 8)  # the warps of a scan wait for each other
    narrow = bytes <= 2 and not _is_aligned(kernel, widest) or _is_divided(kernel, widest)
    if narrow and (corrects or reads_again) and not near:  # each element is a load of its own
        longest, warps = 2048, 8
    if widest.extent.constant is None:  # it may be short
        longest, warps = min(longest, 4096), min(warps, 8)
    busy = _warps_of_few(kernel, chip) if widest.extent.constant and bytes <= 4 and not sector else 0
    longest, warps = max(longest, busy * ELEMENTS), max(warps, busy)
    if sector:
        longest, warps = max(1, min(longest, 8192) // math.prod(sector.values())), 8
    inside = {a for axes in _loops(kernel) if widest in axes for a in axes}
    others = [a for a in reversed(kernel.reduced) if a is not widest and a in inside]
    blocks = filled([widest, *others] if streams else [widest], longest)
    more = corrects or blocks[widest.name] < min(max(ENOUGH, busy * ELEMENTS), longest)  # fewer corrections
    blocks = filled(others, longest if more else 0, blocks)
    for a in (a for a in kernel.reduced if a not in inside):  # its loop is another one
        blocks |= filled([a], longest)
    axes = {name: ("loop", block) for name, block in blocks.items()} | {a: ("grid", n) for a, n in sector.items()}
    warps = min(warps, max(4, math.prod(blocks.values()) // ELEMENTS)) if reads_again or busy else warps
    again = ", read again for their results" if reads_again else ""
    return Schedule(axes, f"rows in blocks{again}", near, warps=warps)


def _columns(kernel: Kernel, weight: dict[str, int], chip: Chip) -> Schedule:
    """Returns the schedule for reductions of columns."""
    # neighbouring threads process neighbouring elements along a parallel axis; each iteration reads several rows
    lanes, few = innermost(kernel.parallel, weight), FEW * chip.multiprocessors
    second, bytes, aligned = rival(lanes, kernel), widest_bytes(kernel), _is_aligned(kernel, lanes[0])
    corrects = any(isinstance(op, Old) for op in kernel.body)  # has online reductions
    columns, rows = math.prod(size(a, ENOUGH) for a in kernel.parallel), math.prod(size(a, 1) for a in kernel.reduced)
    near = [lanes[0], *(a for a in lanes[1:] if weight[a.name] * 8 > weight[lanes[0].name])]  # axes of neighbours
    held = _whole_columns(kernel, near, lanes, columns, chip) if second is None and not corrects else None
    if held is not None:
        return held
    scans = any(isinstance(op, Scan) for op in kernel.body) and size(lanes[0], 64) >= 32 and (aligned or bytes < 4)
    slow = not corrects and (not aligned or _special(kernel) > 0)  # needs many threads
    # few programs with slow elements (special functions or unaligned loads): 32 columns instead of 64
    half = slow and columns <= 128 * few and rows > HELD_COLUMN and (bytes >= 4 or not aligned)
    half = half or scans and columns <= 64 * few
    if second is None:
        # loads in flight for each thread: two loads of 16 bytes, or eight loads of one element
        blocks, loads = filled(near, 32 if half else 64), 1 if scans else 2
    else:  # a transpose
        side = 2 * SECTOR // min(SECTOR, bytes)
        blocks, loads = filled(lanes[:1], 2 * side) | filled([second], side), 8
    width = math.prod(blocks.values())
    programs, deep = columns // width, loads * ENOUGH // width
    most = 8192 // width if programs <= few and not scans else deep  # a few programs load all their rows at once
    # Fewer iterations have fewer corrections.
    reduced = _rows_at_once(kernel, deep, most, 2 if corrects else 1)
    blocks |= {name: block for name, (_, block) in reduced.items()}
    # if the contiguous and the reduced axis are short, a block covers several indices of the other parallel axes
    blocks = filled(lanes if programs > 8 * few else lanes[1:], ENOUGH, blocks)  # wider blocks mean fewer programs
    if scans:
        warps = 1  # its threads add up the elements of a column without exchanging partial results
    elif corrects:  # each iteration waits for all warps at least twice
        warps = 2 if programs > 2 * few else 4
    else:  # elements of 8 bits are converted
        looped = {name for name, (role, _) in reduced.items() if role == "loop"}
        arrays = {op.buffer for op in kernel.body if isinstance(op, Load) and not looped.isdisjoint(op.axes)}
        loaded = max(1, len(arrays)) * math.prod(blocks.values()) * (4 if slow and not half else bytes)
        warps = 8 if bytes == 1 else max(4, min(8, loaded // 1024))
    axes = {a.name: ("grid", blocks[a.name]) for a in kernel.parallel} | reduced
    return Schedule(axes, f"columns, contiguous along {lanes[0].name}", warps=at_most(warps, blocks))


def _rows_at_once(kernel: Kernel, deep: int, most: int, more: int) -> dict[str, tuple[str, int]]:
    """Returns the block size of each reduced axis, and whether a program loops over the axis."""
    axes: dict[str, tuple[str, int]] = {}
    for a in reversed(kernel.reduced):
        block = ceil_pow2(size(a, more * deep))
        # longer columns than `most` get a loop, even if one iteration reads all their rows
        is_whole = a.extent.constant is not None and block <= most
        axes[a.name] = ("whole", block) if is_whole else ("loop", min(more * deep, block))
        deep, most = (max(1, n // axes[a.name][1]) for n in (deep, most))
    return axes


def _whole_columns(
    kernel: Kernel, near: Sequence[Axis], lanes: Sequence[Axis], columns: int, chip: Chip
) -> Schedule | None:
    """Returns the schedule of a program that keeps columns in registers, or None."""
    # `near` are the axes of neighbouring columns. If they have enough columns for a warp, but not for a program, the
    # program has columns along other axes, too.
    scans, neighbours = any(isinstance(op, Scan) for op in kernel.body), math.prod(size(a, ENOUGH) for a in near)
    covered = near if scans or neighbours < THREADS else lanes
    column, bytes = math.prod(ceil_pow2(size(a, 2 * ENOUGH)) for a in kernel.reduced), widest_bytes(kernel)
    # a softmax along columns uses each element twice, but reads each element once if columns stay in registers
    chosen = _reduced_columns if _only_reduces(kernel) and not is_chained(kernel) else _kept_columns
    fits, width, warps = chosen(kernel, near, column, columns, chip)
    # short columns of 8-bit or 16-bit elements stay in registers only if rows are multiples of 16 bytes
    narrow = column <= SHORT_COLUMN and bytes < 4 and not _is_aligned(kernel, lanes[0])
    # columns too long for registers, or fewer columns than a program would cover
    if not fits or narrow or math.prod(size(a, ENOUGH) for a in covered) < width:
        return None
    blocks = dict.fromkeys((a.name for a in kernel.parallel), 1) | filled(covered, width)
    axes = {name: ("grid", block) for name, block in blocks.items()}
    axes |= {a.name: ("whole", ceil_pow2(size(a, 1))) for a in kernel.reduced}
    warps = more_warps(kernel, {name: n for name, (_, n) in axes.items()}, max(1, min(16, warps)), most=2560)
    return Schedule(axes, f"columns held whole, contiguous along {lanes[0].name}", warps=warps)


def _reduced_columns(
    kernel: Kernel, lanes: Sequence[Axis], column: int, columns: int, chip: Chip
) -> tuple[bool, int, int]:
    """Chooses the columns and the warps of each program, and whether programs keep reduced columns in registers."""
    bytes, many = widest_bytes(kernel), columns > 512 * FEW * chip.multiprocessors
    # columns of at most 16 elements are kept in registers even if there are few columns
    alone = 2 * column <= SHORT_COLUMN and len(kernel.parallel) == 1
    least = (ENOUGH if alone else 2 * ENOUGH) // column if many else 1
    width = max(min(256 // bytes, 2048 // column), least)
    # Several warps would exchange partial results of a few elements through shared memory, so most programs have one.
    # For columns of at most 16 elements, each warp covers 512 bytes of every row.
    return column <= SHORT_COLUMN and (many or alone), width, width * bytes // 512 if alone else 1


def _kept_columns(
    kernel: Kernel, lanes: Sequence[Axis], column: int, columns: int, chip: Chip
) -> tuple[bool, int, int]:
    """Returns whether a column stays in registers, how many columns a program computes, and how many warps it has."""
    bytes, scans = widest_bytes(kernel), any(isinstance(op, Scan) for op in kernel.body)
    few = FEW * chip.multiprocessors
    # columns longer than HELD_COLUMN: fewer columns for each program, so that there are more programs
    # long columns of a scan: fewer columns, because its warps wait for each other
    narrowest = (16 if scans and column > 128 else 32) if column <= HELD_COLUMN else SECTOR // bytes
    # 256 bytes of each row; fewer if columns are long, more if columns are very short
    shortest = 8192 if column <= SHORTEST_COLUMN and _only_reduces(kernel) else 2048
    width = max(narrowest, max(min(256, 8192 // column), shortest // column) // bytes)
    # If there are many columns, a program reads a whole cache line of each row. Few columns lie past the end of a row.
    line, row = CACHE_LINE // bytes, math.prod(size(a, ENOUGH) for a in lanes)
    many = columns >= MANY_COLUMNS * chip.multiprocessors and 2 * column <= HELD_COLUMN
    width = max(width, line) if many and -row % line * 8 <= row and not scans else width
    # if there are few columns, longer columns than usual are kept in registers
    longest = HELD_COLUMN if scans or _reads_again(kernel) or columns > 16 * few else ENOUGH
    # Every thread of a column repeats what is computed once for the column, such as a square root. If there are many
    # columns, divisions of a column by one value are not counted.
    dear = _is_dear(kernel, by_one=columns <= 256 * few)
    # eight elements for each thread, or at least two kilobytes of column elements for each warp
    read = _read(kernel, lanes if scans else kernel.parallel)
    warps = column * width // ELEMENTS if dear else ceil_pow2(column * width * read) // 4096
    # slightly more than one wave: sixteen elements for each thread, so that all programs run at once
    if dear and 1 < columns // width * warps / (chip.warps * chip.multiprocessors) <= 1.5:
        warps //= 2
    return column <= longest, width, warps
