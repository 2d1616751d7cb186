"""Products and reductions that walk one axis together: that axis, and what a program holds whole for it.

    o[i, l] = sum over r of exp(s[i, r] - m[i]) * v[r, l]      loop r, held l: one program has all of l,
    n[i]    = sum over r of exp(s[i, r] - m[i])                so that n, which lacks it, is made and stored once

In: a kernel. Out: names of axes. Whether the group can be made in one go is minitri/optimize/online_reductions/kernels.py's
question, and which parts of a graph become one minitri/optimize/fusion/shared_loop.py's.
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
    """The other axes of those products, but for their rows: nothing if none share a loop."""
    loop = loop_of_products(kernel)
    dots = [op for op in kernel.body if isinstance(op, Dot)] if loop is not None else []
    return {name for d in dots for name in (*d.tile, d.over)} - {d.tile[0] for d in dots} - {loop or ""}
