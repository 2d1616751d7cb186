"""graph → graph: fills the GPU by splitting long reductions with few results into two steps ("split reduction").

    %1: f32[] = reduce.sum x {axes = [0]}          x: f32[1048576]
      becomes
    %0: f32[1024, 1024] = view x {index = [1024*d0 + d1]}
    %1: f32[1024] = reduce.sum %0 {axes = [1]}     one program per part
    %2: f32[] = reduce.sum %1 {axes = [0]}

A reduction of columns is split even if the reduction has many results. If a reduction depends on another reduction of
the same elements, both reductions are split into the same parts. For example, if a mean and a variance reduce the same
columns, each part is read once and stays in registers. If they reduce several axes, such as the axes 0 and 2 of an
array with three axes, the parts have at most 4096 elements and stay in registers, too. A sum over a whole matrix can
depend on a reduction of each row, such as the mean of the row. For example, `sum(x - mean(x, axis=1))` is split into
one part for each row of x. One kernel then computes the mean and the sum of each row. The file
minitri/optimize/two_step_reductions.py describes the two steps of a split reduction. If one loop computes a reduction
and a matrix product, this pass does not split the reduction. Only minitri/optimize/split_kv.py splits loops that
compute both a reduction and a matrix product.

The kernel that computes partial results can also store other results that need the same elements. The kernel then reads
each element only once, for all results (minitri/optimize/fusion/shared_axes.py). For the program `sum(x), 2 * x`, for
example, one kernel computes partial sums of x and stores `2 * x`.

Kernels use no atomic operations, and the order of additions depends only on the sizes. Therefore each run gives the
same result. If the last part is shorter than the other parts, the last part is padded. A reduction is split only if its
sizes are known.
"""

import math
from collections.abc import Container, Iterator, Mapping

from minitri.base.dims import Dim, Quotient, product
from minitri.base.operators import POSITIONS
from minitri.graph import ir
from minitri.graph.ir import Apply, Concat, Contract, Graph, Input, Interner, Layouts, Node, Reduce, axis, axis_symbol
from minitri.graph.scalar_form import Element, element
from minitri.hardware.chips import Chip
from minitri.optimize.split_kv import loops
from minitri.optimize.two_step_reductions import LANES, WAVES, Cut, Halves, split

MOST_LOOKED_AT = 64  # the most nodes that the search for the largest array visits
SHORTEST, SHORTEST_COLUMN = 16385, 512  # reducing fewer elements is not worth a second kernel
LONG = 8  # rows and columns LONG times as long as the shortest are split even if there are many
ALIGNED, BLOCK = 16, 2048  # the most elements in 16 bytes, and the elements that a program reduces at once
MOST_PARTS = 1024  # the second kernel reduces this many at once
SHORTEST_PART, LEAST = 128, 1024  # the fewest elements of a part, for columns and for rows
PIECE = 512  # the fewest contiguous elements of a part of several axes
SHORTEST_ROW = 64  # the fewest elements of a row that is reduced before the rows are combined
HELD_ROWS = 4096  # the most elements of a part of rows that a program keeps in registers, instead of reading them twice
HELD_COLUMN = 256  # the longest column that a program keeps in registers, if it would be read twice otherwise
CHAINED = 8  # columns with chains of reductions get CHAINED times as many programs
FEW_PARTS = 4  # parts are complete rows if there are at least 1 / FEW_PARTS of the wanted parts


def split_reductions(graph: Graph, chip: Chip, layouts: Layouts = {}) -> Graph:
    """Returns the graph in which long reductions are computed in parts. The field `splits` of the graph lists the split
    reductions.

    The argument `layouts` maps the name of each input that is not contiguous in memory to the strides of this input.
    """
    cuts: dict[Node, Cut] = {}  # split reductions, by their result
    looped, chained, rows = loops(graph), _chained(graph), rows_first(graph, chip, layouts)

    def halves(i: Interner, node: Node, made: Reduce) -> Halves | None:
        if node in rows and node not in looped:
            return _by_rows(i, made, rows[node], chip)
        k, parts, length = choose(made, chip, layouts, node in chained)
        return Cut(i, made, k, parts, length).made(cuts) if parts > 1 and node not in looped else None

    return split(graph, split_reductions, halves, Reduce)


def rows_first(graph: Graph, chip: Chip, layouts: Layouts = {}) -> dict[Node, int]:
    """Returns the reductions that are computed row by row. The first step reduces each row, and the second step
    combines the results of the rows. The returned dict maps each reduction to an axis k. A row consists of all axes
    from k to the last axis.

    A reduction is computed row by row if the kernel of the first step can also compute another reduction or scan of
    these rows. For example, in a program with `max(x, axis=1)` and `sum(x)`, the sum is computed row by row. The dict
    contains no reduction that depends on another reduction of the same elements.
    """
    rows: dict[Node, tuple[int, tuple[Dim, ...]]] = {}  # with the shape of the array of rows
    for n in graph.nodes():
        if isinstance(n, (Reduce, ir.Scan)):
            axes = n.axes if isinstance(n, Reduce) else (n.axis,)
            same = (x for x, _ in _computed(n) if isinstance(x, Input) and x.shape == n.x.shape)
            last = len(axes) == n.x.rank - min(axes) < n.x.rank
            rows |= dict.fromkeys((n, *same), (min(axes), n.x.shape)) if last else {}

    def shared(n: Reduce) -> int:
        known = (rows[x] for x, _ in _computed(n) if x in rows)
        return max((k for k, shape in known if shape == n.x.shape and _has_many_rows(n, k, chip, layouts)), default=0)

    chained = _chained(graph) if rows else set[Node]()
    alone = [n for n in graph.nodes() if isinstance(n, Reduce) and n not in chained] if rows else []
    return {n: first for n in alone if (first := shared(n)) > 0}


def _has_many_rows(node: Reduce, first: int, chip: Chip, layouts: Layouts) -> bool:
    """Checks whether a reduction has enough long rows to reduce each row separately, as the first of two steps."""
    if node.op in POSITIONS or any(e.constant is None for e in node.x.shape):
        return False
    rows, row = [int(node.x.shape[k]) for k in node.axes if k < first], [int(e) for e in node.x.shape[first:]]
    whole = len(node.axes) == len(rows) + len(row)  # each row is reduced completely
    many, programs = chip.multiprocessors, math.prod(int(e) for e in node.x.shape[:first])
    if max(contiguous_axes(node, layouts)[1], default=first) < first:  # rows that are neighbours in memory
        programs = 2 * programs // LANES  # one program reduces LANES rows, so half as many programs are enough
    return whole and programs >= many and math.prod(rows) >= many and math.prod(row) >= SHORTEST_ROW


def _by_rows(i: Interner, node: Reduce, first: int, chip: Chip) -> Halves:
    """Replaces a reduction by two reductions: the first reduces each row, and the second combines the results of the
    rows.
    """
    outer = tuple(k for k in node.axes if k < first)
    rows = i.reduce(node.op, node.x, tuple(range(first, node.x.rank)))
    whole = i.reduce(node.op, rows, outer)
    k, parts, length = choose(whole, chip)
    made = Cut(i, whole, k, parts, length).made({})[0] if parts > 1 else whole
    count, row = (product(list(shape)) for shape in ([rows.shape[k] for k in outer], node.x.shape[first:]))
    return made, int(count), row


def _chained(graph: Graph) -> set[Node]:
    """Returns dependent reductions of the same elements, such as a mean and a variance."""
    found = set[Node]()
    for node in (n for n in graph.nodes() if isinstance(n, Reduce)):
        of_same = (x for x, _ in _computed(node) if isinstance(x, Reduce) and x.axes == node.axes)
        same = {x for x in of_same if x.x.shape == node.x.shape}
        found |= {node, *same} if same else set()
    return found


def choose(node: Reduce, chip: Chip, layouts: Layouts = {}, chained: bool = False) -> tuple[int, int, Dim]:
    """Returns the axis to split, the number of parts and the length of a part. If splitting the axis would not make the
    reduction faster, the number of parts is 1.

    `chained`: whether a chain of dependent reductions over the same elements contains the reduction `node`.
    """
    whole = node.axes[0], 1, node.x.shape[node.axes[0]]
    if any(e.constant is None for e in node.x.shape):
        return whole
    extents, results = {k: int(node.x.shape[k]) for k in node.axes}, math.prod(map(int, node.shape))
    bytes, inner = contiguous_axes(node, layouts)
    width = 0 if inner & extents.keys() else bytes
    count, wanted = math.prod(extents.values()), WAVES * chip.multiprocessors
    columns = chained and width > 0  # a chain of rows of one contiguous axis is split like a single reduction
    parts = _parts(count, results, width, CHAINED * wanted if columns else wanted)
    # If one loop computed the chain, each iteration would correct the partial results.
    if parts > 1 and chained and (columns or extents.keys() - inner):
        k = max(extents if columns else extents.keys() - inner, key=extents.__getitem__)
        enough = 1 << (count * results // (LANES // 4 * wanted) - 1).bit_length()  # a column that gives enough programs
        elements = min(HELD_COLUMN, max(LANES, enough)) if columns else min(HELD_ROWS, count // parts)
        held = _held(extents[k], count // extents[k], elements)
        if extents[k] <= MOST_PARTS * held:
            return k, -(-extents[k] // held), Dim.of(held)
    if parts == 1:
        return whole
    k = _axis(extents, inner, parts)
    any_start, long, unit = k not in inner, extents[k], _unit(node, k, extents[k] // parts, layouts)
    most = long if any_start or len(extents) == 1 else long // PIECE
    length = unit * _length(long // unit, max(1, min(parts, most)), any_start or unit > 1)
    return (k, -(-long // length), Dim.of(length)) if 0 < length < long else whole


def _unit(node: Reduce, k: int, most: int, layouts: Layouts) -> int:
    """Returns n if a contiguous axis is read at an index `k // n`, such as `k // 512`, and otherwise 1."""
    # Parts whose lengths are multiples of 512 can be divided into two axes (divide_axes.py).
    along = [index[_fastest(x, layouts)] for x, index in _computed(node) if index]
    pairs = [p for d in along for p in d.pairs() if isinstance(p, Quotient) and p.a == axis(k)]
    return next((int(p.b) for p in pairs if (p.b.constant or most + 1) <= most and node.x.shape[k] % p.b == 0), 1)


def _axis(extents: Mapping[int, int], inner: Container[int], parts: int) -> int:
    """Returns which axis of a reduction to split."""
    # The parts of a contiguous axis have at least PIECE elements, because shorter parts load slowly.
    possible = {k: n // PIECE if k in inner else n for k, n in extents.items()}
    # If the longest axis that is not contiguous in memory is long enough, the parts are complete rows.
    outer = max((k for k in extents if k not in inner), key=lambda k: extents[k], default=None)
    if outer is not None and possible[outer] * FEW_PARTS >= parts:
        return outer
    return max(extents, key=lambda k: (possible[k], extents[k]))


def _parts(count: int, results: int, width: int, wanted: int) -> int:
    """Returns into how many parts to split a reduction, so that the first step has about `wanted` grid programs."""
    # `width` is the size of an element in bytes if columns are reduced, and 0 if rows are reduced.
    programs = -(-results // LANES) if width else results
    shortest = SHORTEST_COLUMN if width else SHORTEST
    if programs == 0 or count < shortest:  # a second kernel would take longer than the split saves
        return 1
    # A program loads a few rows of its columns at a time. The smaller an element is, the fewer bytes a row has, and the
    # more programs are needed to keep the memory busy.
    parts = min(wanted // (max(2, width) * programs), count // SHORTEST_PART) if width else 1
    long = count >= LONG * shortest
    # Rows are split if there are at most half as many rows as multiprocessors, and very long rows if there are at most
    # twice as many.
    if programs * (4 if long else 16) <= wanted and (long or not width):
        parts = max(parts, min(wanted // programs, count // LEAST))
    return max(1, min(parts, MOST_PARTS))


def _length(extent: int, parts: int, any_start: bool) -> int:
    """Returns the length of each part if an axis of `extent` elements is split into about `parts` parts."""
    least = parts - parts // 4 if any_start else parts // 2 + 1
    even = [extent // n for n in range(parts, least - 1, -1) if extent % n == 0]
    # Parts of rows begin at multiples of 16 bytes.
    if even and (any_start or (even[0] % ALIGNED == 0 and _fills(even[0]))):
        return even[0]
    length = -(-extent // parts)  # the last part can be shorter
    if any_start:  # a part can begin at any index
        return length
    if length >= 8 * BLOCK:
        return next((n for n in even if n % ALIGNED == 0), -(-length // BLOCK) * BLOCK)
    less = 1 << (length.bit_length() - 1)
    return less if -(-extent // less) <= MOST_PARTS else 2 * less


def _held(extent: int, others: int, elements: int) -> int:
    """Returns how long each part of a split axis can be if a program keeps `elements` elements in registers."""
    most = elements // others  # 0 if the other reduced axes have too many elements
    # A slightly shorter length that divides the axis makes all parts equally long.
    return next((n for n in range(most, most * 3 // 4, -1) if extent % n == 0), most)


def _fills(length: int) -> bool:
    """Checks whether a part of `length` elements nearly fills the blocks that a program loads."""
    # Only few elements of the last block may lie past the end of the part.
    return length >= 8 * BLOCK or length * 4 >= 3 << (length - 1).bit_length()


def contiguous_axes(node: Reduce | ir.Scan, layouts: Layouts = {}) -> tuple[int, set[int]]:
    """Returns the bytes of one element, and the set of axes along which the operand is contiguous in memory.

    The operand can be computed from several arrays and matrix products. The returned axes are contiguous in the largest
    array or matrix product. The set of axes can be empty.
    """
    largest, width, found = -1, node.x.dtype.bytes, {node.x.rank - 1}
    for x, index in _computed(node, ir.Scan, Concat):
        size = product(list(x.shape)).constant or 0
        if isinstance(x, (Input, Contract, Reduce)) and x.rank and size > largest:
            symbols = index[_fastest(x, layouts)].symbols()
            along = {k for k in range(node.x.rank) if axis_symbol(k) in symbols}
            largest, width, found = size, x.dtype.bytes, along
    return width, found


def _computed(node: Reduce | ir.Scan, *through: type[Node]) -> Iterator[Element]:
    """Yields the arrays that a reduction's operand is computed from, with their index expressions."""
    stack = [element(node.x, tuple(map(axis, range(node.x.rank))))]
    for _ in range(MOST_LOOKED_AT):
        if not stack:
            break
        x, index = stack.pop()
        if isinstance(x, (Apply, *through)):  # `Apply` is an elementwise node
            stack += [element(a, index) for a in ir.children(x)]
        elif isinstance(x, Concat) and x.axis != x.rank - 1:
            stack += [element(p, index) for p in x.parts]
        else:
            yield Element(x, index)


def _fastest(x: Node, layouts: Layouts) -> int:
    """Returns the axis with the smallest stride among the axes of an array."""
    strides = layouts.get(x.name) if isinstance(x, Input) else None
    if strides is None or any(s.constant is None for s in strides):
        return -1  # the last axis, if the array has no other layout
    return min(range(x.rank), key=lambda k: (int(strides[k]) if x.shape[k] != 1 else math.inf, -k))
