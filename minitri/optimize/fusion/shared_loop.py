"""Reductions and matrix products of one part that share a loop, as in attention.

    p = exp(s[i, r] - m[i])         loop r: the product runs over it, the sum too
    o[i, l] = sum(r) p * v[r, l]    held l: one program has all columns, so that n, which lacks
    n[i] = sum(r) p                 them, is still computed and stored once

In: the demands of a part, with the axes of its reductions. Out: `part.loop`, the axis that all of them loop over;
`part.held`, the columns that a program keeps complete; `part.inner`, the axes of products inside the loop. The one
idea: a reduction may lack an axis that every program keeps complete. Whether one loop is enough is another question
(minitri/optimize/online_reductions/kernels.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from minitri.base.types import f32
from minitri.graph.ir import Contract, Reduce, Scan
from minitri.kernels.demand import Demand, about, plain_axis
from minitri.optimize.fusion.fused_indexing import FusedIndexing

MAX_HELD = 256  # the longest axis of a product that a program holds whole, to loop over another


def find_loop(part: FusedIndexing, contracts: Sequence[Contract], mixed: bool) -> None:
    """Sets `loop`, `held` and `inner` of the part. `mixed`: it has reductions besides its products, `contracts`."""
    part.inner = {a for n in contracts for d in part.demands[n] if _reduced_axes(part, d) for a in part.over[n, d]}
    columns = {plain_axis(d.index[-1]) for n in contracts for d in part.demands[n] if not _reduced_axes(part, d)}
    part.held = {a for a in columns if a is not None and a not in part.reduced}
    loops = part.reduced - part.inner
    short = all((n := part.axes[a].constant) is not None and 1 <= n <= MAX_HELD for a in part.held | part.inner)
    floats = all(n.dtype == f32 for n in contracts)
    if mixed and contracts and len(loops) == 1 and short and floats:
        part.loop = next(iter(loops))


def runs_in_each_iteration(part: FusedIndexing, node: Reduce | Scan | Contract, demand: Demand) -> bool:
    """Whether a product is computed in each iteration of the loop.

    Its columns are the loop's, perhaps from some column on. The rest of its index is plain. A guard is about
    its rows or about its columns, so that each factor has axes of its own.
    """
    if part.loop is None or not isinstance(node, Contract) or not _reduced_axes(part, demand):
        return False
    *rest, column = demand.index
    names = [plain_axis(d) for d in rest if d != 0]
    all_ = {s.name for s in column.symbols() if s.kind == "axis"} | {*names}
    apart = set(about(demand.guards, rest)).isdisjoint(about(demand.guards, [column]))
    whole = apart and len({*names}) == len(names) and all_ - {part.loop} == set(part.parallel) - part.held
    return whole and part.loop not in names and part.column_axis(column) == part.loop  # not a diagonal


def runs_over_the_loop(part: FusedIndexing, node: Reduce | Scan | Contract, demand: Demand) -> bool:
    """Whether a reduction is computed once, over the whole loop."""
    names = {s.name for d in demand.index for s in d.symbols()}
    lacks = set(part.parallel) - names
    return part.over.get((node, demand)) == (part.loop,) and lacks <= part.held and not names & part.reduced


def _reduced_axes(part: FusedIndexing, demand: Demand) -> set[str]:
    """The reduced axes in the index of a demand."""
    return {s.name for d in demand.index for s in d.symbols()} & part.reduced
