"""How the factors of a matrix product lie in memory: along which axis their elements are neighbours, and whether rows
begin at multiples of 16 bytes.

    x.mT @ y, x: bf16[4096, 200]      the first factor is contiguous along its rows axis, not along the depth

The *depth* of a product is the axis that the product sums over. The functions take a factor, which is a node of the
graph, and the strides of inputs that are not contiguous. The functions follow views and elementwise operations back to
the arrays that the factor reads. The pass `pack-operands` decides with these functions which factors to copy.
"""

from collections.abc import Iterator

from minitri.base.dims import ZERO, Dim
from minitri.base.intervals import joined
from minitri.base.types import DType
from minitri.graph import ir
from minitri.graph.ir import Layouts, Node, axis, axis_symbol, contiguous
from minitri.graph.scalar_form import element
from minitri.hardware.targets import ALIGNMENT

LONG_ROW = 512  # elements; the rows of a temporary are padded if they are at least this long


def fits(factor: Node, depth: int, layouts: Layouts, wanted: str, alignment: int = ALIGNMENT) -> bool:
    """Checks whether a product can read a factor without a copy of the factor."""
    found = places(factor, layouts)  # `depth` is the axis that the product sums over
    if wanted == "columns":
        return depth == factor.rank - 1 or found is not None and found[1][depth] != 1
    if found is None:
        return False
    start, steps = found
    row = 2 * factor.rank - 3 - depth  # the axis that is not `depth`, of the last two axes
    if steps[depth] != 1 and (wanted == "depth" or steps[row] != 1):
        return False
    # rows must begin at multiples of `alignment` bytes
    return all(n * factor.dtype.bytes % alignment == 0 for n in (start, *(s for s in steps if s != 1)))


def is_along_depth(factor: Node, depth: int, layouts: Layouts, alignment: int = ALIGNMENT) -> bool:
    """Checks whether a factor reads only arrays that are contiguous along the summed axis `depth`. If an array varies
    along `depth`, its rows must begin at multiples of `alignment` bytes. An array may have any layout if its index does
    not depend on the summed axis.
    """

    def suits(node: Node, offset: Dim) -> bool:
        if axis_symbol(depth) not in offset.symbols():
            return True
        step, start = offset.coefficient(axis_symbol(depth)) or (ZERO, ZERO)
        return step == 1 and all(c * node.dtype.bytes % alignment == 0 for _, c in start.terms)

    return all(suits(*read) for read in _reads(factor, tuple(map(axis, range(factor.rank))), layouts))


def is_along_rows(factor: Node, layouts: Layouts) -> bool:
    """Checks whether a first factor is contiguous along its rows axis instead of the depth, as in `(x + y).mT`."""
    last = factor.rank - 1
    return is_along_depth(factor, last - 1, layouts) and not is_along_depth(factor, last, layouts, 1)


def is_rolled(factor: Node, depth: int, layouts: Layouts) -> bool:
    """Checks whether the rows of a factor wrap around, as in roll(x, 1), or begin at unaligned addresses, as in a
    reshape of rows of odd length.
    """
    reads = _reads(factor, tuple(map(axis, range(factor.rank))), layouts)
    pairs = ((x, p) for x, offset in reads for p in offset.pairs() if axis_symbol(depth) in p.a.symbols())
    aligned = (
        p.a.coefficient(axis_symbol(depth)) == (1, 0) and (p.b * x.dtype.bytes) % ALIGNMENT == 0 for x, p in pairs
    )
    return not all(aligned)


def places(factor: Node, layouts: Layouts) -> tuple[int, list[int]] | None:
    """Returns a factor's offset and strides in memory, or None if it is computed or its spacing is uneven."""
    axes, index = [axis_symbol(k) for k in range(factor.rank)], tuple(map(axis, range(factor.rank)))
    if not isinstance(element(factor, index).node, ir.Input):  # the factor is computed
        return None
    ((_, offset),) = _reads(factor, index, layouts)
    found = [offset.coefficient(a) for a in axes]
    steps = [int(c[0]) for c in found if c is not None and c[0].constant is not None]
    start = offset.substitute(dict.fromkeys(axes, 0)).constant
    # None if the elements are not evenly spaced
    return (start, steps) if start is not None and len(steps) == len(axes) else None


def _reads(node: Node, index: tuple[Dim, ...], layouts: Layouts) -> Iterator[tuple[Node, Dim]]:
    """Yields the arrays from which one element of a node is computed, each with the memory offset of the read."""
    node, index = element(node, index)
    if isinstance(node, (ir.Apply, ir.Concat)) and not ir.is_copy(node):
        for operand in ir.children(node):
            yield from _reads(operand, index, layouts)
            if isinstance(node, ir.Concat):  # the next operand begins where this one ends
                index = tuple(d - operand.shape[k] if k == node.axis else d for k, d in enumerate(index))
    elif not isinstance(node, (ir.Const, ir.Index)):
        strides = layouts.get(node.name) if isinstance(node, ir.Input) else row_strides(node.shape, node.dtype)
        yield node, joined(sum((d * s for d, s in zip(index, strides or contiguous(node.shape))), Dim.of(0)))


def row_strides(shape: tuple[Dim, ...], dtype: DType) -> tuple[Dim, ...]:
    """Returns the strides of a temporary array that a matrix product loads. Each long row of the array begins at a
    multiple of 16 bytes. The pass `output-layouts` pads the rows only if the kernel of the array stores nothing else.
    """
    row = shape[-1].constant if shape else None
    gap = 0 if row is None else -row % (ALIGNMENT // dtype.bytes)
    return contiguous((*shape[:-1], shape[-1] + gap)) if row and row >= LONG_ROW else contiguous(shape)
