"""graph → graph: copies a factor of a large product into a layout that tensor cores can read ("packing").

    %0: f32[4100, 3072] = contract x, w              x: bf16[4100, 4090], w: bf16[4090, 3072]
      becomes
    %2: bf16[4100, 4096] = concat x, %1 {axis = 1}   %1: zeros, up to a multiple of 16 bytes
    %3: bf16[4100, 4096] = cast %2                   a copy: the dtype stays
    %5: bf16[4096, 3072] = concat w, %4 {axis = 0}   zeros that nothing stores
    %6: f32[4100, 3072] = contract %3, %5

The hardware can copy a block of a matrix directly to shared memory if two conditions hold. The rows of the matrix must
begin at multiples of 16 bytes, and the copy must leave each element unchanged. TF32 products also need factors that are
contiguous along the depth, the summed axis ("K-major"). For f32 factors on tensor cores (f32_products.py), the first
factor need not be contiguous along the depth. If the second f32 factor of a product is not contiguous along the depth,
the pass has three choices: copy the factor, swap the two factors, or multiply without tensor cores. The factors of a
product can be swapped because `x @ w` equals `(w.mT @ x.mT).mT`. The pass makes the choice with the least estimated
time (product_cost.py). For example, the factors are swapped in a batch of 256 products `x @ w` with `x: f32[64, 768]`
and `w: f32[768, 256]`. Transposed copies of all 256 matrices `w` would take longer than the products themselves. F32
products that do not run on tensor cores run on the f32 units of the chip. For the f32 units, the elements of each row
of the second factor must be adjacent in memory. A factor without the layout that its product needs is slow to read, and
each tile of the result reads the factor again. If each element of a factor is used often, one packed copy costs less
than many slow reads.

The hardware can copy rows of an unpacked first factor to shared memory if the rows begin at multiples of 4 bytes. A
first factor whose rows begin at multiples of 4 bytes is copied only if the product uses each element at least
REUSE_OF_ASYNC (1536) times. If the rows of a 16-bit factor begin at odd multiples of 2 bytes, each element needs a load
of its own. Such a misaligned factor is copied even if the product has few operations. For example, `pad(x, ((0, 0), (1,
1))) @ w` loads blocks of x that begin at x[i, r - 1], one element before an aligned address. On tensor cores, a first
f32 factor such as `x[:, ::2]` also needs a load for each element, and is copied. A first factor made by concatenation
is copied if more than one tile of result columns reads it. An unpacked concatenation needs several loads and a test for
each element. A first factor may also be read in pieces, as in `concat((-x[:, 2048:], x[:, :2048]), axis=1) @ w`. Each
element of such a factor needs a load of its own, so the factor is copied, too. A second factor that must be computed is
first stored in memory if more than one row of tiles uses the factor. If the factor were computed during the product,
the tensor core would wait for each block of the factor. In `(x + y).mT @ z` with 16-bit arrays, the copy of the first
factor has the layout of x. Such a copy reads and writes rows, and needs no zeros. If a 16-bit factor is copied without
zeros, all products with this factor read the copy. Only a product with many rows copies its 8-bit weights. The
copied 8-bit weights are not yet multiplied by their scale (weight_scales.py). If the product has few rows, tensor cores
take 8-bit weights from registers (fusion/factor_order.py). If a factor is a padded running sum, such as
`pad(cumulative_sum(x), 1)`, a kernel must store the running sum anyway. The kernel then stores the padded running sum
instead, so the product loads a plain array.

Packing is known from fast matrix products on CPUs (Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication", 2008).

The pass `pack-operands` takes a graph, and the strides of inputs that are not contiguous. The pass does not change
integer products, or products whose sizes are unknown. Products of 16-bit factors stay unchanged if the summed axis is
short. In attention, for example, the summed axis of a product is short, and one program reads the whole axis. A product
can also share a loop with other reductions. Such a product is not changed if its first factor has dtype f32 or is not
loaded from memory.
"""

import math
from collections.abc import Iterable

from minitri.base.dims import ZERO, Dim
from minitri.base.tf32_splitting import LEAST_DEPTH
from minitri.base.types import f32
from minitri.graph import ir
from minitri.graph.ir import Contract, Graph, Interner, Layouts, Node, axis, axis_symbol
from minitri.graph.rewrite import rewritten
from minitri.graph.scalar_form import element
from minitri.graph.weight_scales import scaled, taken_out
from minitri.hardware.chips import Chip
from minitri.hardware.targets import ALIGNMENT
from minitri.optimize.dequantised_product_cost import is_converted
from minitri.optimize.factor_layouts import fits, is_along_depth, is_along_rows, is_rolled, places
from minitri.optimize.product_cost import time_of_copy
from minitri.optimize.split_k import ASYNC, fastest, is_read
from minitri.optimize.split_kv import loops
from minitri.optimize.two_step_reductions import made_of, padded

DEPTH, DEPTH_OF_COPY = 512, 64  # the least depth of a product, and of a product with rows at odd multiples of 2 bytes
REUSE, REUSE_OF_ASYNC, REUSE_OF_COMPUTED, REUSE_OF_CONVERTED = 512, 1536, 129, 1280  # the fewest uses of an element
REUSE_OF_F32, REUSE_OF_SINGLE = 128, 64  # the same in f32, and in 16 bits if each element needs a load of its own
SWAPPED = 1.1  # an estimate of how much longer a product of TF32 parts takes that stores its result transposed
WORTH = 1 << 34  # the fewest operations of a product whose first factor is copied; 2**34 take about 25 microseconds
WORTH_COMPUTED = 1 << 31  # the same for a second factor
WORTH_F32 = 1 << 30  # the same in f32, and for a concatenation; 2**30 operations take more than ten microseconds
WORTH_OF_PARTS = 1 << 26  # the fewest operations of a product of TF32 parts
WORTH_OF_COPY = 1 << 29  # the fewest operations of a 16-bit product, for rows at odd multiples of 2 bytes
WORTH_OF_SINGLE, DEPTH_OF_SINGLE = 1 << 26, 256  # the same with a longer depth
SIDE_OF_PARTS, COLUMNS_OF_PARTS = 32, 16  # the fewest rows (tensor cores compute 64 at a time) and columns
LARGEST = 1 << 28  # the most elements of scores that are stored between the products of attention


def pack(graph: Graph, layouts: Layouts, chip: Chip, parts: bool = False) -> Graph:
    """Returns the graph in which some factors of large products are copied into a layout that tensor cores can read.
    The argument `parts` says whether tensor cores compute f32 products as sums of products of TF32 parts.
    """
    looped = in_loops(graph, parts)
    products = [n for n in graph.nodes() if isinstance(n, Contract) and n not in looped]
    # a kernel stores a running sum anyway, so it can store the padded sum instead
    stored = _concatenated(f for product in products for f in (product.a, product.b))

    def packed(i: Interner, node: Node, made: Node) -> Node | None:
        if node in stored:
            return i.apply("cast", made.dtype, made.shape, (made,))
        if not isinstance(made, Contract) or node in looped and (made.a.dtype == f32 or not is_read(made.a)):
            return None
        wanted = _wanted(made, layouts, chip, parts)
        return _packed(i, made, layouts, wanted) if wanted else None

    return _shared(rewritten(graph, pack, packed))


def _shared(graph: Graph) -> Graph:
    """Lets all 16-bit products with a factor read the copy of this factor, if there is a copy without zeros.

    For example, `-x @ v` reads the copy of `-x` that `-x @ w` needs.
    """
    copied = {n.args[0] for n in graph.nodes() if isinstance(n, ir.Apply) and ir.is_copy(n) and n.dtype.bits == 16}

    def shared(i: Interner, node: Node, made: Node) -> Node | None:
        def read(old: Node, new: Node) -> Node:
            if isinstance(old, ir.View) and isinstance(new, ir.View) and old.x in copied:
                return i.view(read(old.x, new.x), new.shape, new.index)
            return i.apply("cast", new.dtype, new.shape, (new,)) if old in copied else new

        if not isinstance(node, Contract) or not isinstance(made, Contract) or is_converted(node):
            return None
        product = i.contract(read(node.a, made.a), read(node.b, made.b), node.precision)
        return product if product is not made else None

    return rewritten(graph, pack, shared)


def _concatenated(factors: Iterable[Node]) -> set[Node]:
    """Returns the concatenations in factors that contain a reduction, scan or product, such as padded running sums."""
    tops = (element(f, tuple(map(axis, range(f.rank)))).node for f in factors)
    return {top for top in tops if isinstance(top, ir.Concat) and not is_read(top)}


def _packed(i: Interner, node: Contract, layouts: Layouts, wanted: str) -> Node | None:
    """Returns a product with one or both factors copied to another memory layout, or None if no factor is copied."""
    if wanted == "swapped":
        b, a = (_transposed(i, f) for f in (node.a, node.b))
        swapped = i.contract(a, b, node.precision)
        return _transposed(i, _packed(i, swapped, layouts, "depth") or swapped)
    last, moves = node.rank - 1, (_moves_first(node, layouts, wanted), _moves_second(node, layouts, wanted))
    if not any(moves):
        return None
    second, scale = taken_out(i, node) if moves[1] else (node.b, None)
    turn = wanted == "any" and is_along_rows(node.a, layouts) and _has_aligned_rows(_transposed(i, node.a))
    first, along = (_transposed(i, node.a), last - 1) if moves[0] and turn else (node.a, last)
    # if the copies have rows along other axes than the depth, they need no zeros
    apart = wanted == "columns" or along != last and _has_aligned_rows(second)
    missing = Dim.of(0 if apart else -int(node.a.shape[-1]) % (ALIGNMENT // node.a.dtype.bytes))
    sides = zip((first, second), (along, last - 1), moves)
    a, b = (_copied(i, f, k, missing, wanted) if moved else padded(i, f, k, missing, 0.0) for f, k, moved in sides)
    a = _transposed(i, a) if along != last else a
    made = i.contract(a, b, node.precision)
    return made if scale is None else scaled(i, made, scale)


def _has_aligned_rows(factor: Node) -> bool:
    """Checks whether the last axis of an array is a multiple of 16 bytes long."""
    return int(factor.shape[-1]) * factor.dtype.bytes % ALIGNMENT == 0


def _moves_first(node: Contract, layouts: Layouts, wanted: str) -> bool:
    """Checks whether to copy the first factor of a product."""
    # each column of the result uses each element of the first factor once
    last, columns = node.rank - 1, node.shape[-1].constant or 0
    if not (is_read(node.a) and is_read(node.b)) or fits(node.a, last, layouts, wanted):
        return False
    # two loads and a test for each element, or a load of its own for each element
    if any(isinstance(n, ir.Concat) for n in made_of(node.a)) or is_rolled(node.a, last, layouts):
        return columns >= REUSE_OF_COMPUTED and _is_large(node, WORTH_F32)
    reuse, worth = _least(node)
    if wanted == "depth" and node.precision != "tf32":  # a product of TF32 parts
        found = places(node.a, layouts)
        scattered = found is not None and 1 not in found[1][-2:]  # no neighbouring elements, as in x[:, ::2]
        return columns >= (reuse if scattered else REUSE_OF_ASYNC) and _is_large(node, WORTH_F32)
    if fits(node.a, last, layouts, wanted, ASYNC):  # the hardware can copy the rows as they are
        reuse = REUSE_OF_ASYNC
    elif wanted == "any" and not is_along_depth(node.a, last, layouts, ASYNC):  # each element is a load of its own
        return columns >= REUSE_OF_COMPUTED and _is_large_for_single(node)
    return columns >= reuse and _is_large(node, worth)


def _moves_second(node: Contract, layouts: Layouts, wanted: str) -> bool:
    """Checks whether to copy the second factor of a product."""
    # each row of the result uses each element of the second factor once
    depth, rows = node.rank - 2, node.shape[-2].constant or 0
    if wanted == "depth" and node.precision != "tf32":  # the copy pays, or `_cheapest` would have chosen another layout
        return _is_large(node, WORTH_OF_PARTS) and not is_along_depth(node.b, depth, layouts)
    if not is_read(node.b):
        return False
    reuse, worth = _least(node)
    computed = places(node.b, layouts) is None
    if wanted == "any" and not computed and not fits(node.b, depth, layouts, wanted, ASYNC):
        return rows >= REUSE_OF_SINGLE and _is_large_for_single(node)
    if computed:
        reuse = REUSE_OF_CONVERTED if is_converted(node) else min(reuse, REUSE_OF_COMPUTED)
    if computed or wanted == "any":
        worth = min(worth, WORTH_COMPUTED)
    return rows >= reuse and _is_large(node, worth) and not fits(node.b, depth, layouts, wanted)


def _least(node: Contract) -> tuple[int, int]:
    """Returns the fewest uses of an element and the fewest operations of a product that make a copy worthwhile."""
    tensor_cores = node.a.dtype.bits == 16 or node.precision == "tf32"
    return (REUSE, WORTH) if tensor_cores else (REUSE_OF_F32, WORTH_F32)


def _wanted(node: Contract, layouts: Layouts, chip: Chip, parts: bool) -> str:
    """Returns the best layout for the factors of a product, such as "depth": contiguous along the summed axis."""
    if node.a.dtype != f32:
        # "any": each factor is contiguous along one of its last two axes; "": the layout does not matter
        return "any" if node.a.dtype.is_float and node.a.dtype.bits == 16 else ""
    if node.precision.startswith("tf32"):
        return "depth"  # contiguous along the summed axis
    if not (parts and suits_parts(node)):
        return "columns"  # the second factor is contiguous along its last axis
    return "depth" if is_along_depth(node.b, node.rank - 2, layouts) else _cheapest(node, layouts, chip)


def _cheapest(node: Contract, layouts: Layouts, chip: Chip) -> str:
    """Returns the layout of the factors for which the estimated time of a product is least."""
    *batch, m, n, depth = map(int, (*node.shape, node.a.shape[-1]))

    def least(precision: str, m: int, n: int) -> float:
        return fastest(chip, precision, node.a.dtype, math.prod(batch), m, n, depth).time

    def copied(factor: Node) -> float:
        varies = {*range(factor.rank)}.difference(_repeated(factor))
        elements = math.prod(int(factor.shape[k]) for k in varies)
        # The time depends on the bytes moved. For few rows, it exceeds the time of the product.
        return time_of_copy(chip, elements)

    apart = not fits(node.b, node.rank - 2, layouts, "columns")
    times = {
        "depth": least("tf32x3", m, n) + copied(node.b),  # the second factor is not contiguous along the depth
        "columns": least("ieee", m, n) + (copied(node.b) if apart else 0.0),
    }
    if n >= SIDE_OF_PARTS:
        # A factor that is not stored is computed again for each tile, so the estimate for swapped factors adds a copy.
        stored = not is_read(node.a) or places(node.a, layouts) is not None
        suits = stored and is_along_depth(node.a, node.rank - 1, layouts)
        times["swapped"] = least("tf32x3", n, m) * SWAPPED + (0.0 if suits else copied(node.a))
    return min(times, key=lambda way: times[way])


def _transposed(i: Interner, x: Node) -> Node:
    """Transposes the last two axes of an array."""
    index = (*map(axis, range(x.rank - 2)), axis(x.rank - 1), axis(x.rank - 2))
    if isinstance(x, ir.View) and x.x.rank == x.rank and x.index == index:
        return x.x  # transposed twice
    return i.view(x, (*x.shape[:-2], x.shape[-1], x.shape[-2]), index)


def suits_parts(node: Contract) -> bool:
    """Checks whether a product of f32 arrays is large enough to be computed as a sum of products of TF32 parts
    (f32_products.py).
    """
    *_, m, n, depth = sizes = [e.constant or 0 for e in (*node.shape, node.a.shape[-1])]
    large = m >= SIDE_OF_PARTS and n >= COLUMNS_OF_PARTS and 2 * math.prod(sizes) >= WORTH_OF_PARTS
    return node.precision == "f32" and depth >= LEAST_DEPTH and large


def in_loops(graph: Graph, parts: bool) -> set[Node]:
    """Returns the matrix products that stay in one loop with another reduction. In attention, for example, a maximum
    shares the loop of two products.

    If products of f32 arrays can be computed from TF32 parts, their loop is divided into one kernel for each product.
    If the scores (the results of the first product) would take too much memory, a loop of products stays one kernel. A
    mask that depends on positions, such as a causal mask, lets one kernel skip blocks of scores. A loop with such a
    mask is therefore not divided.
    """
    found: set[Node] = set()
    for node in {group.node for groups in loops(graph).values() for group in groups}:
        made = made_of(node.a)
        products = [node, *(n for n in made if isinstance(n, Contract))]
        divided = parts and all(map(suits_parts, products)) and math.prod(map(int, node.a.shape)) <= LARGEST
        if not divided or any(isinstance(n, ir.Index) for n in made):
            found.update(products)
    return found


def _is_large(node: Contract, worth: int, depth: int | None = None) -> bool:
    """Checks whether a product is large enough for a copy of one factor to save time."""
    sizes = [int(e) for e in (*node.shape, node.a.shape[-1]) if e.constant is not None]
    deep = len(sizes) > node.rank and (sizes[-1] >= (depth or DEPTH) or node.a.dtype == f32)
    return deep and 2 * math.prod(sizes) >= worth


def _is_large_for_single(node: Contract) -> bool:
    """Checks whether a product is large enough for a copy of a factor whose elements need a load each."""
    return _is_large(node, WORTH_OF_SINGLE, DEPTH_OF_SINGLE) or _is_large(node, WORTH_OF_COPY, DEPTH_OF_COPY)


def _copied(i: Interner, factor: Node, depth: int, missing: Dim, wanted: str) -> Node:
    """Returns a copy of a factor, padded with zeros along the summed axis."""
    repeated = _repeated(factor)
    if not repeated:
        return _aligned(i, padded(i, factor, depth, missing, 0.0), depth, wanted)
    kept = [k for k in range(factor.rank) if k not in repeated]
    first = tuple(axis(kept.index(k)) if k in kept else ZERO for k in range(factor.rank))
    one = i.view(factor, tuple(factor.shape[k] for k in kept), first)  # copied once for all products of a batch
    copied = _copied(i, one, depth - len(repeated), missing, wanted)
    shape = tuple(e + missing if k == depth else e for k, e in enumerate(factor.shape))
    return i.view(copied, shape, tuple(map(axis, kept)))


def _repeated(factor: Node) -> list[int]:
    """Returns the batch axes along which a factor has equal elements."""
    varies = {s for d in factor.index for s in d.symbols()} if isinstance(factor, ir.View) else None
    return [k for k in range(factor.rank - 2) if varies is not None and axis_symbol(k) not in varies]


def _aligned(i: Interner, factor: Node, depth: int, wanted: str) -> Node:
    """Copies a factor, so that each row begins at a multiple of 16 bytes."""
    if depth == factor.rank - 1 or wanted == "columns" or wanted == "any" and _has_aligned_rows(factor):
        return i.apply("cast", factor.dtype, factor.shape, (factor,))
    turned = _transposed(i, factor)  # the summed axis becomes the last axis of the copy
    return _transposed(i, i.apply("cast", factor.dtype, turned.shape, (turned,)))
