"""Finds out whether a kernel's results depend on its reductions, so that the kernel must read its elements twice.

    x / sum(x, axis=1)            each result depends on the sum of its row
    sum(x, axis=1), 2 * x         a loop that adds up a row can store 2 * x at once

The functions `streams_results` and `is_chained` help to choose a schedule for reductions (reductions.py). The number
and the length of the rows do not affect the results of these two functions.
"""

from minitri.kernels.ir import Kernel, Reduce, Scan, Store, needed


def streams_results(kernel: Kernel) -> bool:
    """Checks whether a loop that reduces a row can also store results with the length of the row. For example, one loop
    can compute `sum(x, axis=1)` and store `2 * x`. Returns False if a stored row depends on a reduction. Returns False
    if one reduction uses the result of another reduction. For example, a variance uses a mean.
    """
    reduced = {a.name for a in kernel.reduced}
    stores = [op for op in kernel.body if isinstance(op, Store) and reduced & op.indexed_by]
    waits = any(isinstance(o, (Reduce, Scan)) for op in stores for o in needed(op))
    return bool(stores) and not waits and not is_chained(kernel)


def is_chained(kernel: Kernel) -> bool:
    """Checks whether a reduction uses the result of another reduction, as a variance uses the mean. If a reduction uses
    the result of another, a kernel must read the elements twice or correct its partial sums.
    """
    reductions = {op for op in kernel.body if isinstance(op, Reduce)}
    return any(not reductions.isdisjoint(needed(op.x)) for op in reductions)
