"""graph → graph: computes a matrix product of f32 arrays on tensor cores, as the sum of three products of TF32 parts.

    %0: f32[4096, 4096] = contract x, w {precision = f32}       becomes       precision = tf32x3

Each element of a factor is written as a sum of two TF32 numbers, because tensor cores can multiply TF32 numbers. On a
Hopper GPU three products of TF32 numbers take less time than one product on the units for f32. The sum of the three
TF32 products is as exact as one f32 product (minitri/base/tf32_splitting.py).

Infinities, NaN and numbers of 2**101 and more cannot be split into TF32 parts. If a factor contains a number that
cannot be split into TF32 parts, the sum of the TF32 products is not finite. If the sum of the TF32 products is not
finite, the f32 factors themselves are multiplied (minitri/base/numpy_array_operations.py). The file
deferred_tf32_checks.py replaces the checks of TF32 sums inside a loop by one check after the loop.

The pass `f32-products` takes a graph, and the strides of inputs that are not contiguous. The pass gives each product
without a `precision` argument one of two precisions: "tf32x3" or "ieee". A product gets the precision "ieee" if one of
its sizes is unknown or small, or if the chip has no fast tensor cores. A product gets the precision "ieee" if its
second factor is not contiguous along the depth (the summed axis). The TF32 parts of the second factor are stored in
shared memory. Tensor cores can read TF32 blocks from shared memory only if the summed axis is contiguous in each block.
The TF32 parts of the first factor stay in registers, so the first factor may have any layout. The file pack_operands.py
copies a large second factor, so that the copy is contiguous along the depth.

The two products of attention are computed from TF32 parts in separate kernels. A single loop that computes both
products of attention would need too many registers. One kernel stores the first product of attention, the matrix of
scores. Another kernel computes the second product of attention, and loads the matrix of scores from memory.
"""

from minitri.graph.ir import Contract, Graph, Interner, Layouts, Node
from minitri.graph.rewrite import rewritten
from minitri.optimize.factor_layouts import is_along_depth
from minitri.optimize.pack_operands import in_loops, suits_parts


def on_tensor_cores(graph: Graph, layouts: Layouts, fast: bool) -> Graph:
    """Returns the graph in which each product with the default precision "f32" gets the precision "tf32x3" or "ieee".
    The argument `fast` says whether three products of TF32 numbers take less time on the chip than one product in f32.
    """
    looped = in_loops(graph, fast)

    def chosen(i: Interner, node: Node, made: Node) -> Node | None:
        if not isinstance(made, Contract) or made.precision != "f32":
            return None
        suits = fast and node not in looped and suits_parts(made) and is_along_depth(made.b, made.rank - 2, layouts)
        return i.contract(made.a, made.b, "tf32x3" if suits else "ieee")

    return rewritten(graph, on_tensor_cores, chosen)
