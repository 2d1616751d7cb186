"""Predicts how many bytes a program reads and writes, and how many operations the program computes.

The function `graph_work` makes a prediction from the graph, `kernel_work` from the kernels, and `tile_work` from a tile
program. The sizes of all arrays must be known. A prediction is a `Work`: numbers of bytes, and numbers of operations.

`graph`: counts one read of each needed input, one write of each output, and one computation of each node.
`kernels`: as `graph`, plus the reads and writes of temporary arrays between kernels (kernels/memory_traffic.py).
`tiles`: as `kernels`, plus repeated reads and unused elements. For example, x is read once for each column of tiles. A
    kernel with two loops over a row reads the row twice. Elements past the end of an axis are computed too.

If several tiles read the same bytes, a cache serves most of the repeated reads.

An operator on floats counts as one operation. "Special" operators, such as exp, are also counted separately. Each
multiplication in a matrix product counts as two operations. Selections, conversions, comparisons and integer arithmetic
are not counted.
"""

import itertools
import math
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minitri.base.dims import Dim
from minitri.base.operators import OPERATORS
from minitri.base.types import DType
from minitri.graph import ir as graph_ir
from minitri.kernels.ir import Compute, Dot, Kernel, Load, Op, Plan, Reduce, Scan, Store
from minitri.kernels.memory_traffic import traffic
from minitri.tiles.ir import Loop, Program, TileAxis, index_axes

Sizes = Mapping[str, int]
SAMPLES = 32


class Work(NamedTuple):
    """The bytes that are read, the bytes that are written, and the number of operations of each arithmetic unit.

    The units are "f16" and "tf32" (products of matrices), "f32", "f64" and "special". Special operations, such as exp,
    are counted twice: as "special" and as operations of f32 or f64.
    """

    read: int
    written: int
    operations: Mapping[str, int] = {}

    @property
    def bytes(self) -> int:
        return self.read + self.written

    @property
    def total(self) -> int:
        """The total number of operations. The unit "special" is not added, because the units "f32" and "f64" already
        count its operations.
        """
        return sum(n for unit, n in self.operations.items() if unit != "special")

    @property
    def intensity(self) -> float:
        """The arithmetic intensity: operations for each byte that is read or written."""
        return self.total / self.bytes if self.bytes else 0.0


def together(works: Iterable[Work]) -> Work:
    works = list(works)
    return Work(sum(w.read for w in works), sum(w.written for w in works), _added(w.operations for w in works))


def _added(parts: Iterable[Mapping[str, int]]) -> Counter[str]:
    return sum(map(Counter, parts), Counter[str]())


def unit(dtype: DType, precision: str = "ieee") -> str:
    """Returns the name of the arithmetic unit that multiplies matrices of a dtype."""
    if dtype.is_float and dtype.bits == 16:
        return "f16"
    return "tf32" if dtype.name == "f32" and precision.startswith("tf32") else dtype.name


def _elementwise(op: str, dtype: DType, count: int) -> dict[str, int]:
    if op in ("cast", "where") or not dtype.is_float:
        return {}
    name = dtype.name if dtype.name == "f64" else "f32"
    special = {"special": count} if OPERATORS[op].cost == "special" else {}
    return {name: count, **special}


def _operations(op: graph_ir.Node | Op, count: int) -> Mapping[str, int]:
    """Counts the operations that each arithmetic unit executes for a graph node or a kernel op."""
    # `count` says how many times the node or op applies its operation, such as an addition
    match op:
        case graph_ir.Apply() | Compute():
            return _elementwise(op.op, op.args[-1].dtype, count)
        case graph_ir.Reduce() | graph_ir.Scan() | Reduce() | Scan():
            return _elementwise("add", op.x.dtype, count)
        case graph_ir.Contract() | Dot():
            # for a matrix product, `count` is the number of multiplications
            products = 3 if op.precision.startswith("tf32x3") else 1  # tf32x3 takes three products of TF32
            return {unit(_narrow(op.a), op.precision): 2 * count * products}
    return {}


# ---- the graph -----------------------------------------------------------------------------


def graph_work(graph: graph_ir.Graph, sizes: Sizes) -> Work:
    needed = _needed(graph, sizes)
    arrays = [n for n in needed if isinstance(n, graph_ir.Input) and not n.scalar]
    written = sum(_count(n.shape, sizes) * n.dtype.bytes for n in graph.outputs)
    operations = _added(_operations(n, _computed_in_graph(n, count, sizes)) for n, count in needed.items())
    return Work(sum(needed[n] * n.dtype.bytes for n in arrays), written, operations)


def _needed(graph: graph_ir.Graph, sizes: Sizes) -> dict[graph_ir.Node, int]:
    """Returns how many elements of each node the outputs of the graph need."""
    needed = dict.fromkeys(graph.nodes(), 0)
    needed |= {n: _count(n.shape, sizes) for n in graph.outputs}
    for node in reversed(list(needed)):
        for operand in graph_ir.children(node):
            whole = _count(operand.shape, sizes)
            all_of_it = isinstance(node, (graph_ir.Reduce, graph_ir.Scan, graph_ir.Contract)) and needed[node]
            # a slice or a gather, for example, needs only some elements of its operand
            needed[operand] = min(whole, needed[operand] + (whole if all_of_it else needed[node]))
    return needed


def _computed_in_graph(node: graph_ir.Node, needed: int, sizes: Sizes) -> int:
    """Returns how many times a node applies its operation, such as an addition."""
    match node:
        case graph_ir.Reduce() | graph_ir.Scan():
            return _count(node.x.shape, sizes)
        case graph_ir.Contract():
            return node.a.shape[-1].evaluate(sizes) * _count(node.shape, sizes)  # multiplications
    return needed  # the number of result elements that the node must compute


def _narrow(node: graph_ir.Node | Op) -> DType:
    """Returns the dtype of a factor of a matrix product, before the factor is cast to a wider dtype."""
    # in the graph, for example, f16 factors are first converted to f32
    while isinstance(node, graph_ir.View) or (isinstance(node, graph_ir.Apply) and node.op == "cast"):
        if isinstance(node, graph_ir.Apply) and node.dtype.bits == 16:
            return node.dtype
        node = node.x if isinstance(node, graph_ir.View) else node.args[0]
    return node.dtype


def _count(shape: Iterable[Dim], sizes: Sizes) -> int:
    return math.prod(e.evaluate(sizes) for e in shape)


# ---- kernels -------------------------------------------------------------------------------


def kernel_work(plan: Plan, sizes: Sizes) -> dict[str, Work]:
    """Returns the bytes and operations of each kernel, by the name of the kernel."""
    moved = {t.kernel: t for t in traffic(plan, sizes)}
    return {k.name: Work(moved[k.name].read, moved[k.name].written, _kernel(k, sizes)) for k in plan.kernels}


def _kernel(kernel: Kernel, sizes: Sizes) -> Mapping[str, int]:
    extents = {a.name: a.extent.evaluate(sizes) for a in kernel.axes}
    if any(extents[a.name] == 0 for a in kernel.parallel):
        return {}  # no grid program runs, so values without axes are not computed either
    return _added(_operations(op, math.prod(extents[a] for a in _computed(op))) for op in kernel.body)


def _computed(op: Op) -> set[str]:
    """Returns the axes of an op, including the axes that the op reduces or sums over."""
    match op:
        case Reduce() | Scan():
            return set(op.x.axes)  # the reduced axes too
        case Dot():
            return {*op.axes, op.over}  # the summed axis too
    return set(op.axes)


# ---- tiles ---------------------------------------------------------------------------------


def tile_work(program: Program, sizes: Sizes) -> Work:
    """Returns the bytes that all grid programs of a kernel load and store, and the operations that they compute."""
    tiles = {a.name: a.tiles.evaluate(sizes) for a in program.axes}
    extents = {a.name: a.extent.evaluate(sizes) for a in program.axes}
    lanes = {a.name: tiles[a.name] * a.lanes for a in program.axes}
    if any(tiles[a.name] == 0 for a in program.grid):
        return Work(0, 0)
    moved: Counter[type] = Counter()
    operations: Counter[str] = Counter()
    for stmt in program.body:
        inside, share = (stmt.body, share_of_blocks(program, stmt, sizes)) if isinstance(stmt, Loop) else ((stmt,), 1.0)
        repeated = {a.name for a in program.grid} | (set(stmt.axes) if isinstance(stmt, Loop) else set())
        for op in inside:
            if isinstance(op, (Load, Store)):
                moved[type(op)] += round(share * _repetitions(_along(op), extents, repeated, tiles)) * op.dtype.bytes
            operations.update(_operations(op, round(share * _repetitions(_computed(op), lanes, repeated, tiles))))
    return Work(moved[Load], moved[Store], dict(operations))


def share_of_blocks(program: Program, loop: Loop, sizes: Sizes) -> float:
    """Returns the fraction of a loop's blocks that a grid program computes on average, from 0 to 1.

    For example, the loop over keys in causal attention computes about 0.5 of its blocks, because blocks with only
    masked elements are skipped. The function computes the average over at most `SAMPLES` tiles along each axis.
    """
    if not (bounds := [d for d in (loop.first, loop.last) if d is not None]):
        return 1.0
    axis = program.axis(loop.axes[0])
    starts = {s.name for d in bounds for s in d.symbols()} - sizes.keys()
    tiles = [a for a in program.grid if {a.name, f"{a.name}_start"} & starts]
    places = itertools.product(*(_samples(a, sizes) for a in tiles))
    extent = axis.extent.evaluate(sizes)
    blocks = [_blocks(loop, axis.block, extent, ChainMap(*place, dict(sizes))) for place in places]
    return sum(blocks) / (len(blocks) * axis.tiles.evaluate(sizes)) if axis.tiles.evaluate(sizes) else 0.0


def _samples(axis: TileAxis, sizes: Sizes) -> list[dict[str, int]]:
    """Selects at most `SAMPLES` evenly spaced tiles of an axis, and returns the start index of each tile."""
    count = axis.tiles.evaluate(sizes)
    step = -(-count // SAMPLES)  # at most 1, for all tiles, if there are at most `SAMPLES`
    return [{axis.name: k * axis.block, f"{axis.name}_start": k * axis.block} for k in range(0, count, max(step, 1))]


def _blocks(loop: Loop, block: int, extent: int, known: Sizes) -> int:
    """Returns how many blocks of a loop one grid program computes."""
    first = 0 if loop.first is None else loop.first.evaluate(known)
    last = extent if loop.last is None else loop.last.evaluate(known)
    return max(0, -(-(last - first) // block))


def _repetitions(own: set[str], counts: Sizes, repeated: set[str], tiles: Sizes) -> int:
    """Returns how many elements an op computes, loads or stores in all grid programs together."""
    # an op has all elements along its own axes, and runs again for each tile of the other axes in `repeated`
    return math.prod(counts[a] for a in own) * math.prod(tiles[a] for a in repeated - own)


def _along(op: Load | Store) -> set[str]:
    return index_axes(op) | ({a for _, v in op.picks for a in v.axes} if isinstance(op, Load) else set())
