"""Products and reductions that loop over one axis together: that axis, and the axes that a program keeps complete.

    o[i, l] = sum over r of exp(s[i, r] - m[i]) * v[r, l]      loop r, held l: one program has all of l,
    n[i]    = sum over r of exp(s[i, r] - m[i])                so that n, which lacks it, is made and stored once

In: a kernel. Out: names of axes. minitri/optimize/online_reductions/kernels.py decides whether the group can run in one
loop, and minitri/optimize/fusion/one_kernel.py which parts of a graph become one kernel.
"""

from __future__ import annotations

from minitri.kernels.ir import Dot, Kernel, Reduce


def loop_of_products(kernel: Kernel) -> str | None:
    """The axis that products and other reductions walk together, if there is one."""
    reduces = {a for op in kernel.body if isinstance(op, Reduce) for a in op.over}
    over = {op.over for op in kernel.body if isinstance(op, Dot)}
    columns = {op.tile[1] for op in kernel.body if isinstance(op, Dot)}
    shared = reduces & (over | columns)
    return next(iter(shared)) if len(shared) == 1 else None


def held(kernel: Kernel) -> set[str]:
    """The other axes of these products, except their rows. It is empty if no products share a loop."""
    loop = loop_of_products(kernel)
    dots = [op for op in kernel.body if isinstance(op, Dot)] if loop is not None else []
    return {name for d in dots for name in (*d.tile, d.over)} - {d.tile[0] for d in dots} - {loop or ""}
