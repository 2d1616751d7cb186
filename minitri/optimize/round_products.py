"""graph → graph: rounds the result of a product of bf16 arrays to bf16, if other kernels will read the result.

    %0: f32[M, N] = contract x, w                  %0: f32[M, N] = contract x, w
    %1: f32[M] = reduce.sum %0         becomes     %1: bf16[M, N] = cast %0
                                                   %2: f32[M, N] = cast %1
                                                   %3: f32[M] = reduce.sum %2

A row of a matrix product extends over several tiles, so the sum of a row needs all these tiles. One kernel stores the
product, and another kernel computes the sum. If a product is padded or stacked, as in `pad(x @ w, …)`, a second kernel
reads the product at shifted indices. For bf16 factors, the result `x @ w` has the dtype bf16: numpy and torch round
each element to bf16. A rounded product in memory has 2 bytes for each element instead of 4.

A product is rounded to bf16 only if its factors are bf16, and all results of the graph are bf16. A product is rounded
to bf16 only if a reduction, a scan or a concat uses its result. A product is not rounded if a further product, or a
discontinuous operation such as a comparison, uses its result.

Rounding a product, as numpy does too, changes each element by at most `2**-9` of the element's value. The error bounds
of a program include the error of rounding a product (minitri/trust/error_bounds.py). Products of f16 arrays are not
rounded to f16, because f16 cannot represent finite numbers above 65504. An f32 sum can be larger than 65504, and
rounding to f16 would make the sum infinite.
"""

from minitri.base.types import bf16, f32
from minitri.graph.ir import Contract, Graph
from minitri.graph.rewrite import rewritten
from minitri.graph.roundable_products import is_discontinuous, roundable_products, used_by


def round_products(graph: Graph) -> Graph:
    """Rounds products to bf16 if other kernels will read them."""
    found = roundable_products(graph) - used_by(graph, lambda n: isinstance(n, Contract) or is_discontinuous(n))
    if not found:
        return graph
    return rewritten(graph, round_products, lambda i, n, made: i.cast(i.cast(made, bf16), f32) if n in found else None)
