"""The functions of the language that are not elementwise: each makes graph nodes.

    squeeze(x, axis=0)      calls `squeeze(typer, x=…, axis=…)` of views.py

In: a Typer and the bound arguments of a call. Out: an Array. A function has the name and the parameters that
minitri/language/signatures.toml gives it. Functions that differ in one operator, such as sum and prod, are one Python
function with the keyword `op`.
"""

from minitri.graph.functions import (
    axes,
    dtype_queries,
    einsum,
    gathers,
    joining,
    linear_algebra,
    making,
    reductions,
    scans,
    statistics,
    views,
)  # fmt: skip
from minitri.language.signatures import SIGNATURES

_MODULES = (axes, dtype_queries, einsum, gathers, joining, linear_algebra, making, reductions, scans, statistics, views)
FUNCTIONS = {name: function for m in _MODULES for name, function in vars(m).items() if name in SIGNATURES}
FUNCTIONS |= {**reductions.BY_OPERATOR, **scans.BY_OPERATOR, **statistics.BY_OPERATOR}
