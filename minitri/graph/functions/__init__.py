"""The functions of the language that are not elementwise, as graph nodes.

In: a Typer and the bound arguments of a call. Out: an Array. `FUNCTIONS` finds them by name.
"""

from minitri.graph.functions import (
    axes,
    contractions,
    diagonals,
    differences,
    einsum,
    inspection,
    making,
    neighbours,
    products,
    ranges,
    reductions,
    repeating,
    searching,
    stacks,
    views,  # fmt: skip
)
from minitri.graph.functions.registry import FUNCTIONS

__all__ = [
    "FUNCTIONS", "axes", "contractions", "diagonals", "differences", "einsum", "inspection", "making", "neighbours", "products", "ranges",
    "reductions", "repeating", "searching", "stacks", "views",
]  # fmt: skip
