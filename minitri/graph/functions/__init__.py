"""Defines the functions of the language that are not elementwise. Each function of this folder makes graph nodes.

    squeeze(x, axis=0)      calls `squeeze(typer, x=…, axis=…)` of views.py

A function of this folder takes a `Typer` (the object that makes graph nodes), and a value for each parameter. It
usually returns an `Array`. The file minitri/language/signatures.toml lists the name and the parameters of each
function. For example, sum and prod differ only in an operator, so one Python function with the keyword `op` defines
both. The table `BY_OPERATOR` of a file maps names such as sum and prod to the Python function that they share. A
parameter that is annotated as `Array` gets its argument as an array. A parameter that is annotated as `Strong` gets its
argument as an array with a fixed dtype (an array that is not weak). A parameter without the annotation `Array` or
`Strong` gets its argument unchanged.
"""

from collections.abc import Callable
from typing import Any

from minitri.graph.functions import (
    creation_and_dtypes,
    indexing,
    join_and_split,
    linear_algebra,
    matmul,
    reductions,
    views,
)
from minitri.language.signatures import SIGNATURES

_MODULES = (creation_and_dtypes, indexing, join_and_split, linear_algebra, matmul, reductions, views)
_NAMED = [*map(vars, _MODULES), join_and_split.BY_OPERATOR, reductions.BY_OPERATOR]
FUNCTIONS: dict[str, Callable[..., Any]] = {n: f for named in _NAMED for n, f in named.items() if n in SIGNATURES}
