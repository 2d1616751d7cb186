"""The functions of the language that are not elementwise: each makes graph nodes.

    squeeze(x, axis=0)      calls `squeeze(typer, x=…, axis=…)` of views.py

In: a Typer and the bound arguments of a call. Out: an Array. A function has the name and the parameters that
minitri/language/signatures.toml gives it. Functions that differ in one operator, such as sum and prod, are one Python
function with the keyword `op`. A parameter that is annotated as an `Array` gets its argument as an array, and one that is
annotated as `Strong` as an array that is not weak. All other arguments arrive as they are in the program.
"""

from collections.abc import Callable
from functools import partial

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
from minitri.graph.typing_rules import Array, Scope, Strong, Typer, Value
from minitri.language.signatures import SIGNATURES

_MODULES = (axes, dtype_queries, einsum, gathers, joining, linear_algebra, making, reductions, scans, statistics, views)
FUNCTIONS = {name: function for m in _MODULES for name, function in vars(m).items() if name in SIGNATURES}
FUNCTIONS |= {**reductions.BY_OPERATOR, **scans.BY_OPERATOR, **statistics.BY_OPERATOR}


def call(t: Typer, name: str, arguments: Scope) -> Value:
    """The value of a function of the language for these arguments by name."""
    function: Callable[..., Value] = FUNCTIONS[name]
    kinds = (function.func if isinstance(function, partial) else function).__annotations__
    convert = {Array: t.array, Strong: t.strong}
    return function(t, **{p: convert[kinds[p]](v) if kinds[p] in convert else v for p, v in arguments.items()})
