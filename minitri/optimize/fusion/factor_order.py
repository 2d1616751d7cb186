"""Chooses which factor of a matrix product a kernel multiplies first: a computed factor comes before a loaded factor.

    x[i, r] * cast(w[r, j])      becomes      cast(w[r, j]) * x[i, r], in tiles [j, r] and [r, i]

The order of a kernel's axes decides which factor is the first operand of a multiplication. The function `in_order`
exchanges the row axis and the column axis of a product in two cases. In the first case, the first factor is loaded and
the second factor is computed. For example, the second factor can be computed from 8-bit weights, while the first factor
is only loaded. Tensor cores of Hopper GPUs take computed values from registers, but only as the first operand of a
multiplication. The second case is a product of TF32 parts whose result is stored transposed. For example, the pass
`pack-operands` writes `x @ w` as `(w.mT @ x.mT).mT`, because only the first factor can have any layout. In the order of
the axes of the result, a kernel would multiply `x` first again. The program f32 201/71 of `minitri bench --random`, with
such a product of 512 rows, then takes 978 microseconds instead of 435 (H200).
"""

from minitri.graph.ir import Contract, Input, Node, contiguous
from minitri.kernels.ir import Buffer, Kernel, Load, reads_bytes
from minitri.kernels.lower_graph import build
from minitri.optimize.fusion.shared_axes import FusedIndexing
from minitri.optimize.split_k import FEW_ROWS


def in_order(part: FusedIndexing) -> FusedIndexing:
    """Chooses the order of the factors in the products of a kernel, and returns the `FusedIndexing` of the kernel. The
    kernel computes transposed products if that is faster, or if `pack-operands` has chosen this order. Products that
    share a loop with other reductions are never transposed.
    """
    contracts = any(isinstance(n, Contract) and not part.is_leaf(n) for n in part.demands)
    if contracts and part.loop is None:
        kernel = trial_kernel(part)
        part.exchanged = kernel.dots[0].tile if _is_second_computed(kernel) or _is_reversed(kernel) else ()
    return part


def trial_kernel(part: FusedIndexing) -> Kernel:
    """Builds the kernel of a group of graph nodes, with a dummy in place of every buffer. From the ops of the kernel,
    the caller sees which factors are computed and which are loaded.
    """
    return build("k0", part, lambda node: [_any_buffer(node)], {})


def _any_buffer(node: Node) -> Buffer:
    role = "scalar" if isinstance(node, Input) and node.scalar else "input"
    return Buffer("x", node.dtype, node.shape, contiguous(node.shape), role)


def _is_second_computed(kernel: Kernel) -> bool:
    """Checks whether transposing products is worthwhile: first factors are loaded, and a second factor is computed."""
    first, second = ([not isinstance(f, Load) for f in factors] for factors in zip(*((d.a, d.b) for d in kernel.dots)))
    # all second factors must consist of 16-bit floats
    halves = all(d.b.dtype.is_float and d.b.dtype.bits == 16 for d in kernel.dots)
    rows = next(a.extent.constant for a in kernel.axes if a.name == kernel.dots[0].tile[0])
    # a product with few rows is worth transposing only if a factor is computed from 8-bit values
    worth = rows is None or rows > FEW_ROWS or all(reads_bytes(d) for d in kernel.dots)
    return halves and any(second) and not any(first) and worth


def _is_reversed(kernel: Kernel) -> bool:
    """Checks whether a kernel would multiply the second factor of a product of TF32 parts first."""
    names, (first, *others) = [a.name for a in kernel.axes], kernel.dots
    row, column = first.tile
    return not others and first.precision == "tf32x3" and names.index(row) > names.index(column)
